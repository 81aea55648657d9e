"""EVaR of unknown models, end to end: learned, certified from data at hand, verified, resumed, refused where unproved."""

import hashlib
import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from reference import noisy
from scipy import stats

import entropic_bpi as eb
from entropic_bpi import plots
from entropic_bpi.methods.kl.evar import EVaRKL
from entropic_bpi.methods.kl.method import KL
from entropic_bpi.problem.problem import Problem
from tests.reference.logs import ROLES, play, table

BRIDGE = eb.instances.risky_bridge(horizon=7)
GOAL = {"eps": 0.3, "delta": 0.1, "successors": "model", "seed": 1}
ROUNDING = 1e-6


def identified(mdp=BRIDGE, alpha=0.2, **options):
    return eb.identify(mdp, risk=eb.EVaR(alpha), **{**GOAL, **options})


def is_true(claim, mdp):
    """All parts of a claim, by the law of the return and by the best of all policies."""
    best, mine = eb.solve_evar(mdp, claim.alpha).lower, eb.return_law(mdp, claim.policy).evar(claim.alpha)
    return (
        claim.lower <= mine + ROUNDING
        and best <= claim.upper + ROUNDING
        and best - mine <= claim.gap + ROUNDING
        and (not claim.reached or best - mine <= claim.eps + ROUNDING)
    )


@pytest.fixture(scope="module")
def result():
    return identified()


# -- learning -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.02, 0.2, 0.7])
@pytest.mark.parametrize("mdp", [BRIDGE, eb.instances.garnet(3, 2, 2, horizon=3, seed=2)], ids=["bridge", "garnet"])
def test_a_run_stops_with_a_true_certificate_that_is_verified(mdp, alpha):
    found = identified(mdp, alpha)
    claim = found.certificate
    assert found.stopped
    assert claim.reached
    assert (claim.risk, claim.alpha, math.isnan(claim.beta)) == ("evar", alpha, True)
    assert is_true(claim, mdp)
    assert eb.verify(claim).ok


def test_a_lambda_that_leads_only_because_nobody_has_looked_is_looked_at():
    """At λ = 19 the candidate is certainly the best, and not known to be worse than what is best at λ = 31."""
    mdp = eb.instances.garnet(3, 2, 2, horizon=3, seed=0)
    found = identified(mdp, 0.1, eps=0.0123, replan=0.2, seed=5, max_episodes=100_000)
    assert found.stopped
    assert is_true(found.certificate, mdp)


def test_negative_and_shifted_rewards_shift_the_claim_and_nothing_else():
    """Trap: of returns that are not counted from the smallest the grid lemma is false."""
    plain = eb.instances.garnet(3, 2, 2, horizon=3, seed=2)
    shifted = eb.FiniteMDP(plain.transitions, plain.rewards - 7.0, horizon=3)
    one, other = identified(plain), identified(shifted)
    assert is_true(other.certificate, shifted)
    assert other.episodes == one.episodes
    assert other.certificate.lower == pytest.approx(one.certificate.lower - 21.0, abs=1e-9)
    assert other.certificate.gap == pytest.approx(one.certificate.gap, abs=1e-9)


def test_the_return_falls_below_the_lower_bound_as_seldom_as_is_said_and_cvar_is_above_it(result):
    """Trap: CVaR from EVaR is a bound and not the value; EVaR <= CVaR <= quantile."""
    claim = result.certificate
    law = eb.return_law(BRIDGE, claim.policy)
    assert law.probabilities[law.support < claim.lower].sum() <= claim.alpha
    assert law.evar(claim.alpha) <= law.cvar(claim.alpha) + ROUNDING
    assert claim.lower <= law.cvar(claim.alpha) <= law.quantile(claim.alpha) + ROUNDING
    kernel = [[[0, 0.9, 0.1], [0, 0.5, 0.5]], [[0, 1, 0]] * 2, [[0, 0, 1]] * 2]
    lottery = eb.FiniteMDP(kernel, [[0, 0], [1, 1], [0, 0]], horizon=2)
    bound = identified(lottery, 0.5, eps=1e-4, max_episodes=3000, replan=1.0).certificate
    law = eb.return_law(lottery, bound.policy)
    assert law.cvar(0.5) > bound.upper + 0.1  # the upper bound is not one of CVaR
    assert law.cvar(0.5) >= bound.lower


