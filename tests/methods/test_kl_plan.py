"""Optimistic and pessimistic planning over KL balls: against the plain reference, and under attack."""

import dataclasses
from functools import partial

import numpy as np
import pytest
from reference import kl as reference
from reference.kl_attack import Shape, attack_plan, draw, draw_paid

import entropic_bpi as eb
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.methods.bernstein import Bernstein
from entropic_bpi.methods.kl.method import KL
from entropic_bpi.problem import rows as problem_module
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.types import Transitions

ROUNDING = 1e-11


def each_place(t):
    return np.argwhere(t.reachable)


@pytest.mark.parametrize("sign", [1, -1])
def test_bounds_agree_with_the_plain_reference(sign):
    """Compiled bounds are on the safe side of the exact ones, and close."""
    for seed in range(60):
        case = draw(np.random.default_rng([seed, sign + 1]), Shape(sign=sign))
        t, method = case.tables, case.plan()
        z, u = reference.optimism(t)
        for kind in (0, 1):
            plan = method.plans[kind]
            exact = reference.candidate(t, z, u, plan.policy)
            for h, s in each_place(t):
                scale = max(1e-6, abs(np.log(exact.plain[h, s])))
                pairs = [
                    (sign * np.log(method.optimism.z[h, s]), sign * np.log(z[h, s])),
                    (-sign * np.log(plan.z[h, s]), -sign * np.log(exact.pessimistic[h, s])),
                    (np.log(plan.high[h, s]), np.log(exact.box_top[h, s])),
                ]
                for compiled, plain in pairs:
                    assert -ROUNDING <= compiled - plain <= 1e-3 * scale


def test_the_pessimistic_candidate_has_the_best_pessimistic_value():
    for seed in range(60):
        case = draw(np.random.default_rng([seed, 7]))
        t, method = case.tables, case.plan()
        exact = reference.candidate(t, *reference.optimism(t), method.plans[0].policy)
        for h, s in each_place(t):
            values = t.sign * np.log(exact.backups[h, s, : t.actions[h]])
            assert values[exact.policy[h, s]] >= values.max() - 1e-4 * max(1.0, np.ptp(values))


def attack_paid(seeds, law, excess=0.0):
    """The smallest slack of all cases; ``excess`` is taken from the logarithm of the reward's confidence."""
    smallest = np.inf
    for seed in seeds:
        case = draw_paid(np.random.default_rng([seed, 41]), law)
        method = KL(case.problem)
        method.rewards.terms = method.rewards.terms._replace(log_union=method.rewards.terms.log_union - excess)
        method.plan(case.counts, 0)
        for kind in (0, 1):
            smallest = min(smallest, attack_plan(case, method, kind, seed).min())
    return smallest


@pytest.mark.parametrize("law", ["random", "random-pair"])
def test_no_kernel_in_the_balls_and_no_rewards_within_their_bounds_contradict_the_plan(law):
    """The adversary also moves what each reward is worth to the ends of its interval."""
    assert attack_paid(range(60), law) >= -ROUNDING


@pytest.mark.slow
@pytest.mark.parametrize("law", ["random", "random-pair"])
def test_no_kernel_and_no_rewards_contradict_the_plan_in_many_cases(law):
    smallest = attack_paid(range(1000, 4000), law)
    print(f"{law}: smallest slack {smallest:.3g}")
    assert smallest >= -ROUNDING


@pytest.mark.parametrize("law", ["random", "random-pair"])
def test_bounds_on_rewards_that_are_a_little_too_tight_are_found_out(law):
    assert any(attack_paid([seed], law, excess=0.5) < -1e-4 for seed in range(30))


def attack_many(seeds, shape, starts=6):
    for seed in seeds:
        case = draw(np.random.default_rng([seed, 11]), shape)
        method = case.plan(seed=seed)
        for kind in (0, 1):
            slack = attack_plan(case, method, kind, seed, starts)
            assert slack.min() >= -ROUNDING, (seed, kind, slack)


