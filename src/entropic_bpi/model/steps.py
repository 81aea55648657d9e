r"""Exact backward induction, with a fast implementation for each kind of model.

Values, not exponentials, are carried from step to step, so nothing overflows however large :math:`|\beta| H` is.
Ties between actions, to within rounding, go to the lowest index.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from numba import get_num_threads

from entropic_bpi.model import backups
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.model.parts.arrays import SparseTransitions, frozen

# From this many rows on, a step takes more than 2 ms. Threads are then faster even on two processors, since dispatching work
# to them takes 0.12 ms. A thread pool is used because its threads sleep while they wait: the spinning barrier of Numba's
# parallel kernels takes 10 to 15 ms per step if other programs keep the processors busy.
_PARALLEL_ROWS = 200_000
# More blocks than threads, so that a thread that is delayed gets fewer blocks.
_BLOCKS_PER_THREAD = 4
_NO_GROWTH, _UNPAID = np.empty((0, 0)), frozen(np.empty(0))
# A row of a dense model is skipped only if its upper bound is below another action's lower bound by more than this fraction
# of the values, which is larger than the rounding errors.
_ROUNDING = 1e-9
# Selected rows of a matrix are copied before a product, at most this many numbers at a time, which fit into the cache.
_COPIED_AT_ONCE = 1 << 17


def plan_in_one_call(mdp: FiniteMDP, beta: float, values: np.ndarray, policy: np.ndarray, *, improve: bool) -> None:
    """Fill in ``values``; if ``improve``, also fill in an optimal ``policy``, otherwise evaluate it."""
    backups.backward_induction(_arrays(mdp.rows), *payoffs(mdp)[::-1], beta, improve, values, policy)


def payoffs(mdp: FiniteMDP) -> tuple[np.ndarray, np.ndarray]:
    """Return rewards ``(1 or H, S, A)`` and rewards of entries ``(1 or H, entries)``; the one not in use is a dummy."""
    if mdp.next_state_rewards:
        return frozen(np.zeros((1, 1, mdp.n_actions))), mdp._payoffs
    return mdp._payoffs, _UNPAID[None]


def _arrays(rows: SparseTransitions) -> backups.Arrays:
    return rows.indptr, rows.indices, rows.probabilities


def solve_by_steps(mdp: FiniteMDP, betas: list[float], values: np.ndarray, policies: np.ndarray) -> None:
    """Fill in ``values`` ``(β, H + 1, S)`` and ``policies`` ``(β, H, S)``, from the last step to the first."""
    for h in reversed(range(mdp.horizon)):
        tables = tables_of_q_values(mdp, h, list(values[:, h + 1]), betas)
        for q_values, value, policy in zip(tables, values, policies, strict=True):
            _choose_best(q_values, value[h], policy[h])


def solve_by_bounds(mdp: FiniteMDP, betas: list[float], values: np.ndarray, policies: np.ndarray) -> None:
    """Fill in ``values`` and ``policies`` for a large stationary dense model, skipping rows that cannot be optimal.

    The risk is monotone in the values, and a constant added to all values is added to the risk. So from one step to the
    next, the risk of a row changes by at least the smallest and at most the largest change of a value. This gives bounds for
    every row from the step at which its risk was last computed, without reading the row. A row that may be optimal for one
    β is computed for all.
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
        for i in range(len(betas)):  # the upper bound of a row that was skipped is below the best value
            _choose_best(high[i] + rewards, values[i, h], policies[i, h])


def _choose_best(q_values: np.ndarray, value: np.ndarray, policy: np.ndarray) -> None:
    best = q_values.max(axis=1, keepdims=True)
    policy[:] = (q_values >= best - backups.TIE * np.abs(best)).argmax(axis=1)
    value[:] = q_values[np.arange(len(q_values)), policy]


def evaluate_by_steps(mdp: FiniteMDP, beta: float, values: np.ndarray, policy: np.ndarray) -> None:
    states = np.arange(mdp.n_states)
    for h in reversed(range(mdp.horizon)):
        values[h] = _risk_of_rows(mdp, h, values[h + 1], beta, states * mdp.n_actions + policy[h])
        if not mdp.next_state_rewards:
            values[h] += mdp.step_rewards(h)[states, policy[h]]


def tables_of_q_values(mdp: FiniteMDP, h: int, values: list[np.ndarray], betas: list[float]) -> list[np.ndarray]:
    """Return the Q values ``(S, A)`` at step ``h`` for each β, given its ``values`` at the next step."""
    rows = np.arange(mdp.n_states * mdp.n_actions)
    if mdp.next_state_rewards or mdp.is_sparse:
        risks = [_risk_of_rows(mdp, h, after, beta, rows) for after, beta in zip(values, betas, strict=True)]
    else:
        risks = _dense_risks(mdp, h, values, betas, rows)
    paid = 0.0 if mdp.next_state_rewards else mdp.step_rewards(h)
    return [each.reshape(mdp.n_states, mdp.n_actions) + paid for each in risks]


