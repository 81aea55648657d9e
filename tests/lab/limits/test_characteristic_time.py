"""The characteristic time is a lower bound, checked against closed forms, enumeration of policies, and measured runs."""

import itertools

import numpy as np
import pytest
from scipy import optimize

import entropic_bpi as eb
from entropic_bpi import theory
from entropic_bpi.lab.limits import characteristic
from entropic_bpi.model.instances.hard import hard_shape, largest_eps

BETAS = [0.0, 1.0, -1.0]
SLOW = pytest.mark.slow


def sampled(values, default):
    """These values, of which all but the default ones are slow."""
    return [value if value in default else pytest.param(value, marks=SLOW) for value in values]


def kl(p, q):
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(p > 0, p * np.log(p / q), 0.0) + np.where(p < 1, (1 - p) * np.log((1 - p) / (1 - q)), 0.0)


def lotteries(first, second):
    """Two lotteries for one unit: the first step chooses, the second pays."""
    transitions = [[[0, first, 1 - first], [0, second, 1 - second]], [[0, 1, 0]] * 2, [[0, 0, 1]] * 2]
    return eb.FiniteMDP(transitions, [[0, 0], [1, 1], [0, 0]], horizon=2)


def two_armed_time(first, second, beta, eps, delta):
    """kl(δ, 1-δ) over sup_w inf {w kl(p1, a) + (1-w) kl(p2, b): V(b) >= V(a) + ε}, on fine grids."""

    def probability(value):
        return value if beta == 0 else np.expm1(beta * value) / np.expm1(beta)

    value = np.linspace(0, 1 - eps, 20_001)[1:-1]
    worse, better = kl(first, probability(value)), kl(second, probability(value + eps))
    best = optimize.minimize_scalar(
        lambda w: -(w * worse + (1 - w) * better).min(), bounds=(0.01, 0.99), method="bounded", options={"xatol": 1e-6}
    )
    return float(kl(delta, 1 - delta)) / -best.fun


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("eps", [0.02, 0.1, 0.2])
def test_two_lotteries_with_a_clear_winner(beta, eps):
    expected = two_armed_time(0.8, 0.5, beta, eps, delta=0.05)
    found = theory.characteristic_time(lotteries(0.8, 0.5), beta, eps, delta=0.05)
    assert 0.99 * expected < found.episodes < expected * 1.0005  # the grid's minimum may be a little high
    assert found.time == pytest.approx(found.episodes / float(kl(0.05, 0.95)))


def test_two_equal_lotteries():
    """Either answer is right; by symmetry the hardest law returns each with probability 1/2 in both alternatives."""
    eps, delta = 0.1, 0.05
    # Alternatives: only one arm is ε-optimal. n1 = n2, and each costs the same.
    value = np.linspace(0, 1 - eps, 100_001)[1:-1]
    cheapest = (0.5 * kl(0.5, value) + 0.5 * kl(0.5, value + eps)).min()
    expected = float(kl(0.5, 1 - delta)) / cheapest
    found = theory.characteristic_time(lotteries(0.5, 0.5), 0.0, eps, delta=delta)
    assert 0.98 * expected < found.episodes < expected * 1.001


@pytest.mark.parametrize("beta", sampled([1.0, -1.0], [-1.0]))
def test_the_hard_instance_attains_its_own_bound(beta):
    """On M_0 one alternative per choice, with a gap of just ε: |U| kl(1/|U|, 1-δ)/kl(p-, p)."""
    sizes, delta = (6, 2, 6), 0.05
    shape = hard_shape(*sizes)
    eps = 0.5 * largest_eps(shape.paid_steps, beta)
    mdp = eb.instances.hard_instance(*sizes, beta=beta, eps=eps)
    c, q = np.expm1(shape.paid_steps), np.exp(eps)
    rise = (3 * c + 2) / (2 * (c + 1)) / c * (q - 1 if beta > 0 else 1 - 1 / q)
    low = 1 / (2 * (c + 1)) if beta > 0 else 1 - 1 / (2 * (c + 1))
    count = shape.exits * (sizes[0] - shape.first_leaf) * sizes[1]
    expected = count * float(kl(1 / count, 1 - delta) / kl(low, low + rise))
    found = theory.characteristic_time(mdp, beta, eps, delta=delta)
    assert 0.99 * expected < found.episodes < expected
    assert found.episodes > theory.lower_bound(*sizes, beta=beta, eps=eps, delta=delta, form="exact")


