"""Appraisals: intervals contain the truth, exact values of known models, forms of evidence and policies, refusals."""

import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi.show.decisions import decision_of
from tests.reports import Corridor, log, made

MEASURES = ["mean", "cvar 0.05", "cvar 1", "quantile 0.1", "entropic -1", "evar 0.1", "below 0", "above 1"]


def drawn_model(seed):
    rng = np.random.default_rng(seed)
    S, A, H = int(rng.integers(2, 5)), 2, int(rng.integers(1, 5))
    rewards = rng.normal(size=(H, S, A, S)).round(1 if seed % 2 else 9)
    start = 0 if seed % 3 else rng.dirichlet(np.ones(S))
    return eb.FiniteMDP(rng.dirichlet(np.full(S, 0.5), size=(S, A)), rewards, horizon=H, start=start)


def drawn_run(mdp, seed, episodes=200):
    options = {"stationary": bool(seed % 2), "successors": "model" if seed % 4 else None, "seed": seed}
    return eb.identify(mdp, beta=-0.5, eps=1e-3, delta=0.05, max_episodes=episodes, **options)


@pytest.mark.parametrize("seed", [0, 1, 2, 3, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (4, 5))])
def test_intervals_contain_what_is_true_and_are_verified(seed):
    mdp = drawn_model(seed)
    run = drawn_run(mdp, seed)
    policies = {"found": run, "zero": 0 * run.policy, "estimate": run.best_estimate}
    appraisal = eb.appraise(run, policies, measures=MEASURES, bins=None if seed % 2 else 60)
    exact = eb.appraise(mdp, appraisal.policies, measures=MEASURES)
    assert len(appraisal.table) == len(policies) * len(MEASURES)
    for stated, true in zip(appraisal.table, exact.table, strict=True):
        assert (stated["policy"], stated["measure"]) == (true["policy"], true["measure"])
        assert stated["lower"] - 1e-9 <= true["lower"] <= true["upper"] <= stated["upper"] + 1e-9
    for stated, true in zip(appraisal.differences, exact.differences, strict=True):
        assert stated[:3] == true[:3]
        assert stated.lower - 1e-9 <= true.lower <= true.upper <= stated.upper + 1e-9
    assert eb.verify(appraisal).ok
    assert {(*pair, pair.measure) for pair in appraisal.order} <= {(*pair, pair.measure) for pair in exact.order}


def test_an_order_is_certain_although_intervals_overlap():
    """Two policies that differ at the first step only share all uncertainty of what follows."""
    mdp = eb.FiniteMDP([[[0.8, 0.2], [1.0, 0.0]], [[0.6, 0.4], [1.0, 0.0]]], [[1.0, 0.1], [-0.5, -3.0]], horizon=12)
    declared = {"stationary": True, "successors": "model"}
    run = eb.identify(mdp, beta=-0.1, eps=1e-3, delta=0.05, max_episodes=100, **declared, seed=1)
    better = np.zeros((12, 2), dtype=int)
    worse = better.copy()
    worse[0] = 1
    measures = ["mean", "entropic -0.02", "entropic 0.02", "cvar 0.1"]
    appraisal = eb.appraise(run, {"worse": worse, "better": better}, measures=measures)
    exact = eb.appraise(mdp, appraisal.policies, measures=measures)
    certain = {pair.measure for pair in appraisal.order if pair == ("better", "worse")}
    assert certain == set(measures[:3])
    for found, true in zip(appraisal.differences, exact.differences, strict=True):
        (low, high), (least, most) = (appraisal.interval(name, found.measure) for name in (found.policy, found.other))
        assert low < most
        assert least < high
        assert found.lower <= true.lower <= true.upper <= found.upper
        assert (found.upper - found.lower < 0.5 * (high - least - low + most)) == (found.measure != "cvar 0.1")
    advice = decision_of(appraisal).advice[0]
    assert advice.startswith("By the mean, ")
    assert advice.endswith("“better” is certainly better than every other policy here.")
    assert eb.verify(appraisal).ok


def test_a_known_model_has_exact_values():
    bridge = eb.instances.risky_bridge(horizon=7)
    solution = eb.solve(bridge, 2.5)
    law = eb.return_law(bridge, solution.policy)
    appraisal = eb.appraise(bridge, {"bold": solution}, measures=MEASURES)
    values = {row["measure"]: (row["lower"], row["upper"]) for row in appraisal.table}
    truth = [
        law.mean,
        law.cvar(0.05),
        law.mean,
        law.quantile(0.1),
        law.entropic_risk(-1),
        law.evar(0.1),
        0.9925,
        0.0075,
    ]
    for measure, value in zip(MEASURES, truth, strict=True):
        assert values[measure] == pytest.approx((value, value))
    assert appraisal.delta is None
    with pytest.raises(eb.InvalidProblemError, match="there are no data to check"):
        appraisal.save("nowhere.json")


