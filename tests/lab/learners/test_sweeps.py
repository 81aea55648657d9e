"""The sweeps of model-based learners: lazy equals full, optimism holds, the ball is the ball."""

import numpy as np
import pytest
from scipy.optimize import linprog, minimize_scalar

import entropic_bpi as eb
from entropic_bpi.lab.learners import value_iteration as vi
from entropic_bpi.lab.learners._run import find
from entropic_bpi.lab.learners.game import log_term, new_game, score_coefficients
from entropic_bpi.methods.kl.rates import mixture_radius

MODELS = {
    "bridge": lambda: eb.instances.risky_bridge(horizon=5),
    "garnet": lambda: eb.instances.garnet(4, 3, 2, horizon=4, seed=1, stationary=False),
    "dense": lambda: eb.instances.garnet(5, 2, 5, horizon=3, seed=2),
}
OPTIMISTIC = [
    "rsvi",
    "rsvi2",
    "rsq",
    "rsq2",
    "rodi_otp",
    "rodi_pto",
    "rovi",
    "ucb_advantage",
    "bpi_ucbvi",
    "entropic_bpi",
    "kl_bpi",
]


def game_on(mdp, beta, *, episodes=10_000, scale=1.0, seed=0, ties="random"):
    return new_game(mdp, beta=beta, episodes=episodes, delta=0.1, scale=scale, seed=seed, ties=ties)


def optimal_scores(learner, game, mdp):
    """The learner's table for the true model."""
    if learner == "bpi_ucbvi":
        return eb.solve(mdp, 0).q_values / game.remaining[:, None, None]
    q_values = eb.solve(mdp, game.beta).q_values
    if learner == "ucb_advantage":
        return np.sign(game.beta) * np.exp(game.beta * q_values - max(game.beta, 0) * game.horizon)
    return np.expm1(game.beta * q_values) / np.expm1(game.beta * game.remaining[:, None, None])


def check_optimism(learner, mdp, beta, episodes, every, **params):
    game = game_on(mdp, beta, episodes=episodes)
    play = find(learner)(game, **params)
    truth = optimal_scores(learner, game, mdp)
    for first in range(0, episodes, every):
        play(first, min(first + every, episodes))
        assert (game.greedy.score >= truth - 1e-12).all()


@pytest.mark.parametrize("beta", [-1.0, 1.0, 3.0])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("learner", OPTIMISTIC)
def test_published_constants_are_optimistic(learner, model, beta):
    check_optimism(learner, MODELS[model](), beta, episodes=2000, every=50)


@pytest.mark.slow
@pytest.mark.parametrize("beta", [-1.0, 1.0, 3.0])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("learner", OPTIMISTIC)
def test_published_constants_are_optimistic_after_every_episode(learner, model, beta):
    check_optimism(learner, MODELS[model](), beta, episodes=10_000, every=1)


@pytest.mark.parametrize("beta", [-1.0, 1.0, 3.0])
@pytest.mark.parametrize("model", MODELS)
def test_rsvi2_is_optimistic_with_the_smallest_rigorous_constant(model, beta):
    check_optimism("rsvi2", MODELS[model](), beta, episodes=5000, every=50, c=np.sqrt(0.5))


@pytest.mark.parametrize("beta", [-1.0, 1.5])
@pytest.mark.parametrize("rule", [vi.BONUS, vi.TIGHT, vi.BALL, vi.KL])
def test_lazy_sweep_is_the_full_sweep_to_the_last_bit(rule, beta):
    mdp = eb.instances.garnet(7, 3, 3, horizon=6, seed=4)
    tables = []
    for lazy in (True, False):
        game = game_on(mdp, beta, scale=0.1)
        learner = vi.value_iteration(game, rule, np.full(6, 2.0), log_term(game), lazy=lazy)
        learner(0, 3000)
        tables.append((game.greedy.score, game.greedy.best, game.oracle.total))
    for lazy, full in zip(*tables, strict=True):
        np.testing.assert_array_equal(lazy, full)


def largest_mean(phat, radius, values):
    """max p·values over the L1 ball, as a linear program in p and |p - phat|."""
    size = len(phat)
    eye = np.eye(size)
    found = linprog(
        np.concatenate([-values, np.zeros(size)]),
        A_ub=np.block([[eye, -eye], [-eye, -eye], [np.zeros(size), np.ones(size)]]),
        b_ub=np.concatenate([phat, -phat, [radius]]),
        A_eq=np.concatenate([np.ones(size), np.zeros(size)])[None],
        b_eq=[1.0],
        bounds=(0, None),
    )
    return -found.fun