def garnet():
    """Four states, two actions, two successors each; dense."""
    rng = np.random.default_rng(4)
    transitions = np.zeros((4, 2, 4))
    for row in transitions.reshape(-1, 4):
        row[rng.choice(4, size=2, replace=False)] = rng.dirichlet(np.ones(2))
    return eb.FiniteMDP(transitions, rng.random((4, 2)), horizon=3)


def occupancy(mdp, policy):
    visits, occupied = np.zeros((mdp.horizon, mdp.n_states, mdp.n_actions)), mdp.start_distribution
    states = np.arange(mdp.n_states)
    for h in range(mdp.horizon):
        visits[h, states, policy[h]] = occupied
        occupied = np.einsum("sa,sat->t", visits[h], mdp.step_kernel(h).reshape(visits.shape[1:] + (-1,)))
    return visits


def best_possible(mdp, alternatives, beta, eps, delta, everywhere=False):
    """The bound that these alternatives give when every deterministic policy is listed: a program without relaxation."""
    reached = np.zeros((mdp.horizon, mdp.n_states), dtype=bool)
    reached[0] = mdp.start_distribution > 0
    for h in range(mdp.horizon - 1):
        reached[h + 1] = (np.repeat(reached[h], mdp.n_actions) @ mdp.step_kernel(h).reshape(-1, mdp.n_states)) > 0
    reached |= everywhere
    policies = np.zeros((mdp.n_actions ** reached.sum(), *reached.shape), dtype=int)
    policies[:, reached] = list(itertools.product(range(mdp.n_actions), repeat=reached.sum()))
    models = [mdp, *alternatives]
    values = np.array([[eb.evaluate(model, policy, beta).value for policy in policies] for model in models])
    right = values >= values.max(axis=1, keepdims=True) - eps
    visits = np.array([occupancy(mdp, policy) for policy in policies]).reshape(len(policies), -1)
    rows, limits, size = [], [], len(policies)
    for model, answers in zip(alternatives, right[1:], strict=True):
        p = np.stack([mdp.step_kernel(h) for h in range(mdp.horizon)])
        q = np.stack([model.step_kernel(h) for h in range(mdp.horizon)])
        ratio = np.divide(p, q, out=np.ones_like(p), where=p > 0)
        information = visits @ (p * np.log(ratio)).sum(axis=-1).ravel()
        for x in np.linspace(0, 1 - delta, 201)[1:-1]:
            slope = np.log(x / (1 - x)) - np.log((1 - delta) / delta)
            height = kl(x, 1 - delta) - slope * x
            rows.append(np.concatenate([-information, slope * answers]))
            limits.append(-height)
    rows.append(np.concatenate([np.zeros(size), -1.0 * right[0]]))
    limits.append(delta - 1)
    objective = np.concatenate([np.ones(size), np.zeros(size)])
    law = np.concatenate([np.zeros(size), np.ones(size)])[None]
    outcome = optimize.linprog(objective, np.array(rows), limits, law, [1.0], method="highs")
    assert outcome.status == 0
    return outcome.fun


@pytest.mark.parametrize("seed", sampled(range(6), [1]))  # the next test has every beta by default
def test_the_program_is_below_the_one_that_lists_every_policy(seed):
    rng = np.random.default_rng(seed)
    beta, eps, delta = BETAS[seed % 3], [0.05, 0.15][seed % 2], 0.1
    rewards = np.zeros((2, 3, 2))
    rewards[1] = rng.permutation(6).reshape(3, 2) / 5
    mdp = eb.FiniteMDP(rng.dirichlet(np.ones(3), size=(2, 3, 2)), rewards, horizon=2, start=rng.dirichlet(np.ones(3)))
    found = theory.characteristic_time(mdp, beta, eps, delta=delta, rounds=3)
    exact = best_possible(mdp, found.alternatives, beta, eps, delta)
    assert 0 < found.episodes <= exact * (1 + 1e-4)


