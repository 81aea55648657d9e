r"""Exact planning when the model is known: optimal policies, return laws and tilting under the entropic risk.

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

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, overload

import numpy as np
from numba import get_num_threads
from scipy import optimize

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model import backups as _entropic
from entropic_bpi.model.discounting import discounted, tail_of
from entropic_bpi.model.mdp import SUM_TOLERANCE, FiniteMDP, SparseTransitions, check_model
from entropic_bpi.tools.checks import check_device, check_finite, check_integer, check_memory, check_policy

__all__ = [
    "Evaluation",
    "ReturnLaw",
    "ReturnLawBracket",
    "Solution",
    "chi_square",
    "entropic_variance",
    "evaluate",
    "max_return",
    "return_law",
    "solve",
    "tilted",
]

MAX_SUPPORT = 2_000_000
# Up to this many pairs of a state and an action, one compiled call for all steps is faster than a call a step, ...
_FEW_PAIRS = 1000
# ... for dense models while the matrix of a step is so small that the library's products cost more to call than to do.
_SMALL_MATRIX = 16_384
# From this many rows on, a step takes more than 2 ms, and to hand threads their share 0.12 ms: they pay even on two
# processors. They wait for each other asleep, since the spinning barrier of a parallel kernel of Numba's takes 10 to 15 ms
# a step where other programs keep the processors busy.
_PARALLEL_ROWS = 200_000
# More blocks than threads, so that nobody waits for one thread that was held up.
_BLOCKS_PER_THREAD = 4
# Pairs (state, return so far) that are expanded before equal ones are merged; bounds the memory of a return law.
_EXPANDED_AT_ONCE = 4_000_000
# Rewards that add up to more than so many times their differences are planned without what is common to them.
_DWARFED = 1e6
_NO_GROWTH = np.empty((0, 0))
# How many β share a reading of the transitions.
_TOGETHER = 32
# From this many probabilities and actions on, rows of a dense model that cannot be the best are worth finding ...
_LARGE_MATRIX, _MANY_ACTIONS = 1 << 20, 4
# ... unless their bounds differ by less than this share of the values, which is more than rounding makes of them.
_ROUNDING = 1e-9
# Rows of a matrix are copied before they are multiplied by another, so many numbers at a time, which the fast memory holds.
_COPIED_AT_ONCE = 1 << 17


def _tail_shown(tail: tuple[float, float]) -> str:
    return "" if tail == (0.0, 0.0) else f", tail=({tail[0]:.3g}, {tail[1]:.3g})"


@dataclass(frozen=True, eq=False)
class Solution:
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
    tail : (float, float)
        Of a discounted return that never ends, between what is left out by ``value``: the best value of all lies between
        ``value + tail[0]`` and ``value + tail[1]``.
    """

    mdp: FiniteMDP
    beta: float
    policy: np.ndarray
    values: np.ndarray
    value: float
    tail: tuple[float, float] = (0.0, 0.0)

    @cached_property
    def q_values(self) -> np.ndarray:
        return np.stack([_step_q_values(self.mdp, h, self.values[h + 1], self.beta) for h in range(self.mdp.horizon)])

    def _repr_html_(self) -> str:
        import entropic_bpi

        return entropic_bpi.report.short(self)

    def __repr__(self) -> str:
        return f"Solution(beta={self.beta}, value={self.value:.6g}{_tail_shown(self.tail)}, policy {self.policy.shape})"


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The values ``(H + 1, S)`` of a given policy, and its ``value`` at the start; ``tail`` as in :class:`Solution`."""

    values: np.ndarray
    value: float
    tail: tuple[float, float] = (0.0, 0.0)

    def __repr__(self) -> str:
        return f"Evaluation(value={self.value:.6g}{_tail_shown(self.tail)})"


@overload
def solve(
    mdp: FiniteMDP, beta: float, *, discount: float | None = None, horizon: int | None = None, device: str = "cpu"
) -> Solution: ...
@overload
def solve(
    mdp: FiniteMDP,
    beta: Sequence[float] | np.ndarray,
    *,
    discount: float | None = None,
    horizon: int | None = None,
    device: str = "cpu",
) -> list[Solution]: ...
def solve(
    mdp: FiniteMDP, beta: Any, *, discount: float | None = None, horizon: int | None = None, device: str = "cpu"
) -> Solution | list[Solution]:
    r"""Find an optimal policy of a known model.

    Parameters
    ----------
    mdp : FiniteMDP
    beta : float or sequence of floats
        Risk parameter, any finite number: positive is risk-seeking, negative risk-averse, 0 the expectation. For several of
        them a list of solutions. A large dense model is read once a step for all of them, which takes a fraction of the time
        of separate calls; otherwise, on a CPU, it is the same as these.
    discount : float, optional
        γ between 0 and 1: plan for the return discounted by γ a step that never ends, see
        :mod:`entropic_bpi.model.discounting`. The model's own horizon is then of no account.
    horizon : int, optional
        With ``discount``, how many steps to plan; what the others can add is the solution's ``tail``. Default: until γ^h is
        a billionth.
    device : {"cpu", "gpu"}
        Where to plan: ``"gpu"`` is for large sparse models, and reads them once for all β. It needs an NVIDIA GPU and the
        extra ``gpu``. The values are the CPU's but for their last digits.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> round(eb.solve(bridge, beta=2.5).value, 6)
    3.043056
    >>> [round(solution.value, 3) for solution in eb.solve(bridge, beta=[-1.0, 0.0, 2.5])]
    [1.046, 1.5, 3.043]
    """
    mdp = check_model(mdp)
    tail = (0.0, 0.0)
    if discount is not None:
        forever = discounted(mdp, discount, horizon)
        mdp, tail = forever, tail_of(discount, forever.horizon, mdp.reward_range)
    elif horizon is not None:
        raise InvalidProblemError("horizon is for discounted returns, with discount=; this model's own is part of it")
    is_one = not (isinstance(beta, Sequence) or np.ndim(beta) > 0) or isinstance(beta, str)
    betas = [check_finite("beta", beta)] if is_one else [check_finite(f"beta[{i}]", b) for i, b in enumerate(beta)]
    together = min(len(betas), _TOGETHER)
    check_memory(f"solving {mdp!r}", 2 * together * mdp.horizon * mdp.n_states)
    offsets = _offsets(mdp)
    planned = mdp if offsets is None else _without_offsets(mdp, offsets)
    plan: _Plan = partial(_plan_here, planned)
    if check_device("device", device) == "gpu" and betas:
        from entropic_bpi.model.planning_gpu import Planner

        plan = Planner(planned, together, max(map(abs, betas))).plan
    solutions = [
        solution
        for first in range(0, len(betas), _TOGETHER)
        for solution in _solve_together(mdp, betas[first : first + _TOGETHER], tail, plan, offsets)
    ]
    return solutions[0] if is_one else solutions


# Fills in values (β, H + 1, S) and policies (β, H, S).
_Plan = Callable[[list[float], np.ndarray, np.ndarray], None]


def _solve_together(
    mdp: FiniteMDP, betas: list[float], tail: tuple[float, float], plan: _Plan, offsets: np.ndarray | None
) -> list[Solution]:
    values = np.zeros((len(betas), mdp.horizon + 1, mdp.n_states))
    policies = np.empty((len(betas), mdp.horizon, mdp.n_states), dtype=np.int64)
    plan(betas, values, policies)
    if offsets is not None:
        values[:, :-1] += np.cumsum(np.broadcast_to(offsets, mdp.horizon)[::-1])[::-1, None]
    return [
        Solution(mdp, beta, policies[i], values[i], _start_risk(mdp, values[i, 0], beta), tail)
        for i, beta in enumerate(betas)
    ]


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
    if not mdp.next_state_rewards:
        assert mdp.rewards is not None
        return mdp._with_rewards(mdp.rewards - (offsets[:, None, None] if len(offsets) > 1 else offsets[0]))
    rows, pairs = mdp.rows, mdp.n_states * mdp.n_actions
    assert rows.rewards is not None
    if mdp.stationary:
        return mdp._with_rewards(rows.rewards - offsets[:, None])
    return mdp._with_rewards(rows.rewards - np.repeat(offsets, np.diff(rows.indptr[::pairs])))


def _plan_here(mdp: FiniteMDP, betas: list[float], values: np.ndarray, policies: np.ndarray) -> None:
    if _is_worth_bounds(mdp):
        _solve_by_bounds(mdp, betas, values, policies)
    elif _shares_products(mdp):
        _solve_by_steps(mdp, betas, values, policies)
    else:
        for i, beta in enumerate(betas):
            _solve_alone(mdp, beta, values[i], policies[i])


def _shares_products(mdp: FiniteMDP) -> bool:
    """Whether several β are planned by products of matrices: where the model is dense and not tiny.

    A sparse step is quicker one β after the other: the values of one stay in the fastest memory, those of many do not.
    """
    return not (mdp.is_sparse or mdp.next_state_rewards or _is_tiny(mdp))


def _is_worth_bounds(mdp: FiniteMDP) -> bool:
    is_large = mdp.n_actions >= _MANY_ACTIONS and mdp.n_states**2 * mdp.n_actions >= _LARGE_MATRIX
    return is_large and mdp.stationary and not (mdp.is_sparse or mdp.next_state_rewards)


def _is_tiny(mdp: FiniteMDP) -> bool:
    pairs = mdp.n_states * mdp.n_actions
    return pairs <= _FEW_PAIRS and (mdp.is_sparse or pairs * mdp.n_states <= _SMALL_MATRIX)


def _solve_alone(mdp: FiniteMDP, beta: float, values: np.ndarray, policy: np.ndarray) -> None:
    if _is_tiny(mdp) and _plan_in_one_call(mdp, beta, values, policy, improve=True):
        return
    if mdp.is_sparse and not mdp.next_state_rewards:
        _solve_sparse(mdp, beta, values, policy)
    else:
        _solve_by_steps(mdp, [beta], values[None], policy[None])


def evaluate(mdp: FiniteMDP, policy: Any, beta: float, *, discount: float | None = None) -> Evaluation:
    """Entropic risk of the return under a policy; positive ``beta`` is risk-seeking.

    A policy is an integer array ``(H, S)``, or ``(S,)`` that does the same at every step; or, to choose at random, an array
    ``(H, S, A)`` of probabilities. With a ``discount`` γ it is the return discounted by γ a step, and the number of steps
    is the policy's; what may follow is the ``tail``.

    Examples
    --------
    >>> import entropic_bpi as eb, numpy as np
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> always_safe = np.zeros(8, dtype=int)
    >>> eb.evaluate(bridge, always_safe, beta=-1.0).value
    1.0
    >>> by_lot = np.full((7, 8, bridge.n_actions), 1 / bridge.n_actions)
    >>> bool(eb.evaluate(bridge, by_lot, beta=-1.0).value < 1.0)
    True
    """
    mdp, beta = check_model(mdp), check_finite("beta", beta)
    shape = _shape_of(policy)
    if discount is not None:
        forever = discounted(mdp, discount, shape[0] if len(shape) > 1 else None)
        tail = tail_of(discount, forever.horizon, mdp.reward_range)
        return replace(evaluate(forever, policy, beta), tail=tail)
    values = np.zeros((mdp.horizon + 1, mdp.n_states))
    if len(shape) == 3:
        _evaluate_mixed(mdp, beta, values, _check_mixed(policy, (mdp.horizon, mdp.n_states, mdp.n_actions)))
        return Evaluation(values, _start_risk(mdp, values[0], beta))
    if shape == (mdp.n_states,):
        policy = np.broadcast_to(policy, (mdp.horizon, mdp.n_states))
    policy = check_policy(policy, mdp.horizon, mdp.n_states, mdp.n_actions)
    is_tiny = mdp.n_states * mdp.n_actions <= _FEW_PAIRS  # whatever its form, so that both give the same bits
    if not (is_tiny and _plan_in_one_call(mdp, beta, values, policy, improve=False)):
        _evaluate_by_steps(mdp, beta, values, policy)
    return Evaluation(values, _start_risk(mdp, values[0], beta))


def worst_value(mdp: FiniteMDP, beta: float) -> float:
    """The value of the worst policy; with that of the best one it says what there is to lose."""
    values = np.zeros(mdp.n_states)
    for h in reversed(range(mdp.horizon)):
        values = _step_q_values(mdp, h, values, beta).min(axis=1)
    return _start_risk(mdp, values, beta)


# -- backups ---------------------------------------------------------------------------------------------


def _plan_in_one_call(mdp: FiniteMDP, beta: float, values: np.ndarray, policy: np.ndarray, *, improve: bool) -> bool:
    """Fill in ``values``, and ``policy`` if it is to ``improve``; False if the model is not of the kind that this can do."""
    if mdp.next_state_rewards:
        return False
    rows, rewards = mdp.rows, mdp.rewards
    assert rewards is not None
    transitions = (rows.indptr, rows.indices, rows.probabilities)
    rewards = rewards.reshape(-1, mdp.n_states, mdp.n_actions)
    scratch = np.empty((2, mdp.n_states))
    return _entropic.backward_induction(*transitions, rewards, beta, improve, values, policy, scratch)


def _solve_by_steps(mdp: FiniteMDP, betas: list[float], values: np.ndarray, policies: np.ndarray) -> None:
    """Fill in ``values`` ``(β, H + 1, S)`` and ``policies`` ``(β, H, S)`` backwards."""
    for h in reversed(range(mdp.horizon)):
        tables = _tables_of_q_values(mdp, h, list(values[:, h + 1]), betas)
        for q_values, value, policy in zip(tables, values, policies, strict=True):
            _choose_best(q_values, value[h], policy[h])


def _solve_by_bounds(mdp: FiniteMDP, betas: list[float], values: np.ndarray, policies: np.ndarray) -> None:
    """The same for a large dense model with the same transitions at every step, of which it reads what may be the best.

    A risk grows with its values, and by a constant with all of them. So from one step to the next that of a row grows by no
    less than the value that grows least and no more than the one that grows most: bounds of every row, from when it was last
    read, for nothing. A row that may be the best for one β is read for all.
    """
    low, high = np.zeros((2, len(betas), mdp.n_states, mdp.n_actions))  # the risk of values that are all 0
    for h in reversed(range(mdp.horizon)):
        rewards, after = mdp.step_rewards(h), values[:, h + 1]
        if h < mdp.horizon - 1:
            growth = after - values[:, h + 2]
            low += growth.min(axis=1)[:, None, None]
            high += growth.max(axis=1)[:, None, None]
            room = _ROUNDING * (np.abs(after).max() + np.abs(rewards).max())
            is_worse = high + rewards < (low + rewards).max(axis=2, keepdims=True) - room
            rows = np.flatnonzero(~is_worse.all(axis=0))
            for i, risks in enumerate(_dense_risks(mdp, h, list(after), betas, rows)):
                low[i].reshape(-1)[rows] = high[i].reshape(-1)[rows] = risks
        for i in range(len(betas)):  # what was not read is below the best of what was
            _choose_best(high[i] + rewards, values[i, h], policies[i, h])


def _choose_best(q_values: np.ndarray, value: np.ndarray, policy: np.ndarray) -> None:
    best = q_values.max(axis=1, keepdims=True)
    policy[:] = (q_values >= best - _entropic.TIE * np.abs(best)).argmax(axis=1)
    value[:] = q_values[np.arange(len(q_values)), policy]


def _evaluate_by_steps(mdp: FiniteMDP, beta: float, values: np.ndarray, policy: np.ndarray) -> None:
    states = np.arange(mdp.n_states)
    for h in reversed(range(mdp.horizon)):
        values[h] = _risk_of_rows(mdp, h, values[h + 1], beta, states * mdp.n_actions + policy[h])
        if not mdp.next_state_rewards:
            values[h] += mdp.step_rewards(h)[states, policy[h]]


def _shape_of(policy: Any) -> tuple[int, ...]:
    try:
        return np.shape(policy)
    except ValueError:  # lists of different lengths, which the check of a policy refuses
        return ()


def _check_mixed(policy: Any, shape: tuple[int, int, int]) -> np.ndarray:
    """Return a policy that chooses at random as an array ``(H, S, A)`` of probabilities whose rows sum to 1."""
    array = np.asarray(policy)
    if array.shape != shape or array.dtype.kind not in "biuf":
        raise InvalidProblemError(
            f"a policy of probabilities must have shape (horizon, states, actions) = {shape}, "
            f"got dtype {array.dtype}, shape {array.shape}"
        )
    sums = array.sum(axis=2, dtype=float)
    bad = ~((array >= 0).all(axis=2) & (np.abs(sums - 1) <= SUM_TOLERANCE))
    if bad.any():
        h, s = np.argwhere(bad)[0]
        raise InvalidProblemError(f"policy[h={h}, s={s}] = {array[h, s]} are not probabilities that sum to 1")
    return np.asarray(array / sums[:, :, None])


def _evaluate_mixed(mdp: FiniteMDP, beta: float, values: np.ndarray, policy: np.ndarray) -> None:
    """The choice of an action is one more lottery in front of each step."""
    for h in reversed(range(mdp.horizon)):
        q_values = _step_q_values(mdp, h, values[h + 1], beta)
        for s, chances in enumerate(policy[h]):
            chosen = np.flatnonzero(chances)
            values[h, s] = _entropic.lottery_risk(chances[chosen], q_values[s, chosen], beta)


def _step_q_values(mdp: FiniteMDP, h: int, values: np.ndarray, beta: float) -> np.ndarray:
    """The backup ``(S, A)`` of ``values`` at step ``h``."""
    return _tables_of_q_values(mdp, h, [values], [beta])[0]


def _tables_of_q_values(mdp: FiniteMDP, h: int, values: list[np.ndarray], betas: list[float]) -> list[np.ndarray]:
    """The backup ``(S, A)`` at step ``h`` for each β and its ``values``."""
    shape = (mdp.n_states, mdp.n_actions)
    rows = np.arange(shape[0] * shape[1])
    if mdp.next_state_rewards or mdp.is_sparse:
        risks = [_risk_of_rows(mdp, h, after, beta, rows) for after, beta in zip(values, betas, strict=True)]
    else:
        risks = _dense_risks(mdp, h, values, betas, rows)
    tables = [each.reshape(shape) for each in risks]
    return tables if mdp.next_state_rewards else [table + mdp.step_rewards(h) for table in tables]


def _risk_of_rows(mdp: FiniteMDP, h: int, values: np.ndarray, beta: float, which: np.ndarray) -> np.ndarray:
    """Risk of ``values``, and of next-state rewards if there are any, over the rows ``which`` of step ``h``."""
    rows = mdp.step_rows(h)
    transitions = (rows.indptr, rows.indices, rows.probabilities)
    if rows.rewards is not None:
        return _entropic.risk_of_rows(transitions, rows.rewards, values, beta, which)
    return _entropic.shared_risk_of_rows(transitions, values, _scale(values, beta), which)


def _scale(values: np.ndarray, beta: float) -> _entropic.Terms:
    centre, top, reach, climb = _entropic.reference(values, beta)
    if reach < _entropic.LINEAR_EXPONENT:
        return values - centre, values, centre, top, 0.0
    with np.errstate(over="ignore"):
        if climb <= _entropic.LARGEST_EXPONENT:
            near = np.expm1(beta * (values - centre))
        else:
            near = np.full(len(values), -1.0)  # sends every row to the far form
        return near, np.exp(beta * (values - top)), centre, top, beta


def _dense_risks(
    mdp: FiniteMDP, h: int, values: list[np.ndarray], betas: list[float], which: np.ndarray
) -> list[np.ndarray]:
    """One matrix product for the rows ``which`` and every β, a second one for those β of which some need the far form."""
    scales = [_scale(after, beta) for after, beta in zip(values, betas, strict=True)]
    if len(scales) == 1:  # a library multiplies by a vector in another way than by a matrix of one column
        sums = [_products(mdp, h, which, scales[0][0])]
    else:
        sums = list(_products(mdp, h, which, np.stack([scale[0] for scale in scales], axis=1)).T)
    return [_risks_of_sums(mdp, h, which, *each) for each in zip(sums, values, scales, strict=True)]


def _products(mdp: FiniteMDP, h: int, which: np.ndarray, terms: np.ndarray) -> np.ndarray:
    """The rows ``which`` of a dense step times ``terms``; where a third is asked for, a library is faster with all."""
    kernel = mdp.step_kernel(h)
    assert kernel is not None
    if 3 * len(which) >= len(kernel):
        products = kernel @ terms
        return np.asarray(products if len(which) == len(kernel) else products[which])
    if terms.ndim == 1:
        return _entropic.products_of_rows(kernel, terms, which)
    size = max(1, _COPIED_AT_ONCE // mdp.n_states)
    return np.concatenate([kernel[which[i : i + size]] @ terms for i in range(0, len(which), size)])


def _risks_of_sums(
    mdp: FiniteMDP, h: int, which: np.ndarray, sums: np.ndarray, values: np.ndarray, scale: _entropic.Terms
) -> np.ndarray:
    """The risks of ``values`` over the rows ``which`` from their near ``sums``."""
    _, far, centre, top, beta = scale
    if beta == 0:
        return np.asarray(centre + sums)
    is_near = sums > _entropic.SMALLEST_ARGUMENT - 1.0
    if is_near.all():
        return np.asarray(centre + np.log1p(sums) / beta)
    risks = np.empty_like(sums)
    risks[is_near] = centre + np.log1p(sums[is_near]) / beta
    sums = _products(mdp, h, which, far)
    is_far = ~is_near & (sums > _entropic.SMALLEST_SUM)
    risks[is_far] = top + np.log(sums[is_far]) / beta
    lost = np.flatnonzero(~is_near & ~is_far)
    if lost.size:
        risks[lost] = _risk_of_rows(mdp, h, values, beta, which[lost])
    return risks


def _solve_sparse(mdp: FiniteMDP, beta: float, values: np.ndarray, policy: np.ndarray) -> None:
    """Fill in ``values`` and ``policy`` backwards, without forming the ``(S, A)`` table of any step."""
    threads = get_num_threads() if mdp.n_states * mdp.n_actions >= _PARALLEL_ROWS else 1
    blocks = threads * _BLOCKS_PER_THREAD if threads > 1 else 1
    bounds = [mdp.n_states * block // blocks for block in range(blocks + 1)]
    assert mdp.rewards is not None
    with ThreadPoolExecutor(threads) as pool:
        each = pool.map if threads > 1 else map
        for h in reversed(range(mdp.horizon)):
            rows, rewards, after = mdp.step_rows(h), mdp.step_rewards(h), values[h + 1]
            if h == mdp.horizon - 1 or mdp.rewards.ndim == 3:
                growth, largest = _growth(rewards, beta)
            scale = _scale(after, beta)
            _, _, centre, top, strength = scale
            in_range = strength != 0 and beta * (top - centre) + largest <= _entropic.LARGEST_EXPONENT
            transitions = (rows.indptr, rows.indices, rows.probabilities)
            payoffs = (rewards, growth if in_range else _NO_GROWTH, after)
            backup = partial(_entropic.backup_best, transitions, *payoffs, scale, values[h], policy[h])
            list(each(backup, bounds[:-1], bounds[1:]))


def _growth(rewards: np.ndarray, beta: float) -> tuple[np.ndarray, float]:
    """``exp(beta * rewards)`` and the largest exponent in it; empty where it would overflow."""
    largest = abs(beta) * max(float(rewards.max()), -float(rewards.min()))
    return np.exp(beta * rewards) if largest <= _entropic.LARGEST_EXPONENT else _NO_GROWTH, largest


def _policy_rows(mdp: FiniteMDP, policy: np.ndarray, h: int) -> SparseTransitions:
    """The rows of step ``h`` that the policy plays, one per state, with their rewards per entry."""
    rows = mdp.step_rows(h)
    chosen = np.arange(mdp.n_states) * mdp.n_actions + policy[h]
    entries, lengths = _entries(rows, chosen)
    if rows.rewards is not None:
        rewards = rows.rewards[entries]
    else:
        rewards = np.repeat(mdp.step_rewards(h).ravel()[chosen], lengths)
    return SparseTransitions(_starts(lengths), rows.indices[entries], rows.probabilities[entries], rewards)


def _entries(rows: SparseTransitions, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions of all entries of the rows ``which``, one row after the other, and the length of each row."""
    lengths = np.diff(rows.indptr)[which]
    starts = _starts(lengths)
    return np.repeat(rows.indptr[which] - starts[:-1], lengths) + np.arange(starts[-1]), lengths