def test_the_statement_says_what_is_proved(result):
    words = result.certificate.statement
    assert "With probability at least 90 %: " in words
    assert "In at most 20 % of its episodes, the return is below" in words
    told = (
        float(words.split("is below ")[1].split(". ")[0]),
        float(words.split("This policy is at most ")[1].split(" worse")[0]),
    )
    assert told[0] <= result.certificate.lower
    assert told[1] >= result.certificate.gap


def test_the_gap_is_that_of_the_policy_that_is_asked_about(result):
    """Trap: what is attained must be attained by this policy, not by a better one."""
    best = result.certificate
    daring = np.ones_like(best.policy)
    claim = eb.certify(result, risk=eb.EVaR(0.2), policy=daring)
    lost = eb.solve_evar(BRIDGE, 0.2).lower - eb.return_law(BRIDGE, daring).evar(0.2)
    assert lost > 0.3
    assert claim.gap >= lost
    assert is_true(claim, BRIDGE)


def test_an_accuracy_beyond_the_largest_exponent_is_refused_with_the_reason():
    """Trap: a sure return in the middle of a wide range; beyond λ·range = 600 a share of the range cannot be told apart."""
    chain = eb.FiniteMDP([[[1, 0], [0, 1]], [[0, 1], [0, 1]]], [[500.0, 0.0], [0.0, 1000.0]], horizon=1)
    with pytest.raises(eb.InvalidProblemError, match=r"eps=1 cannot be certified at alpha=0\.05: .* 600"):
        eb.identify(chain, risk=eb.EVaR(0.05), eps=1.0, delta=0.1, successors="model", seed=0)
    assert eb.identify(chain, risk=eb.EVaR(0.05), eps=20.0, delta=0.1, successors="model", seed=0).stopped


@pytest.mark.parametrize("reward", [-0.3, 0.0, 1e100 / 3])
def test_returns_that_are_all_equal_are_known_at_once(reward):
    mdp = eb.FiniteMDP(np.full((2, 2, 2), 0.5), np.full((2, 2), reward), horizon=3)
    found = identified(mdp, eps=1e-9 * max(1.0, reward))
    claim = found.certificate
    assert (found.stopped, found.episodes) == (True, 0)
    assert claim.lower <= 3 * reward <= claim.upper <= claim.lower + 1e-14 * (1.0 + abs(3 * reward))
    assert eb.verify(claim).ok


@pytest.mark.parametrize("given", [{}, {"beta": 1.0, "risk": eb.EVaR(0.1)}])
def test_exactly_one_of_beta_and_risk_is_given(given, result):
    with pytest.raises(eb.InvalidProblemError, match=r"either beta=.* or risk=EVaR\(alpha\), not (both|neither)"):
        eb.identify(BRIDGE, **given, **GOAL)
    with pytest.raises(eb.InvalidProblemError, match="either beta="):
        eb.certify(result, **given)


@pytest.mark.parametrize("risk", [0.1, "evar", eb.EVaR])
def test_a_risk_is_an_evar(risk):
    with pytest.raises(eb.InvalidProblemError, match=r"risk must be Entropic\(beta\) or EVaR"):
        eb.identify(BRIDGE, risk=risk, **GOAL)


def test_other_methods_are_refused_with_the_reason():
    with pytest.raises(
        eb.InvalidProblemError, match="EVaR needs method='kl', whose event holds for every beta at once"
    ):
        identified(method="bernstein", successors=None)


def test_an_interrupted_run_goes_on_to_the_same_result(tmp_path, result):
    identified(max_episodes=6, checkpoint=tmp_path / "run")
    resumed = identified(checkpoint=tmp_path / "run")
    assert resumed.certificate._content() == result.certificate._content()
    assert np.array_equal(resumed.history, result.history)
    with pytest.raises(eb.InvalidProblemError, match=r"alpha was 0\.2, is 0\.3"):
        identified(alpha=0.3, checkpoint=tmp_path / "run")


def test_a_run_may_plan_after_every_episode_and_play_optimistically():
    found = identified(replan="every", sampling="optimistic")
    assert found.stopped
    assert is_true(found.certificate, BRIDGE)


def test_a_budget_ends_a_run_with_what_is_certified_by_then():
    garnet = eb.instances.garnet(3, 2, 2, horizon=3, seed=2)
    found = identified(garnet, eps=0.05, max_episodes=40)
    assert not found.stopped
    assert not found.certificate.reached
    assert is_true(found.certificate, garnet)
    assert eb.verify(found.certificate).ok


