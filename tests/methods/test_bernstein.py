"""The Bernstein method against its definitions, and its bounds against the truth at the edge of the events."""

import itertools
import math

import numpy as np
import pytest
from reference import bernstein as reference
from reference.bernstein import Printed
from reference.counting import filled

import entropic_bpi as eb
from entropic_bpi.methods.bernstein import Bernstein
from entropic_bpi.methods.kl.rates import log_8e
from entropic_bpi.problem.problem import Problem

LOWEST = 0  # the tie seed that stands for the lowest index
CONSTANTS = ["verified", "sharp", "printed"]
SIZES = [(1, 2, 3), (2, 1, 4), (3, 2, 1), (3, 2, 4), (4, 3, 3), (2, 2, 9)]  # states, actions, horizon
BETAS = [3.0, 0.7, 0.02, -0.02, -0.7, -3.0]
MAGNITUDES = [0, 0, 1, 7, 300, 1e5, 1e8, 1e12]


def random_model(rng, size, *, stationary=False, random_start=False, low=0.0, high=1.0):
    """A model whose rows miss some successors."""
    n_states, n_actions, horizon = size
    shape = (n_states, n_actions, n_states) if stationary else (horizon, n_states, n_actions, n_states)
    kernel = rng.dirichlet(np.ones(n_states), shape[:-1]) * (rng.random(shape) < 0.7)
    kernel[..., 0] += 1e-3
    kernel /= kernel.sum(axis=-1, keepdims=True)
    rewards = rng.uniform(low, high, (horizon, n_states, n_actions))
    start = rng.dirichlet(np.ones(n_states)) if random_start else int(rng.integers(n_states))
    return eb.FiniteMDP(kernel, rewards, horizon=horizon, start=start)


def random_counts(rng, support):
    """Counts on the ``support`` of every row, from none to very many."""
    counts = np.zeros(support.shape, dtype=np.int64)
    for place in np.ndindex(support.shape[:-1]):
        weights = rng.dirichlet(np.full(support.shape[-1], 0.5)) * support[place]
        weights = weights if weights.sum() > 0 else support[place].astype(float)
        counts[place] = rng.multinomial(int(rng.choice(MAGNITUDES)), weights / weights.sum())
    return counts


def kernel_of(mdp):
    """``(H, S, A, S)``."""
    shape = (mdp.n_states, mdp.n_actions, mdp.n_states)
    return np.stack([np.asarray(mdp.step_kernel(h)).reshape(shape) for h in range(mdp.horizon)])


def rewards_of(mdp):
    """``(H, S, A)``."""
    return np.broadcast_to(mdp.rewards, (mdp.horizon, mdp.n_states, mdp.n_actions))


def compare(method, plan, expected, rtol=1e-12, ties=False):
    """Tables at the states that were planned, policy (unless actions may tie to within rounding) and claim."""
    frame, sheet = method.frame, method.sheet
    unit, origin = (abs(method.beta), 1.0) if method.small else (1.0, 0.0)
    for h in range(frame.steps):
        states = frame.states[frame.first_state[h] : frame.first_state[h + 1]]
        up, low = ((table[h, states] - origin).astype(float) / unit for table in (expected.z_up, expected.z_low))
        width = expected.width[h, states].astype(float) / unit
        size = max(np.abs(up).max(), np.abs(low).max())
        np.testing.assert_allclose(sheet.up[h, states], up, rtol=rtol, atol=rtol * size)
        np.testing.assert_allclose(sheet.low[h, states], low, rtol=rtol, atol=rtol * size)
        np.testing.assert_allclose(sheet.width[h, states], width, rtol=rtol, atol=rtol * size)
        if not ties:
            np.testing.assert_array_equal(plan.policy[h, states], expected.policy[h, states])
    span, strength = method.scale * method.problem.horizon, abs(method.beta)
    size = abs(float(expected.upper)) + span
    assert plan.bounds.upper == pytest.approx(float(expected.upper), rel=rtol, abs=rtol * size)
    # Logarithms of a difference of Z: what they lose, and add for it, is the quotient of Z by the difference.
    condition = np.exp(min(700.0, strength / method.scale * min(float(expected.gap), 10 * span)))
    added = frame.steps * (4e-14 + 2e-14 * method.tables.rate.max() + 1.6e-14 * strength)
    tolerance = rtol * size + (rtol + added) * condition * method.scale / strength
    if tolerance < 1e-6 * span:
        assert plan.bounds.lower == pytest.approx(float(expected.lower), abs=tolerance)
        assert plan.bounds.gap == pytest.approx(float(expected.gap), abs=tolerance)
    else:
        assert plan.bounds.gap >= min(float(expected.gap), 5 * method.scale / strength)