def _starts(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)])


def _start_risk(mdp: FiniteMDP, values: np.ndarray, beta: float) -> float:
    if isinstance(mdp.start, int):
        return float(values[mdp.start])
    possible = mdp.start > 0
    return float(_entropic.lottery_risk(mdp.start[possible], values[possible], beta))


def max_return(mdp: FiniteMDP) -> float:
    """The largest return that any policy can reach with positive probability (G_max).

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> eb.max_return(eb.instances.risky_bridge(horizon=7))
    5.0
    """
    return _extreme_return(check_model(mdp), np.maximum)


def min_return(mdp: FiniteMDP) -> float:
    """The smallest return that some policy can have with positive probability."""
    return _extreme_return(mdp, np.minimum)


def _extreme_return(mdp: FiniteMDP, extreme: np.ufunc) -> float:
    values = np.zeros(mdp.n_states)
    for h in reversed(range(mdp.horizon)):
        rows = mdp.step_rows(h)
        entries = values[rows.indices] if rows.rewards is None else values[rows.indices] + rows.rewards
        following = extreme.reduceat(entries, rows.indptr[:-1]).reshape(mdp.n_states, mdp.n_actions)
        if rows.rewards is None:
            following = following + mdp.step_rewards(h)
        values = extreme.reduce(following, axis=1)
    return float(extreme.reduce(values[mdp.start_distribution > 0]))


