"""The loop: what it accepts, what it reports, that it repeats, and that its two engines are one learner."""

import hashlib
import json
import math
import sys
from datetime import UTC, datetime

import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi.methods.bernstein import Bernstein
from entropic_bpi.methods.kl.method import KL
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.runs.loop import EVERY_CHUNK, FULL_HISTORY
from entropic_bpi.sources.simulator import Simulator

GARNET = eb.instances.garnet(3, 2, 2, horizon=3, seed=0)
BRIDGE = eb.instances.risky_bridge(horizon=7)
NEXT = eb.FiniteMDP(np.full((2, 3, 2), 0.5), np.arange(12.0).reshape(2, 3, 2) / 12, horizon=3)
PER_STEP = eb.instances.garnet(3, 2, 2, horizon=4, seed=0, stationary=False)
METHODS = [
    {"method": "kl"},
    {"method": "bernstein", "constants": "verified"},
    {"method": "bernstein", "constants": "sharp"},
    {"method": "bernstein", "constants": "printed"},
]


def run(mdp=GARNET, **options):
    return eb.identify(mdp, **{"beta": 1.0, "eps": 0.5, "delta": 0.1, "seed": 0, "max_episodes": 300, **options})


# -- what it accepts -------------------------------------------------------------------------------------------

BAD = [
    ({"beta": math.nan}, "beta must be a finite real number, got nan"),
    ({"beta": math.inf}, "beta must be a finite real number, got inf"),
    ({"beta": "risky"}, "beta must be a finite real number, got 'risky'"),
    ({"eps": 0.0}, "eps must be greater than 0, got 0.0"),
    ({"eps": -1}, "eps must be greater than 0"),
    ({"eps": math.nan}, "eps must be a finite real number"),
    ({"delta": 0.0}, "delta must lie strictly between 0 and 1, got 0.0"),
    ({"delta": 1}, "delta must lie strictly between 0 and 1, got 1.0"),
    ({"delta": None}, "delta must be a finite real number, got None"),
    ({"method": "ucb"}, "method must be one of kl, bernstein.*; got 'ucb'"),
    ({"method": None}, "method must be one of kl, bernstein.*; got None"),
    ({"constants": "sharp"}, "constants='sharp' belongs to method 'bernstein'"),
    ({"method": "bernstein", "constants": "tight"}, "constants of method='bernstein' must be one of verified, sharp, "),
    ({"method": "bernstein", "sampling": "challenger"}, "sampling of method='bernstein' must be one of optimistic"),
    ({"sampling": "greedy"}, "sampling of method='kl' must be one of challenger, optimistic; got 'greedy'"),
    ({"replan": "never"}, r"replan must be 'every' or a ratio in \(0, 1\] such as 0.01, got 'never'"),
    ({"replan": 0}, r"replan must be 'every' or a ratio in \(0, 1\] such as 0.01, got 0"),
    ({"replan": -0.1}, r"replan must be 'every' or a ratio in \(0, 1\] such as 0.01, got -0.1"),
    ({"replan": 1.5}, r"replan must be 'every' or a ratio in \(0, 1\] such as 0.01, got 1.5"),
    ({"replan": math.nan}, "replan must be a finite real number"),
    ({"horizon": 4}, "horizon is 4, but the model's is 3"),
    ({"reward_range": (0, 1)}, "a FiniteMDP's are known"),
    ({"stationary": "yes"}, "stationary must be True or False, got 'yes'"),
    ({"stationary": 2}, "stationary must be True or False, got 2"),
    ({"successors": "all"}, "successors must be None, 'model' or a boolean mask"),
    ({"successors": np.ones((3, 2, 3))}, "boolean mask of shape .* got dtype float64"),
    ({"successors": np.ones((2, 2, 3), dtype=bool)}, r"shape \(S, A, S\) = \(3, 2, 3\); got dtype bool, shape \(2, 2, 3\)"),
    ({"successors": np.zeros((3, 2, 3), dtype=bool)}, r"successors\[s=0, a=0\] allows no next state"),
    ({"max_episodes": 0}, "max_episodes must be at least 1, got 0"),
    ({"max_episodes": 2.5}, "max_episodes must be an integer, got 2.5"),
    ({"max_episodes": True}, "max_episodes must be an integer, got True"),
    ({"seed": -1}, "seed must be at least 0, got -1"),
    ({"seed": 1.0}, "seed must be an integer, got 1.0"),
    ({"ties": "first"}, "ties must be one of random, lowest; got 'first'"),
    ({"checkpoint": 7}, "checkpoint must be a path, got 7"),
    ({"checkpoint": "no/such/folder/file"}, "no/such/folder is not an existing folder"),
    ({"preregister": 7}, "preregister must be a path, got 7"),
    ({"preregister": "no/such/folder/file"}, "preregister: no/such/folder/file cannot be written"),
    ({"mdp": PER_STEP, "stationary": True}, "differ between steps"),
    ({"mdp": NEXT, "method": "bernstein"}, "method='bernstein' needs rewards that depend on .* Use method='kl'"),
    ({"mdp": NEXT, "method": "bernstein", "constants": "sharp"}, "Use method='kl'"),
    ({"method": "bernstein", "beta": 0}, "constants='verified' needs beta != 0; constants='sharp' covers beta = 0"),
    ({"method": "bernstein", "beta": 201.0}, r"= 603 exceeds 600"),
    ({"method": "bernstein", "constants": "sharp", "beta": -1e6}, r"exceeds 600"),
    # What the verified constants ignore must still make sense.
    ({"method": "bernstein", "successors": "all"}, "successors must be None, 'model' or a boolean mask"),
    ({"method": "bernstein", "mdp": PER_STEP, "stationary": True}, "differ between steps"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "message"), BAD, ids=[str(list(options.items())[-1])[:40] for options, _ in BAD])