def problem_of(mdp, beta, **options):
    return Problem.from_mdp(mdp, beta=beta, eps=0.1, delta=0.07, **options)


@pytest.mark.parametrize("constants", CONSTANTS)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("beta", BETAS)
def test_the_plan_is_its_definition(constants, size, beta):
    rng = np.random.default_rng([size[0], size[2], int(100 * beta) % 1000])
    for _ in range(6):
        mdp = random_model(rng, size)
        counts = random_counts(rng, np.ones((size[2], *size[:2], size[0]), dtype=bool))
        problem = problem_of(mdp, beta)
        method = Bernstein(problem, constants, LOWEST)
        plan = method.plan(filled(problem, counts), 0)
        expected = reference.plan(
            counts, rewards_of(mdp), beta=beta, delta=0.07, constants=constants, start=mdp.start
        )  # fmt: skip
        compare(method, plan, expected)


@pytest.mark.parametrize("constants", CONSTANTS)
@pytest.mark.parametrize("beta", [1.1, 0.01, -0.01, -1.1])
@pytest.mark.parametrize(("low", "high"), [(-3.0, 1.5), (0.0, 4.0), (2.0, 2.5), (-1.0, -1.0), (0.2, 0.6)])
def test_rewards_outside_the_unit_interval_are_rescaled(constants, beta, low, high):
    rng = np.random.default_rng(int(10 * abs(low) + high))
    for size, random_start in itertools.product([(3, 2, 3), (2, 2, 5)], [False, True]):
        mdp = random_model(rng, size, random_start=random_start, low=low, high=high)
        counts = random_counts(rng, np.ones((size[2], *size[:2], size[0]), dtype=bool))
        starts = random_counts(rng, np.ones((1, size[0]), dtype=bool))[0] if random_start else None
        problem = problem_of(mdp, beta)
        method = Bernstein(problem, constants, LOWEST)
        plan = method.plan(filled(problem, counts, starts), 0)
        start = 0 if random_start else mdp.start
        expected = reference.plan(
            counts, rewards_of(mdp), beta=beta, delta=0.07, constants=constants, start=start, start_counts=starts
        )
        compare(method, plan, expected, rtol=2e-12, ties=low == high)
        assert plan.bounds.lower >= size[2] * min(mdp.reward_range[0], 0) - 1e-12


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("declared", ["unknown", "model", "mask"])
@pytest.mark.parametrize("random_start", [False, True])
@pytest.mark.parametrize("beta", [2.0, 0.05, -0.05, -2.0])
def test_sharp_uses_pooled_counts_and_declared_successors(stationary, declared, random_start, beta):
    rng = np.random.default_rng(int(100 * abs(beta)) + 2 * stationary + random_start)
    for size in [(3, 2, 3), (4, 2, 2), (4, 3, 5)]:
        mdp = random_model(rng, size, stationary=stationary or declared == "mask", random_start=random_start)
        support = kernel_of(mdp) > 0
        mask = support[0] | (rng.random(support[0].shape) < 0.3)
        successors = {"unknown": None, "model": "model", "mask": mask}[declared]
        allowed = {"unknown": None, "model": support, "mask": mask}[declared]
        known_start = mdp.start_distribution > 0 if declared == "model" else np.ones(size[0], dtype=bool)
        counts = random_counts(rng, support)
        starts = random_counts(rng, known_start[None])[0] if random_start else None
        problem = problem_of(mdp, beta, stationary=stationary, successors=successors)
        method = Bernstein(problem, "sharp", LOWEST)
        plan = method.plan(filled(problem, counts, starts), 0)
        expected = reference.plan(
            counts,
            rewards_of(mdp),
            beta=beta,
            delta=0.07,
            constants="sharp",
            start=0 if random_start else mdp.start,
            start_counts=starts,
            pooled=stationary,
            allowed=allowed,
            start_allowed=known_start if random_start else None,
        )
        compare(method, plan, expected, rtol=2e-12)