# -- the law of the return -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ReturnLaw:
    """The distribution of the return: increasing ``support`` and its ``probabilities``."""

    support: np.ndarray
    probabilities: np.ndarray

    @classmethod
    def of_sample(cls, returns: np.ndarray) -> ReturnLaw:
        """The law of one of these returns, each of which is equally likely."""
        support, times = np.unique(returns, return_counts=True)
        return cls(support, times / times.sum())

    def __repr__(self) -> str:
        return f"ReturnLaw({len(self.support)} atoms, mean={self.mean:.6g})"

    def entropic_risk(self, beta: float) -> float:
        """(1/β) log E e^{βR}; risk-averse for negative ``beta``, the mean at 0."""
        return float(_entropic.lottery_risk(self.probabilities, self.support, check_finite("beta", beta)))

    @property
    def mean(self) -> float:
        return float(self.probabilities @ self.support)

    @property
    def variance(self) -> float:
        return float(self.probabilities @ (self.support - self.mean) ** 2)

    def quantile(self, q: float) -> float:
        """The smallest return that is not exceeded with probability at least ``q``, for ``0 <= q <= 1``."""
        q = check_finite("q", q)
        if not 0 <= q <= 1:
            raise InvalidProblemError(f"q must lie in [0, 1], got {q}")
        if q == 1:
            return float(self.support[-1])
        index = int(np.searchsorted(np.cumsum(self.probabilities), q * (1 - 1e-13)))  # forgive rounding in the sum
        return float(self.support[min(index, len(self.support) - 1)])

    def cvar(self, alpha: float) -> float:
        """Mean of the worst fraction ``alpha`` of the returns, ``0 < alpha <= 1``."""
        alpha = _check_level(alpha)
        taken = np.diff(np.minimum(np.concatenate([[0.0], np.cumsum(self.probabilities)]), alpha))
        return float(taken @ self.support / taken.sum())

    def evar(self, alpha: float) -> float:
        r"""Entropic value at risk, :math:`\sup_{\beta<0}\{\rho_\beta + \log(\alpha)/|\beta|\}`, ``0 < alpha <= 1``.

        The tightest lower bound on :meth:`cvar` that Chernoff's inequality gives.
        """
        alpha = _check_level(alpha)
        if alpha == 1 or len(self.support) == 1:
            return self.mean
        if alpha <= self.probabilities[0]:
            return float(self.support[0])  # attained in the limit β → -∞

        def loss(log_strength: float) -> float:
            strength = math.exp(log_strength)
            return -(self.entropic_risk(-strength) + math.log(alpha) / strength)

        # The loss has one valley in |β|, between 1e-9 / (the range) and 1e3 / (the gap above the worst return).
        first, second, last = self.support[[0, 1, -1]]
        grid = np.arange(math.log(1e-9 / (last - first)), math.log(1e3 / (second - first)), 0.25)
        best = int(np.argmin([loss(x) for x in grid]))
        bounds = (grid[best] - 0.25, grid[best] + 0.25)
        found = optimize.minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-12})
        return max(float(-found.fun), float(self.support[0]))