def test_bad_arguments_are_named(options, message):
    with pytest.raises(eb.InvalidProblemError, match=message):
        run(**options)


@pytest.mark.parametrize("source", [None, 3, "FrozenLake", GARNET.transitions], ids=["none", "int", "str", "array"])
def test_a_source_that_is_no_model_is_refused(source):
    with pytest.raises(eb.EntropicBPIError):
        run(source)


def test_errors_are_value_errors_too():
    with pytest.raises(ValueError):
        run(eps=0)


@pytest.mark.parametrize("beta", [-1e-12, 0.0, 1e-12])
def test_sharp_covers_the_expectation(beta):
    result = run(beta=beta, method="bernstein", constants="sharp", max_episodes=None, eps=1.0)
    assert result.stopped
    neutral = run(beta=0.0, method="bernstein", constants="sharp", max_episodes=None, eps=1.0)
    assert result.episodes == neutral.episodes
    np.testing.assert_array_equal(result.policy, neutral.policy)
    np.testing.assert_allclose(
        [result.certificate.lower, result.certificate.upper, result.certificate.gap],
        [neutral.certificate.lower, neutral.certificate.upper, neutral.certificate.gap],
        rtol=1e-9,
    )


@pytest.mark.parametrize("options", METHODS, ids=str)
@pytest.mark.parametrize("exponent", [-600, -599.9, -100, 100, 599.9, 600])
def test_large_exponents_never_give_nan(options, exponent):
    for mdp in (GARNET, eb.FiniteMDP(GARNET.transitions, 20 * GARNET.rewards - 7, horizon=3, start=[0.2, 0.3, 0.5])):
        low, high = (0, 1) if mdp is GARNET else mdp.reward_range
        steps = 3 if mdp is GARNET else 4
        beta = exponent / ((high - low) * steps) * (1 - 1e-12)
        result = run(mdp, beta=beta, eps=1e-3, max_episodes=20_000, **options)
        for bound in (result.certificate.lower, result.certificate.upper, result.certificate.gap):
            assert math.isfinite(bound)
        assert not any(np.isnan(result.history[name]).any() for name in ("lower", "upper", "gap"))
        optimum, value = eb.solve(mdp, beta).value, eb.evaluate(mdp, result.policy, beta).value
        assert result.certificate.lower <= value + 1e-9
        assert optimum <= result.certificate.upper + 1e-9
        assert optimum - value <= result.certificate.gap + 1e-9