@pytest.mark.parametrize("n", [1, 2, 1000, 10**9, 10**15])
def test_the_rates_are_those_of_the_paper(n):
    assert 5.0 + 3 * log_8e(n) == pytest.approx(
        float(5 + 3 * np.log(8 * np.exp(reference.REAL(1)) * (n + 1))), rel=1e-15
    )
    mdp = random_model(np.random.default_rng(0), (3, 2, 4))
    counts = np.zeros((4, 3, 2, 3), dtype=np.int64)
    counts[1, 2, 0, 1] = n
    problem = problem_of(mdp, 1.0)
    method = Bernstein(problem, "verified", LOWEST)
    method.plan(filled(problem, counts), 0)
    row = (1 * 3 + 2) * 2
    alpha, alpha_star = reference.alpha(n, 24, 3, 0.07), reference.alpha_star(n, 24, 0.07)
    assert method.tables.rate[row] == pytest.approx(float(alpha / n), rel=1e-14)
    assert method.tables.rate_star[row] == pytest.approx(float(alpha_star / n), rel=1e-14)


def test_a_plan_depends_on_the_counts_alone_not_on_what_was_planned_before():
    rng = np.random.default_rng(3)
    mdp = random_model(rng, (4, 3, 4))
    problem = problem_of(mdp, -1.3)
    support = np.ones((4, 4, 3, 4), dtype=bool)
    for constants in CONSTANTS:
        used = Bernstein(problem, constants, 5)
        for _ in range(8):
            counts = random_counts(rng, support)
            plan, fresh = used.plan(filled(problem, counts), 0), Bernstein(problem, constants, 5)
            again = fresh.plan(filled(problem, counts), 0)
            assert plan.bounds == again.bounds
            np.testing.assert_array_equal(plan.policy, again.policy)


# -- the edge of the events --------------------------------------------------------------------------------------


def kl(p, q):
    seen = p > 0
    return float(np.sum(p[seen] * np.log(p[seen] / q[seen]))) if np.all(q[seen] > 0) else math.inf


def in_events(empirical, p, n, z, span, x, x_star):
    """E_KL and E_Z* for one row: ``z`` is Z*_{h+1} and ``span`` its range."""
    variance = float(p @ (z - p @ z) ** 2)
    close = abs(float((empirical - p) @ z)) <= math.sqrt(2 * variance * x_star) + 3 * span * x_star
    return close and kl(empirical, p) <= x


def on_the_edge(rng, empirical, n, z, span, x, x_star, kind):
    """The farthest true row from ``empirical``, along some direction, for which both events still hold."""
    if kind == "random":
        target = rng.dirichlet(np.full(len(z), 0.3))
    else:
        # All on the successors that are best, or worst, for Z*.
        edge = z == (z.max() if kind == "high" else z.min())
        target = edge / edge.sum()

    def along(t):
        if kind == "tilt":
            weights = empirical * np.exp(-40 * t * (z - z.mean()) / (np.ptp(z) or 1.0))
            return weights / weights.sum()
        return (1 - t) * empirical + t * target

    near, far = 0.0, 1.0
    if in_events(empirical, along(far), n, z, span, x, x_star):
        return along(far)
    for _ in range(45):
        middle = (near + far) / 2
        near, far = (middle, far) if in_events(empirical, along(middle), n, z, span, x, x_star) else (near, middle)
    return along(near)