@pytest.mark.parametrize("beta", [-1.0, 1.5])
def test_rovi_plans_on_the_ball_of_the_linear_program(beta):
    mdp = eb.instances.garnet(5, 2, 3, horizon=3, seed=3)
    game = game_on(mdp, beta, episodes=400, scale=0.3)
    rovi = find("rovi")(game)
    rovi(0, 400)
    known = rovi.args[-1]
    sign = np.sign(beta)
    exponentials = np.ones(5)
    for h in reversed(range(3)):
        table = np.empty((5, 2))
        for s, a in np.ndindex(5, 2):
            row = (h * 5 + s) * 2 + a
            entries = slice(game.model.indptr[row], game.model.indptr[row + 1])
            phat, n = np.full(5, 0.2), known.visits[row]
            if n:
                phat = np.zeros(5)
                phat[game.model.next_state[entries]] = known.transitions[entries] / n
            radius = 0.3 * np.sqrt(2 * 5 * log_term(game) / n) if n else 2.0
            table[s, a] = np.exp(beta * game.rewards[h, s, a]) * sign * largest_mean(phat, radius, sign * exponentials)
        k = 3 - h
        np.testing.assert_allclose(1 + game.greedy.score[h] * np.expm1(beta * k), table, rtol=1e-8)
        exponentials = sign * (sign * table).max(axis=1)
        assert (table[np.arange(5), game.greedy.members[h, :, 0]] * sign >= sign * exponentials - 1e-8).all()


def largest_kl_mean(phat, radius, values):
    """max p·values with KL(phat, p) <= radius, by the dual, minimised on a fine grid and then by Brent's method."""
    top, seen = values.max(), phat > 0

    def dual(log_excess):
        excess = np.exp(log_excess)
        return top + excess - np.exp(phat[seen] @ np.log(excess + (top - values[seen])) - radius)

    grid = np.linspace(-40, 10, 2001)
    best = grid[np.argmin([dual(x) for x in grid])]
    return min(top, minimize_scalar(dual, bounds=(best - 0.1, best + 0.1), method="bounded").fun)


@pytest.mark.parametrize("beta", [-1.0, 1.5])
def test_kl_bpi_plans_on_the_ball_of_the_exact_dual(beta):
    mdp = eb.instances.garnet(5, 2, 3, horizon=3, seed=3)
    game = game_on(mdp, beta, episodes=400)
    learner = find("kl_bpi")(game)
    learner(0, 400)
    known, model = learner.args[-1], game.model
    for row in np.flatnonzero(known.visits):
        h, s, a = np.unravel_index(row, (3, 5, 2))
        entries = slice(model.indptr[row], model.indptr[row + 1])
        n, tally = known.visits[row], known.transitions[entries]
        phat = np.zeros(5)
        phat[model.next_state[entries]] = tally / n
        radius = (np.log((1 + 5) * 2 / 0.1) + mixture_radius(tally, 5)) / n
        exact = largest_kl_mean(phat, radius, game.greedy.best[h + 1])
        score = game.base[h, s, a] + game.slope[h, s, a] * exact
        assert -1e-10 <= game.greedy.score[h, s, a] - score <= 1e-4


@pytest.mark.parametrize("name", ["rsvi", "rsvi2", "rodi_otp", "rodi_pto", "rovi", "kl_bpi"])
def test_plans_do_not_depend_on_the_true_probabilities(name):
    mdp = eb.instances.garnet(6, 2, 3, horizon=4, seed=3)
    game = game_on(mdp, 1.0, scale=0.1)
    learner = find(name)(game)
    learner(0, 500)
    planned = game.greedy.score.copy()
    game.model.probability[:] = np.nan
    game.model.cumulative[:] = np.nan
    game.greedy.score[:] = 0
    vi.plan_everything(game.model, game.greedy, learner.args[-1])
    np.testing.assert_array_equal(game.greedy.score, planned)


@pytest.mark.parametrize("beta", [-1e4, -3.0, -1e-12, -5e-324, 0.0, 5e-324, 1e-12, 3.0, 1e4])
def test_score_coefficients_stay_in_range(beta):
    rewards = np.random.default_rng(0).random((6, 3, 2))
    rewards[0, 0] = 0, 1
    base, slope = score_coefficients(rewards, beta)
    assert np.isfinite(base).all()
    assert np.isfinite(slope).all()
    assert (base >= 0).all()
    assert (slope >= 0).all()
    assert (base + slope <= 1 + 1e-15).all()
    assert base[0, 0, 1] + slope[0, 0, 1] == 1.0