# -- what it reports -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("replan", ["every", 0.05, None])
@pytest.mark.parametrize("options", METHODS, ids=str)
def test_history_has_a_row_for_every_plan(options, replan):
    result = run(replan=replan, eps=1e-6, max_episodes=500, **options)
    history = result.history
    assert history.dtype.names == ("episodes", "lower", "upper", "gap")
    assert history["episodes"][0] == 0
    assert history["episodes"][-1] == result.episodes == 500
    assert (np.diff(history["episodes"]) > 0).all()
    if replan == "every":
        np.testing.assert_array_equal(history["episodes"], np.arange(501))
    else:
        ratio = 0.01 if replan is None else replan
        grid = [0]
        while grid[-1] < 500:
            grid.append(min(500, grid[-1] + max(1, math.ceil(ratio * grid[-1]))))
        np.testing.assert_array_equal(history["episodes"], grid)
    assert (history["lower"] <= history["upper"]).all()
    assert (history["gap"] > 0).all()


def test_long_histories_are_thinned_and_stay_in_order():
    result = run(replan="every", method="bernstein", eps=1e-6, max_episodes=30_001)
    episodes = result.history["episodes"]
    assert (np.diff(episodes) > 0).all()
    np.testing.assert_array_equal(episodes[: FULL_HISTORY + 1], np.arange(FULL_HISTORY + 1))
    late = episodes[FULL_HISTORY:]
    assert (np.diff(late) <= late[:-1] / 500).all()
    assert len(late) < 2500
    assert episodes[-1] == 30_001


@pytest.mark.parametrize("options", METHODS, ids=str)
def test_the_same_seed_repeats_a_run(options):
    budget = {"eps": 1e-6, "max_episodes": 2000 if options["method"] == "kl" else 10**7}
    first, second, other = (run(seed=seed, **budget, **options) for seed in (5, 5, 6))
    assert (first.seed, other.seed) == (5, 6)
    assert first.episodes == second.episodes
    np.testing.assert_array_equal(first.policy, second.policy)
    np.testing.assert_array_equal(first.history, second.history)
    assert (first.history["upper"] != other.history["upper"]).any()


def test_a_run_without_a_seed_reports_the_one_it_used():
    first = run(seed=None)
    again = run(seed=first.seed)
    np.testing.assert_array_equal(first.history, again.history)
    assert run(seed=None).seed != first.seed


@pytest.mark.parametrize("options", METHODS, ids=str)
def test_ties_go_to_the_lowest_action_on_request(options):
    twins = eb.FiniteMDP(np.full((2, 4, 2), 0.5), np.full((2, 4), 0.5), horizon=2)
    result = run(twins, ties="lowest", max_episodes=1, eps=1e-9, **options)
    assert (result.policy == 0).all()
    chosen = {int(run(twins, seed=seed, max_episodes=1, eps=1e-9, **options).policy[0, 0]) for seed in range(40)}
    assert chosen == {0, 1, 2, 3}


def method_of(problem, options, seed=1):
    return (
        KL(problem, "challenger", seed) if options["method"] == "kl" else Bernstein(problem, options["constants"], seed)
    )


def replanned(certificate, options):
    counts = Counts(certificate.problem)
    counts.add(certificate.transitions, certificate.episodes)
    return method_of(certificate.problem, options, 0).plan(counts, 0)