def edge_instance(rng, size, beta, constants, kinds=("high", "low", "random", "tilt")):
    """Counts, and a true model for which the events hold with nothing to spare at every row."""
    n_states, n_actions, horizon = size
    rewards = rng.uniform(0, 1, (horizon, n_states, n_actions)) * rng.choice([0.0, 1.0], (horizon, n_states, 1))
    counts = np.zeros((horizon, n_states, n_actions, n_states), dtype=np.int64)
    kernel = np.zeros(counts.shape)
    pairs, z = n_states * n_actions * horizon, np.ones(n_states)
    bottom, top = reference.value_ranges(rewards.astype(reference.REAL), np.ones(counts.shape, dtype=bool), beta)
    magnitude = rng.choice([1e2, 1e4, 1e6, 1e9, 1e12])
    for i in reversed(range(horizon)):
        left = horizon - i - 1
        plain_span = math.exp(beta * left) if beta > 0 else -math.expm1(beta * left)
        q = np.empty((n_states, n_actions))
        for s, a in np.ndindex(n_states, n_actions):
            n = int(magnitude * rng.uniform(0.5, 2)) if rng.random() < 0.95 else 0
            empirical = rng.dirichlet(np.full(n_states, 0.7))
            empirical = np.where(rng.random(n_states) < 0.3, 0.0, empirical) + 1e-9
            counts[i, s, a] = rng.multinomial(n, empirical / empirical.sum())
            if n == 0:
                kernel[i, s, a] = rng.dirichlet(np.full(n_states, 0.3))
            else:
                x = float(reference.alpha(n, pairs, n_states, 0.1) / n)
                x_star = float(reference.alpha_star(n, pairs, 0.1) / n)
                span = plain_span if constants != "sharp" else float(top[i, s, a] - bottom[i, s, a])
                kernel[i, s, a] = on_the_edge(
                    rng, counts[i, s, a] / n, n, z, span, x, x_star, rng.choice(kinds)
                )  # fmt: skip
            kernel[i, s, a] /= kernel[i, s, a].sum()
            q[s, a] = math.exp(beta * rewards[i, s, a]) * (kernel[i, s, a] @ z)
        z = q.max(axis=1) if beta > 0 else q.min(axis=1)
    return eb.FiniteMDP(kernel, rewards, horizon=horizon, start=0), counts


def optimal_z(mdp, beta):
    return np.exp(beta * eb.solve(mdp, beta).values)


def check_at_the_edge(rng, beta, constants):
    """Every bound against the truth; whether the bounds say anything."""
    size = tuple(rng.choice([(2, 2, 3), (3, 2, 2), (3, 3, 4), (5, 2, 3)]))
    mdp, counts = edge_instance(rng, size, beta, constants)
    problem = Problem.from_mdp(mdp, beta=beta, eps=0.1, delta=0.1)
    method = Bernstein(problem, constants, int(rng.integers(1, 1000)))
    plan = method.plan(filled(problem, counts), 0)
    optimum, value = eb.solve(mdp, beta).value, eb.evaluate(mdp, plan.policy, beta).value
    assert optimum - value <= plan.bounds.gap + 1e-11
    assert plan.bounds.lower <= value + 1e-11
    assert optimum <= plan.bounds.upper + 1e-11
    unit, origin = (abs(beta), 1.0) if method.small else (1.0, 0.0)
    z_star, z_policy = optimal_z(mdp, beta), np.exp(beta * eb.evaluate(mdp, plan.policy, beta).values)
    for h in range(mdp.horizon):
        states = np.arange(mdp.n_states) if h else np.array([0])
        slack = 1e-11 * z_star[h, states]
        up, low = (unit * table[h, states] + origin for table in (method.sheet.up, method.sheet.low))
        assert (low <= z_star[h, states] + slack).all()
        assert (up >= z_star[h, states] - slack).all()
        # The certificate must cover the difference in Z at every place, not only at the start.
        lost = up - z_policy[h, states] if beta > 0 else z_policy[h, states] - low
        assert (lost <= unit * method.sheet.width[h, states] + slack).all()
    return plan.bounds.gap < 0.5 * mdp.horizon


@pytest.mark.parametrize("constants", CONSTANTS)
@pytest.mark.parametrize("beta", [3.0, 1.0, 0.3, -0.3, -1.0, -3.0])
def test_bounds_hold_at_the_edge_of_the_events(constants, beta):
    rng = np.random.default_rng([CONSTANTS.index(constants), int(10 * beta) % 1000])
    informative = sum(check_at_the_edge(rng, beta, constants) for _ in range(15))
    assert informative >= 2


