"""The verifier: it accepts what the library writes, refuses what was tampered with, and shares no code with the learner."""

import ast
import copy
import dataclasses
import functools
import hashlib
import json
import math
import subprocess
import sys
from fractions import Fraction

import gymnasium
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from reference import kl as reference
from reference.models import BETAS, draws
from reference.verifier._radius import mixture_radius as scalar_radius
from typer.testing import CliRunner

import entropic_bpi as eb
from entropic_bpi import cli
from entropic_bpi.certificate.certificate import Certificate
from entropic_bpi.certificate.provenance import Provenance
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.verification import Verification, verify
from entropic_bpi.verification._ball import Balls, Rows, betting_radii, mixture_radii, stirling_error
from entropic_bpi.verification._explored import _bound
from entropic_bpi.verification._intervals import Interval, power
from entropic_bpi.verification._pairs import same_action

# By how much, relative to the gap, a claim must be better than it should be to be certainly refused.
UNDERSTATED = 1e-9


# -- what the library writes is accepted -----------------------------------------------------------------------


class Corridor(gymnasium.Env):
    """A black box with random starts, two kinds of ending, and a reward for stepping back to the same place."""

    observation_space = gymnasium.spaces.Discrete(3)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = int(self.np_random.random() < 0.3)
        return self.place, {}

    def step(self, action):
        if action == 1 and self.np_random.random() < 0.8:
            self.place += 1
        if self.place == 3 or (action == 0 and self.np_random.random() < 0.2):
            return 0, (1.0 if self.place == 3 else 0.25), True, False, {}
        return self.place, 0.5 * (self.place == 1), False, False, {}


def assert_accepted(certificate):
    result = verify(certificate)
    assert result.ok, result.problems
    assert result.problems == []
    if certificate.method == "kl":
        assert certificate.lower <= result.lower
        assert certificate.upper >= result.upper
        assert certificate.gap >= result.gap


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    draw=draws(),
    beta=BETAS,
    method=st.sampled_from(["kl", "kl", "kl", "verified", "sharp", "printed"]),
    successors=st.sampled_from([None, "model", "mask"]),
    pooled=st.booleans(),
    delta=st.sampled_from([0.1, 1e-3]),
    episodes=st.sampled_from([1, 7, 60, 400]),
    seed=st.integers(0, 5),
)
def test_every_certificate_of_a_model_is_accepted(draw, beta, method, successors, pooled, delta, episodes, seed):
    mdp = draw.mdp
    spread = float(np.ptp(draw.rewards))
    assume(spread == 0 or spread > 1e-12)
    options = {"method": "kl"}
    if method != "kl" and not mdp.next_state_rewards:
        options = {"method": "bernstein", "constants": method if beta else "sharp"}  # the others need β ≠ 0
    if successors == "mask":
        kernel = np.asarray(draw.transitions)
        successors = (kernel if kernel.ndim == 3 else kernel.max(axis=0)) > 0
    result = eb.identify(
        mdp,
        beta=beta,
        eps=0.05,
        delta=delta,
        stationary=pooled and mdp.stationary,
        successors=successors,
        max_episodes=episodes,
        seed=seed,
        **options,
    )
    assert_accepted(result.certificate)


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(
    beta=st.sampled_from([1.0, -1.0, 0.0, -1e-8, 3.0, -3.0]),
    horizon=st.integers(1, 5),
    stationary=st.booleans(),
    reward_range=st.sampled_from([(0.0, 1.0), (-0.5, 2.0)]),
    episodes=st.sampled_from([1, 30, 500]),
)
def test_every_certificate_of_an_environment_is_accepted(beta, horizon, stationary, reward_range, episodes):
    result = eb.identify(
        Corridor(),
        beta=beta,
        eps=0.05,
        delta=0.1,
        horizon=horizon,
        reward_range=reward_range,
        stationary=stationary,
        max_episodes=episodes,
        replan=0.2,
        seed=1,
    )
    assert_accepted(result.certificate)