@dataclass(frozen=True, eq=False)
class ReturnLawBracket:
    """Two laws on a grid that bracket the return's: ``lower`` is dominated by it, ``upper`` dominates it.

    Every quantity that grows with the return (entropic risk, mean, quantile, CVaR) lies between the two.
    """

    lower: ReturnLaw
    upper: ReturnLaw


def return_law(
    mdp: FiniteMDP, policy: Any, *, bins: int | None = None, max_support: int = MAX_SUPPORT
) -> ReturnLaw | ReturnLawBracket:
    """The exact distribution of the return under a policy ``(H, S)``.

    Equal returns are merged (returns that differ by rounding only count as equal). The number of pairs (state,
    return so far) that must be held is at most ``max_support``; past that the call fails and offers ``bins``.

    Parameters
    ----------
    bins : int, optional
        Round the return so far to this many equal bins, once downwards and once upwards: the result is a
        :class:`ReturnLawBracket`, two laws between which the true one lies.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> law = eb.return_law(bridge, eb.solve(bridge, beta=2.5).policy)
    >>> law.support.tolist(), law.probabilities.round(4).tolist()
    ([0.0, 5.0], [0.9925, 0.0075])
    >>> round(law.entropic_risk(2.5), 6)
    3.043056
    """
    mdp = check_model(mdp)
    policy = check_policy(policy, mdp.horizon, mdp.n_states, mdp.n_actions)
    max_support = check_integer("max_support", max_support)
    low, high = mdp.reward_range
    if bins is None:
        rounding = np.finfo(float).eps * mdp.horizon**2 * max(abs(low), abs(high))
        return ReturnLaw(*_propagate(mdp, policy, max_support, np.asarray, rounding))
    per_step = check_integer("bins", bins) / mdp.horizon
    unit = (high - low) or 1.0

    def on_grid(up: bool) -> ReturnLaw:
        def cells(rewards: np.ndarray) -> np.ndarray:
            position = (rewards - low) / unit * per_step
            return np.ceil(position * (1 - 1e-15)) if up else np.floor(position * (1 + 1e-15))

        support, probabilities = _propagate(mdp, policy, max_support, cells, 0.0)
        return ReturnLaw(mdp.horizon * low + unit / per_step * support, probabilities)

    return ReturnLawBracket(on_grid(up=False), on_grid(up=True))


