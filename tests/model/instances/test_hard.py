"""The hard instances are those of the lower bound, for both signs of beta and trees of any shape."""

import math

import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi.model.instances.hard import BAD, GOOD, ROOT, WAIT, hard_shape, largest_eps

# (states, actions, horizon): full and non-full trees, wide and narrow, with and without a remainder of horizon / 3.
SIZES = [(6, 2, 6), (6, 5, 7), (7, 2, 11), (10, 2, 12), (13, 3, 10), (34, 5, 9), (46, 6, 11), (40, 2, 20)]
BETAS = [1.0, 0.05, 3.0, -1.0, -0.05, -3.0]


def eps_for(shape, beta, fraction=0.5):
    return fraction * largest_eps(shape.paid_steps, beta)


def depth_of(leaf, n_actions):
    node, depth = leaf - ROOT, 0
    while node > 0:
        node, depth = (node - 1) // n_actions, depth + 1
    return depth


def specials(sizes):
    shape = hard_shape(*sizes)
    return {
        (0, shape.first_leaf, 0),
        (shape.exits - 1, sizes[0] - 1, sizes[1] - 1),
        (shape.exits // 2, sizes[0] - 1, 0),
    }


@pytest.mark.parametrize(
    ("n_states", "n_actions", "depth"),
    [
        (34, 5, 3),
        (46, 6, 3),
        (6, 2, 2),
        (7, 2, 3),
        (10, 2, 3),
        (11, 2, 4),
        (16, 3, 3),
        (17, 3, 4),
        (1026, 2, 10),
        (6, 90, 2),
    ],
)
def test_depth_of_the_tree(n_states, n_actions, depth):
    assert hard_shape(n_states, n_actions, 60).depth == depth


@pytest.mark.parametrize("n_actions", [2, 3, 5, 7])
def test_depth_is_the_number_of_levels_at_every_size(n_actions):
    for n_states in range(6, 130):
        shape = hard_shape(n_states, n_actions, 60)
        depths = {depth_of(leaf, n_actions) for leaf in range(shape.first_leaf, n_states)}
        assert max(depths) == shape.depth - 1
        assert min(depths) >= shape.depth - 2
        assert n_states - shape.first_leaf >= n_states / 4  # the theorem counts on so many leaves


@pytest.mark.parametrize("sizes", SIZES)
def test_transitions_walk_from_waiting_through_the_tree_to_good_or_bad(sizes):
    n_states, n_actions, horizon = sizes
    shape = hard_shape(*sizes)
    mdp = eb.instances.hard_instance(*sizes, beta=1.0, eps=eps_for(shape, 1.0))
    for h in range(horizon):
        rows = mdp.step_rows(h)
        successors = np.split(rows.indices, rows.indptr[1:-1])
        for s in range(n_states):
            for a in range(n_actions):
                reached = successors[s * n_actions + a].tolist()
                child = n_actions * (s - ROOT) + 1 + a + ROOT
                if s == WAIT:
                    expected = [WAIT] if a == 0 and h + 2 <= horizon // 3 else [ROOT]
                elif s in (GOOD, BAD):
                    expected = [s]
                elif child - a >= n_states:
                    expected = [GOOD, BAD]
                else:
                    expected = [child if child < n_states else child - a]
                assert reached == expected


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("sizes", SIZES)
def test_the_special_choice_is_worth_log_2q_minus_1(sizes, beta):
    shape = hard_shape(*sizes)
    eps = eps_for(shape, beta)
    gap = math.log(2 * math.exp(abs(beta) * eps) - 1) / abs(beta)
    plain = eb.instances.hard_instance(*sizes, beta=beta, eps=eps)
    without = eb.solve(plain, beta)
    assert gap > eps
    for special in specials(sizes):
        mdp = eb.instances.hard_instance(*sizes, beta=beta, eps=eps, special=special)
        best = eb.solve(mdp, beta)
        assert best.value - without.value == pytest.approx(gap, rel=1e-9)
        exit_step, leaf, action = special
        step = exit_step + 1 + depth_of(leaf, sizes[1])
        assert best.policy[step, leaf] == action
        avoiding = best.policy.copy()
        avoiding[step, leaf] = (action + 1) % sizes[1]
        assert best.value - eb.evaluate(mdp, avoiding, beta).value == pytest.approx(gap, rel=1e-9)


@pytest.mark.parametrize("beta", BETAS)
def test_only_the_special_choice_differs_and_it_is_reachable(beta):
    sizes, special = (13, 3, 10), (1, 9, 2)
    eps = eps_for(hard_shape(*sizes), beta)
    plain, mdp = (eb.instances.hard_instance(*sizes, beta=beta, eps=eps, special=u) for u in (None, special))
    differing = np.flatnonzero(plain.rows.probabilities != mdp.rows.probabilities)
    rows = set((np.searchsorted(mdp.rows.indptr, differing, side="right") - 1).tolist())
    step = 1 + 1 + depth_of(9, 3)
    assert rows == {(step * 13 + 9) * 3 + 2}
    assert plain.rows.probabilities.min() > 0
    success, failure = mdp.rows.probabilities[differing]
    assert success + failure == pytest.approx(1)
    assert failure >= plain.rows.probabilities[differing][1] / 2 * (1 - 1e-9)  # what condition A grants


@pytest.mark.parametrize("beta", [0.7, -0.7])
def test_probabilities_are_the_printed_ones(beta):
    sizes, eps = (10, 2, 12), 0.03
    paid = 12 - 4 - 3
    c, q = math.expm1(0.7 * paid), math.exp(0.7 * eps)
    low = 1 / (2 * (c + 1)) if beta > 0 else 1 - 1 / (2 * (c + 1))
    step = (q - 1) * (3 * c + 2) / (c * (c + 1)) / (1 if beta > 0 else 2 * q - 1)
    mdp = eb.instances.hard_instance(*sizes, beta=beta, eps=eps, special=(0, 9, 0))
    shown = set(mdp.rows.probabilities.round(12).tolist())
    assert shown == {1.0, *(round(p, 12) for p in (low, 1 - low, low + step, 1 - low - step))}


@pytest.mark.parametrize("sizes", SIZES)
def test_the_largest_return_is_the_number_of_paid_steps(sizes):
    shape = hard_shape(*sizes)
    mdp = eb.instances.hard_instance(*sizes, beta=1.0, eps=eps_for(shape, 1.0))
    assert eb.max_return(mdp) == shape.paid_steps == sizes[2] - sizes[2] // 3 - shape.depth
    assert mdp.rewards.sum() == shape.paid_steps * sizes[1]


@pytest.mark.parametrize("beta", [100.0, -100.0])
def test_extreme_beta_keeps_the_gap(beta):
    sizes = (6, 2, 8)  # |beta| H' = 400: the rarer outcome has probability about 1e-174
    shape = hard_shape(*sizes)
    eps = eps_for(shape, beta)
    values = [
        eb.solve(eb.instances.hard_instance(*sizes, beta=beta, eps=eps, special=u), beta).value
        for u in (None, (0, 5, 1))
    ]
    gap = (abs(beta) * eps + math.log(2 - math.exp(-abs(beta) * eps))) / abs(beta)
    assert values[1] - values[0] == pytest.approx(gap, rel=1e-9)


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("paid_steps", [2, 5])
def test_condition_a_in_its_printed_form(beta, paid_steps):
    c = math.expm1(abs(beta) * paid_steps)
    bound = c * (2 * c + 1) / (4 * (3 * c + 2)) if beta > 0 else c / (10 * c + 8)
    assert math.expm1(abs(beta) * largest_eps(paid_steps, beta)) == pytest.approx(bound, rel=1e-12)


def test_as_many_steps_as_states_as_actions():
    assert eb.instances.hard_instance(6, 6, 6, beta=1.0, eps=0.1).horizon == 6


GIVEN = {"n_states": 10, "n_actions": 2, "horizon": 12, "beta": 1.0, "eps": 0.1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_states": 5}, "n_states must be at least 6, got 5"),
        ({"n_actions": 1}, "n_actions must be at least 2, got 1"),
        ({"horizon": 8}, "horizon must be at least 3 d = 9, where d = 3 is the depth of the tree of 7 nodes"),
        ({"horizon": 12.0}, "horizon must be an integer"),
        ({"beta": 0}, "beta must not be 0"),
        ({"beta": math.inf}, "beta must be a finite real number"),
        ({"beta": 200.0}, "at most 700, got 1000"),
        ({"eps": 0}, "eps must be greater than 0"),
        ({"eps": 4.0}, r"eps=4 is outside condition A: with beta=1 and 5 paid steps it must be at most 3\."),
        ({"beta": -1.0, "eps": 0.2}, r"eps=0.2 is outside condition A: .* at most 0\.09"),
        ({"special": (4, 9, 0)}, "the exit step of special must be at most 3, got 4"),
        ({"special": (0, 5, 0)}, "the leaf of special must be at least 6, got 5"),
        ({"special": (0, 10, 0)}, "the leaf of special must be at most 9, got 10"),
        ({"special": (0, 9, 2)}, "the action of special must be at most 1, got 2"),
        ({"special": (0, 9)}, r"special must be a triple \(exit_step, leaf, action\), got \(0, 9\)"),
        ({"special": 3}, "special must be a triple"),
    ],
)
def test_bad_parameters_are_named(change, message):
    with pytest.raises(eb.InvalidProblemError, match=message):
        eb.instances.hard_instance(**{**GIVEN, **change})