@pytest.mark.parametrize("beta", [-1.5, 0.0, 2.0])
def test_a_certificate_for_another_risk_level_is_accepted(beta):
    bridge = eb.instances.risky_bridge(horizon=5)
    result = eb.identify(bridge, beta=-1.0, eps=0.3, delta=0.1, successors="model", seed=2)
    assert_accepted(eb.certify(result, beta=beta))


def test_the_bounds_contain_the_truth(certified):
    for case in certified.values():
        if case.mdp is not None:
            result = verify(case.certificate)
            best = eb.solve(case.mdp, case.certificate.beta).value
            own = eb.evaluate(case.mdp, case.certificate.policy, case.certificate.beta).value
            assert result.lower <= own <= best + 1e-12
            assert best <= result.upper
            assert best - own <= result.gap


def test_the_saved_file_and_the_object_give_the_same_answer(certified, tmp_path):
    certificate = certified["kl per step"].certificate
    certificate.save(tmp_path / "c.json")
    assert verify(tmp_path / "c.json") == verify(str(tmp_path / "c.json")) == verify(certificate)


# -- what was tampered with is refused -------------------------------------------------------------------------


class Case:
    def __init__(self, certificate, mdp=None):
        self.certificate, self.mdp = certificate, mdp
        self.content = json.loads(json.dumps(certificate._content()))


@pytest.fixture(scope="module")
def certified():
    bridge = eb.instances.risky_bridge(horizon=4)
    garnet = eb.instances.garnet(3, 2, 2, horizon=3, seed=4)
    rng = np.random.default_rng(0)
    kernel = rng.dirichlet(np.ones(3), (3, 2))
    lottery = eb.FiniteMDP(kernel, rng.uniform(-1, 2, (3, 2, 3)), horizon=3, start=[0.5, 0.2, 0.3])
    outside = eb.FiniteMDP(kernel, rng.uniform(-1, 2, (3, 2)), horizon=3)

    def run(mdp, beta, **options):
        budget = options.pop("max_episodes", 400)
        result = eb.identify(mdp, beta=beta, eps=1e-3, delta=0.1, max_episodes=budget, seed=3, **options)
        return Case(result.certificate, mdp)

    # Millions of episodes before the paper's bounds say something.
    many = {"method": "bernstein", "max_episodes": 10_000_000, "replan": 0.5}
    environment = eb.identify(
        Corridor(),
        beta=-1.0,
        eps=1e-3,
        delta=0.1,
        horizon=3,
        reward_range=(0, 1),
        max_episodes=2000,
        replan=0.2,
        seed=1,
    )
    return {
        "kl per step": run(bridge, -1.0, successors="model"),
        "kl per step, seeking": run(bridge, 1.5, successors="model"),
        "kl anywhere": run(garnet, 0.7),
        "kl pooled": run(garnet, -0.7, stationary=True, successors="model"),
        "kl next state, random start": run(lottery, 0.8, stationary=True),
        "kl next state, per step": run(lottery, -0.8),
        "kl neutral": run(garnet, 0.0, successors="model"),
        "kl environment": Case(environment.certificate),
        "verified": run(garnet, 0.5, constants="verified", **many),
        "verified, averse": run(garnet, -0.5, constants="verified", **many),
        "printed": run(garnet, 0.5, constants="printed", **many),
        "printed, averse": run(garnet, -0.5, constants="printed", **many),
        "sharp": run(outside, 0.5, constants="sharp", **many),
        "sharp, averse, pooled": run(garnet, -0.5, constants="sharp", stationary=True, **many),
    }


def digested(content):
    content = {key: value for key, value in content.items() if key != "digest"}
    return {**content, "digest": hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()}


def verify_content(content, tmp_path):
    path = tmp_path / "tampered.json"
    path.write_text(json.dumps(digested(content)))
    return verify(path)


def verify_restated(content, tmp_path):
    """The same after a forger has read which assumptions are missing, and has written them into the file."""
    result = verify_content(content, tmp_path)
    _, told, sentences = result.problems[0].partition("which are: ") if result.problems else ("", "", "")
    if not told:
        return result
    return verify_content({**content, "assumptions": ast.literal_eval(sentences)}, tmp_path)