_Atoms = tuple[np.ndarray, np.ndarray, np.ndarray]  # states, returns so far, masses


def _propagate(
    mdp: FiniteMDP, policy: np.ndarray, max_support: int, reading: Callable[[np.ndarray], np.ndarray], tolerance: float
) -> tuple[np.ndarray, np.ndarray]:
    """Support and probabilities of the sum of ``reading(rewards)``, by pushing (state, sum so far) forward."""
    start = np.flatnonzero(mdp.start_distribution > 0)
    atoms = (start, np.zeros(len(start)), mdp.start_distribution[start])
    for h in range(mdp.horizon):
        rows = _policy_rows(mdp, policy, h)
        assert rows.rewards is not None
        rows = replace(rows, rewards=reading(rows.rewards))
        batch = np.cumsum(np.diff(rows.indptr)[atoms[0]]) // _EXPANDED_AT_ONCE
        pieces = np.split(np.arange(len(batch)), np.flatnonzero(np.diff(batch)) + 1)
        after: _Atoms = (np.empty(0, dtype=np.int32), np.empty(0), np.empty(0))
        for piece in pieces:
            more = _expand(rows, *(part[piece] for part in atoms))
            after = _merge(*(np.concatenate(parts) for parts in zip(after, more, strict=True)), tolerance=tolerance)
            if len(after[0]) > max_support:
                raise InvalidProblemError(
                    f"the law of the return needs more than max_support={max_support} atoms at step {h}: "
                    "pass bins=1000 (say) for two laws that bracket it, or raise max_support"
                )
        atoms = after
    _, returns, mass = _merge(np.zeros_like(atoms[0]), *atoms[1:], tolerance=tolerance)
    return returns, mass / mass.sum()