@pytest.mark.parametrize("replan", ["every", 0.1])
@pytest.mark.parametrize("options", METHODS, ids=str)
@pytest.mark.parametrize("beta", [-1.0, 1.0])
def test_a_spent_budget_reports_the_best_plan_with_its_own_counts(options, replan, beta):
    result = run(beta=beta, eps=1e-6, max_episodes=4000, replan=replan, ties="lowest", **options)
    certificate = result.certificate
    assert not result.stopped
    assert result.episodes == 4000
    assert certificate.episodes <= 4000
    assert certificate.transitions.times.sum() == 3 * certificate.episodes
    plan = replanned(certificate, options)
    if options["method"] == "bernstein":
        np.testing.assert_array_equal(plan.policy, result.policy)
        assert (plan.bounds.lower, plan.bounds.upper) == (certificate.lower, certificate.upper)
        assert certificate.gap == min(plan.bounds.gap, plan.bounds.upper - plan.bounds.lower)
        # No plan of the run (with replan="every", none that was looked at) had a smaller gap.
        claimed = np.minimum(result.history["gap"], result.history["upper"] - result.history["lower"])
        if replan != "every":
            assert certificate.gap == claimed.min()
    optimum, value = eb.solve(GARNET, beta).value, eb.evaluate(GARNET, result.policy, beta).value
    assert certificate.lower <= value
    assert optimum <= certificate.upper
    assert optimum - value <= certificate.gap


@pytest.mark.parametrize("options", METHODS, ids=str)
def test_a_stop_is_certified_by_the_counts_at_the_stop(options, tmp_path):
    eps = 0.3
    result = run(eps=eps, max_episodes=None, ties="lowest", **options)
    assert result.stopped
    assert result.episodes > 0
    assert result.certificate.episodes == result.episodes
    assert result.certificate.reached
    assert result.history["gap"][-1] <= eps < result.history["gap"][:-1].min()
    result.certificate.save(tmp_path / "claim.json")
    loaded = eb.Certificate.load(tmp_path / "claim.json")
    assert (loaded.lower, loaded.upper, loaded.gap) == (
        result.certificate.lower,
        result.certificate.upper,
        result.certificate.gap,
    )
    np.testing.assert_array_equal(loaded.policy, result.policy)
    plan = replanned(loaded, options)
    # The claim of the kl method is converged, its plans are a little loose.
    slack = 1e-4 if loaded.method == "kl" else 1e-12
    assert (plan.bounds.lower, plan.bounds.upper) == pytest.approx((loaded.lower, loaded.upper), abs=slack)
    assert loaded.gap <= plan.bounds.gap + 1e-10


def test_verified_says_what_it_ignores_and_what_is_not_machine_checked():
    plain = run(method="bernstein", replan="every", max_episodes=1)
    assert not any("machine-checked" in line or "ignores" in line for line in plain.certificate.assumptions)
    shifted = eb.FiniteMDP(GARNET.transitions, 3 * GARNET.rewards, horizon=3, start=[0.5, 0.5, 0])
    result = run(shifted, method="bernstein", stationary=True, successors="model", max_episodes=1)
    text = " ".join(result.certificate.assumptions)
    for words in ("ignores stationary and successors", "in batches", "rescaled", "start is random"):
        assert words in text
    assert not result.certificate.stationary
    assert result.certificate.successors == "unknown"


def test_printed_says_what_it_ignores_and_what_it_rests_on():
    result = run(method="bernstein", constants="printed", stationary=True, max_episodes=1)
    text = " ".join(result.certificate.assumptions)
    for words in (
        "constants='printed' ignores stationary",
        "the bonus is the one that the paper prints",
        "S <= 16H/(H",
    ):
        assert words in text
    assert "machine-checked" not in text
    assert eb.verify(result.certificate).ok