def place(path):
    """The container and key of a path such as ("claim", "gap")."""
    return lambda content: (functools.reduce(lambda part, key: part[key], path[:-1], content), path[-1])


def tamperings(case):
    """Single changes that leave the claim without its basis: (what, function that changes the content)."""
    content, problem, counts = case.content, case.content["problem"], case.content["counts"]
    claim, horizon = content["claim"], problem["horizon"]
    pooled, kl = problem["stationary"], content["method"] == "kl"
    # Bounds for β = 0 are those of a small β, widened by the difference, which is no sharp edge.
    step = (UNDERSTATED if abs(problem["beta"]) > 1e-4 else 1e-3) * claim["gap"]

    def put(*path_and_value):
        *path, value = path_and_value

        def change(changed):
            container, key = place(path)(changed)
            container[key] = value

        return f"{'.'.join(map(str, path))} := {value}", change

    for factor in (1, 3, 30):
        yield put("claim", "lower", claim["lower"] + factor * step)
        yield put("claim", "upper", claim["upper"] - factor * step)
        yield put("claim", "gap", claim["gap"] - factor * step)
    yield put("claim", "gap", -1.0)
    for factor in (0.5, 0.9):
        yield put("problem", "delta", problem["delta"] * factor)
    if problem["beta"]:
        for factor in (-1.0, 0.8, 1.25):
            yield put("problem", "beta", problem["beta"] * factor)
    for value in (horizon + 1, horizon - 1, 2 * horizon):
        yield put("problem", "horizon", value)
    for name in ("n_states", "n_actions"):
        yield put("problem", name, problem[name] + 1)
        yield put("problem", name, problem[name] - 1)
    yield put("problem", "stationary", not pooled)
    if problem["start"] is None:
        yield put("problem", "start", 0)
    else:
        yield put("problem", "start", None)
        yield put("problem", "start", (problem["start"] + 1) % problem["n_states"])
    if problem["successors"] == "model":
        yield put("problem", "successors", "unknown")
    yield put("method", "bernstein" if kl else "kl")
    if content["constants"] in ("sharp", "printed"):
        yield put("constants", "verified")
    if content["constants"] == "sharp":
        yield put("constants", "printed")
    for value in (counts["episodes"] + 1, counts["episodes"] - 1, 2 * counts["episodes"], 0):
        yield put("counts", "episodes", value)
    # Episodes of an environment may end early, so some other counts may be those of as many episodes.
    fixed_length = not counts["rewards"]
    last_step = (horizon - 1) * problem["n_states"] * problem["n_actions"]
    for i, times in enumerate(counts["times"]):
        yield put("counts", "times", i, -times)
        if fixed_length:
            for value in (times + 1, times - 1, 3 * times):
                yield put("counts", "times", i, value)
            yield f"counts: entry {i} removed", functools.partial(remove_entry, i)
        if not pooled and counts["rows"][i] < last_step:
            yield put("counts", "successors", i, (counts["successors"][i] + 1) % problem["n_states"])
            yield put("counts", "rows", i, counts["rows"][i] + problem["n_actions"])
    for row, possible in enumerate(problem["slots"]["possible"]):
        yield put("problem", "slots", "possible", row, possible + 1)
        yield put("problem", "slots", "possible", row, possible - 1)
        yield put("problem", "slots", "used", row, problem["slots"]["used"][row] + 1)
        yield put("problem", "slots", "used", row, problem["slots"]["used"][row] - 1)
    yield from reward_tamperings(case, put)
    yield from policy_tamperings(case, put)


def remove_entry(i, content):
    for name in ("rows", "successors", "times", "rewards"):
        if content["counts"][name]:
            del content["counts"][name][i]