def _expand(rows: SparseTransitions, state: np.ndarray, returns: np.ndarray, mass: np.ndarray) -> _Atoms:
    """Each atom once for every successor of its state."""
    assert rows.rewards is not None
    entry, lengths = _entries(rows, state)
    return (
        rows.indices[entry],
        np.repeat(returns, lengths) + rows.rewards[entry],
        np.repeat(mass, lengths) * rows.probabilities[entry],
    )


def _merge(state: np.ndarray, returns: np.ndarray, mass: np.ndarray, *, tolerance: float) -> _Atoms:
    """Add up the mass of equal (state, return) pairs, and forget those whose mass vanishes in doubles."""
    order = np.lexsort((returns, state))
    order = order[mass[order] > 0]
    state, returns, mass = state[order], returns[order], mass[order]
    new = np.ones(len(state), dtype=bool)
    new[1:] = (np.diff(state) != 0) | (np.diff(returns) > tolerance)
    first = np.flatnonzero(new)
    return state[first], returns[first], np.add.reduceat(mass, first)


def _check_level(alpha: float) -> float:
    alpha = check_finite("alpha", alpha)
    if not 0 < alpha <= 1:
        raise InvalidProblemError(f"alpha must be greater than 0 and at most 1, got {alpha}")
    return alpha