@pytest.mark.slow
@pytest.mark.parametrize("constants", CONSTANTS)
@pytest.mark.parametrize("beta", [5.0, 2.0, 0.1, -0.1, -2.0, -5.0])
def test_bounds_hold_at_the_edge_of_the_events_often(constants, beta):
    rng = np.random.default_rng([7, CONSTANTS.index(constants), int(10 * beta) % 1000])
    informative = sum(check_at_the_edge(rng, beta, constants) for _ in range(400))
    assert informative >= 40


@pytest.mark.parametrize("constants", CONSTANTS)
@pytest.mark.parametrize("beta", [1.0, -1.0])
def test_the_edge_would_show_a_bonus_that_is_too_small(constants, beta):
    rng = np.random.default_rng(8)
    broken = 0
    for _ in range(20):
        mdp, counts = edge_instance(rng, (3, 2, 3), beta, constants, kinds=("high", "low"))
        z_star = optimal_z(mdp, beta)
        bounds = reference.plan(
            counts, rewards_of(mdp), beta=beta, delta=0.1, constants=constants, printed=Printed(bonus=0.4)
        )
        whole = reference.plan(counts, rewards_of(mdp), beta=beta, delta=0.1, constants=constants)
        broken += bool((bounds.z_up < z_star - 1e-9).any() or (bounds.z_low > z_star + 1e-9).any())
        assert (whole.z_up >= z_star - 1e-11 * z_star).all()
        assert (whole.z_low <= z_star + 1e-11 * z_star).all()
    assert broken > 0


# -- what the article prints -------------------------------------------------------------------------------------


def exact_counts(mdp, n):
    """Counts in the proportions of the true model: every event holds."""
    return np.rint(n * kernel_of(mdp)).astype(np.int64)


@pytest.mark.parametrize("beta", [0.5, 2.5])
def test_the_printed_cap_of_u_breaks_optimism(beta):
    rewards = np.zeros((3, 2, 2))
    rewards[:, 1] = 1.0
    kernel = np.zeros((2, 2, 2))
    kernel[:, 0, 0] = kernel[:, 1, 1] = 1.0
    mdp = eb.FiniteMDP(kernel, rewards, horizon=3)
    counts, z_star = exact_counts(mdp, 10**9), optimal_z(mdp, beta)
    right = reference.plan(counts, rewards, beta=beta, delta=0.1, constants="verified")
    wrong = reference.plan(counts, rewards, beta=beta, delta=0.1, constants="verified", printed=Printed(cap=-1))
    assert (right.z_up >= z_star * (1 - 1e-12)).all()
    # At the last step the cap e^{-β} is below everything that Z can be.
    assert (wrong.z_up[2] < z_star[2]).all()
    assert wrong.upper < eb.solve(mdp, beta).value - 0.5


def two_arms():
    """Two steps, one state; the first step's action decides between a return of 0 and 1."""
    rewards = np.zeros((2, 1, 2))
    rewards[0, 0, 1] = 1.0
    return eb.FiniteMDP(np.ones((1, 2, 1)), rewards, horizon=2)


def run_reference(mdp, *, beta, eps, printed=Printed(), constants="verified", ratio=0.2):  # noqa: B008
    """The loop on a deterministic model, where playing a policy needs no chance."""
    counts = np.zeros((mdp.horizon, mdp.n_states, mdp.n_actions, mdp.n_states), dtype=np.int64)
    episodes = 0
    while True:
        bounds = reference.plan(counts, rewards_of(mdp), beta=beta, delta=0.1, constants=constants, printed=printed)
        if bounds.stops(eps):
            return bounds, episodes, counts
        batch = max(1, int(ratio * episodes))
        s = mdp.start
        for h in range(mdp.horizon):
            a = bounds.policy[h, s]
            s_next = int(np.argmax(kernel_of(mdp)[h, s, a]))
            counts[h, s, a, s_next] += batch
            s = s_next
        episodes += batch