def test_rewards_in_other_units_give_the_same_run_in_those_units():
    scaled = eb.FiniteMDP(GARNET.transitions, 10 * GARNET.rewards - 4, horizon=3, start=GARNET.start)
    low, high = GARNET.reward_range
    unit = eb.FiniteMDP(GARNET.transitions, (GARNET.rewards - low) / (high - low), horizon=3, start=GARNET.start)
    for constants in ("verified", "sharp", "printed"):
        ours = run(scaled, method="bernstein", constants=constants, beta=0.1, eps=1e-3, max_episodes=10**7)
        theirs = run(unit, method="bernstein", constants=constants, beta=(high - low), eps=1e-3, max_episodes=10**7)
        scale, offset = 10 * (high - low), 3 * (10 * low - 4)
        np.testing.assert_array_equal(ours.policy, theirs.policy)
        np.testing.assert_allclose(ours.history["upper"], offset + scale * theirs.history["upper"], rtol=1e-9)
        np.testing.assert_allclose(ours.history["gap"], scale * theirs.history["gap"], rtol=1e-9)


# -- a run that is announced -----------------------------------------------------------------------------------


def digest(content):
    return hashlib.sha256(content).hexdigest()


def test_an_announcement_commits_to_the_run_before_its_first_episode(tmp_path, monkeypatch):
    path, seen = tmp_path / "preregistration.json", []

    def play(self, *arguments):
        seen.append(path.read_bytes())
        return original(self, *arguments)

    original = Simulator.play
    monkeypatch.setattr(Simulator, "play", play)
    before = datetime.now(UTC).replace(microsecond=0)
    result = run(preregister=path)
    assert len(set(seen)) == 1
    assert result.certificate.provenance.preregistration == digest(seen[0]) == digest(path.read_bytes())
    content = json.loads(seen[0])
    assert content["format"] == "entropic-bpi preregistration"
    assert content["library"] == eb.__version__
    assert before <= datetime.fromisoformat(content["time"]) <= datetime.now(UTC)
    assert content["seed_sha256"] == digest(str(result.seed).encode())
    assert content["max_episodes"] == 300
    settings = {"beta": "1.0", "eps": "0.5", "delta": "0.1", "method": '"kl"', "horizon": "3", "n_states": "3"}
    assert settings.items() <= content["run"].items()
    assert content["run"]["source_hash"] == f'"{GARNET.content_hash}"'
    np.testing.assert_array_equal(result.history, run().history)  # it changes nothing
    result.certificate.save(tmp_path / "claim.json")
    loaded = eb.Certificate.load(tmp_path / "claim.json")
    assert loaded.provenance.preregistration == digest(seen[0])
    assert eb.verify(loaded).ok


def test_an_announcement_that_exists_is_never_replaced(tmp_path):
    path = tmp_path / "preregistration.json"
    run(preregister=path)
    before = path.read_bytes()
    for change in (
        {"beta": 2.0},
        {},
    ):  # the same run again may have another result if the environment's luck is its own
        with pytest.raises(eb.InvalidProblemError, match=r"preregistration\.json belongs to another run"):
            run(preregister=path, **change)
    assert path.read_bytes() == before


def test_a_run_that_is_taken_up_keeps_its_announcement(tmp_path):
    path, saved = tmp_path / "preregistration.json", tmp_path / "run.ckpt"
    first = run(preregister=path, checkpoint=saved, max_episodes=20, seed=None)
    for preregister in (path, None):
        resumed = run(preregister=preregister, checkpoint=saved, max_episodes=200, seed=None)
        assert resumed.episodes > 20
        assert resumed.certificate.provenance == first.certificate.provenance
    path.write_bytes(path.read_bytes().replace(b"0.5", b"0.4"))
    with pytest.raises(eb.InvalidProblemError, match="is not the preregistration with which this run began"):
        run(preregister=path, checkpoint=saved, seed=None)
    path.unlink()
    with pytest.raises(eb.InvalidProblemError, match="is not the preregistration with which"):
        run(preregister=path, checkpoint=saved, seed=None)