# -- tilting ---------------------------------------------------------------------------------------------------


def _tilts(
    mdp: FiniteMDP, policy: np.ndarray, beta: float
) -> tuple[Evaluation, list[tuple[SparseTransitions, np.ndarray]]]:
    """For each step the policy's rows and the log-weight ``β (r + V_{h+1}(s') - V_h(s))`` of every entry."""
    evaluation = evaluate(mdp, policy, beta)
    steps = []
    for h in range(mdp.horizon):
        rows = _policy_rows(mdp, policy, h)
        assert rows.rewards is not None
        here = np.repeat(evaluation.values[h], np.diff(rows.indptr))
        steps.append((rows, beta * (rows.rewards + evaluation.values[h + 1][rows.indices] - here)))
    return evaluation, steps


def _relative_variances(mdp: FiniteMDP, policy: np.ndarray, beta: float) -> tuple[Evaluation, np.ndarray]:
    r"""Values, and :math:`\operatorname{Var}(e^{\beta R_h} \mid s) / Z_h(s)^2` for every step and state.

    With :math:`w = e^{\beta(r + V_{h+1}(s') - V_h(s))}`, whose mean is 1, the recursion of the entropic variance
    divided by :math:`Z_h^2` is :math:`\chi_h(s) = \sum p\,(w-1)^2 + \sum p\,w^2 \chi_{h+1}(s')`: only positive terms.
    """
    evaluation, steps = _tilts(mdp, policy, beta)
    result = np.zeros((mdp.horizon + 1, mdp.n_states))
    for h in reversed(range(mdp.horizon)):
        rows, log_weight = steps[h]
        spread = _spread(rows.probabilities, log_weight, result[h + 1][rows.indices])
        result[h] = np.add.reduceat(spread, rows.indptr[:-1])
    return evaluation, result


def _spread(probabilities: np.ndarray, log_weight: np.ndarray, after: np.ndarray) -> np.ndarray:
    """``p (w - 1)² + p w² after``, with the root of p inside the squares: w may be as large as 1/p."""
    root = np.sqrt(probabilities)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray((root * np.expm1(log_weight)) ** 2 + (root * np.exp(log_weight)) ** 2 * after)