@pytest.mark.parametrize(
    "shape",
    [
        Shape(),
        Shape(next_state_rewards=True, stationary=True),
        Shape(intervals=True),
        Shape(successors="unknown", random_start=True),
        Shape(horizons=(4, 5), states=(3,), actions=(2,)),
        Shape(states=(5, 6), horizons=(2,)),
    ],
    ids=["any", "next-state pooled", "unknown rewards", "unknown successors", "long", "wide"],
)
def test_no_kernel_in_the_balls_escapes_bounds_or_gap(shape):
    attack_many(range(170), shape)


# A random start and few visits: many of these were certified wrongly when a product overflowed.
STEEP = [
    Shape(exponents=(200.0, 599.0), sign=1),
    Shape(exponents=(200.0, 599.0), sign=-1),
    Shape(exponents=(350.0, 599.0), random_start=True, visits=(0, 1, 2, 3, 10)),
]
STEEP_NAMES = ["seeking", "averse", "few visits"]


@pytest.mark.parametrize("shape", STEEP, ids=STEEP_NAMES)
def test_no_kernel_in_the_balls_escapes_where_exponents_are_large(shape):
    """β times the range of the return up to where bounds are refused: weights and ratios fill the range of doubles."""
    attack_many(range(200), shape)


@pytest.mark.slow
@pytest.mark.parametrize("shape", STEEP, ids=STEEP_NAMES)
def test_no_kernel_in_the_balls_escapes_where_exponents_are_large_in_2e4_cases(shape):
    attack_many(range(20_000, 28_000), shape)


@pytest.mark.parametrize("beta", [356.0, 600.0])
def test_a_rare_jackpot_is_not_certified_away_by_an_overflow(beta):
    """(ρ - λ) times e^{βr} leaves the range of doubles: the chord was inf/inf, and comparing with NaN dropped it."""
    kernel = np.zeros((2, 2, 2))
    kernel[..., 0] = 1.0
    kernel[1, 1] = 0.5
    rewards = np.zeros((2, 2, 2))
    rewards[1, :, 1] = 1.0
    mask = np.ones((2, 2, 2), dtype=bool)
    mask[0, :, 1] = False
    mdp = eb.FiniteMDP(kernel, rewards, horizon=1, start=[0.5, 0.5])
    best = eb.solve(mdp, beta).value
    for seed in range(50):
        options = {"beta": beta, "eps": 0.05, "delta": 0.01, "successors": mask, "max_episodes": 300}
        result = eb.identify(mdp, **options, seed=seed)
        assert best - eb.evaluate(mdp, result.policy, beta).value <= result.certificate.gap


@pytest.mark.slow
def test_no_kernel_in_the_balls_escapes_bounds_or_gap_in_1e5_cases():
    attack_many(range(10_000, 110_000), Shape())


@pytest.mark.parametrize("sign", [1, -1])
def test_states_lumped_as_elsewhere_keep_the_bounds(monkeypatch, sign):
    """Rows that list only what was seen give the same plan as rows that list every state."""
    shape = Shape(successors="unknown", next_state_rewards=False, intervals=False, sign=sign, states=(3, 4, 5))
    for seed in range(100):
        full = draw(np.random.default_rng([seed, 13]), shape)
        monkeypatch.setattr(problem_module, "EXPLICIT_STATES", 0)
        lumped = draw(np.random.default_rng([seed, 13]), shape)
        monkeypatch.undo()
        assert (lumped.problem.slots.successor == lumped.problem.n_states).any()
        plans = [case.plan() for case in (full, lumped)]
        np.testing.assert_allclose(plans[0].optimism.z, plans[1].optimism.z[:, :], rtol=1e-4)
        for kind in (0, 1):
            assert attack_plan(lumped, plans[1], kind, seed).min() >= -ROUNDING


def test_every_row_filled_and_a_random_start_stay_within_memory(monkeypatch):
    """A row that has seen every state lists one more than there are states."""
    monkeypatch.setattr(problem_module, "EXPLICIT_STATES", 0)
    rng = np.random.default_rng(0)
    kernel, start = rng.dirichlet(np.ones(6), (6, 2)), rng.dirichlet(np.ones(6))
    mdp = eb.FiniteMDP(kernel, rng.random((6, 2)), horizon=3, start=start)
    result = eb.identify(mdp, beta=1.0, eps=0.3, delta=0.1, stationary=True, seed=0, max_episodes=3000)
    assert result.certificate.lower <= eb.solve(mdp, 1.0).value <= result.certificate.upper
    every = eb.identify(mdp, beta=1.0, eps=1e-3, delta=0.1, stationary=True, seed=0, max_episodes=300, replan="every")
    assert every.episodes == 300