def test_the_printed_greedy_policy_for_negative_beta_is_a_bad_one():
    mdp, beta, eps = two_arms(), -1.0, 0.3
    optimum = eb.solve(mdp, beta).value
    wrong, episodes, counts = run_reference(mdp, beta=beta, eps=eps, printed=Printed(greedy_for_up=True))
    assert episodes > 100
    assert counts[0, 0, 1].sum() == 0  # the better action was never tried
    assert optimum - eb.evaluate(mdp, wrong.policy, beta).value == pytest.approx(1.0)
    assert wrong.gap <= eps
    right, _, counts = run_reference(mdp, beta=beta, eps=eps)
    assert counts[0, 0].sum(axis=1).min() > 0
    assert optimum - eb.evaluate(mdp, right.policy, beta).value <= eps
    ours = eb.identify(mdp, beta=beta, eps=eps, delta=0.1, method="bernstein", ties="lowest", seed=0)
    assert optimum - eb.evaluate(mdp, ours.policy, beta).value <= eps


@pytest.mark.parametrize("beta", [2.5, 3.0, 3.5, 4.0, 4.5])
def test_the_printed_cap_of_the_certificate_stops_before_the_first_episode(beta):
    bridge = eb.instances.risky_bridge(horizon=7)
    rewards = rewards_of(bridge)
    counts = np.zeros((7, bridge.n_states, bridge.n_actions, bridge.n_states), dtype=np.int64)
    common = {"beta": beta, "delta": 0.1, "constants": "verified", "start": bridge.start}
    assert reference.plan(counts, rewards, **common, printed=Printed(width_cap=0)).stops(0.2)
    assert not reference.plan(counts, rewards, **common).stops(0.2)
    for constants in CONSTANTS:
        problem = Problem.from_mdp(bridge, beta=beta, eps=0.2, delta=0.1)
        method = Bernstein(problem, constants, LOWEST)
        assert method.plan(filled(problem, counts), 0).bounds.gap > 0.2


def test_the_printed_cap_of_the_certificate_certifies_a_policy_that_loses_everything():
    kernel = np.zeros((2, 2, 2))
    kernel[:, 0, 0] = kernel[:, 1, 1] = 1.0
    mdp = eb.FiniteMDP(kernel, np.array([[0.0, 1.0], [1.0, 1.0]]), horizon=2)
    rewards = rewards_of(mdp)
    counts = np.zeros((2, 2, 2, 2), dtype=np.int64)
    wrong = reference.plan(counts, rewards, beta=1.0, delta=0.1, constants="verified", printed=Printed(width_cap=0))
    assert wrong.stops(0.5)
    assert eb.solve(mdp, 1.0).value - eb.evaluate(mdp, wrong.policy, 1.0).value == pytest.approx(2.0)
    ours = eb.identify(mdp, beta=1.0, eps=0.5, delta=0.1, method="bernstein", ties="lowest", seed=0)
    assert eb.solve(mdp, 1.0).value - eb.evaluate(mdp, ours.policy, 1.0).value <= 0.5


# -- numbers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("constants", CONSTANTS)
@pytest.mark.parametrize("beta", [-85.7, -40.0, 40.0, 85.7])
def test_bounds_stay_finite_up_to_the_largest_exponent(constants, beta):
    rng = np.random.default_rng(0)
    for _ in range(5):
        mdp = random_model(rng, (3, 2, 7))
        counts = random_counts(rng, np.ones((7, 3, 2, 3), dtype=bool))
        problem = problem_of(mdp, beta)
        method = Bernstein(problem, constants, LOWEST)
        plan = method.plan(filled(problem, counts), 0)
        assert math.isfinite(plan.bounds.lower)
        assert math.isfinite(plan.bounds.upper)
        assert plan.bounds.gap > 0  # infinite says nothing; NaN would fail
        expected = reference.plan(
            counts, rewards_of(mdp), beta=beta, delta=0.07, constants=constants, start=mdp.start
        )  # fmt: skip
        compare(method, plan, expected, rtol=1e-11)