def entropic_variance(mdp: FiniteMDP, policy: Any, beta: float) -> np.ndarray:
    r"""Conditional variance of the exponentiated return, ``(H + 1, S)``: Var(e^{βR_h} | s_h = s) under the policy.

    It obeys :math:`\sigma_h(s) = e^{2\beta r}[\operatorname{Var}_p(Z_{h+1}) + p\,\sigma_{h+1}]`. It grows like
    :math:`e^{2\beta R}`; where that exceeds the range of doubles the call fails and :func:`chi_square`, the same
    variance in units of :math:`Z^2`, is the quantity to use.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> policy = eb.solve(bridge, beta=1.5).policy
    >>> variance = eb.entropic_variance(bridge, policy, beta=1.5)
    >>> variance.shape
    (8, 8)
    """
    mdp, beta = check_model(mdp), check_finite("beta", beta)
    policy = check_policy(policy, mdp.horizon, mdp.n_states, mdp.n_actions)
    evaluation, relative = _relative_variances(mdp, policy, beta)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        variance = np.exp(2 * beta * evaluation.values + np.log(relative))
    if not np.isfinite(variance).all():
        raise InvalidProblemError(
            f"the variance of exp(beta * return) exceeds double precision at beta={beta}; "
            "use chi_square, the same variance relative to the squared mean"
        )
    return variance


def chi_square(mdp: FiniteMDP, policy: Any, beta: float) -> float:
    r"""χ²(P_β, P): how far the tilted law of trajectories is from the nominal one.

    Equal to :math:`\operatorname{Var}(e^{\beta R}) / (\mathbb E e^{\beta R})^2`, the constant that governs how many
    episodes the paper's method needs; about :math:`\beta^2 \operatorname{Var}(R)` for small β.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> round(eb.chi_square(bridge, eb.solve(bridge, beta=2.5).policy, beta=2.5), 3)
    132.202
    """
    mdp, beta = check_model(mdp), check_finite("beta", beta)
    policy = check_policy(policy, mdp.horizon, mdp.n_states, mdp.n_actions)
    evaluation, relative = _relative_variances(mdp, policy, beta)
    start = mdp.start_distribution
    states = np.flatnonzero(start > 0)
    log_weight = beta * (evaluation.values[0][states] - evaluation.value)
    result = float(_spread(start[states], log_weight, relative[0][states]).sum())
    if not math.isfinite(result):
        raise InvalidProblemError(f"the chi-square divergence exceeds double precision at beta={beta}")
    return result


def tilted(mdp: FiniteMDP, policy: Any, beta: float) -> FiniteMDP:
    r"""The twisted dynamics under a policy: trajectories reweighted by :math:`e^{\beta R} / \mathbb E e^{\beta R}`.

    The transitions are :math:`\tilde p_h(s'\mid s) \propto p_h(s'\mid s,\pi(s))\, e^{\beta(r + V_{h+1}(s'))}`, a start
    distribution is tilted alike. The policy is built in: every action of the result behaves as the policy's.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> policy = eb.solve(bridge, beta=2.5).policy
    >>> eb.return_law(bridge, policy).probabilities.round(4).tolist()
    [0.9925, 0.0075]
    >>> eb.return_law(eb.tilted(bridge, policy, beta=2.5), policy).probabilities.round(4).tolist()
    [0.0005, 0.9995]
    """
    mdp, beta = check_model(mdp), check_finite("beta", beta)
    policy = check_policy(policy, mdp.horizon, mdp.n_states, mdp.n_actions)
    evaluation, steps = _tilts(mdp, policy, beta)
    tilted_steps = [_tilt_rows(rows, log_weight, mdp.n_actions) for rows, log_weight in steps]
    rows = SparseTransitions(
        _starts(np.concatenate([np.diff(rows.indptr) for rows in tilted_steps])),
        np.concatenate([rows.indices for rows in tilted_steps]),
        np.concatenate([rows.probabilities for rows in tilted_steps]),
        np.concatenate([rows.rewards for rows in tilted_steps if rows.rewards is not None])[None],
    )
    start = mdp.start
    if not isinstance(start, int):
        log_weight = np.where(start > 0, beta * (evaluation.values[0] - evaluation.value), -np.inf)
        start = start * np.exp(log_weight - log_weight.max())
        start = start / start.sum()
    return FiniteMDP(
        rows,
        (mdp.n_states, mdp.n_actions),
        horizon=mdp.horizon,
        start=start,
        state_names=mdp.state_names,
        action_names=mdp.action_names,
    )


def _tilt_rows(rows: SparseTransitions, log_weight: np.ndarray, n_actions: int) -> SparseTransitions:
    """Tilt the policy's rows and give the same row to each action."""
    starts, lengths = rows.indptr[:-1], np.diff(rows.indptr)
    mass = rows.probabilities * np.exp(log_weight - np.repeat(np.maximum.reduceat(log_weight, starts), lengths))
    mass /= np.repeat(np.add.reduceat(mass, starts), lengths)
    entries, lengths = _entries(rows, np.repeat(np.arange(len(lengths)), n_actions))
    assert rows.rewards is not None
    return SparseTransitions(_starts(lengths), rows.indices[entries], mass[entries], rows.rewards[entries])
