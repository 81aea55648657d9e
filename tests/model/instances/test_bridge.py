"""The risky bridge has the values and the policy changes that the paper's parameters imply."""

import numpy as np
import pytest

import entropic_bpi as eb

BRIDGE = eb.instances.risky_bridge(7)


def test_states_and_actions_are_named():
    assert BRIDGE.state_names == ("s0", "s1", "s2", "s3", "s4", "s5", "sg", "sb")
    assert BRIDGE.action_names == ("safe", "risky")
    assert BRIDGE.start == 0


@pytest.mark.parametrize(
    ("state", "landing", "falling"), [("s0", "s4", 0.95), ("s1", "s4", 0.75), ("s2", "s4", 0.25), ("s4", "sg", 0.85)]
)
def test_risky_jumps_or_falls(state, landing, falling):
    risky = BRIDGE.transitions[BRIDGE.state_names.index(state), 1]
    assert risky[BRIDGE.state_names.index("sb")] == falling
    assert risky[BRIDGE.state_names.index(landing)] == 1 - falling


def test_risky_equals_safe_where_the_paper_draws_none():
    for state in ("s3", "s5", "sg", "sb"):
        safe, risky = BRIDGE.transitions[BRIDGE.state_names.index(state)]
        assert (safe == risky).all()


def test_only_the_goal_pays():
    assert BRIDGE.rewards.sum(axis=1).tolist() == [0, 0, 0, 0, 0, 0, 2, 0]


@pytest.mark.parametrize("horizon", [6, 7, 9])
def test_the_safe_walk_earns_what_is_left_after_six_steps(horizon):
    always_safe = np.zeros((horizon, 8), dtype=int)
    law = eb.return_law(eb.instances.risky_bridge(horizon), always_safe)
    assert law.support.tolist() == [horizon - 6]


@pytest.mark.parametrize(("beta", "value"), [(2.5, 3.043056), (4.5, 3.912700), (-1, 1.045541), (-0.5, 1.285252)])
def test_optimal_value(beta, value):
    assert eb.solve(BRIDGE, beta).value == pytest.approx(value, abs=1e-6)


def test_the_value_of_two_jumps_is_a_lottery():
    reaching, beta = 0.05 * 0.15, 4.5
    assert eb.solve(BRIDGE, beta).value == pytest.approx(np.log1p(reaching * np.expm1(5 * beta)) / beta, abs=1e-12)


def played(beta):
    """(step, state, action) of the optimal policy wherever it may be."""
    policy, states, choices = eb.solve(BRIDGE, beta).policy, {0}, []
    for h in range(BRIDGE.horizon):
        choices += [(h, s, int(policy[h, s])) for s in sorted(states)]
        states = {int(s) for before in states for s in np.flatnonzero(BRIDGE.transitions[before, policy[h, before]])}
    return tuple(choices)


def change_between(low, high):
    before = played(low)
    while high - low > 1e-7:
        middle = (low + high) / 2
        low, high = (middle, high) if played(middle) == before else (low, middle)
    return low


def test_the_optimal_policy_changes_at_four_betas_and_nowhere_else():
    grid = np.arange(-3, 6 + 1e-9, 0.01)
    policies = [played(beta) for beta in grid]
    changes = [change_between(grid[i], grid[i + 1]) for i in range(len(grid) - 1) if policies[i] != policies[i + 1]]
    assert changes == pytest.approx([-1.098, 1.006, 1.603, 1.897], abs=1e-3)


def test_a_jump_may_be_sure():
    sure = eb.instances.risky_bridge(p_start=0, p_dash=0.0)
    assert eb.solve(sure, beta=-3).value == pytest.approx(5)
    assert eb.solve(eb.instances.risky_bridge(p_start=1, p_mid=1, p_final=1, p_dash=1), beta=9).value == pytest.approx(
        1
    )


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"horizon": 0}, "horizon must be at least 1, got 0"),
        ({"horizon": 7.0}, "horizon must be an integer, got 7.0"),
        ({"p_mid": 1.5}, r"p_mid must lie in \[0, 1\], got 1.5"),
        ({"p_dash": -0.1}, r"p_dash must lie in \[0, 1\], got -0.1"),
        ({"p_start": float("nan")}, "p_start must be a finite real number, got nan"),
        ({"p_final": "high"}, "p_final must be a finite real number, got 'high'"),
    ],
)
def test_bad_parameters_are_named(params, message):
    with pytest.raises(eb.InvalidProblemError, match=message):
        eb.instances.risky_bridge(**params)