@pytest.mark.parametrize("constants", CONSTANTS)
def test_larger_exponents_are_refused(constants):
    mdp = random_model(np.random.default_rng(0), (3, 2, 7))
    with pytest.raises(eb.InvalidProblemError, match=r"\|beta\| \* horizon \* reward range = 700"):
        Bernstein(problem_of(mdp, -100.0), constants, LOWEST)
    scaled = eb.FiniteMDP(mdp.transitions, 10 * mdp.rewards, horizon=7)
    with pytest.raises(eb.InvalidProblemError, match="beyond which the bounds overflow"):
        Bernstein(problem_of(scaled, 12.0), constants, LOWEST)


def test_next_state_rewards_are_refused():
    mdp = eb.FiniteMDP(np.full((2, 2, 2), 0.5), np.random.default_rng(0).random((2, 2, 2)), horizon=3)
    with pytest.raises(eb.InvalidProblemError, match=r"next state. Use method='kl'"):
        Bernstein(problem_of(mdp, 1.0), "sharp", LOWEST)


@pytest.mark.parametrize("constants", ["verified", "printed"])
def test_only_the_sharp_constants_cover_beta_zero(constants):
    mdp = random_model(np.random.default_rng(0), (3, 2, 3))
    with pytest.raises(
        eb.InvalidProblemError, match=f"{constants}' needs beta != 0; constants='sharp' covers beta = 0"
    ):
        Bernstein(problem_of(mdp, 0.0), constants, LOWEST)


# -- the printed bonus -------------------------------------------------------------------------------------------


def chain(n_states, horizon, *, random_start=False):
    start = np.full(n_states, 1 / n_states) if random_start else 0
    kernel = np.full((n_states, 1, n_states), 1 / n_states)
    return eb.FiniteMDP(kernel, np.zeros((n_states, 1)), horizon=horizon, start=start)


@pytest.mark.parametrize(
    ("n_states", "horizon", "random_start", "proved"),
    [
        (16, 400, False, True),
        (17, 204, False, True),
        (17, 205, False, False),
        (200, 12, False, True),
        (208, 13, False, True),
        (209, 13, False, False),
        (208, 12, True, True),  # a random start is one step more
        (209, 12, True, False),
        (48, 18, False, True),
        (49, 18, False, False),
    ],
)
def test_the_printed_bonus_is_refused_where_its_certificate_is_not_proved(n_states, horizon, random_start, proved):
    steps = horizon + random_start
    # The proof needs (H/4 + 2) α(n) <= 5 α(n) + 4H α*(n) for all n; in the end α / α* is S.
    n = np.array([1.0, 1e3, 1e9, 1e300])
    pairs = n_states * steps
    alpha, alpha_star = reference.alpha(n, pairs, n_states, 0.07), reference.alpha_star(n, pairs, 0.07)
    enough = ((steps / 4 + 2) * alpha <= 5 * alpha + 4 * steps * alpha_star).all()
    limit = (steps / 4 + 2) * n_states <= 5 * n_states + 4 * steps
    assert limit == proved
    assert enough or not proved
    problem = problem_of(chain(n_states, horizon, random_start=random_start), 0.01)
    if proved:
        assert Bernstein(problem, "printed", LOWEST).tables.linear_star == 4 * steps
        return
    states = {205: 16, 13: 208, 18: 48}[steps]
    with pytest.raises(
        eb.InvalidProblemError, match=f"with H = {steps} steps for at most {states} states, got {n_states}"
    ):
        Bernstein(problem, "printed", LOWEST)
    for other in ("verified", "sharp"):
        Bernstein(problem, other, LOWEST)


def test_the_printed_bonus_lies_between_the_two_others():
    """On one set of counts: 2H + 3 and α* against 5α + 4Hα* against (5 + 4H)α."""
    rng = np.random.default_rng(4)
    for beta in (-1.0, 1.0):
        for _ in range(10):
            mdp = random_model(rng, (4, 2, 3))
            counts = random_counts(rng, np.ones((3, 4, 2, 4), dtype=bool))
            gaps = []
            for constants in ("sharp", "printed", "verified"):
                problem = problem_of(mdp, beta)
                gaps.append(Bernstein(problem, constants, LOWEST).plan(filled(problem, counts), 0).bounds.upper)
            assert gaps == sorted(gaps)


