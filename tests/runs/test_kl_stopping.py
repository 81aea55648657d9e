"""How many episodes the KL method needs: means over seeds against what was measured before."""

import functools

import numpy as np
import pytest

import entropic_bpi as eb

BRIDGE = {"eps": 0.2, "delta": 0.1}
# (what is known, β, most episodes on average)
BRIDGE_ROWS = [
    ("nothing", 2.5, 3.2e5),
    ("nothing", 4.5, 4.2e5),
    ("nothing", -1.0, 1.0e4),
    ("successors", 2.5, 9e3),
    ("successors", 4.5, 1.3e3),
    ("successors", -1.0, 4.5e2),
    ("successors, stationary", 2.5, 4.5e3),
    ("successors, stationary", 4.5, 6.5e2),
    ("successors, stationary", -1.0, 3.6e2),
]
# (stationary, β, ε, episodes of an independent implementation)
RIVER_ROWS = [
    (True, -1.0, 0.5, 34),
    (True, -1.0, 0.1, 42),
    (True, 0.5, 2.0, 26),
    (True, 0.5, 0.5, 34),
    (False, -1.0, 0.5, 1709),
    (False, 0.5, 2.0, 1221),
]
FROZEN_ROWS = [("model", 1.4e4), ("terminal", 2.8e4)]


def episodes(mdp, seeds, **options) -> np.ndarray:
    """Episodes until each run stopped; every run also keeps its promise."""
    taken = []
    for seed in seeds:
        result = eb.identify(mdp, seed=seed, **options)
        assert result.stopped
        taken.append(result.episodes)
    return np.array(taken)


def report(label, taken) -> None:
    print(f"{label}: {taken.mean():.4g} ± {taken.std(ddof=1) / np.sqrt(len(taken)):.2g} ({len(taken)} seeds)")


def bridge_episodes(known, beta, seeds):
    options = {"successors": "model" if "successors" in known else None, "stationary": "stationary" in known}
    return episodes(eb.instances.risky_bridge(horizon=7), seeds, beta=beta, **BRIDGE, **options)


@functools.cache
def frozen_lake():
    return eb.from_gymnasium("FrozenLake-v1", horizon=50, is_slippery=True)


def terminal_known(mdp):
    """Anything may follow anything, except that terminal states stay."""
    mask = np.ones((mdp.n_states, mdp.n_actions, mdp.n_states), dtype=bool)
    rows = mdp.step_rows(0)
    for s in range(mdp.n_states):
        row = s * mdp.n_actions
        reached = rows.indices[rows.indptr[row] : rows.indptr[row + mdp.n_actions]]
        if (reached == s).all():
            mask[s] = np.arange(mdp.n_states) == s
    assert (mask.sum(axis=2) == 1).any()
    return mask


def frozen_episodes(known, seeds, **options):
    mdp = frozen_lake()
    successors = "model" if known == "model" else terminal_known(mdp)
    return episodes(mdp, seeds, beta=-1.0, eps=0.1, delta=0.05, stationary=True, successors=successors, **options)


def river_episodes(stationary, beta, eps, seeds):
    mdp = eb.instances.river_swim(6, horizon=20)
    return episodes(mdp, seeds, beta=beta, eps=eps, delta=0.05, stationary=stationary, successors="model")


@pytest.mark.parametrize(("known", "beta", "most"), [row for row in BRIDGE_ROWS if row[2] < 2e4])
def test_bridge_quick(known, beta, most):
    """Eight seeds scatter by half of their mean over √8: allow for it."""
    assert bridge_episodes(known, beta, range(8)).mean() <= 1.5 * most


@pytest.mark.slow
@pytest.mark.parametrize(("known", "beta", "most"), BRIDGE_ROWS)
def test_bridge(known, beta, most):
    taken = bridge_episodes(known, beta, range(100, 120 if most > 1e5 else 160))
    report(f"bridge, {known} known, beta {beta}", taken)
    assert taken.mean() <= most


def test_river_swim_quick():
    taken = river_episodes(True, 0.5, 2.0, range(4))
    assert taken.mean() == pytest.approx(26, rel=0.25)


@pytest.mark.slow
@pytest.mark.parametrize(("stationary", "beta", "eps", "measured"), RIVER_ROWS)
def test_river_swim(stationary, beta, eps, measured):
    taken = river_episodes(stationary, beta, eps, range(100, 120))
    report(f"river, stationary {stationary}, beta {beta}, eps {eps}", taken)
    assert taken.mean() <= 1.3 * measured


def test_frozen_lake_quick():
    assert frozen_episodes("model", range(1), replan=0.1).mean() <= 1.6e4


@pytest.mark.slow
@pytest.mark.parametrize(("known", "most"), FROZEN_ROWS)
def test_frozen_lake(known, most):
    taken = frozen_episodes(known, range(100, 120))
    report(f"FrozenLake, {known} known", taken)
    assert taken.mean() <= most


def test_challenger_sampling_is_what_makes_the_bridge_short():
    bridge = eb.instances.risky_bridge()
    options = {"beta": 4.5, "successors": "model", **BRIDGE}
    challenger = episodes(bridge, range(6), **options)
    optimistic = episodes(bridge, range(6), sampling="optimistic", **options)
    assert 4 * challenger.mean() < optimistic.mean()