def test_a_known_model_with_too_many_returns_is_bracketed(monkeypatch):
    monkeypatch.setattr("entropic_bpi.runs.appraisal.return_law", few_returns)
    mdp = drawn_model(2)
    policy = np.zeros((mdp.horizon, mdp.n_states), dtype=int)
    law = eb.return_law(mdp, policy)
    appraisal = eb.appraise(mdp, {"zero": policy}, measures=["mean", "cvar 0.05", "below 0"])
    for measure, value in (("mean", law.mean), ("cvar 0.05", law.cvar(0.05))):
        lower, upper = appraisal.interval("zero", measure)
        assert lower <= value <= upper
        assert upper - lower < 0.1


def few_returns(mdp, policy, bins):
    return eb.return_law(mdp, policy, bins=bins, max_support=100_000 if bins else 1)


def test_every_form_of_the_same_evidence_gives_the_same_intervals(tmp_path):
    run = made("gap certificate")
    policies = {"found": run.policy}
    tables = [eb.appraise(evidence, policies).table for evidence in (run, run.certificate, run.certificate.counts)]
    assert tables[0] == tables[1] == tables[2]


def test_every_form_of_a_policy_is_read():
    bridge = eb.instances.risky_bridge(horizon=5)
    run = eb.identify(bridge, beta=-1.0, eps=0.3, delta=0.1, seed=1, successors="model")
    safe = dict.fromkeys(bridge.state_names, "safe")
    forms = {
        "array": np.zeros((5, 8), dtype=int),
        "names": safe,
        "function": lambda name: safe[name],
        "nested": np.zeros((5, 8), dtype=int).tolist(),
    }
    appraisal = eb.appraise(run, forms)
    assert all((policy == 0).all() for policy in appraisal.policies.values())
    others = {
        "run": run,
        "certificate": run.certificate,
        "policy": eb.Policy.load(run),
        "solution": eb.solve(bridge, -1.0),
    }
    appraisal = eb.appraise(run, others)
    assert all((appraisal.policies[name] == run.policy).all() for name in ("run", "certificate", "policy"))


def test_a_log_is_appraised_under_its_declarations():
    policies = {"walk": dict.fromkeys(["home", "town", "office"], "walk"), "bus": lambda place: "bus"}
    declared = {"delta": 0.05, "horizon": 3, "reward_range": (0, 1)}
    appraisal = eb.appraise(log(), policies, measures=["mean", "above 1"], **declared)
    assert eb.verify(appraisal).ok
    mean, reached = (appraisal.interval("bus", measure) for measure in ("mean", "above 1"))
    # Two rides in three must succeed, with probability 0.8 each: the office is reached at step 2 or 3.
    assert mean[0] <= 0.8**2 + 0.8**2 + 2 * 0.8**2 * 0.2 <= mean[1]
    assert reached[0] <= 0.8**2 + 2 * 0.8**2 * 0.2 <= reached[1]


def test_returns_may_be_declared():
    declared = {"delta": 0.05, "horizon": 3, "reward_range": (0, 1), "return_range": (0, 2)}
    appraisal = eb.appraise(
        log(), {"bus": lambda place: "bus"}, measures=["quantile 0.9", "above 2.5", "cvar 0.9"], **declared
    )
    assert appraisal.interval("bus", "above 2.5")[1] == 0
    assert appraisal.interval("bus", "quantile 0.9")[1] <= 2.0 + 1e-6
    assert eb.verify(appraisal).ok


def test_discounted_returns_reckon_with_what_comes_after_the_horizon():
    river = eb.instances.river_swim(n_states=3, horizon=1)
    run = eb.identify(river, discount=0.7, beta=-1.0, eps=0.6, delta=0.1, seed=1, successors="model")
    appraisal = eb.appraise(run, {"found": run}, measures=["mean", "cvar 0.1", "below 0.2"])
    assert eb.verify(appraisal).ok
    forever = eb.discounted(river, 0.7, horizon=60)
    policy = np.concatenate([run.policy, np.repeat(run.policy[-1:], 60 - len(run.policy), axis=0)])
    law = eb.return_law(forever, policy, bins=3000)
    lower, upper = appraisal.interval("found", "cvar 0.1")
    assert lower <= law.upper.cvar(0.1)
    assert law.lower.cvar(0.1) <= upper
    mean = appraisal.interval("found", "mean")
    assert mean[0] <= law.upper.mean
    assert law.lower.mean <= mean[1]


@pytest.mark.parametrize("discount", [None, 0.6])
@pytest.mark.parametrize("reward", [0.0, 0.3, -2.0, 1e-200])
def test_a_return_that_is_certain_is_an_atom(reward, discount):
    """Discounted, rewards that are all equal have no range from which a step could be taken."""
    mdp = eb.FiniteMDP(np.full((2, 2, 2), 0.5), np.full((2, 2), reward), horizon=3)
    claim = eb.identify(mdp, beta=-0.5, eps=0.1, delta=0.1, discount=discount, max_episodes=3, seed=0).certificate
    value = 3 * reward if discount is None else reward / (1 - discount)
    room = 1e-8 * abs(reward) if reward else 1e-8
    for number, below in ((value + room, 1.0), (value - room, 0.0), (1e300, 1.0), (-1e308, 0.0)):
        measures = ("mean", "cvar 0.1", "quantile 0.5", f"below {number!r}", f"above {number!r}")
        found = eb.appraise(claim, {"any": claim.policy}, measures=measures)
        assert eb.verify(found).problems == []
        for row, exact in zip(found.table, (value, value, value, below, 1.0 - below), strict=True):
            assert exact - room <= row["lower"] <= exact <= row["upper"] <= exact + room