def test_a_run_that_has_begun_cannot_be_announced(tmp_path):
    path, saved = tmp_path / "preregistration.json", tmp_path / "run.ckpt"
    run(checkpoint=saved, max_episodes=20)
    with pytest.raises(eb.InvalidProblemError, match="is not the preregistration with which"):
        run(preregister=path, checkpoint=saved)
    assert not path.exists()


def test_an_announced_run_can_be_taken_up_from_its_first_moment(tmp_path, monkeypatch):
    path, saved = tmp_path / "preregistration.json", tmp_path / "run.ckpt"

    def killed(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["entropic_bpi.runs.identification"], "_watch", killed)
        with pytest.raises(KeyboardInterrupt):
            run(preregister=path, checkpoint=saved)
    assert run(preregister=path, checkpoint=saved).certificate.provenance.preregistration == digest(path.read_bytes())


# -- what it may know ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("successors", [None, "model"])
@pytest.mark.parametrize("options", METHODS, ids=str)
def test_a_learner_never_reads_the_probabilities(options, successors):
    """Swap the model under counts that were already drawn: the plan must not change."""
    rows = GARNET.rows
    weights = np.random.default_rng(0).random(rows.probabilities.size)
    totals = np.add.reduceat(weights, rows.indptr[:-1])
    other = eb.SparseTransitions(rows.indptr, rows.indices, weights / np.repeat(totals, np.diff(rows.indptr)))
    swapped = eb.FiniteMDP(other, GARNET.rewards, horizon=3, start=GARNET.start)
    plans = []
    for model in (GARNET, swapped):
        problem = Problem.from_mdp(model, beta=1.0, eps=0.1, delta=0.1, successors=successors)
        counts = Counts(problem)
        drawn = Counts(Problem.from_mdp(GARNET, beta=1.0, eps=0.1, delta=0.1, successors=successors))
        behaviour = method_of(drawn.problem, options).plan(drawn, 0).behaviour
        Simulator(GARNET, drawn.problem, np.random.default_rng(3)).play(behaviour, 5000, drawn)
        counts.add(drawn.transitions(), 5000)
        plans.append(method_of(problem, options).plan(counts, 0))
    assert plans[0].bounds == plans[1].bounds
    np.testing.assert_array_equal(plans[0].policy, plans[1].policy)
    for ours, theirs in zip(plans[0].behaviour, plans[1].behaviour, strict=True):
        np.testing.assert_array_equal(ours, theirs)


