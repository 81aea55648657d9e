"""CVaR of known models, against all policies that may depend on what was earned so far."""

import itertools

import numpy as np
import pytest

import entropic_bpi as eb


def small_model(rng):
    S, A, H = int(rng.integers(1, 4)), 2, int(rng.integers(1, 4))
    if S == 3 and H == 3:
        H = 2
    kernel = rng.dirichlet(np.full(S, 0.6), size=(H, S, A))
    if rng.random() < 0.5:  # few successors
        kernel = np.where(kernel == kernel.max(axis=-1, keepdims=True), 1.0, np.round(kernel, 1))
        kernel /= kernel.sum(axis=-1, keepdims=True)
    rewards = rng.normal(size=(H, S, A, S))
    if rng.random() < 0.6:
        rewards = rewards.round(int(rng.integers(0, 2)))  # returns that coincide
    rewards = rewards * rng.choice([0.1, 1.0, 100.0]) + rng.choice([0.0, -5.0, 3.0])
    if rng.random() < 0.3:
        rewards = np.repeat(rewards[..., :1], S, axis=-1)
    start = int(rng.integers(S)) if rng.random() < 0.5 else rng.dirichlet(np.ones(S))
    allowed = None
    if rng.random() < 0.2:
        allowed = np.ones((S, A), dtype=bool)
        allowed[int(rng.integers(S)), int(rng.integers(A))] = False
    return eb.FiniteMDP(kernel, rewards, horizon=H, start=start, allowed=allowed)


def outcomes(mdp, h, s, a):
    rows = mdp.step_rows(h)
    row = s * mdp.n_actions + a
    for i in range(rows.indptr[row], rows.indptr[row + 1]):
        if rows.probabilities[i] > 0:
            paid = mdp.step_rewards(h)[s, a] if rows.rewards is None else rows.rewards[i]
            yield int(rows.indices[i]), float(rows.probabilities[i]), float(paid)


def allowed_actions(mdp, s):
    return [a for a in range(mdp.n_actions) if mdp.allowed is None or mdp.allowed.reshape(-1, mdp.n_states, 2)[0, s, a]]


def decision_points(mdp):
    """All (step, state, earned so far) that some policy reaches, in order."""
    now = {(s, 0.0) for s in np.flatnonzero(mdp.start_distribution > 0).tolist()}
    for h in range(mdp.horizon):
        yield from ((h, s, round(b, 9)) for s, b in sorted(now))
        now = {
            (y, round(b + r, 9)) for s, b in now for a in allowed_actions(mdp, s) for y, _, r in outcomes(mdp, h, s, a)
        }


def law_of(mdp, action):
    """Returns and probabilities when ``action(h, s, earned)`` is played."""
    atoms = {(s, 0.0): p for s, p in enumerate(mdp.start_distribution) if p > 0}
    for h in range(mdp.horizon):
        after = {}
        for (s, b), p in atoms.items():
            for y, q, r in outcomes(mdp, h, s, action(h, s, b)):
                key = y, round(b + r, 9)
                after[key] = after.get(key, 0.0) + p * q
        atoms = after
    total = {}
    for (_, b), p in atoms.items():
        total[b] = total.get(b, 0.0) + p
    return total


def cvar_of(law, alpha):
    left, mean = alpha, 0.0
    for value in sorted(law):
        mean += min(left, law[value]) * value
        left -= min(left, law[value])
    return mean / (alpha - left)


def best_by_enumeration(mdp, alpha, most):
    """The largest CVaR of all policies on (h, s, earned); None if there are too many."""
    points = list(decision_points(mdp))
    choices = [allowed_actions(mdp, s) for _, s, _ in points]
    if np.prod([float(len(some)) for some in choices]) > most:
        return None
    best = -np.inf
    for chosen in itertools.product(*choices):
        table = dict(zip(points, chosen, strict=True))
        best = max(best, cvar_of(law_of(mdp, lambda h, s, b, table=table: table[h, s, round(b, 9)]), alpha))
    return best