def neutral_reference(counts, rewards, delta):
    """The risk-neutral limit of the sharp form, written down by itself."""
    H, S, A = rewards.shape
    least, most = np.zeros(S), np.zeros(S)
    up, low, g, policy = np.zeros((H + 1, S)), np.zeros((H + 1, S)), np.zeros((H + 1, S)), np.zeros((H, S), int)
    for h in reversed(range(H)):
        bottom, top = least.min(), most.max()
        u_up, u_low, width = (np.empty((S, A)) for _ in range(3))
        for s, a in np.ndindex(S, A):
            r, n = rewards[h, s, a], counts[h, s, a].sum()
            if n == 0:
                u_up[s, a], u_low[s, a], width[s, a] = r + top, r + bottom, top - bottom
                continue
            p, b_span = counts[h, s, a] / n, top - bottom
            x = float(reference.alpha(n, S * A * H, S, delta) / n)
            x_star = float(reference.alpha_star(n, S * A * H, delta) / n)
            deviation = math.sqrt(p @ (up[h + 1] - p @ up[h + 1]) ** 2)
            b = 2 * math.sqrt(2 * x_star) * deviation + b_span * (math.sqrt(5 * x * x_star) + (2 * H + 3) * x_star)
            slack = b + p @ (up[h + 1] - low[h + 1]) / H
            u_up[s, a] = r + min(top, p @ up[h + 1] + slack)
            u_low[s, a] = r + max(bottom, p @ low[h + 1] - slack)
            width[s, a] = min(
                b_span, u_up[s, a] - r - bottom, 2 * b + (H / 2 + 2) * b_span * x + (1 + 2 / H) * (p @ g[h + 1])
            )
        policy[h] = u_up.argmax(axis=1)
        up[h], low[h], g[h] = u_up.max(axis=1), u_low.max(axis=1), width[np.arange(S), policy[h]]
        least, most = (rewards[h] + bottom).min(axis=1), (rewards[h] + top).max(axis=1)
    return up, g, policy


def test_sharp_at_beta_zero_is_the_risk_neutral_limit():
    rng = np.random.default_rng(1)
    for _ in range(20):
        mdp = random_model(rng, (3, 2, 4))
        counts = random_counts(rng, np.ones((4, 3, 2, 3), dtype=bool))
        up, width, policy = neutral_reference(counts, rewards_of(mdp), 0.07)
        plans = []
        for beta in (0.0, 1e-12, -1e-12, 1e-300, -5e-324):
            problem = problem_of(mdp, beta)
            plans.append(Bernstein(problem, "sharp", LOWEST).plan(filled(problem, counts), 0))
            plan = plans[-1]
            assert plan.bounds.upper == pytest.approx(up[0, mdp.start], rel=1e-9)
            assert plan.bounds.gap == pytest.approx(width[0, mdp.start], rel=1e-9)
            assert plan.bounds.lower == pytest.approx(
                max(0.0, up[0, mdp.start] - width[0, mdp.start]), rel=1e-9, abs=1e-9
            )
        states = np.arange(3)
        np.testing.assert_array_equal(plans[0].policy[1:, states], policy[1:])


@pytest.mark.parametrize("sign", [1, -1])
def test_the_two_ways_to_carry_small_exponents_agree_where_they_meet(sign):
    """Just below |β|H = 1 the tables hold (Z - 1)/|β|, just above Z."""
    rng = np.random.default_rng(2)
    mdp = random_model(rng, (3, 2, 4))
    counts = random_counts(rng, np.ones((4, 3, 2, 3), dtype=bool))
    plans = []
    for beta in (0.25 * (1 - 1e-13), 0.25):
        problem = problem_of(mdp, sign * beta)
        method = Bernstein(problem, "sharp", LOWEST)
        plans.append((method.small, method.plan(filled(problem, counts), 0)))
    assert [small for small, _ in plans] == [True, False]
    for ours, theirs in zip(plans[0][1].bounds, plans[1][1].bounds, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-10)