def _risk_of_rows(mdp: FiniteMDP, h: int, values: np.ndarray, beta: float, which: np.ndarray) -> np.ndarray:
    """Compute the risk of ``values``, plus next-state rewards if there are any, over the rows ``which`` of step ``h``."""
    rows = mdp.step_rows(h)
    if rows.rewards is None:
        return backups.risk_of_rows(_arrays(rows), _UNPAID, values, _scale(values, beta), which)
    return backups.risk_of_rows(_arrays(rows), rows.rewards, values, (values, values, 0.0, 0.0, beta), which)


def _scale(values: np.ndarray, beta: float) -> backups.Terms:
    centre, top, reach, climb = backups.reference(values, beta)
    if reach < backups.LINEAR_EXPONENT:
        return values - centre, values, centre, top, 0.0
    with np.errstate(over="ignore"):
        is_near = climb <= backups.LARGEST_EXPONENT  # otherwise -1 sends every row to the far form
        near = np.expm1(beta * (values - centre)) if is_near else np.full(len(values), -1.0)
        return near, np.exp(beta * (values - top)), centre, top, beta


def _dense_risks(
    mdp: FiniteMDP, h: int, values: list[np.ndarray], betas: list[float], which: np.ndarray
) -> list[np.ndarray]:
    """Compute the risks of the rows ``which`` by one matrix product for all β, and one more for each β in the far form."""
    scales = [_scale(after, beta) for after, beta in zip(values, betas, strict=True)]
    near = [scale[0] for scale in scales]
    # BLAS rounds the product with a vector in another way than the product with a matrix of one column.
    sums = [_products(mdp, h, which, *near)] if len(near) == 1 else _products(mdp, h, which, np.stack(near, axis=1)).T
    return [_risks_of_sums(mdp, h, which, *each) for each in zip(sums, values, scales, strict=True)]


def _products(mdp: FiniteMDP, h: int, which: np.ndarray, terms: np.ndarray) -> np.ndarray:
    """Return the rows ``which`` of a dense step times ``terms``; from a third of the rows on, BLAS is faster with all."""
    kernel = mdp.step_kernel(h)
    assert kernel is not None
    if 3 * len(which) >= len(kernel):
        products = kernel @ terms
        return np.asarray(products if len(which) == len(kernel) else products[which])
    size = max(1, _COPIED_AT_ONCE // mdp.n_states)
    return np.concatenate([kernel[which[i : i + size]] @ terms for i in range(0, len(which), size)])


def _risks_of_sums(
    mdp: FiniteMDP, h: int, which: np.ndarray, sums: np.ndarray, values: np.ndarray, scale: backups.Terms
) -> np.ndarray:
    """Compute the risks of ``values`` over the rows ``which`` from the sums of their near form."""
    _, far, centre, top, beta = scale
    if beta == 0:
        return np.asarray(centre + sums)
    is_near = sums > backups.SMALLEST_ARGUMENT - 1.0
    risks = np.asarray(centre + np.log1p(sums, where=is_near, out=np.zeros_like(sums)) / beta)
    if not is_near.all():
        sums = _products(mdp, h, which, far)
        is_far = ~is_near & (sums > backups.SMALLEST_SUM)
        risks[is_far] = top + np.log(sums[is_far]) / beta
        lost = np.flatnonzero(~is_near & ~is_far)
        if lost.size:
            risks[lost] = _risk_of_rows(mdp, h, values, beta, which[lost])
    return risks


def solve_sparse(mdp: FiniteMDP, beta: float, values: np.ndarray, policy: np.ndarray) -> None:
    """Fill in ``values`` and ``policy`` from the last step to the first, without a table ``(S, A)`` of Q values."""
    threads = get_num_threads() if mdp.n_states * mdp.n_actions >= _PARALLEL_ROWS else 1
    blocks = threads * _BLOCKS_PER_THREAD if threads > 1 else 1
    bounds = [mdp.n_states * block // blocks for block in range(blocks + 1)]
    with ThreadPoolExecutor(threads) as pool:
        each = pool.map if threads > 1 else map
        for h in reversed(range(mdp.horizon)):
            rows, rewards, after = mdp.step_rows(h), mdp.step_rewards(h), values[h + 1]
            if h == mdp.horizon - 1 or len(mdp._payoffs) > 1:  # otherwise equal to the one of the previous iteration
                largest = abs(beta) * max(float(rewards.max()), -float(rewards.min()))
                growth = np.exp(beta * rewards) if largest <= backups.LARGEST_EXPONENT else _NO_GROWTH
            _, _, centre, top, strength = scale = _scale(after, beta)
            in_range = strength != 0 and beta * (top - centre) + largest <= backups.LARGEST_EXPONENT
            payoffs = (rewards, growth if in_range else _NO_GROWTH, after)
            backup = partial(backups.backup_best, _arrays(rows), *payoffs, scale, values[h], policy[h])
            list(each(backup, bounds[:-1], bounds[1:]))
