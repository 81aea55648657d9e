r"""Exact planning when the model is known: optimal policies and the values of policies under the entropic risk.

The objective is the entropic risk of the return :math:`R = \sum_h r_h`,

.. math:: V^\pi = \tfrac1\beta \log \mathbb E^\pi\, e^{\beta R},

**risk-seeking for** :math:`\beta > 0`, **risk-averse for** :math:`\beta < 0`, and the expectation at
:math:`\beta = 0`. (Several other libraries use the opposite sign.) It satisfies the backward recursion

.. math:: Q_h(s,a) = \tfrac1\beta \log \sum_{s'} p_h(s'\mid s,a)\, e^{\beta (r_h(s,a,s') + V_{h+1}(s'))},
   \qquad V_h(s) = \max_a Q_h(s,a), \qquad V_{H+1} = 0,

for both signs of :math:`\beta`. A start distribution is one more lottery in front:
:math:`V = \tfrac1\beta \log \sum_s \mu(s) e^{\beta V_1(s)}`. Steps are 0-based in code, 1-based in formulas.
Ties between actions, to within rounding, go to the lowest index.

Values, not exponentials, are carried from step to step, so nothing overflows however large :math:`|\beta| H` is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, overload

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model import steps
from entropic_bpi.model.backups import lottery_risk
from entropic_bpi.model.discounting import discounted, tail_of
from entropic_bpi.model.mdp import FiniteMDP, check_model
from entropic_bpi.tools.checks import check_finite, check_memory
from entropic_bpi.types import Summarised

# Up to this many pairs of a state and an action, one compiled call for all steps is faster than a call a step, ...
_FEW_PAIRS = 1000
# ... for dense models while the matrix of a step is so small that the library's products cost more to call than to do.
_SMALL_MATRIX = 16_384
# Rewards that add up to more than so many times their differences are planned without what is common to them.
_DWARFED = 1e6
# How many β share a reading of the transitions.
TOGETHER = 32
# From this many probabilities and actions on, rows of a dense model that cannot be the best are worth finding.
_LARGE_MATRIX, _MANY_ACTIONS = 1 << 20, 4


def _tail_shown(tail: tuple[float, float]) -> str:
    return "" if tail == (0.0, 0.0) else f", tail=({tail[0]:.3g}, {tail[1]:.3g})"


@dataclass(frozen=True, eq=False)
class Solution(Summarised):
    """An optimal policy and its values.

    Attributes
    ----------
    policy : int array ``(H, S)``
        The optimal action at each step and state; ties go to the lowest index.
    values : float array ``(H + 1, S)``
        ``values[h, s]`` is the optimal entropic risk of the return from step ``h`` on.
    q_values : float array ``(H, S, A)``
        The same after a given first action; computed when first asked for.
    value : float
        The optimal value at the start.
    beta : float
        The risk parameter.
    mdp : FiniteMDP
        The model.
    tail : (float, float)
        Of a discounted return that never ends, between what is left out by ``value``: the best value of all lies between
        ``value + tail[0]`` and ``value + tail[1]``.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> best = eb.solve(bridge, beta=-1.0)
    >>> best.policy.shape, best.q_values.shape
    ((7, 8), (7, 8, 2))
    """

    mdp: FiniteMDP
    beta: float
    policy: np.ndarray
    values: np.ndarray
    value: float
    tail: tuple[float, float] = (0.0, 0.0)

    @cached_property
    def q_values(self) -> np.ndarray:
        after = enumerate(self.values[1:])
        tables = np.stack([steps.tables_of_q_values(self.mdp, h, [values], [self.beta])[0] for h, values in after])
        return tables if self.mdp.allowed is None else np.where(self.mdp.allowed, tables, -np.inf)

    def __repr__(self) -> str:
        return f"Solution(beta={self.beta}, value={self.value:.6g}{_tail_shown(self.tail)}, policy {self.policy.shape})"


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The values of a given policy.

    Attributes
    ----------
    values : float array ``(H + 1, S)``
        ``values[h, s]`` is the entropic risk of the return from step ``h`` on.
    value : float
        The value at the start.
    tail : (float, float)
        As in :class:`Solution`.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> policy = eb.solve(bridge, beta=0.0).policy
    >>> eb.evaluate(bridge, policy, beta=0.0).values.shape
    (8, 8)
    """

    values: np.ndarray
    value: float
    tail: tuple[float, float] = (0.0, 0.0)

    def __repr__(self) -> str:
        return f"Evaluation(value={self.value:.6g}{_tail_shown(self.tail)})"