@pytest.mark.parametrize("seed", sampled(range(8), range(3)))  # every beta and both accuracies
@pytest.mark.parametrize("successors", ["model", None])
def test_wrong_answers_are_wrong_for_every_policy_also_after_impossible_steps(seed, successors):
    """Rows that lead to one or two states: alternatives may lead elsewhere, where an ε-optimal policy may do anything."""
    rng = np.random.default_rng(seed)
    kernel = rng.dirichlet(np.ones(3), size=(2, 3, 2)) * (rng.random((2, 3, 2, 3)) < 0.6)
    kernel[..., rng.integers(3)] += 0.2
    kernel /= kernel.sum(axis=-1, keepdims=True)
    question = {"beta": BETAS[seed % 3], "eps": [0.05, 0.2][seed % 2], "delta": 0.1}
    mdp = eb.FiniteMDP(kernel, rng.random((2, 3, 2)), horizon=2)
    found = theory.characteristic_time(mdp, **question, successors=successors, rounds=3)
    exact = best_possible(mdp, found.alternatives, **question, everywhere=True)
    assert found.episodes <= exact * (1 + 1e-4)


@SLOW
def test_the_sharper_test_of_what_is_decisive():
    """No single decision of the bridge must change for all answers to be wrong: 301 without this test."""
    bridge = eb.instances.risky_bridge()
    question = {"beta": 2.5, "eps": 0.2, "delta": 0.1, "rounds": 2}
    assert theory.characteristic_time(bridge, **question).episodes > 500
    assert 85 < theory.characteristic_time(bridge, **question, stationary=True).episodes < 105


def test_alternatives_may_need_several_changes_at_once():
    """Nothing that is done to one row, or along one direction, makes swimming left the better choice."""
    river, question = eb.instances.river_swim(3, horizon=4), {"beta": -1.0, "eps": 0.1, "delta": 0.05}
    found = theory.characteristic_time(river, **question, rounds=2)
    assert 5 < found.episodes <= best_possible(river, found.alternatives, **question) * (1 + 1e-4)


def test_a_time_limit_gives_the_best_bound_so_far(monkeypatch):
    mdp, clock = lotteries(0.8, 0.5), itertools.count()
    whole = theory.characteristic_time(mdp, 1.0, 0.1, rounds=2).episodes
    monkeypatch.setattr(characteristic.time, "perf_counter", lambda: float(next(clock)))
    bounds = [theory.characteristic_time(mdp, 1.0, 0.1, rounds=2, seconds=s).episodes for s in (1, 2, 100)]
    assert 0 == bounds[0] < bounds[1] <= bounds[2] == whole


def test_a_program_that_takes_too_long_is_solved_for_fewer_alternatives(monkeypatch):
    mdp, minimise, sizes = eb.instances.risky_bridge(horizon=5), characteristic._LinearProgram.minimise, []

    def impatient(self, variable, seconds):
        sizes.append(len(self.rows["at_most"]))
        return None if len(sizes) < 3 else minimise(self, variable, seconds)

    whole = theory.characteristic_time(mdp, 1.0, 0.05, rounds=1).episodes
    monkeypatch.setattr(characteristic._LinearProgram, "minimise", impatient)
    fewer = theory.characteristic_time(mdp, 1.0, 0.05, rounds=1)
    assert sizes[0] > sizes[1] > sizes[2]
    assert 0 < fewer.episodes <= whole * (1 + 1e-6)


