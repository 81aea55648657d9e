r"""Exact backward induction step by step, in the form that is fastest for a model of each kind.

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

# From this many rows on, a step takes more than 2 ms, and to hand threads their share 0.12 ms: they pay even on two
# processors. They wait for each other asleep, since the spinning barrier of a parallel kernel of Numba's takes 10 to 15 ms
# a step where other programs keep the processors busy.
_PARALLEL_ROWS = 200_000
# More blocks than threads, so that nobody waits for one thread that was held up.
_BLOCKS_PER_THREAD = 4
_NO_GROWTH, _UNPAID = np.empty((0, 0)), frozen(np.empty(0))
# Rows of a dense model whose bounds differ by less than this share of the values, more than rounding makes, are all read.
_ROUNDING = 1e-9
# Rows of a matrix are copied before they are multiplied by another, so many numbers at a time, which the fast memory holds.
_COPIED_AT_ONCE = 1 << 17


def plan_in_one_call(mdp: FiniteMDP, beta: float, values: np.ndarray, policy: np.ndarray, *, improve: bool) -> None:
    """Fill in ``values``, and ``policy`` if it is to ``improve``."""
    backups.backward_induction(_arrays(mdp.rows), *payoffs(mdp)[::-1], beta, improve, values, policy)


def payoffs(mdp: FiniteMDP) -> tuple[np.ndarray, np.ndarray]:
    """Return rewards ``(1 or H, S, A)`` and those of entries ``(1 or H, entries)``; the others are without content."""
    if mdp.next_state_rewards:
        return frozen(np.zeros((1, 1, mdp.n_actions))), mdp._payoffs
    return mdp._payoffs, _UNPAID[None]


def _arrays(rows: SparseTransitions) -> backups.Arrays:
    return rows.indptr, rows.indices, rows.probabilities


def solve_by_steps(mdp: FiniteMDP, betas: list[float], values: np.ndarray, policies: np.ndarray) -> None:
    """Fill in ``values`` ``(β, H + 1, S)`` and ``policies`` ``(β, H, S)`` backwards."""
    for h in reversed(range(mdp.horizon)):
        tables = tables_of_q_values(mdp, h, list(values[:, h + 1]), betas)
        for q_values, value, policy in zip(tables, values, policies, strict=True):
            _choose_best(q_values, value[h], policy[h])


def solve_by_bounds(mdp: FiniteMDP, betas: list[float], values: np.ndarray, policies: np.ndarray) -> None:
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
    policy[:] = (q_values >= best - backups.TIE * np.abs(best)).argmax(axis=1)
    value[:] = q_values[np.arange(len(q_values)), policy]


def evaluate_by_steps(mdp: FiniteMDP, beta: float, values: np.ndarray, policy: np.ndarray) -> None:
    states = np.arange(mdp.n_states)
    for h in reversed(range(mdp.horizon)):
        values[h] = _risk_of_rows(mdp, h, values[h + 1], beta, states * mdp.n_actions + policy[h])
        if not mdp.next_state_rewards:
            values[h] += mdp.step_rewards(h)[states, policy[h]]


def tables_of_q_values(mdp: FiniteMDP, h: int, values: list[np.ndarray], betas: list[float]) -> list[np.ndarray]:
    """The backup ``(S, A)`` at step ``h`` for each β and its ``values``."""
    rows = np.arange(mdp.n_states * mdp.n_actions)
    if mdp.next_state_rewards or mdp.is_sparse:
        risks = [_risk_of_rows(mdp, h, after, beta, rows) for after, beta in zip(values, betas, strict=True)]
    else:
        risks = _dense_risks(mdp, h, values, betas, rows)
    paid = 0.0 if mdp.next_state_rewards else mdp.step_rewards(h)
    return [each.reshape(mdp.n_states, mdp.n_actions) + paid for each in risks]


def _risk_of_rows(mdp: FiniteMDP, h: int, values: np.ndarray, beta: float, which: np.ndarray) -> np.ndarray:
    """Risk of ``values``, and of next-state rewards if there are any, over the rows ``which`` of step ``h``."""
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
    """One matrix product for the rows ``which`` and every β, a second one for those β of which some need the far form."""
    scales = [_scale(after, beta) for after, beta in zip(values, betas, strict=True)]
    near = [scale[0] for scale in scales]
    # A library multiplies by a vector in another way than by a matrix of one column.
    sums = [_products(mdp, h, which, *near)] if len(near) == 1 else _products(mdp, h, which, np.stack(near, axis=1)).T
    return [_risks_of_sums(mdp, h, which, *each) for each in zip(sums, values, scales, strict=True)]


def _products(mdp: FiniteMDP, h: int, which: np.ndarray, terms: np.ndarray) -> np.ndarray:
    """The rows ``which`` of a dense step times ``terms``; where a third is asked for, a library is faster with all."""
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
    """The risks of ``values`` over the rows ``which`` from their near ``sums``."""
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
    """Fill in ``values`` and ``policy`` backwards, without forming the ``(S, A)`` table of any step."""
    threads = get_num_threads() if mdp.n_states * mdp.n_actions >= _PARALLEL_ROWS else 1
    blocks = threads * _BLOCKS_PER_THREAD if threads > 1 else 1
    bounds = [mdp.n_states * block // blocks for block in range(blocks + 1)]
    with ThreadPoolExecutor(threads) as pool:
        each = pool.map if threads > 1 else map
        for h in reversed(range(mdp.horizon)):
            rows, rewards, after = mdp.step_rows(h), mdp.step_rewards(h), values[h + 1]
            if h == mdp.horizon - 1 or len(mdp._payoffs) > 1:  # otherwise it is that of the step after
                largest = abs(beta) * max(float(rewards.max()), -float(rewards.min()))
                growth = np.exp(beta * rewards) if largest <= backups.LARGEST_EXPONENT else _NO_GROWTH
            _, _, centre, top, strength = scale = _scale(after, beta)
            in_range = strength != 0 and beta * (top - centre) + largest <= backups.LARGEST_EXPONENT
            payoffs = (rewards, growth if in_range else _NO_GROWTH, after)
            backup = partial(backups.backup_best, _arrays(rows), *payoffs, scale, values[h], policy[h])
            list(each(backup, bounds[:-1], bounds[1:]))