def test_a_given_policy_may_name_any_action_at_the_artificial_step():
    case = draw(np.random.default_rng(3), Shape(random_start=True))
    method, policy = KL(case.problem), KL(case.problem).plan(case.counts, 0).policy
    expected = method.bounds_of(case.counts, policy)
    other = policy.copy()
    other[0] = 1
    assert KL(case.problem).bounds_of(case.counts, other) == expected


def two_coins(rewards, horizon=1, **options):
    transitions = np.full((2, 2, 2), 0.5)
    return Problem.from_mdp(eb.FiniteMDP(transitions, rewards, horizon=horizon), eps=0.1, delta=0.1, **options)


class TestRowsThatNeedABall:
    def test_the_last_step_is_free_when_rewards_ignore_the_next_state(self):
        assert two_coins(np.array([[0.0, 1.0], [1.0, 0.0]]), beta=1.0).rows_at_risk == 0
        assert two_coins(np.array([[0.0, 1.0], [1.0, 0.0]]), horizon=2, beta=1.0).rows_at_risk == 2

    def test_the_last_step_counts_when_rewards_may_depend_on_the_next_state(self):
        rewards = np.zeros((2, 2, 2))
        rewards[0, 0, 1] = 1.0
        assert two_coins(rewards, beta=1.0).rows_at_risk == 2
        assert two_coins(rewards, horizon=3, beta=1.0).rows_at_risk == 2 + 4 + 4

    def test_pooled_rows_count_once(self):
        rewards = np.zeros((2, 2, 2))
        assert two_coins(rewards, horizon=5, beta=1.0, stationary=True).rows_at_risk == 4

    def test_declared_deterministic_and_unreachable_rows_do_not_count(self):
        mask = np.ones((2, 2, 2), dtype=bool)
        mask[0, :, 1] = False  # state 1 is never reached
        mdp = eb.FiniteMDP(np.full((2, 2, 2), 0.5) * mask / (mask.mean(axis=2, keepdims=True)), np.eye(2), horizon=4)
        assert Problem.from_mdp(mdp, beta=1.0, eps=0.1, delta=0.1, successors=mask).rows_at_risk == 0

    def test_a_random_start_is_one_more_row_never_pooled(self):
        mdp = eb.FiniteMDP(np.full((2, 2, 2), 0.5), np.eye(2), horizon=3, start=[0.5, 0.5])
        for stationary, rows in ((False, 8), (True, 4)):
            problem = Problem.from_mdp(mdp, beta=1.0, eps=0.1, delta=0.1, stationary=stationary)
            assert problem.rows_at_risk == rows + 1

    def test_random_problems_agree_with_a_count_by_hand(self):
        """The reference counts the rows on its own; the radius shows the result."""
        for seed in range(80):
            case = draw(np.random.default_rng([seed, 17]))
            method = case.plan()
            seen = np.isfinite(method.rules.radius) & (method.rules.radius > 0)
            compiled = np.unique(np.round(method.rules.radius[seen], 9))
            used = case.tables.radius[np.isfinite(case.tables.radius) & (case.tables.radius > 0)]
            assert set(np.unique(np.round(used, 9))) <= set(compiled)


def test_next_state_rewards_of_a_changing_kernel_are_not_confused_with_its_entries():
    """Unknown successors list S slots per pair; a kernel by step may by chance have as many entries."""
    kernel = np.zeros((2, 4, 1, 4))
    kernel[0, :, 0, :2] = kernel[1, :, 0, 2:] = 0.5  # 16 entries = 4 pairs x 4 states
    rewards = np.arange(16.0).reshape(4, 1, 4)
    mdp = eb.FiniteMDP(kernel, rewards, horizon=2)
    for successors in (None, np.ones((4, 1, 4), dtype=bool)):
        slots = Problem.from_mdp(mdp, beta=1.0, eps=0.1, delta=0.1, successors=successors).slots
        for row in range(8):
            begin = slots.begin[row]
            np.testing.assert_array_equal(slots.low[0, begin : begin + 4], rewards[row % 4, 0])