@pytest.mark.parametrize("beta", sampled(BETAS, [0.0]))
def test_what_the_visits_must_rule_out_is_ruled_out(beta):
    mdp = garnet()
    found = theory.characteristic_time(mdp, beta, 0.05, rounds=2)
    assert found.visits.sum(axis=(1, 2)) == pytest.approx(np.full(3, found.visits[0].sum()), rel=1e-6)
    assert found.visits[0].sum() == pytest.approx(found.episodes, rel=1e-4)
    for model in found.alternatives:
        assert not model.stationary
        for h in range(3):  # same possible successors, other probabilities
            assert ((model.step_kernel(h) > 0) == (mdp.step_kernel(h) > 0)).all()


def test_one_kernel_for_all_steps():
    mdp = garnet()
    found = theory.characteristic_time(mdp, 1.0, 0.05, stationary=True, rounds=1)
    assert found.episodes > 0
    assert all(model.stationary for model in found.alternatives)


def test_a_known_deterministic_model_needs_no_episode_an_unknown_one_does():
    chain = eb.FiniteMDP([[[1, 0], [0, 1]], [[0, 1], [0, 1]]], [[0, 0], [1, 1]], horizon=2)
    assert theory.characteristic_time(chain, 1.0, 0.1).episodes == 0
    assert theory.characteristic_time(chain, 1.0, 0.1, successors=None).episodes > 1


def test_rewards_of_the_next_state():
    """The lottery in one step: the same experiment, so the same number."""
    transitions = [[[0, 0.8, 0.2], [0, 0.5, 0.5]], [[0, 1, 0]] * 2, [[0, 0, 1]] * 2]
    rewards = np.zeros((3, 2, 3))
    rewards[0, :, 1] = 1.0
    short = theory.characteristic_time(eb.FiniteMDP(transitions, rewards, horizon=1), -1.0, 0.1).episodes
    assert short == pytest.approx(theory.characteristic_time(lotteries(0.8, 0.5), -1.0, 0.1).episodes, rel=1e-2)


def test_nothing_to_decide_costs_nothing():
    mdp = eb.FiniteMDP([[[0.5, 0.5]], [[0.5, 0.5]]], [[0.0], [1.0]], horizon=3)
    assert float(theory.characteristic_time(mdp, 1.0, 0.1)) == 0
    assert theory.characteristic_time(lotteries(0.8, 0.5), 1.0, 0.1, delta=0.6).episodes == 0
    assert theory.characteristic_time(lotteries(0.8, 0.5), 1.0, 5.0).episodes == 0


def test_bad_questions():
    with pytest.raises(eb.InvalidProblemError, match="small models"):
        theory.characteristic_time(eb.instances.garnet(100, 4, 3, horizon=20, seed=1), 1.0, 0.1)
    with pytest.raises(eb.InvalidProblemError, match="successors must be 'model' or None"):
        theory.characteristic_time(lotteries(0.8, 0.5), 1.0, 0.1, successors="all")
    with pytest.raises(eb.InvalidProblemError, match="seconds"):
        theory.characteristic_time(lotteries(0.8, 0.5), 1.0, 0.1, seconds=0)
    hard = eb.instances.hard_instance(6, 2, 6, beta=1.0, eps=0.1)
    with pytest.raises(eb.InvalidProblemError, match="stationary=True"):
        theory.characteristic_time(hard, 1.0, 0.1, stationary=True)


CASES = {
    "lotteries": (lotteries(0.8, 0.5), 0.1),
    "bridge": (eb.instances.risky_bridge(horizon=7), 0.2),
    "hard": (eb.instances.hard_instance(6, 2, 6, beta=1.0, eps=0.5, special=(1, 5, 1)), 0.5),
}


@pytest.mark.parametrize(
    ("name", "beta"),
    [
        ("lotteries", -1.0),
        ("lotteries", 1.0),
        pytest.param("bridge", 2.5, marks=SLOW),
        pytest.param("hard", 1.0, marks=SLOW),
    ],
)
def test_no_method_is_faster(name, beta):
    mdp, eps = CASES[name]
    bound = theory.characteristic_time(mdp, beta, eps, delta=0.05, rounds=3).episodes
    runs = [eb.identify(mdp, beta=beta, eps=eps, delta=0.05, successors="model", seed=seed) for seed in range(4)]
    assert bound < np.mean([run.episodes for run in runs])