# -- environments and declarations -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "declared",
    [{}, {"stationary": False}, {"return_range": (0, 1)}, {"max_successors": 3, "return_range": (0, 1)}],
    ids=lambda declared: "+".join(declared) or "nothing",
)
def test_environments_are_certified_whatever_is_declared(declared):
    lake = eb.from_gymnasium("FrozenLake-v1", horizon=4, desc=["SF", "FG"])
    options = {
        "horizon": 4,
        "reward_range": (0, 1),
        "eps": 0.7,
        "delta": 0.1,
        "seed": 3,
        "max_episodes": 400,
        **declared,
    }
    env = gymnasium.make("FrozenLake-v1", desc=["SF", "FG"])
    claim = eb.identify(env, risk=eb.EVaR(0.6), **options).certificate
    assert eb.verify(claim).ok
    assert is_claim_about(claim, lake)
    figure = plots.grid(claim, np.array([["S", "F"], ["F", "G"]]), "←↓→↑")
    assert "β = -" in figure.axes[0].get_title()


def is_claim_about(claim, model):
    policy = claim.policy_for(model)
    best, mine = eb.solve_evar(model, claim.alpha).lower, eb.return_law(model, policy).evar(claim.alpha)
    return claim.lower <= mine + ROUNDING and best <= claim.upper + ROUNDING and best - mine <= claim.gap + ROUNDING


def identified_noisy(**more):
    env = noisy.bandit()
    options = {
        "horizon": 1,
        "reward_range": env.reward_range,
        "reward_law": "random",
        "eps": 0.45,
        "delta": 0.1,
        "seed": 3,
    }
    return eb.identify(env, risk=eb.EVaR(0.4), **options, **more)


@pytest.fixture(scope="module")
def noisy_result():
    return identified_noisy()


def test_random_rewards_are_learned_at_lambdas_declared_before_the_run(noisy_result):
    claim = noisy_result.certificate
    assert noisy_result.stopped
    assert eb.verify(claim).ok
    assert {cell.lam for cell in claim.cells} <= set(claim.problem.lams)
    assert any(
        f"{len(claim.problem.lams)} values of lambda declared beforehand" in words for words in claim.assumptions
    )


ON_ANOTHER_PROCESSOR = """
import sys
from tests.runs.test_evar_learning import identified_noisy

result = identified_noisy(checkpoint=sys.argv[1])
assert result.stopped and result.episodes > 20
result.certificate.save(sys.argv[2])
"""