def reward_tamperings(case, put):
    """What the policy earns at the start is lowered."""
    content, problem = case.content, case.content["problem"]
    if problem["start"] is not None and problem["rewards"] is not None and content["method"] == "kl":
        s = problem["start"]
        a = content["policy"][0][s]
        reward = problem["rewards"][0][s][a]
        for less in (0.1, 1.0):
            yield put("problem", "rewards", 0, s, a, reward - less)
    if problem["rewards"] is None:
        slots = problem["slots"]
        for j in range(len(slots["successor"])):
            yield put("problem", "slots", "low", 0, j, slots["high"][0][j] + 0.5)
            yield put("problem", "slots", "high", 0, j, slots["low"][0][j] - 0.5)
    for i, reward in enumerate(content["counts"]["rewards"]):
        yield put("counts", "rewards", i, reward + 1.5)
        yield put("counts", "rewards", i, reward - 1.5)


def policy_tamperings(case, put):
    """Other actions that make the claim false, as the true model knows; and actions that do not exist."""
    content, certificate, mdp = case.content, case.certificate, case.mdp
    best = eb.solve(mdp, certificate.beta).value if mdp is not None else None
    for h, s in np.ndindex(certificate.policy.shape):
        yield put("policy", h, s, content["problem"]["n_actions"])
        yield put("policy", h, s, -1)
        if mdp is None:
            continue
        for a in range(mdp.n_actions):
            other = certificate.policy.copy()
            other[h, s] = a
            value = eb.evaluate(mdp, other, certificate.beta).value
            if value < certificate.lower - 1e-9 or best - value > certificate.gap + 1e-9:
                yield put("policy", h, s, a)


REASONS = {
    "claim": ("is claimed",),
    "counts": ("balance", "counts", "successors", "reward"),
    "policy": ("policy", "is claimed"),
}


def some_tamperings(case, rng, many):
    """All changes of single numbers, and some of those that exist for every count, row and state."""
    every = list(tamperings(case))
    repeated = [i for i, (what, _) in enumerate(every) if what.startswith(("counts.", "counts:", "problem.slots"))]
    dropped = set(rng.permutation(repeated)[many:].tolist())
    return [change for i, change in enumerate(every) if i not in dropped]


@pytest.mark.parametrize(("many", "least"), [(6, 150), pytest.param(80, 1000, marks=pytest.mark.slow)])
def test_single_changes_are_refused_each_with_a_reason(many, least, certified, tmp_path):
    refused, changed_policies, accepted, rng = 0, 0, [], np.random.default_rng(0)
    for name, case in certified.items():
        assert verify(case.certificate).ok
        for what, change in some_tamperings(case, rng, many):
            content = copy.deepcopy(case.content)
            change(content)
            result = verify_restated(content, tmp_path)
            if result.ok:
                accepted.append(f"{name}: {what}")
                continue
            refused += 1
            changed_policies += what.startswith("policy") and "is claimed" in result.problems[0]
            assert all(isinstance(problem, str) and problem for problem in result.problems)
            wanted = REASONS.get(what.split(".")[0].split(":")[0], ("",))
            assert any(word in problem for word in wanted for problem in result.problems), (what, result.problems)
    assert not accepted
    assert refused >= least
    assert changed_policies >= 3


def test_a_policy_that_is_not_greedy_is_refused_for_the_paper_s_method(certified, tmp_path):
    for name in ("verified", "verified, averse", "printed", "printed, averse", "sharp", "sharp, averse, pooled"):
        content = copy.deepcopy(certified[name].content)
        start = content["problem"]["start"]
        content["policy"][0][start] = 1 - content["policy"][0][start]
        result = verify_content(content, tmp_path)
        assert not result.ok
        assert any("a changed policy" in problem for problem in result.problems)