def test_a_second_method_on_the_same_counts_sees_all_of_them():
    case = draw(np.random.default_rng(3))
    first, second = case.plan(), case.plan()
    np.testing.assert_array_equal(first.rules.radius, second.rules.radius)
    np.testing.assert_array_equal(first.plans[0].rho, second.plans[0].rho)


def test_one_method_on_other_counts_forgets_the_first():
    case = draw(np.random.default_rng(3), Shape(visits=(50,)))
    t = case.counts.transitions()
    other = Counts(case.problem)
    for row in np.unique(t.rows):  # as many visits, all to the first successor
        mine = t.rows == row
        other.add(Transitions(t.rows[mine][:1], t.successors[mine][:1], np.array([t.times[mine].sum()])), 1)
    method = KL(case.problem)
    method.plan(case.counts, 0)
    method.plan(other, 1)
    fresh = KL(case.problem)
    fresh.plan(other, 1)
    np.testing.assert_array_equal(method.rules.radius, fresh.rules.radius)


@pytest.mark.parametrize("kind", [KL, partial(Bernstein, constants="sharp")])
def test_counts_that_were_set_back_are_planned_anew(kind):
    case = draw(
        np.random.default_rng(3), Shape(visits=(50_000,), next_state_rewards=False, intervals=False, horizons=(3,))
    )
    t, counts = case.counts.transitions(), Counts(case.problem)
    empty = counts.state()
    for row in np.unique(t.rows):  # as many visits, all to the first successor
        mine = t.rows == row
        counts.add(Transitions(t.rows[mine][:1], t.successors[mine][:1], np.array([t.times[mine].sum()])), 1)
    method, fresh = kind(case.problem), kind(case.problem)
    assert method.plan(counts, 0).bounds != fresh.plan(case.counts, 0).bounds
    counts.restore(empty)
    counts.add(t, 1)
    assert method.plan(counts, 0).bounds == fresh.plan(counts, 0).bounds


@pytest.mark.parametrize("sign", [pytest.param(1, marks=pytest.mark.slow), -1])
def test_threads_change_nothing(sign):
    mdp = eb.instances.garnet(30, 3, 3, horizon=8, seed=1)
    result = eb.identify(
        mdp, beta=0.4 * sign, eps=0.1, delta=0.1, stationary=True, successors="model", max_episodes=400, seed=0
    )
    problem, counts = result.certificate.problem, Counts(result.certificate.problem)
    counts.add(result.certificate.transitions, 400)
    serial, threads = KL(problem, seed=5), KL(problem, seed=5)
    threads.large = True
    for round in range(4):
        a, b = serial.plan(counts, round), threads.plan(counts, round)
        np.testing.assert_array_equal(a.policy, b.policy)
        assert a.bounds == b.bounds
        for name in ("greedy", "lead", "switch_action", "leading"):
            np.testing.assert_array_equal(getattr(a.behaviour, name), getattr(b.behaviour, name))


# -- small and large β -----------------------------------------------------------------------------------------

TINY = [0.0, 1e-300, -1e-300, 1e-16, -1e-16, 1e-8, -1e-8]


def test_without_data_no_tiny_beta_stops():
    for beta in TINY:
        problem = two_coins(np.array([[0.0, 0.0], [1.0, 1.0]]), horizon=3, beta=beta)
        plan = KL(problem).plan(Counts(problem), 0)
        assert plan.bounds.gap > 1
        assert (plan.bounds.lower, plan.bounds.upper) == pytest.approx(
            (0, 2), abs=1e-4
        )  # only the first reward is sure


def test_tiny_betas_stop_alike_with_nearly_the_same_interval():
    bridge = eb.instances.risky_bridge()
    results = [
        eb.identify(bridge, beta=beta, eps=0.3, delta=0.1, successors="model", seed=3, ties="lowest") for beta in TINY
    ]
    first = results[0]
    for result in results[1:]:
        assert result.episodes == first.episodes > 20
        assert result.certificate.lower == pytest.approx(first.certificate.lower, abs=1e-4)
        assert result.certificate.upper == pytest.approx(first.certificate.upper, abs=1e-4)
        assert result.certificate.lower <= eb.solve(bridge, 0.0).value <= result.certificate.upper


