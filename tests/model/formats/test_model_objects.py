"""Models as other Python libraries hold them: QuantEcon and pymdptoolbox, checked against their own solvers."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

import entropic_bpi as eb
from entropic_bpi import FiniteMDP, InvalidModelError

H = 4
ORDER = "taken for \\(A, S, S\\), with the action first"
# States and actions of the DiscreteDP that QuantEcon's documentation begins with.
R = np.array([[5.0, 10.0], [-1.0, -np.inf]])
Q = np.array([[[0.5, 0.5], [0.0, 1.0]], [[0.0, 1.0], [0.5, 0.5]]])
STATES, ACTIONS = np.array([0, 0, 1]), np.array([0, 1, 0])
PAIR_REWARDS, PAIR_ROWS = np.array([5.0, 10.0, -1.0]), np.array([[0.5, 0.5], [0.0, 1.0], [0.0, 1.0]])
FORMS = {
    "product": {"R": R, "Q": Q},
    "pairs": {"R": PAIR_REWARDS, "Q": PAIR_ROWS, "s_indices": STATES, "a_indices": ACTIONS},
    "sparse pairs": {"R": PAIR_REWARDS, "Q": sparse.csr_matrix(PAIR_ROWS), "s_indices": STATES, "a_indices": ACTIONS},
    "pairs in another order": {
        "R": PAIR_REWARDS[[2, 0, 1]],
        "Q": PAIR_ROWS[[2, 0, 1]],
        "s_indices": STATES[[2, 0, 1]],
        "a_indices": ACTIONS[[2, 0, 1]],
    },
    "an infeasible pair": {
        "R": np.append(PAIR_REWARDS, -np.inf),
        "Q": np.vstack([PAIR_ROWS, [0.5, 0.5]]),
        "s_indices": np.append(STATES, 1),
        "a_indices": np.append(ACTIONS, 1),
    },
}
EXPECTED = FiniteMDP(Q, np.where(-np.inf < R, R, 0), horizon=H, allowed=[[1, 1], [1, 0]])


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_discrete_dp_is_the_same_model(form):
    assert eb.from_quantecon(SimpleNamespace(**FORMS[form], beta=1.0), horizon=H) == EXPECTED


@pytest.mark.parametrize("form", FORMS)
def test_quantecon_finds_the_same_values(form):
    markov = pytest.importorskip("quantecon.markov")
    ddp = markov.DiscreteDP(beta=0.9, **FORMS[form])
    with pytest.warns(UserWarning, match=r"ddp\.beta = 0\.9, .* pass discount=0\.9"):
        mdp = eb.from_quantecon(ddp, horizon=H)
    assert mdp == EXPECTED
    values, policies = markov.backward_induction(ddp, H)
    solution = eb.solve(eb.discounted(mdp, 0.9, H), 0)
    np.testing.assert_allclose(solution.values[0], values[0], rtol=1e-12)
    np.testing.assert_array_equal(solution.policy, policies)


@pytest.mark.parametrize(
    ("ddp", "message"),
    [
        (None, "must be a quantecon.markov.DiscreteDP, got None"),
        (SimpleNamespace(R=R, Q=Q), "must be a quantecon.markov.DiscreteDP"),
        (SimpleNamespace(R=PAIR_REWARDS, Q=PAIR_ROWS, beta=1), "must be a quantecon.markov.DiscreteDP"),
        (SimpleNamespace(R=R[0], Q=Q[0], s_indices=[0, 0], a_indices=[1, 1], beta=1), "a state-action pair twice"),
        (SimpleNamespace(R=np.full((2, 2), -np.inf), Q=Q, beta=1), "allows no action"),
        (SimpleNamespace(R=R, Q=Q * 0.5, beta=1), "sums to 0.5"),
        (SimpleNamespace(R=[1.0, 2.0], Q=Q[0], s_indices=[0, 5], a_indices=[0, 0], beta=1), "s_indices"),
        (SimpleNamespace(R=[1.0], Q=Q[0], s_indices=[0, 1], a_indices=[0, 0], beta=1), "s_indices"),
    ],
)
def test_what_is_not_a_discrete_dp_is_an_error(ddp, message):
    with pytest.raises(InvalidModelError, match=message):
        eb.from_quantecon(ddp, horizon=H)


# -- pymdptoolbox ------------------------------------------------------------------------------------------------------

P3 = np.random.default_rng(0).dirichlet(np.ones(3), (2, 3))  # (A, S, S)
R3 = np.random.default_rng(1).normal(size=(2, 3, 3))
STATE_FIRST = np.swapaxes(P3, 0, 1)


def objects(parts):
    array = np.empty(len(parts), dtype=object)
    array[:] = list(parts)
    return array


def sparse_of(parts):
    return [sparse.csr_matrix(part) for part in parts]


REWARDS = {
    "(S,)": (R3[0, 0], np.repeat(R3[0, 0][:, None], 2, axis=1)),
    "(S, A)": (R3[0, :, :2], R3[0, :, :2]),
    "(A, S, S)": (R3, np.swapaxes(R3, 0, 1)),
    "objects": (objects(R3), np.swapaxes(R3, 0, 1)),
    "vectors": (objects(R3[:, 0]), R3[:, 0].T),
}


@pytest.mark.filterwarnings("ignore:transitions and rewards:UserWarning", "ignore:rewards with one axis:UserWarning")
@pytest.mark.parametrize("rewards", REWARDS)
@pytest.mark.parametrize("form", [np.asarray, list, objects, sparse_of, lambda parts: objects(sparse_of(parts))])
def test_every_form_of_p_and_r_is_recognised(form, rewards):
    given, expected = REWARDS[rewards]
    mdp = FiniteMDP(form(P3), given, horizon=H)
    for beta in (-1.0, 1.0):
        expected_values = eb.solve(FiniteMDP(STATE_FIRST, expected, horizon=H), beta).values
        np.testing.assert_allclose(eb.solve(mdp, beta).values, expected_values, rtol=1e-12)


def test_what_was_assumed_is_said():
    with pytest.warns(UserWarning, match=ORDER):
        FiniteMDP(P3, R3, horizon=H)
    with pytest.warns(UserWarning, match=r"rewards with one axis are taken for \(S,\), the same for every action"):
        FiniteMDP(STATE_FIRST, R3[0, 0], horizon=H)
    assert FiniteMDP(P3, R3, horizon=H, order="ass").n_actions == 2  # and no warning


def test_as_many_actions_as_states():
    square = P3[:, :2, :2] / P3[:, :2, :2].sum(axis=2, keepdims=True)
    rewards = R3[:, :2, :2]
    by_state = np.swapaxes(square, 0, 1)
    with pytest.warns(UserWarning, match=ORDER):  # an object array begins with the action
        assert FiniteMDP(objects(square), rewards[0], horizon=H) == FiniteMDP(by_state, rewards[0], horizon=H)
    expected = FiniteMDP(by_state, np.swapaxes(rewards, 0, 1), horizon=H)
    assert FiniteMDP(sparse_of(square), rewards, horizon=H, order="ass") == expected
    for order in (None, "sas"):  # dense rewards are (S, A, S) if nothing is said
        assert FiniteMDP(sparse_of(square), np.swapaxes(rewards, 0, 1), horizon=H, order=order) == expected
    per_step = np.stack([rewards] * H)
    by_step = FiniteMDP(by_state, np.swapaxes(per_step, 1, 2), horizon=H)
    assert FiniteMDP(sparse_of(square), per_step, horizon=H, order="ass") == by_step


def test_rewards_of_each_step_are_not_taken_for_those_of_next_states():
    rewards = np.random.default_rng(2).random((3, 3, 2))  # (H, S, A) with H = S
    expected = FiniteMDP(STATE_FIRST, rewards, horizon=3)
    for order in (None, "sas", "ass"):
        assert FiniteMDP(sparse_of(P3), rewards, horizon=3, order=order) == expected


def test_pymdptoolbox_finds_the_same_values():
    example, solvers = pytest.importorskip("mdptoolbox.example"), pytest.importorskip("mdptoolbox.mdp")
    transitions, rewards = example.forest(S=4)
    solver = solvers.FiniteHorizon(transitions, rewards, 0.9, H)
    solver.run()
    with pytest.warns(UserWarning, match=ORDER):
        mdp = FiniteMDP(transitions, rewards, horizon=H)
    np.testing.assert_allclose(eb.solve(eb.discounted(mdp, 0.9, H), 0).values[0], solver.V[:, 0], rtol=1e-12)


@pytest.mark.parametrize("bad", [objects(["a", "b"]), objects([P3[0], P3[1, :2]]), objects([None, P3[0]])])
def test_matrices_that_are_none_are_an_error(bad):
    with pytest.raises(InvalidModelError, match="transitions"):
        FiniteMDP(bad, np.zeros((3, 2)), horizon=H, order="ass")
