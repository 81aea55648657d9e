r"""Exact planning when the model is known: optimal policies and the values of policies under the entropic risk.

The objective is the entropic risk of the return :math:`R = \sum_h r_h`,

.. math:: V^\pi = \tfrac1\beta \log \mathbb E^\pi\, e^{\beta R},

**risk-seeking for** :math:`\beta > 0`, **risk-averse for** :math:`\beta < 0`, and the expectation at
:math:`\beta = 0`. (Several other libraries use the opposite sign.) It satisfies the backward recursion

.. math:: Q_h(s,a) = \tfrac1\beta \log \sum_{s'} p_h(s'\mid s,a)\, e^{\beta (r_h(s,a,s') + V_{h+1}(s'))},
   \qquad V_h(s) = \max_a Q_h(s,a), \qquad V_{H+1} = 0,

for both signs of :math:`\beta`. With a distribution :math:`\mu` of the first state,
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

# Up to this many state-action pairs, one compiled call for all steps is faster than one call per step. For dense models, the
# matrix of a step must also be at most _SMALL_MATRIX large: BLAS computes products of larger matrices faster.
_FEW_PAIRS = 1000
_SMALL_MATRIX = 16_384
# If the rewards of all steps add up to more than this many times their differences, the offset of each step is subtracted.
_DWARFED = 1e6
# The number of β that are planned together, with one pass over the transitions.
TOGETHER = 32
# From this many probabilities and actions on, bounds save more time than they cost in a dense model: see solve_by_bounds.
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
        ``q_values[h, s, a]`` is that value if the first action is ``a``, -inf if it is forbidden; computed at first access.
    value : float
        The optimal value at the start.
    beta : float
        The risk parameter.
    mdp : FiniteMDP
        The model.
    tail : (float, float)
        Bounds of the rewards after the last step, for a discounted return that never ends: its optimal value lies between
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
        Bounds of the rewards after the last step, as in :class:`Solution`.

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
# A function that fills in values (β, H + 1, S) and policies (β, H, S) for a list of β.
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
        Risk parameter, any finite number: positive is risk-seeking, negative risk-averse, 0 the expectation. For a sequence
        the result is a list of solutions. For a large dense model this takes a fraction of the time of separate calls,
        since each step reads the transitions once for all; for other models, on a CPU, it takes the same time.
    discount : float, optional
        γ between 0 and 1: plan for the infinite return with discount factor γ, see :mod:`entropic_bpi.model.discounting`.
        The model's own horizon is then ignored.
    horizon : int, optional
        With ``discount``, the number of steps to plan; the solution's ``tail`` bounds the rewards of later steps. The
        default is the smallest number with γ^H at most 1e-9.

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
    return solve_by(lambda model, betas: partial(_plan_on_cpu, model), mdp, beta, discount, horizon)


def solve_by(
    planner: Callable[[FiniteMDP, list[float]], Plan],
    mdp: FiniteMDP,
    beta: Any,
    discount: float | None,
    horizon: int | None,
) -> Solution | list[Solution]:
    """Do the work of :func:`solve` by a ``planner``, which is given a model without masks and all β."""
    mdp, tail = check_model(mdp), (0.0, 0.0)
    if discount is not None:
        own_range, mdp = mdp.reward_range, discounted(mdp, discount, horizon)
        tail = tail_of(discount, mdp.horizon, own_range)
    elif horizon is not None:
        raise InvalidProblemError("horizon= is only for discounted returns: the model has its own horizon")
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
    """Return the smallest reward of each step if these are much larger than the differences of rewards, otherwise None.

    A constant that is added to all rewards of a step changes no policy, but values that include a large one lose the
    differences by rounding.
    """
    low, high = mdp._step_reward_ranges
    with np.errstate(over="ignore"):
        total, difference = np.abs(low).sum() * (mdp.horizon / len(low)), (high - low).max()
        return low if total > _DWARFED * difference > 0 else None


def _without_offsets(mdp: FiniteMDP, offsets: np.ndarray) -> FiniteMDP:
    """Return the model with the offset of each step subtracted from its rewards."""
    if mdp.next_state_rewards and not mdp.stationary:  # the entries of all steps are one axis
        offsets = np.repeat(offsets, np.diff(mdp.rows.indptr[:: mdp.n_states * mdp.n_actions]))
        return mdp._with_rewards(mdp._payoffs - offsets)
    return mdp._with_rewards(mdp._payoffs - (offsets[:, None] if mdp.next_state_rewards else offsets[:, None, None]))


def _plan_on_cpu(mdp: FiniteMDP, betas: list[float], values: np.ndarray, policies: np.ndarray) -> None:
    """Plan on the CPU, by the method that is fastest for the model.

    If the model is dense and not tiny, a matrix product plans several β together. Steps of a sparse model are faster one β
    after the other: the values for one β fit into the processor's cache, those for many do not.
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
    """Compute the entropic risk of the return under a policy; positive ``beta`` is risk-seeking.

    Parameters
    ----------
    mdp : FiniteMDP
        The model.
    policy : int array ``(H, S)`` or ``(S,)``
        The action at each step and state, or at each state for a policy that is the same at every step.
    beta : float
        Risk parameter, any finite number: positive is risk-seeking, negative risk-averse, 0 the expectation.
    discount : float, optional
        Evaluate the infinite return with this discount factor γ. The steps of ``policy`` are evaluated (for a policy
        ``(S,)``, until γ^h is at most 1e-9), and the result's ``tail`` bounds the rewards of later steps.

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
    if mdp.n_states * mdp.n_actions <= _FEW_PAIRS:  # for dense and sparse models alike: equal models get equal bits
        steps.plan_in_one_call(mdp, beta, values, policy, improve=False)
    else:
        steps.evaluate_by_steps(mdp, beta, values, policy)
    return Evaluation(values, _start_risk(mdp, values[0], beta), tail)


def _shape_of(policy: Any) -> tuple[int, ...]:
    try:
        return np.shape(policy)
    except ValueError:  # lists of different lengths, which check_policy refuses
        return ()


def _start_risk(mdp: FiniteMDP, values: np.ndarray, beta: float) -> float:
    if isinstance(mdp.start, int):
        return float(values[mdp.start])
    possible = mdp.start > 0
    return float(lottery_risk(mdp.start[possible], values[possible], beta))