def test_bounds_are_continuous_where_the_form_for_tiny_beta_begins():
    case = draw(np.random.default_rng(8), Shape(visits=(100, 1000), intervals=False))
    spread = case.problem.return_spread
    gaps = []
    for beta in (0.0, 0.99e-5 / spread, 1.01e-5 / spread, 2e-5 / spread):
        plan = KL(dataclasses.replace(case.problem, risk=eb.Entropic(beta))).plan(case.counts, 0)
        gaps.append((plan.bounds.lower, plan.bounds.upper, plan.bounds.gap))
    np.testing.assert_allclose(gaps, np.broadcast_to(gaps[0], (4, 3)), atol=1e-5 * spread)


def test_rewards_that_are_all_equal_leave_nothing_to_learn():
    mdp = eb.FiniteMDP(np.full((2, 2, 2), 0.5), np.full((2, 2), 0.25), horizon=4)
    for beta in (0.0, 1.0, -1e4):
        result = eb.identify(mdp, beta=beta, eps=1e-9, delta=0.1, seed=0)
        assert result.episodes == 0
        assert result.certificate.lower == pytest.approx(1.0, abs=1e-9)
        assert result.certificate.upper == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_exponent_stays_finite_and_true(sign):
    mdp = eb.instances.garnet(4, 2, 2, horizon=6, seed=0)
    low, high = mdp.reward_range
    beta = sign * 599.0 / (6 * (high - low))
    result = eb.identify(mdp, beta=beta, eps=1e-6, delta=0.1, successors="model", seed=0, max_episodes=2000)
    claim = result.certificate
    assert np.isfinite([claim.lower, claim.upper, claim.gap]).all()
    assert claim.lower <= eb.evaluate(mdp, claim.policy, beta).value + 1e-9
    assert eb.solve(mdp, beta).value <= claim.upper + 1e-9


@pytest.mark.parametrize("sign", [1, -1])
def test_beyond_the_largest_exponent_is_an_error_that_says_so(sign):
    mdp = eb.instances.garnet(4, 2, 2, horizon=6, seed=0)
    low, high = mdp.reward_range
    with pytest.raises(InvalidProblemError, match="exceeds 600"):
        eb.identify(mdp, beta=sign * 601 / (6 * (high - low)), eps=0.1, delta=0.1)


def test_a_forbidden_successor_is_named_and_nothing_learned_is_lost():
    bridge = eb.instances.risky_bridge()
    mask = np.ones((bridge.n_states, bridge.n_actions, bridge.n_states), dtype=bool)
    rows = bridge.step_rows(0)
    for action in range(bridge.n_actions):  # every action in the first state may go where it is said not to
        row = bridge.start * bridge.n_actions + action
        mask[bridge.start, action, rows.indices[rows.indptr[row]]] = False
    with pytest.raises(InvalidProblemError, match=r"went to state .* declared impossible .* kept"):
        eb.identify(bridge, beta=1.0, eps=0.1, delta=0.1, successors=mask, seed=0)


@pytest.mark.parametrize("method", ["kl", "bernstein"])
def test_the_largest_beta_that_can_be_used_is_named(method):
    bridge = eb.instances.risky_bridge(horizon=7)
    for beta in (-1e4, 777.0):
        with pytest.raises(
            eb.InvalidProblemError, match=r"exceeds 600, .*largest usable \|beta\| is [0-9.]+$"
        ) as refused:
            eb.identify(bridge, beta=beta, eps=0.1, delta=0.1, method=method)
        usable = float(str(refused.value).split()[-1])
        assert eb.identify(bridge, beta=np.sign(beta) * usable, eps=0.1, delta=0.1, method=method, max_episodes=1)
        with pytest.raises(eb.InvalidProblemError, match="exceeds 600"):
            eb.identify(bridge, beta=np.sign(beta) * usable * 1.002, eps=0.1, delta=0.1, method=method, max_episodes=1)
