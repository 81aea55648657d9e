"""Models as other Python libraries hold them: QuantEcon and pymdptoolbox, checked against their own solvers."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

import entropic_bpi as eb
from entropic_bpi import FiniteMDP, InvalidModelError

H = 4
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


def test_pymdptoolbox_finds_the_same_values():
    example, solvers = pytest.importorskip("mdptoolbox.example"), pytest.importorskip("mdptoolbox.mdp")
    transitions, rewards = example.forest(S=4)
    solver = solvers.FiniteHorizon(transitions, rewards, 0.9, H)
    solver.run()
    mdp = FiniteMDP(np.swapaxes(transitions, 0, 1), rewards, horizon=H)
    np.testing.assert_allclose(eb.solve(eb.discounted(mdp, 0.9, H), 0).values[0], solver.V[:, 0], rtol=1e-12)