# -- two engines, one learner ----------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [-1.5, 1.5])
@pytest.mark.parametrize("options", METHODS[1:], ids=str)
@pytest.mark.parametrize(
    "model",
    [
        GARNET,
        eb.FiniteMDP(GARNET.transitions, 4 * GARNET.rewards - 1, horizon=3, start=[0.3, 0.3, 0.4]),
        eb.instances.garnet(80, 2, 3, horizon=3, seed=2),
    ],
    ids=["small", "random start", "open-ended"],
)
def test_the_compiled_loop_plans_as_single_plans_do(model, options, beta):
    """Every row of the history of single episodes is what a fresh plan says of the same counts."""
    problem = Problem.from_mdp(model, beta=beta, eps=1e-3, delta=0.1)
    method, counts = method_of(problem, options), Counts(problem)
    simulator = Simulator(model, problem, np.random.default_rng(0))
    replay = Simulator(model, problem, np.random.default_rng(0))
    plan = method.plan(counts, 0)
    shadow = Counts(problem)
    for _ in range(4):
        before = counts.episodes
        bounds = method.play_every(plan, counts, simulator, before, 40)
        for i in range(counts.episodes - before):
            single = method_of(problem, options)  # knows nothing but the counts
            step = single.play_every(single.plan(shadow, 0), shadow, replay, 0, 1)
            fresh = method_of(problem, options).plan(shadow, 0)
            assert (bounds.lower[i], bounds.upper[i], bounds.gap[i]) == fresh.bounds
            assert (step.lower[0], step.upper[0], step.gap[0]) == fresh.bounds
        plan = method.plan(counts, counts.episodes)
        np.testing.assert_array_equal(plan.policy, fresh.policy)
    for ours, theirs in zip(counts.transitions(), shadow.transitions(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("options", METHODS, ids=str)
def test_the_compiled_loop_stops_at_the_first_plan_that_passes(options):
    mdp = (
        eb.instances.garnet(2, 2, 2, horizon=1, seed=0)
        if options.get("constants") in ("verified", "printed")
        else GARNET
    )
    probe = run(mdp, replan="every", eps=1e-9, max_episodes=9000, **options)
    gaps = probe.history["gap"]
    eps = 1.1 * float(gaps.min())
    assert math.isfinite(eps)
    first = int(np.flatnonzero(gaps <= eps)[0])
    result = run(mdp, replan="every", eps=eps, max_episodes=None, **options)
    assert result.stopped
    assert result.episodes == first > 0
    np.testing.assert_array_equal(result.history, probe.history[: first + 1])


def mean_stop(mdp, replan, seeds, **options):
    return np.mean([run(mdp, replan=replan, seed=seed, max_episodes=None, **options).episodes for seed in seeds])


def test_lazy_and_single_episode_planning_stop_alike():
    mdp = eb.instances.garnet(2, 2, 2, horizon=2, seed=0)
    options = {"method": "bernstein", "beta": 1.0, "eps": 0.3}
    every, lazy = (mean_stop(mdp, replan, range(8), **options) for replan in ("every", 0.01))
    assert every > 5 * EVERY_CHUNK
    assert abs(lazy / every - 1) < 0.02


# -- how soon it stops -----------------------------------------------------------------------------------------

MEASURED = [(7, 2.5, 2.08e8), (7, 3.0, 2.21e8), (7, 3.5, 2.57e8), (7, 4.0, 3.30e8), (7, 4.5, 4.52e8), (7, -1.0, 1.21e7)]
MEASURED += [
    (horizon, 0.5, episodes)
    for horizon, episodes in zip(range(5, 18, 2), [1.07e7, 1.63e7, 2.45e7, 3.33e7, 4.27e7, 5.37e7, 6.62e7], strict=True)
]


@pytest.mark.parametrize(("horizon", "beta", "measured"), MEASURED)
def test_the_bridge_is_identified_after_as_many_episodes_as_elsewhere(horizon, beta, measured):
    """An independent program measured these means over 15 seeds."""
    bridge = eb.instances.risky_bridge(horizon=horizon)
    options = {"method": "bernstein", "beta": beta, "eps": 0.2}
    assert mean_stop(bridge, None, range(3), **options) == pytest.approx(measured, rel=0.03)
    sharp = run(bridge, max_episodes=None, constants="sharp", **options)
    assert sharp.episodes < measured / 4


@pytest.mark.slow
@pytest.mark.parametrize(("horizon", "beta", "measured"), MEASURED)
def test_the_bridge_is_identified_after_as_many_episodes_as_elsewhere_over_15_seeds(horizon, beta, measured):
    bridge = eb.instances.risky_bridge(horizon=horizon)
    options = {"method": "bernstein", "beta": beta, "eps": 0.2}
    mean = mean_stop(bridge, None, range(15), **options)
    assert mean == pytest.approx(measured, rel=0.03)
    assert mean_stop(bridge, None, range(15), constants="sharp", **options) < mean / 4


def test_certificates_are_plain_json(tmp_path):
    result = run(BRIDGE, successors="model", beta=-1.0, eps=0.5, max_episodes=None)
    result.certificate.save(tmp_path / "claim.json")
    content = json.loads((tmp_path / "claim.json").read_text())
    assert content["claim"]["gap"] == result.certificate.gap