_Betas = Sequence[float] | np.ndarray
# Fills in values (β, H + 1, S) and policies (β, H, S).
Plan = Callable[[list[float], np.ndarray, np.ndarray], None]


@overload
def solve(mdp: FiniteMDP, beta: float, *, discount: float | None = None, horizon: int | None = None) -> Solution: ...
@overload
def solve(
    mdp: FiniteMDP, beta: _Betas, *, discount: float | None = None, horizon: int | None = None
) -> list[Solution]: ...
def solve(
    mdp: FiniteMDP, beta: Any, *, discount: float | None = None, horizon: int | None = None
) -> Solution | list[Solution]:
    r"""Find an optimal policy of a known model.

    Parameters
    ----------
    mdp : FiniteMDP
        The model.
    beta : float or sequence of floats
        Risk parameter, any finite number: positive is risk-seeking, negative risk-averse, 0 the expectation. For several of
        them a list of solutions. A large dense model is read once a step for all of them, which takes a fraction of the time
        of separate calls; otherwise, on a CPU, it is the same as these.
    discount : float, optional
        γ between 0 and 1: plan for the infinite return with discount factor γ, see :mod:`entropic_bpi.model.discounting`.
        The model's own horizon is then ignored.
    horizon : int, optional
        With ``discount``, the number of steps to plan; what later steps can add is the solution's ``tail``. Default: until
        γ^h is a billionth.

    Returns
    -------
    Solution or list of Solution
        The policy and its values; a list if ``beta`` is a sequence.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> round(eb.solve(bridge, beta=2.5).value, 6)
    3.043056
    >>> [round(solution.value, 3) for solution in eb.solve(bridge, beta=[-1.0, 0.0, 2.5])]
    [1.046, 1.5, 3.043]
    """
    return solve_by(_on_cpu, mdp, beta, discount, horizon)


def solve_by(
    planner: Callable[[FiniteMDP, list[float]], Plan],
    mdp: FiniteMDP,
    beta: Any,
    discount: float | None,
    horizon: int | None,
) -> Solution | list[Solution]:
    """Do the work of :func:`solve`, with what ``planner`` makes of a model without masks and all β."""
    mdp, tail = check_model(mdp), (0.0, 0.0)
    if discount is not None:
        own_range, mdp = mdp.reward_range, discounted(mdp, discount, horizon)
        tail = tail_of(discount, mdp.horizon, own_range)
    elif horizon is not None:
        raise InvalidProblemError("horizon is for discounted returns, with discount=; this model's own is part of it")
    is_one = not (isinstance(beta, Sequence) or np.ndim(beta) > 0) or isinstance(beta, str)
    betas = [check_finite("beta", beta)] if is_one else [check_finite(f"beta[{i}]", b) for i, b in enumerate(beta)]
    check_memory(f"solving {mdp!r}", 2 * min(len(betas), TOGETHER) * mdp.horizon * mdp.n_states)
    free = mdp.without_masks()
    offsets = _offsets(free)
    plan = planner(free if offsets is None else _without_offsets(free, offsets), betas)
    solutions: list[Solution] = []
    for first in range(0, len(betas), TOGETHER):
        some = betas[first : first + TOGETHER]
        values = np.zeros((len(some), mdp.horizon + 1, mdp.n_states))
        policies = np.empty((len(some), mdp.horizon, mdp.n_states), dtype=np.int64)
        plan(some, values, policies)
        if offsets is not None:
            values[:, :-1] += np.cumsum(np.broadcast_to(offsets, mdp.horizon)[::-1])[::-1, None]
        for each, value, policy in zip(some, values, map(mdp.replace_forbidden, policies), strict=True):
            solutions.append(Solution(mdp, each, policy, value, _start_risk(mdp, value[0], each), tail))
    return solutions[0] if is_one else solutions


def _offsets(mdp: FiniteMDP) -> np.ndarray | None:
    """The smallest reward of each step if these dwarf the differences between rewards, otherwise None.

    What is paid at a step whatever happens changes no policy, but values that contain it round the differences away.
    """
    low, high = mdp._step_reward_ranges
    with np.errstate(over="ignore"):
        in_all, difference = np.abs(low).sum() * (mdp.horizon / len(low)), (high - low).max()
        return low if in_all > _DWARFED * difference > 0 else None