def test_printed_constants_are_refused_where_they_are_not_proved(tmp_path):
    """13 steps allow 208 states: a certificate for 209 of them has no proof, whatever its numbers are."""
    for n_states, reason in ((208, None), (209, "proved is S <= 16H/(H - 12), or H <= 12")):
        mdp = eb.FiniteMDP(np.full((n_states, 1, n_states), 1 / n_states), np.zeros((n_states, 1)), horizon=13)
        problem = Problem.from_mdp(mdp, beta=0.1, eps=0.1, delta=0.1)
        honest = Certificate(
            policy=np.zeros((13, n_states), dtype=np.int64),
            episodes=0,
            lower=0.0,
            upper=13.0,
            gap=13.0,
            method="bernstein",
            constants="printed",
            problem=problem,
            transitions=Counts(problem).transitions(),
            provenance=Provenance(),
        )
        assert "at most 12 steps or S <= 16H/(H - 12)" in honest.assumptions[-1]
        honest.save(tmp_path / "wide.json")
        problems = " ".join(verify(tmp_path / "wide.json").problems)
        assert (reason in problems) if reason else ("certify nothing" not in problems)


def test_the_reason_names_the_part_that_fails(certified, tmp_path):
    case = certified["kl per step"]

    def problems(*path_and_value):
        content = copy.deepcopy(case.content)
        *path, value = path_and_value
        container, key = place(path)(content)
        container[key] = value
        return verify_content(content, tmp_path).problems

    claim = case.content["claim"]
    assert problems("claim", "gap", 0.9 * claim["gap"])[0].startswith("gap: ")
    assert problems("claim", "upper", claim["upper"] - 0.1)[0].startswith("upper: ")
    assert problems("claim", "lower", claim["lower"] + 0.1)[0].startswith("lower: ")
    assert "episodes" in problems("counts", "episodes", case.content["counts"]["episodes"] + 1)[0]
    assert "strictly between 0 and 1" in problems("problem", "delta", 1.5)[0]
    assert "must be a finite number" in problems("problem", "beta", 1e301)[0]
    assert "policy" in problems("policy", [[0]])[0]
    assert (
        "lacks 'policy'"
        in verify_content({key: value for key, value in case.content.items() if key != "policy"}, tmp_path).problems[0]
    )


def test_counts_outside_the_declared_successors_are_refused(certified, tmp_path):
    content = copy.deepcopy(certified["kl per step"].content)
    slots, counts = content["problem"]["slots"], content["counts"]
    row = counts["rows"][0]
    declared = slots["successor"][slots["begin"][row] : slots["begin"][row] + slots["used"][row]]
    counts["successors"][0] = next(y for y in range(content["problem"]["n_states"]) if y not in declared)
    assert "outside the declared successors" in verify_content(content, tmp_path).problems[0]


def test_a_claim_that_rounding_has_made_false_is_refused():
    # The value is 2 for every β; e^{2β} has lost seven of its digits.
    mdp = eb.FiniteMDP([[[1.0], [1.0]]], [[1.0, 1.0]], horizon=2)
    result = eb.identify(mdp, beta=1e-9, eps=3.0, delta=0.1, method="bernstein", seed=0)
    claim = dataclasses.replace(result.certificate, upper=1.9999999414361371, gap=1.9999999414361371)
    assert not verify(claim).ok


# -- files that are no certificates ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not a whole JSON file"),
        (b"\xff\xfe\x00", "not a whole JSON file"),
        (b"hello", "not a whole JSON file"),
        (b"[" * 100_000, "not a whole JSON file"),
        (b"[1" + b"0" * 5000 + b"]", "not a whole JSON file"),
        (b"[NaN]", "NaN is not a number"),
        (b"[]", "not a certificate"),
        (b"null", "not a certificate"),
        (b"{}", "not a certificate"),
        (b'{"format": "entropic-bpi model"}', "not a certificate"),
        (b'{"format": "entropic-bpi certificate"}', "unknown version None"),
        (b'{"format": "entropic-bpi certificate", "version": 7}', "unknown version 7"),
        (b'{"format": "entropic-bpi certificate", "version": 3}', "digest"),
    ],
)
def test_what_is_not_a_certificate_is_refused(data, reason, tmp_path):
    path = tmp_path / "c.json"
    path.write_bytes(data)
    result = verify(path)
    assert not result.ok
    assert math.isnan(result.gap)
    assert reason in result.problems[0]


