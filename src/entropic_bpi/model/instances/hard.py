r"""The hard instances of the lower bound: one of many combinations of a step, a leaf and an action is better.

An agent may leave the waiting state at any of the first :math:`\bar H` steps. It then walks down an :math:`A`-ary tree to a
leaf, where its action leads to the good state, which has reward 1 in each of the last :math:`H'` steps, or to the bad state,
which has reward 0. In :math:`M_0` every choice leads to the good state with probability :math:`p_-`. In :math:`M_u` a single
choice (step, leaf, action) does so with probability :math:`p_+ > p_-`, which only trying this choice can show. With

.. math:: d = \lceil \log_A((S-3)(A-1)+1) \rceil, \quad \bar H = \lfloor H/3 \rfloor, \quad H' = H - \bar H - d, \quad
   c = e^{|\beta| H'} - 1, \quad q = e^{|\beta|\varepsilon}

the probabilities are

.. math:: p_- = \tfrac{1}{2(c+1)}, \quad p_+ - p_- = \tfrac{(q-1)(3c+2)}{c(c+1)} \quad (\beta > 0), \qquad
   p_- = 1 - \tfrac{1}{2(c+1)}, \quad p_+ - p_- = \tfrac{(q-1)(3c+2)}{c(c+1)(2q-1)} \quad (\beta < 0),

so that missing the special choice costs exactly :math:`\tfrac{1}{|\beta|} \log(2q-1) > \varepsilon`. Condition A,
:math:`q - 1 \le \tfrac{c(2c+1)}{4(3c+2)}` for :math:`\beta > 0` and :math:`q - 1 \le \tfrac{c}{10c+8}` for
:math:`\beta < 0`, keeps :math:`p_+` at most halfway between :math:`p_-` and 1.

The code uses :math:`x = 1/(c+1) = e^{-|\beta| H'}`, which cannot overflow.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.model.parts.arrays import SparseTransitions, starts_of
from entropic_bpi.tools.checks import check_finite, check_integer, check_memory, check_positive
from entropic_bpi.tools.text import shown

WAIT, GOOD, BAD, ROOT = range(4)
# Beyond this |β| H' the probability e^{-|β|H'}/2 of the rarer outcome underflows.
_LARGEST_EXPONENT = 700.0


class HardShape(NamedTuple):
    r"""The sizes of a hard instance.

    Attributes
    ----------
    depth : int
        :math:`d`, the number of levels of the tree.
    exits : int
        :math:`\bar H`, the number of steps at which the waiting state can be left.
    paid_steps : int
        :math:`H'`, the number of steps in which the good state pays; the largest return.
    first_leaf : int
        The leaves are the states from this one to the last.
    """

    depth: int
    exits: int
    paid_steps: int
    first_leaf: int


def hard_shape(n_states: int, n_actions: int, horizon: int) -> HardShape:
    """Return the sizes of the hard instances, or raise an error if the theorem does not cover these sizes.

    Examples
    --------
    >>> from entropic_bpi.model.instances.hard import hard_shape
    >>> hard_shape(n_states=34, n_actions=5, horizon=9)
    HardShape(depth=3, exits=3, paid_steps=3, first_leaf=9)
    """
    n_states = check_integer("n_states", n_states, at_least=6)
    n_actions = check_integer("n_actions", n_actions, at_least=2)
    horizon = check_integer("horizon", horizon)
    n_nodes = n_states - ROOT
    depth = 1
    while n_actions**depth < n_nodes * (n_actions - 1) + 1:  # in integers: a rounded logarithm can be one too many
        depth += 1
    if horizon < 3 * depth:
        raise InvalidProblemError(
            f"horizon must be at least 3 d = {3 * depth}, where d = {depth} is the depth of the tree of "
            f"{n_nodes} nodes with {n_actions} actions; got {horizon}"
        )
    exits = horizon // 3
    n_inner = -(-(n_nodes - 1) // n_actions)  # a node is inner iff its first child exists
    return HardShape(depth, exits, horizon - exits - depth, ROOT + n_inner)


def largest_eps(paid_steps: int, beta: float) -> float:
    r"""Return the largest :math:`\varepsilon` that condition A allows, given :math:`H'` = ``paid_steps`` and β ≠ 0.

    Examples
    --------
    >>> from entropic_bpi.model.instances.hard import largest_eps
    >>> round(largest_eps(4, beta=1.0), 4), round(largest_eps(4, beta=-1.0), 4)
    (2.2931, 0.094)
    """
    x, rest = _tail(paid_steps, beta), -math.expm1(-abs(beta) * paid_steps)  # rest = 1 - x, exact for tiny β too
    excess = rest * (2 - x) / (4 * x * (3 - x)) if beta > 0 else rest / (10 - 2 * x)
    return math.log1p(excess) / abs(beta)


def hard_instance(
    n_states: int, n_actions: int, horizon: int, *, beta: float, eps: float, special: tuple[int, int, int] | None = None
) -> FiniteMDP:
    r"""The instance of the lower bound: one of many choices is better, by more than eps.

    State 0 is the waiting state, 1 the good state, 2 the bad state, and 3, 4, … are the nodes of the tree in breadth-first
    order, the root first. In state 0, action 0 waits during the steps in which waiting is possible; all other actions lead
    to the root, as does action 0 afterwards. At an inner node, action ``a`` leads to child ``a``, or to the first child if
    there is no child ``a``. At a leaf, every action leads to the good or the bad state, which are absorbing. The good state
    has reward 1 in each of the last :math:`H'` steps. The construction is that of the module docstring, for trees that may
    be incomplete.

    Parameters
    ----------
    n_states, n_actions, horizon : int
        At least 6 states, 2 actions and 3d steps, where d is the depth of the tree (``hard_shape``).
    beta : float
        Risk parameter that the instance is built for, not 0: positive is risk-seeking, negative risk-averse.
    eps : float
        Accuracy that the instance is built for; at most ``largest_eps`` (condition A).
    special : tuple of int, optional
        ``None`` gives :math:`M_0`. A triple ``(exit_step, leaf, action)`` gives :math:`M_u`: leave the waiting state
        at step ``exit_step`` (0-based, below ``HardShape.exits``), walk to the state ``leaf`` (one of the states from
        ``HardShape.first_leaf`` on) and play ``action`` there; that choice succeeds with :math:`p_+`. It is made at
        step ``exit_step + 1 + depth of the leaf``.

    Returns
    -------
    FiniteMDP
        The model.

    Examples
    --------
    >>> import math
    >>> import entropic_bpi as eb
    >>> sizes = dict(n_states=10, n_actions=2, horizon=12, beta=-1.0, eps=0.05)
    >>> m_0 = eb.instances.hard_instance(**sizes)
    >>> m_u = eb.instances.hard_instance(**sizes, special=(2, 8, 1))
    >>> gain = eb.solve(m_u, beta=-1.0).value - eb.solve(m_0, beta=-1.0).value
    >>> math.isclose(gain, math.log(2 * math.exp(0.05) - 1), rel_tol=1e-9)
    True
    """
    shape = hard_shape(n_states, n_actions, horizon)
    common, rare = _success_probabilities(shape.paid_steps, beta, eps)
    check_memory(f"a hard instance of {n_states} states", 4 * horizon * n_states * n_actions)
    # Every row has at most two outcomes; the second one has probability 0 except at the leaves.
    targets = np.zeros((horizon, n_states, n_actions, 2), dtype=np.int32)
    probabilities = np.zeros((horizon, n_states, n_actions, 2))
    probabilities[..., 0] = 1.0
    targets[:, WAIT], targets[:, GOOD], targets[:, BAD] = ROOT, GOOD, BAD
    targets[: shape.exits - 1, WAIT, 0] = WAIT
    targets[:, ROOT : shape.first_leaf] = _children(n_states, n_actions, shape)[..., None]
    targets[:, shape.first_leaf :] = GOOD, BAD
    probabilities[:, shape.first_leaf :] = common
    if special is not None:
        probabilities[_special_choice(special, shape, n_states, n_actions)] = rare
    kept = probabilities > 0
    rows = SparseTransitions(starts_of(kept.sum(axis=-1)), targets[kept], probabilities[kept])
    rewards = np.zeros((horizon, n_states, n_actions))
    rewards[horizon - shape.paid_steps :, GOOD] = 1.0
    # Tree states carry their state number, so that names and indices read alike.
    tree = [f"{'node' if state < shape.first_leaf else 'leaf'}{state}" for state in range(ROOT, n_states)]
    return FiniteMDP(rows, rewards, horizon=horizon, start=WAIT, state_names=["wait", "good", "bad", *tree])


def _tail(paid_steps: int, beta: float) -> float:
    exponent = abs(check_finite("beta", beta)) * paid_steps
    if beta == 0:
        raise InvalidProblemError("beta must not be 0: the hard instances are built for one sign of beta")
    if exponent > _LARGEST_EXPONENT:
        raise InvalidProblemError(
            f"|beta| times the {paid_steps} paid steps must be at most {_LARGEST_EXPONENT:g}, got {exponent:g}: "
            "the instance's probabilities would not fit double precision"
        )
    return math.exp(-exponent)


def _success_probabilities(paid_steps: int, beta: float, eps: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return (success, failure) of the common choices and of the special one, each number with full relative accuracy."""
    eps, x, limit = check_positive("eps", eps), _tail(paid_steps, beta), largest_eps(paid_steps, beta)
    if eps > limit:
        raise InvalidProblemError(
            f"eps={eps:g} is outside condition A: with beta={beta:g} and {paid_steps} paid steps "
            f"it must be at most {limit:.6g}"
        )
    excess = math.expm1(abs(beta) * eps)
    gain = excess * x * (3 - x) / -math.expm1(-abs(beta) * paid_steps)
    if beta > 0:
        return (x / 2, 1 - x / 2), (x / 2 + gain, 1 - x / 2 - gain)
    gain /= 1 + 2 * excess
    return (1 - x / 2, x / 2), (1 - x / 2 + gain, x / 2 - gain)


def _children(n_states: int, n_actions: int, shape: HardShape) -> np.ndarray:
    """Return the state that each action of an inner node leads to, ``(inner nodes, A)``."""
    first = np.arange(shape.first_leaf - ROOT)[:, None] * n_actions + 1 + ROOT
    child = first + np.arange(n_actions)
    return np.where(child < n_states, child, first)


def _special_choice(special: Any, shape: HardShape, n_states: int, n_actions: int) -> tuple[int, int, int]:
    """Return the (step, state, action) at which the special success probability applies."""
    try:
        exit_step, leaf, action = special
    except (TypeError, ValueError):
        raise InvalidProblemError(f"special must be a triple (exit_step, leaf, action), got {shown(special)}") from None
    exit_step = check_integer("the exit step of special", exit_step, at_least=0, at_most=shape.exits - 1)
    leaf = check_integer("the leaf of special", leaf, at_least=shape.first_leaf, at_most=n_states - 1)
    action = check_integer("the action of special", action, at_least=0, at_most=n_actions - 1)
    depth, node = 0, leaf - ROOT
    while node > 0:
        depth, node = depth + 1, (node - 1) // n_actions
    return exit_step + 1 + depth, leaf, action