@pytest.mark.slow
def test_a_run_is_resumed_on_another_processor_and_its_certificate_verified_here(tmp_path):
    """NumPy and the C library do without the instructions that they found here, and round otherwise."""
    identified_noisy(checkpoint=tmp_path / "half.npz", max_episodes=20)
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    other = {"NPY_DISABLE_CPU_FEATURES": " ".join(found), "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA"}
    paths = [tmp_path / "half.npz", tmp_path / "claim.json"]
    folders = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), str(Path(__file__).parents[1])])}
    command = [sys.executable, "-c", ON_ANOTHER_PROCESSOR, *map(str, paths)]
    done = subprocess.run(command, env={**os.environ, **other, **folders}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert eb.verify(paths[1]).ok


def test_random_rewards_are_certified_for_another_level_and_for_no_beta(noisy_result):
    other = eb.certify(noisy_result, risk=eb.EVaR(0.1))
    assert other.problem.lams == noisy_result.certificate.problem.lams
    assert eb.verify(other).ok
    with pytest.raises(eb.InvalidProblemError, match=r"learned for EVaR\(0\.4\) and cannot be certified for beta = -1"):
        eb.certify(noisy_result, beta=-1.0)


def test_random_rewards_of_a_beta_are_not_certified_for_evar():
    env = noisy.bandit()
    options = {"horizon": 1, "reward_range": env.reward_range, "reward_law": "random", "max_episodes": 20}
    run = eb.identify(env, beta=-1.0, eps=0.5, delta=0.1, seed=3, **options)
    with pytest.raises(eb.InvalidProblemError, match=r"learned for beta = -1 and cannot be certified for EVaR\(0\.1\)"):
        eb.certify(run, risk=eb.EVaR(0.1))


# -- data at hand -----------------------------------------------------------------------------------------------------


def test_every_level_is_certified_from_the_episodes_of_one_run():
    run = eb.identify(BRIDGE, beta=-1.0, **GOAL)
    for alpha in (0.01, 0.1, 0.5, 0.9):
        claim = eb.certify(run, risk=eb.EVaR(alpha))
        assert is_true(claim, BRIDGE)
        assert eb.verify(claim).ok


def test_policies_are_compared_by_intervals_that_hold_their_evar():
    run = eb.identify(BRIDGE, beta=-1.0, max_episodes=3000, replan=0.5, **{**GOAL, "eps": 0.001})
    policies = {"cautious": np.zeros_like(run.policy), "daring": np.ones_like(run.policy)}
    both = eb.certify(run, risk=eb.EVaR(0.3), policies=policies)
    for name, policy in policies.items():
        low, high = both.intervals[name]
        assert low <= eb.return_law(BRIDGE, policy).evar(0.3) + ROUNDING
        assert eb.return_law(BRIDGE, policy).evar(0.3) <= high + ROUNDING
        assert high - low < 0.5
    assert both.order == (("cautious", "daring"),)


def test_a_log_is_certified_and_what_it_lacks_is_told():
    kernel = np.array([[[0.9, 0.1, 0.0], [0.2, 0.5, 0.3]], [[0.5, 0.5, 0.0], [0.0, 0.6, 0.4]], [[0.0, 0.0, 1.0]] * 2])
    model = eb.FiniteMDP(kernel, np.array([[0.2, 0.0], [0.4, 1.0], [0.0, 0.0]]), horizon=2, start=[0.7, 0.3, 0.0])
    lines = play(model, 2000, np.random.default_rng(3), ends=(2,))
    log = eb.Log.read(table(lines), **{**ROLES, "states": [0, 1], "actions": [0, 1]})
    claim = eb.certify(log, risk=eb.EVaR(0.2), delta=0.1, horizon=2, reward_range=(0.0, 1.0))
    policy = np.concatenate([claim.policy[:, :2], np.zeros((2, 1), dtype=int)], axis=1)
    assert claim.lower <= eb.return_law(model, policy).evar(0.2) + ROUNDING
    assert eb.solve_evar(model, 0.2).lower <= claim.upper + ROUNDING
    assert eb.verify(claim).ok
    lacking = eb.missing(claim, rows=2)
    assert lacking.expected < lacking.gap


@pytest.mark.parametrize("eps", [None, 1e-6])
def test_a_log_is_certified_however_small_a_gap_would_be_asked_for(eps):
    """A sure return in the middle of a wide range, as above: nothing will be played, so the gap is what it is."""
    lines = [
        (e, 0, "here", ["bold", "safe"][e % 2], [float(e % 4), 0.1][e % 2], "here", False, True) for e in range(400)
    ]
    successors = {("here", "safe"): ["here"], ("here", "bold"): ["here", "here"]}
    log = eb.Log.read(table(lines), **ROLES, states=["here"])
    claim = eb.certify(
        log, risk=eb.EVaR(0.05), eps=eps, delta=0.1, horizon=1, reward_range=(0.0, 3.0), successors=successors
    )
    assert claim.lower <= 0.1 + ROUNDING <= claim.upper + 2 * ROUNDING
    assert claim.gap == pytest.approx(3.0 * math.log(20) / 600, rel=1e-3)
    assert claim.reached == (eps is None)
    assert eb.verify(claim).ok
    assert eb.missing(claim).gap == claim.gap


# -- the file ---------------------------------------------------------------------------------------------------------


def test_a_certificate_survives_the_file(result, tmp_path):
    result.certificate.save(tmp_path / "c.json")
    loaded = eb.Certificate.load(tmp_path / "c.json")
    assert loaded._content() == result.certificate._content()
    assert eb.verify(tmp_path / "c.json").ok
    content = json.loads((tmp_path / "c.json").read_text())
    assert (content["version"], content["problem"]["beta"], content["problem"]["alpha"]) == (4, None, 0.2)


def forged(content, folder):
    content = {name: part for name, part in content.items() if name != "digest"}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    path = folder / "forged.json"
    path.write_text(json.dumps({**content, "digest": digest}))
    return path


def other_level(content):
    content["problem"]["alpha"] = 0.9


def larger_lower(content):
    content["claim"]["lower"] += 1e-6


def smaller_upper(content):
    content["claim"]["upper"] -= 1e-6


def smaller_gap(content):
    content["claim"]["gap"] *= 1 - 1e-6


def farther_cells(content):
    for cell in content["claim"]["cells"]:
        cell["lam"] /= 3
        cell["until"] = cell["until"] and cell["until"] / 3


def fewer_cells(content):
    content["claim"]["cells"] = content["claim"]["cells"][-1:]


def daring_policy(content):
    content["policy"] = [[1] * len(step) for step in content["policy"]]


@pytest.mark.parametrize(
    "change", [larger_lower, smaller_upper, smaller_gap, farther_cells, fewer_cells, daring_policy, other_level]
)
def test_what_the_counts_do_not_imply_is_refused(change, tmp_path):
    content = identified(eps=0.15, alpha=0.5).certificate._content()
    assert eb.verify(forged(content, tmp_path)).ok
    change(content)
    content["claim"]["reached"] = content["claim"]["gap"] <= content["problem"]["eps"]
    assert not eb.verify(forged(content, tmp_path)).ok


MALFORMED = {
    "both risks": ("problem.beta", -1.0),
    "no level": ("problem.alpha", None),
    "a level above 1": ("problem.alpha", 1.5),
    "levels of λ without random rewards": ("problem.lams", [1.0]),
    "no cells": ("claim.cells", None),
    "empty cells": ("claim.cells", []),
    "a test": ("claim.test", "ratio"),
    "another test": ("claim.cells.0.test", "other"),
    "λ of 0": ("claim.cells.0.lam", 0.0),
    "λ beyond the cell": ("claim.cells.0.lam", 1e6),
    "a cell that ends before it begins": ("claim.cells.1.until", 1e-9),
    "an end of the last": ("claim.cells.-1.until", 1e9),
    "another key": ("claim.cells.0.other", 1),
    "method": ("method", "bernstein"),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_what_is_not_a_certificate_of_evar_is_refused_by_both_readers(what, result, tmp_path):
    content = json.loads(json.dumps(result.certificate._content()))
    path, value = MALFORMED[what]
    *way, last = [int(key) if key.lstrip("-").isdecimal() else key for key in path.split(".")]
    place = content
    for key in way:
        place = place[key]
    place[last] = value
    file = forged(content, tmp_path)
    assert not eb.verify(file).ok
    with pytest.raises(eb.CertificateError):
        eb.Certificate.load(file)


def test_a_lambda_that_was_not_declared_is_refused(noisy_result, tmp_path):
    content = json.loads(json.dumps(noisy_result.certificate._content()))
    assert eb.verify(forged(content, tmp_path)).ok
    content["claim"]["cells"][0]["lam"] *= 1.0000001
    assert "not declared" in eb.verify(forged(content, tmp_path)).problems[0]
    with pytest.raises(eb.CertificateError, match="not declared"):
        eb.Certificate.load(tmp_path / "forged.json")


def with_lams(claim, lams):
    """What a forger claims who says that these λ alone were declared beforehand."""
    problem = replace(claim.problem, lams=lams)
    planned = np.concatenate([np.zeros((1, problem.n_states), dtype=np.int64), claim.policy])
    own = EVaRKL(problem).bounds_of(claim.counts, planned)
    content = json.loads(json.dumps(claim._content()))
    content["problem"]["lams"] = list(lams)
    content["assumptions"] = [words.replace("256 values", f"{len(lams)} values") for words in content["assumptions"]]
    cells = [cell._asdict() for cell in own.cells]
    bounds = {"lower": own.lower, "upper": own.upper, "gap": own.gap, "reached": own.gap <= problem.eps}
    content["claim"].update(bounds, cells=cells)
    return content


CHOSEN = {
    "those that were used": lambda claim: (claim.problem.lams[0], *(cell.lam for cell in claim.cells)),
    "all but one": lambda claim: claim.problem.lams[1:],
    "one more": lambda claim: (*claim.problem.lams, 1.0001 * claim.problem.lams[-1]),
    "none at its place": lambda claim: tuple(np.nextafter(claim.problem.lams, 0.0).tolist()),
}


@pytest.mark.parametrize("which", CHOSEN)
def test_lambdas_that_were_chosen_for_what_was_seen_are_refused(which, noisy_result, tmp_path):
    claim = noisy_result.certificate
    content = with_lams(claim, CHOSEN[which](claim))
    if which == "those that were used":
        assert content["claim"]["gap"] < 0.99 * claim.gap
    assert eb.verify(forged(content, tmp_path)).problems == [
        "lams must be those that horizon and rewards fix for EVaR of random rewards, otherwise null"
    ]
    with pytest.raises(eb.CertificateError, match="lams must be those that horizon and rewards fix"):
        eb.Certificate.load(tmp_path / "forged.json")


def test_the_declared_lambdas_depend_on_the_range_of_the_return_alone(noisy_result):
    """Trap: a grid that depends on the level is another one for whoever certifies another level."""
    lams = np.array(noisy_result.certificate.problem.lams)
    assert lams == pytest.approx(600 * 2.0 ** (-np.arange(256)[::-1] / 16), rel=1e-11)
    assert lams[-1] <= 600
    env = noisy.bandit()
    options = {"reward_law": "random", "eps": 1.0, "delta": 0.01, "max_episodes": 1, "seed": 0}
    long = eb.identify(env, risk=eb.EVaR(0.9), horizon=2, reward_range=(-3.0, 1.0), **options).certificate
    assert np.array(long.problem.lams) == pytest.approx(lams / 8, rel=1e-15)


def test_levels_close_to_1_of_random_rewards_are_refused():
    env = noisy.bandit()
    options = {
        "horizon": 1,
        "reward_range": (0, 1),
        "reward_law": "random",
        "eps": 0.5,
        "delta": 0.1,
        "max_episodes": 5,
    }
    assert eb.verify(eb.identify(env, risk=eb.EVaR(0.99), **options).certificate).ok
    with pytest.raises(eb.InvalidProblemError, match=r"alpha of at most 0\.99, got 0\.995"):
        eb.identify(env, risk=eb.EVaR(0.995), **options)


# -- how often it fails -------------------------------------------------------------------------------------------------


def failures(runs, max_episodes):
    stopped = failed = 0
    rng = np.random.default_rng(11)
    models = [eb.instances.risky_bridge(horizon=4), eb.instances.river_swim(4, horizon=4)]
    models += [eb.instances.garnet(3, 2, 2, horizon=3, seed=seed) for seed in range(3)]
    models += [
        eb.FiniteMDP(
            rng.dirichlet(np.full(3, 0.6), (3, 2)), rng.random((3, 2)) - 0.3, horizon=2, start=rng.dirichlet(np.ones(3))
        )
        for _ in range(3)
    ]
    for number, mdp in enumerate(models):
        spread = eb.max_return(mdp) - mdp.reward_range[0] * mdp.horizon
        for run in range(runs):
            options = {"stationary": run % 2 == 1, "successors": None if run % 4 > 1 else "model", "replan": 0.1}
            options |= {"eps": 0.12 * spread, "delta": 0.1, "max_episodes": max_episodes, "seed": 100 * number + run}
            found = eb.identify(mdp, risk=eb.EVaR((0.05, 0.3, 0.7)[run % 3]), **options)
            stopped += found.stopped
            failed += not is_true(found.certificate, mdp)
    return stopped, failed


def test_false_certificates_are_no_more_frequent_than_promised():
    stopped, failed = failures(2, 3000)
    assert stopped >= 8
    assert stats.binomtest(failed, 16, 0.1, alternative="greater").pvalue > 1e-3


@pytest.mark.slow
def test_false_certificates_are_no_more_frequent_than_promised_in_a_thousand_runs():
    stopped, failed = failures(125, 30_000)
    print(f"{stopped} of 1000 runs stopped, {failed} false certificates")
    assert stopped >= 600
    assert stats.binomtest(failed, 1000, 0.1, alternative="greater").pvalue > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mdp", "alpha", "eps", "most"),
    [
        (eb.instances.risky_bridge(horizon=7), 0.1, 0.2, 63),
        (eb.instances.risky_bridge(horizon=7), 0.5, 0.2, 116),
        (eb.instances.river_swim(6, horizon=10), 0.1, 0.3, 2200),
        (eb.instances.garnet(10, 3, 3, horizon=6, seed=1), 0.1, 0.1, 65_000),
    ],
    ids=["bridge, 0.1", "bridge, 0.5", "river", "garnet"],
)
def test_stopping_times_are_no_worse_than_the_prototypes(mdp, alpha, eps, most):
    episodes = [identified(mdp, alpha, eps=eps, seed=seed).episodes for seed in range(5)]
    print(episodes)
    assert np.mean(episodes) <= most


def test_a_problem_has_one_risk():
    problem = Problem.from_mdp(BRIDGE, risk=eb.EVaR(0.05), eps=0.1, delta=0.1)
    assert math.isnan(problem.beta)
    assert problem.goal.risk == eb.EVaR(0.05)
    assert problem.at(-2.0, 0.3).goal == (eb.Entropic(-2.0), 0.3, 0.1)
    with pytest.raises(eb.InvalidProblemError, match="one risk parameter"):
        KL(problem)