def test_a_truncated_file_is_refused_wherever_it_was_cut(certified, tmp_path):
    path = tmp_path / "c.json"
    certified["kl per step"].certificate.save(path)
    data = path.read_bytes()
    for length in range(0, len(data) - 2, 211):
        path.write_bytes(data[:length])
        assert "not a whole JSON file" in verify(path).problems[0]


def test_a_change_without_a_new_digest_is_refused(certified, tmp_path):
    path = tmp_path / "c.json"
    certified["kl per step"].certificate.save(path)
    path.write_text(path.read_text().replace('"eps": 0.001', '"eps": 0.002'))
    assert "digest does not match" in verify(path).problems[0]


def test_missing_files_folders_and_other_things(tmp_path):
    assert "no such file" in verify(tmp_path / "nothing.json").problems[0]
    assert not verify(tmp_path).ok
    assert not verify("a\0b").ok
    with pytest.raises(eb.InvalidProblemError, match="got int"):
        verify(3)


JUNK = [None, True, False, "", "x", -1, 0, 1, 2.5, -0.5, 1e308, 10**30, [], [[]], {}, [None], {"a": 1}]


def leaves(content, path=()):
    """Every place in a JSON content, containers included."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from leaves(value, (*path, key))


@pytest.mark.parametrize(
    "name",
    [
        "kl per step",
        pytest.param("kl next state, random start", marks=pytest.mark.slow),
        "kl environment",
        "sharp",
    ],
)
def test_junk_anywhere_never_raises(name, certified, tmp_path):
    content = certified[name].content
    rng = np.random.default_rng(0)
    places = list(leaves(content))
    shallow = [path for path in places if len(path) <= 3]
    chosen = shallow + [places[i] for i in rng.integers(len(places), size=30)]
    for i, path in enumerate(chosen):
        for junk in (JUNK[i % len(JUNK)], JUNK[rng.integers(len(JUNK))]):
            changed = copy.deepcopy(content)
            container, key = place(path)(changed)
            container[key] = junk
            result = verify_content(changed, tmp_path)
            assert isinstance(result, Verification)
            assert result.ok == (not result.problems)
        changed = copy.deepcopy(content)
        container, key = place(path)(changed)
        del container[key]
        assert isinstance(verify_content(changed, tmp_path), Verification)


# -- the bricks, against fifty digits --------------------------------------------------------------------------

FINITE = st.floats(-1e6, 1e6)


@np.errstate(all="ignore")
@given(FINITE, FINITE, FINITE, FINITE)
@example(0.0, 51630.0, 2.8719980888579883e-304, 1.0)  # the quotient has no upper bound among the floats
def test_intervals_contain_exact_results(a, b, c, d):
    x, y = Interval(min(a, b), max(a, b)), Interval(min(c, d), max(c, d))
    for p in map(Fraction, (a, b)):
        for q in map(Fraction, (c, d)):
            assert_inside(p + q, x + y)
            assert_inside(p - q, x - y)
            assert_inside(p * q, x * y)
            if y.low > 0 or y.high < 0:
                assert_inside(p / q, x / y)


@given(st.lists(st.tuples(FINITE, FINITE), min_size=1, max_size=40))
def test_sums_of_intervals_contain_exact_results(ends):
    lows, highs = (np.array([pick(pair) for pair in ends]) for pick in (min, max))
    total = Interval(lows[:, None], highs[:, None]).sum()
    assert total.low[0] <= sum(map(Fraction, lows)) <= sum(map(Fraction, highs)) <= total.high[0]


def assert_inside(exact, interval):
    assert interval.low <= exact <= interval.high


@np.errstate(all="ignore")
@given(st.floats(-600, 600), st.floats(1e-300, 1e300))
def test_functions_of_intervals_contain_exact_results(x, y):
    with mp.workdps(60):
        assert_inside(mp.exp(mpf(x)), Interval.of(x).exp())
        assert_inside(mp.expm1(mpf(x)), Interval.of(x).expm1())
        assert_inside(mp.log(mpf(y)), Interval.of(y).log())
        assert_inside(mp.log1p(mpf(y)), Interval.of(y).log1p())
        assert_inside(mp.sqrt(mpf(y)), Interval.of(y).sqrt())


@given(st.floats(-5, 5), st.floats(-100, 100), st.floats(-100, 0))
def test_weights_contain_the_exact_exponential_and_are_narrow(beta, reward, origin):
    if abs(beta * (reward - origin)) > 600:
        return
    weight = power(beta, reward, origin)
    with mp.workdps(60):
        assert_inside(mp.exp(mpf(beta) * (mpf(reward) - mpf(origin))), weight)
    assert weight.high - weight.low <= (8e-15 + 2e-15 * abs(beta * (reward - origin))) * weight.high


@given(st.fractions(min_value=Fraction(1, 10**6), max_value=10**12))
def test_stirling_s_error_is_enclosed(x):
    with mp.workdps(60):
        value = mpf(x.numerator) / x.denominator
        exact = mp.loggamma(value) - (value - 0.5) * mp.log(value) + value - mp.log(2 * mp.pi) / 2
        enclosure = stirling_error(Interval.of(x))
        assert_inside(exact, enclosure)
        assert enclosure.high - enclosure.low <= 2e-13 * max(1.0, abs(float(exact)))


def radius_of(tallies, k, most):
    (radius,) = mixture_radii(np.array(tallies), np.array([len(tallies)]), np.array([k]), np.array([most]))
    return radius


@given(
    st.lists(st.one_of(st.integers(1, 30), st.integers(1, 10**12)), min_size=1, max_size=6),
    st.integers(0, 40),
)
def test_the_mixture_radius_is_rounded_up_and_loses_no_digits(tallies, unseen):
    k = max(len(tallies) + unseen, 2)
    with mp.workdps(60):
        exact = reference.mixture_radius_mpmath(tallies, k)
        bound = mpf(radius_of(tallies, k, k))
        assert exact <= bound <= exact + mpf(2e-12)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=6), st.integers(0, 5), st.integers(1, 9))
def test_the_mixture_radius_of_a_declared_number_of_outcomes_is_that_of_the_reference(tallies, unseen, more):
    most = len(tallies) + unseen
    exact = scalar_radius(tallies, most + more, most)
    assert radius_of(tallies, most + more, most) == pytest.approx(exact, abs=2e-12)


@given(st.one_of(st.integers(1, 100), st.integers(1, 10**15)), st.floats(0.1, 100))
def test_the_radius_of_a_bet_is_rounded_up_and_loses_no_digits(n, log_union):
    with mp.workdps(60):
        exact = (mpf(log_union) + mp.log(mp.pi) / 2 + mp.loggamma(n + 1) - mp.loggamma(n + mpf(0.5))) / n
        (bound,) = betting_radii(np.array([n]), log_union)
        assert exact <= bound <= exact * (1 + mpf(1e-12))


@np.errstate(all="ignore")
@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.one_of(st.just(0), st.integers(1, 50), st.integers(1, 10**8)), st.floats(-3, 3)),
        min_size=2,
        max_size=6,
    ),
    st.floats(1e-9, 80),
    st.sampled_from([1, -1]),
)
def test_the_mean_over_a_ball_is_bounded_tightly_and_safely(outcomes, radius, side):
    tallies, f = map(list, zip(*outcomes, strict=True))
    visits = sum(tallies)
    # Beside another row of more outcomes, so that this one is filled up.
    sizes, counts = np.array([len(f), len(f) + 1]), np.array([*tallies, *tallies, 1])
    rows = Rows(sizes, np.arange(len(counts)), counts, np.array([radius, radius]))
    bound = rows.extreme_means(np.array([*f, *f, 0.0]), side)[0]
    if not visits:
        assert bound == side * max(side * value for value in f)
        return
    exact = side * reference.ball_max_mpmath(tallies, [side * value for value in f], radius)
    assert side * (mpf(bound) - exact) >= -(mpf(10) ** -40)  # the oracle's own precision
    assert side * (float(bound) - float(exact)) <= 1e-13 * (1.0 + max(map(abs, f)))


def test_a_row_of_which_only_the_best_outcome_was_seen_has_a_ratio_below_the_largest():
    # Newton's method once stopped at its first step here, and honest certificates of large β were refused.
    columns = np.array([[3004.8, 3.8e6, 1.0], [1.0, 2.2e-17, 0.66], [6.4e-10, 5.9e-35, 0.32], [1.0, 0.0, 0.0]])
    rho, high, low, tallies = columns[..., None]
    ones = np.ones((3, 1))
    ball = Balls(np.arange(3)[:, None], tallies, np.array([3]), np.array([4.43]), ones, ones)
    (found,) = same_action(ball, rho, low, high, Interval(0.0, np.inf))

    def excess(level):  # the only visit keeps at least e^{-4.43} of the mass; the rest goes to the best outcome
        f = (rho - level)[:, 0] * np.where(rho > level, high, low)[:, 0]
        kept = math.exp(-4.43)
        return max(f[0], kept * f[0] + (1 - kept) * f.max())

    assert excess(found * (1 - 1e-9)) > 0 >= excess(found)


# -- it stands alone -------------------------------------------------------------------------------------------


def test_the_verifier_imports_nothing_of_the_learner():
    script = "import sys, entropic_bpi.verification; print(*(name for name in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    mine = {name.split(".")[1] for name in loaded if name.startswith("entropic_bpi.")}
    assert mine <= {"verification", "errors", "_version"}
    assert not {"numba", "scipy"} & {name.split(".")[0] for name in loaded}


# -- the command -----------------------------------------------------------------------------------------------


def test_the_command_says_whether_the_claim_holds(certified, tmp_path):
    path = tmp_path / "certificate.json"
    certificate = certified["kl per step"].certificate
    certificate.save(path)
    good = CliRunner().invoke(cli.app, ["verify", str(path)])
    assert good.exit_code == 0
    assert "the counts imply the claim" in good.output
    told = json.loads(CliRunner().invoke(cli.app, ["verify", str(path), "--json"]).output)
    assert told == {**vars(verify(certificate))}
    content = copy.deepcopy(certified["kl per step"].content)
    content["claim"]["gap"] *= 0.5
    path.write_text(json.dumps(digested(content)))
    bad = CliRunner().invoke(cli.app, ["verify", str(path)])
    assert bad.exit_code == 1
    assert "gap: " in bad.output
    path.write_text("{")
    broken = CliRunner().invoke(cli.app, ["verify", str(path), "--json"])
    assert broken.exit_code == 1
    assert json.loads(broken.output)["lower"] is None


def test_the_command_reports_a_missing_file_as_bad_input(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["verify", "nothing.json"])
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "entropic-bpi: no such file: nothing.json\n"


@pytest.mark.parametrize("beta", [1e-9, -1e-9, 1e-12, 1e-4, -1e-4])
def test_small_risk_with_the_machine_checked_constants(beta):
    """Z = 1 + O(β) has no digits left there; learner and verifier carry (Z - 1)/|β|."""
    mdp = eb.FiniteMDP([[[1.0], [1.0]]], [[0.0, 0.0]], horizon=2)
    result = eb.identify(
        mdp, beta=beta, eps=0.05, delta=0.1, max_episodes=1, seed=0, method="bernstein", constants="verified"
    )
    check = eb.verify(result.certificate)
    assert check.ok, check.problems
    assert check.upper == pytest.approx(result.certificate.upper, abs=1e-9)


def test_a_deviation_that_is_not_a_number_leaves_the_trivial_bound():
    assert _bound(0.5, 1.0, 0.25, 3.0) < 3.0
    assert _bound(0.5, 1.0, math.nan, 3.0) == _bound(0.0, 1.0, math.nan, 3.0) == 3.0