def _without_offsets(mdp: FiniteMDP, offsets: np.ndarray) -> FiniteMDP:
    """The same model, with the offset of each step subtracted from its rewards."""
    if mdp.next_state_rewards and not mdp.stationary:  # the entries of all steps are one axis
        offsets = np.repeat(offsets, np.diff(mdp.rows.indptr[:: mdp.n_states * mdp.n_actions]))
        return mdp._with_rewards(mdp._payoffs - offsets)
    return mdp._with_rewards(mdp._payoffs - (offsets[:, None] if mdp.next_state_rewards else offsets[:, None, None]))


def _on_cpu(mdp: FiniteMDP, betas: list[float]) -> Plan:
    return partial(_plan_here, mdp)


def _plan_here(mdp: FiniteMDP, betas: list[float], values: np.ndarray, policies: np.ndarray) -> None:
    """Plan on the CPU, in the way that is fastest for the model.

    Several β are planned by products of matrices if the model is dense and not tiny. A sparse step is quicker one β after
    the other: the values of one stay in the fastest memory, those of many do not.
    """
    pairs, has_products = mdp.n_states * mdp.n_actions, not (mdp.is_sparse or mdp.next_state_rewards)
    is_large = mdp.n_actions >= _MANY_ACTIONS and mdp.n_states * pairs >= _LARGE_MATRIX
    is_tiny = pairs <= _FEW_PAIRS and (mdp.is_sparse or pairs * mdp.n_states <= _SMALL_MATRIX)
    if has_products and is_large and mdp.stationary:
        steps.solve_by_bounds(mdp, betas, values, policies)
    elif not is_tiny and (has_products or mdp.next_state_rewards):
        steps.solve_by_steps(mdp, betas, values, policies)
    else:
        solve_one = partial(steps.plan_in_one_call, improve=True) if is_tiny else steps.solve_sparse
        for each in zip(betas, values, policies, strict=True):
            solve_one(mdp, *each)


def evaluate(mdp: FiniteMDP, policy: Any, beta: float, *, discount: float | None = None) -> Evaluation:
    """Entropic risk of the return under a policy; positive ``beta`` is risk-seeking.

    A policy is an integer array ``(H, S)``, or ``(S,)`` that does the same at every step. With a ``discount`` γ it is the
    return discounted by γ a step, and the number of steps is the policy's; what may follow is the ``tail``.

    Parameters
    ----------
    mdp : FiniteMDP
        The model.
    policy : int array ``(H, S)``
        The action at each step and state.
    beta : float
        Risk parameter, any finite number: positive is risk-seeking, negative risk-averse, 0 the expectation.
    discount : float, optional
        Evaluate the infinite return with this discount factor. ``policy`` then has as many steps as are planned.

    Returns
    -------
    Evaluation
        The values of the policy.

    Examples
    --------
    >>> import entropic_bpi as eb, numpy as np
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> always_safe = np.zeros(8, dtype=int)
    >>> eb.evaluate(bridge, always_safe, beta=-1.0).value
    1.0
    """
    mdp, beta, tail = check_model(mdp), check_finite("beta", beta), (0.0, 0.0)
    shape = _shape_of(policy)
    if discount is not None:
        own_range, mdp = mdp.reward_range, discounted(mdp, discount, shape[0] if len(shape) > 1 else None)
        tail = tail_of(discount, mdp.horizon, own_range)
    values = np.zeros((mdp.horizon + 1, mdp.n_states))
    if shape == (mdp.n_states,):
        policy = np.broadcast_to(policy, (mdp.horizon, mdp.n_states))
    policy = mdp.check_policy(policy)
    if mdp.n_states * mdp.n_actions <= _FEW_PAIRS:  # whatever its form, so that both give the same bits
        steps.plan_in_one_call(mdp, beta, values, policy, improve=False)
    else:
        steps.evaluate_by_steps(mdp, beta, values, policy)
    return Evaluation(values, _start_risk(mdp, values[0], beta), tail)


def _shape_of(policy: Any) -> tuple[int, ...]:
    try:
        return np.shape(policy)
    except ValueError:  # lists of different lengths, which the check of a policy refuses
        return ()


def _start_risk(mdp: FiniteMDP, values: np.ndarray, beta: float) -> float:
    if isinstance(mdp.start, int):
        return float(values[mdp.start])
    possible = mdp.start > 0
    return float(lottery_risk(mdp.start[possible], values[possible], beta))