def check_against_enumeration(seeds, most=1 << 9):
    checked = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        mdp, alpha = small_model(rng), float(rng.choice([0.01, 0.05, 0.2, 0.5, 0.9, 1.0]))
        best = best_by_enumeration(mdp, alpha, most)
        if best is None:
            continue
        found = eb.solve_cvar(mdp, alpha)
        rounding = 1e-8 / alpha  # of the enumeration, which rounds what was earned
        assert found.lower - rounding <= best <= found.upper + rounding, seed
        assert found.upper - found.lower <= 1e-6, seed
        attained = cvar_of(law_of(mdp, found.action), alpha)
        assert attained >= found.lower - rounding, seed
        checked += 1
    return checked


def test_the_value_is_that_of_the_best_policy_that_remembers_what_was_earned():
    assert check_against_enumeration(range(40), most=1 << 7) >= 15


@pytest.mark.slow
def test_the_same_on_many_models():
    assert check_against_enumeration(range(2_000)) >= 500


def test_what_was_earned_matters():
    """Half of the episodes earn 10 on the way to one state with a gamble, which the worst 60 % want only without the 10."""
    kernel, rewards = np.zeros((5, 2, 5)), np.zeros((5, 2, 5))
    kernel[0, :, 1:3] = 0.5
    rewards[0, :, 2] = 10.0
    kernel[1:3, :, 3] = 1.0
    kernel[3, 0, 4], rewards[3, 0, 4] = 1.0, 2.0
    kernel[3, 1, [0, 4]], rewards[3, 1, 4] = [0.2, 0.8], 3.0
    kernel[4, :, 4] = 1.0
    mdp = eb.FiniteMDP(kernel, np.broadcast_to(rewards, (3, 5, 2, 5)).copy(), horizon=3)
    found = eb.solve_cvar(mdp, 0.6)
    assert found.value == pytest.approx((0.5 * 2.4 + 0.1 * 12) / 0.6)
    assert (found.action(2, 3, 0.0), found.action(2, 3, 10.0)) == (1, 0)
    assert max(eb.return_law(mdp, np.full((3, 5), a)).cvar(0.6) for a in (0, 1)) == pytest.approx(2.2 / 0.6)


def test_many_returns_are_within_the_tolerance_of_the_exact_value():
    """Uncountably many would be: all returns differ, so that knots are removed, and the wide tolerance agrees."""
    rng = np.random.default_rng(0)
    S, A, H = 6, 2, 9
    kernel = rng.dirichlet(np.ones(S), size=(S, A))
    mdp = eb.FiniteMDP(kernel, rng.normal(size=(S, A, S)), horizon=H)
    fine, coarse = eb.solve_cvar(mdp, 0.1, tol=1e-4), eb.solve_cvar(mdp, 0.1, tol=1e-2)
    assert fine.upper - fine.lower <= 1e-4
    assert coarse.upper - coarse.lower <= 1e-2
    assert coarse.lower <= fine.upper
    assert fine.lower <= coarse.upper
    evar = eb.solve_evar(mdp, 0.1)
    assert evar.lower <= fine.upper <= eb.solve(mdp, 0.0).value


@pytest.mark.parametrize(("alpha", "tol"), [(0.0, 1e-6), (1.1, 1e-6), (0.1, 0.0), (0.1, 1e-30)])
def test_what_cannot_be_asked_is_refused(alpha, tol):
    with pytest.raises(eb.InvalidProblemError):
        eb.solve_cvar(eb.instances.risky_bridge(horizon=3), alpha, tol=tol)


def test_the_level_one_is_the_mean():
    bridge = eb.instances.risky_bridge(horizon=7)
    found = eb.solve_cvar(bridge, 1.0)
    assert found.lower <= eb.solve(bridge, 0.0).value <= found.upper