def test_random_rewards_are_refused():
    options = {"horizon": 3, "reward_range": (0, 1), "reward_law": "random", "delta": 0.1, "seed": 1}
    for beta, words in ((0.0, "one risk: certify"), (-1.0, "random rewards were learned for beta = -1")):
        run = eb.identify(Corridor, beta=beta, eps=0.5, max_episodes=300, **options)
        with pytest.raises(eb.InvalidProblemError, match=words):
            eb.appraise(run, {"found": run}, measures=["mean"])
        assert eb.certify(run, beta=beta, policies={"found": run}).intervals["found"][0] > 0 or beta


@pytest.mark.parametrize(
    "measures",
    [
        [],
        ["mean", "mean"],
        ["variance"],
        ["cvar"],
        ["cvar 0"],
        ["cvar x"],
        ["evar 1"],
        ["quantile 1"],
        ["below nan"],
        [3],
    ],
)
def test_what_is_no_measure_is_refused(measures):
    bridge = eb.instances.risky_bridge(horizon=3)
    with pytest.raises(eb.InvalidProblemError):
        eb.appraise(bridge, {"zero": np.zeros((3, 8), dtype=int)}, measures=measures)


@pytest.mark.parametrize("policies", [{}, None, ["a"], {"a": np.zeros((2, 2), dtype=int)}, {"a": {"s0": "fly"}}])
def test_what_is_no_policy_is_refused(policies):
    with pytest.raises(eb.InvalidProblemError):
        eb.appraise(eb.instances.risky_bridge(horizon=3), policies)


def test_a_forbidden_action_is_refused():
    allowed = np.array([[True, True], [True, False]])
    mdp = eb.FiniteMDP(np.full((2, 2, 2), 0.5), np.zeros((2, 2)), horizon=2, allowed=allowed)
    with pytest.raises(eb.InvalidProblemError, match=r"forbidden|allowed"):
        eb.appraise(mdp, {"one": np.ones((2, 2), dtype=int)})


def test_the_decision_names_what_is_certain_and_what_is_not():
    bridge = eb.instances.risky_bridge(horizon=5)
    run = eb.identify(bridge, beta=2.0, eps=0.05, delta=0.1, seed=1, successors="model", max_episodes=4000)
    policies = {"safe": eb.solve(bridge, -2.0), "bold": eb.solve(bridge, 2.0)}
    told = decision_of(eb.appraise(run, policies, measures=["mean", "below 0"]))
    assert told.sentence.startswith("With at least 90 % certainty, the policy “safe” earns at least")
    assert "is certainly better than every other policy" in " ".join(told.advice)
    few = eb.identify(bridge, beta=-1.0, eps=0.01, delta=0.1, seed=1, successors="model", max_episodes=3)
    told = decision_of(eb.appraise(few, policies, measures=["mean"]))
    assert "the data do not decide between" in told.advice[0]
    assert "more episodes" in told.advice[0]


def test_rewards_in_a_unit_have_it_in_every_number(tmp_path):
    prices = eb.FiniteMDP(
        np.full((2, 2, 2), 0.5), np.array([[1000.0, -20_500.0], [0.0, 3.0]]), horizon=2, unit="€", title="A shop"
    )
    appraisal = eb.appraise(
        prices, {"zero": np.zeros((2, 2), int), "one": np.ones((2, 2), int)}, measures=["mean", "below -5"]
    )
    told = decision_of(appraisal)
    assert "€1,500 on average" in told.sentence
    assert told.rows[1][1] == "−€30,700"
    assert appraisal.report(tmp_path / "page.html").ok
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "A shop" in page
    assert "probability of at most −\u2060€5" in page  # with no line break between sign and currency
    assert "certainly better" in appraisal._repr_html_()


def test_six_measures_are_the_default_and_with_a_discount_all_but_evar():
    bridge = eb.instances.risky_bridge(horizon=3)
    every = ["mean", "cvar 0.05", "quantile 0.05", "entropic -1", "evar 0.05", "below 0"]
    goal = {"beta": -1.0, "eps": 0.5, "delta": 0.1, "successors": "model", "seed": 1, "max_episodes": 20}
    run, endless = eb.identify(bridge, **goal), eb.identify(bridge, **goal, discount=0.5, stationary=True)
    for evidence, bins in ((bridge, None), (run, None), (endless, 40)):
        table = eb.appraise(evidence, {"own": run.policy if evidence is bridge else evidence.policy}, bins=bins).table
        assert [row["measure"] for row in table] == [
            one for one in every if evidence is not endless or one[:4] != "evar"
        ]
