r"""Exact planning when the model is known: optimal policies, return laws and tilting under the entropic risk.

The objective is the entropic risk of the return :math:`R = \sum_h r_h`,

.. math:: V^\pi = \tfrac1\beta \log \mathbb E^\pi\, e^{\beta R},

**risk-seeking for** :math:`\beta > 0`, **risk-averse for** :math:`\beta < 0`, and the expectation at
:math:`\beta = 0`. (Several other libraries use the opposite sign.) It satisfies the backward recursion

.. math:: Q_h(s,a) = \tfrac1\beta \log \sum_{s'} p_h(s'\mid s,a)\, e^{\beta (r_h(s,a,s') + V_{h+1}(s'))},
   \qquad V_h(s) = \max_a Q_h(s,a), \qquad V_{H+1} = 0,

for both signs of :math:`\beta`. A start distribution is one more lottery in front:
:math:`V = \tfrac1\beta \log \sum_s \mu(s) e^{\beta V_1(s)}`. Steps are 0-based in code, 1-based in formulas.
Ties between actions go to the lowest index.

Values, not exponentials, are carried from step to step, so nothing overflows however large :math:`|\beta| H` is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import optimize

from entropic_bpi import _entropic
from entropic_bpi._checks import check_finite, check_integer, check_policy, check_probability
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.mdp import FiniteMDP, Rows

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
# From this many rows on, starting the threads costs less than they save.
_PARALLEL_ROWS = 20_000


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
    """

    mdp: FiniteMDP
    beta: float
    policy: np.ndarray
    values: np.ndarray
    value: float

    @cached_property
    def q_values(self) -> np.ndarray:
        return np.stack([_step_q_values(self.mdp, h, self.values[h + 1], self.beta) for h in range(self.mdp.horizon)])

    def __repr__(self) -> str:
        return f"Solution(beta={self.beta}, value={self.value:.6g}, policy {self.policy.shape})"


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The values ``(H + 1, S)`` of a given policy, and its ``value`` at the start."""

    values: np.ndarray
    value: float

    def __repr__(self) -> str:
        return f"Evaluation(value={self.value:.6g})"


def solve(mdp: FiniteMDP, beta: float) -> Solution:
    r"""Find an optimal policy of a known model.

    Parameters
    ----------
    mdp : FiniteMDP
    beta : float
        Risk parameter, any finite number: positive is risk-seeking, negative risk-averse, 0 the expectation.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> solution = eb.solve(eb.instances.risky_bridge(horizon=7), beta=2.5)
    >>> round(solution.value, 6)
    3.043056
    """
    beta = check_finite("beta", beta)
    values = np.zeros((mdp.horizon + 1, mdp.n_states))
    policy = np.empty((mdp.horizon, mdp.n_states), dtype=np.int64)
    for h in reversed(range(mdp.horizon)):
        if mdp.is_sparse and not mdp.next_state_rewards:
            _best_sparse(mdp, h, values[h + 1], beta, values[h], policy[h])
        else:
            q_values = _step_q_values(mdp, h, values[h + 1], beta)
            policy[h] = q_values.argmax(axis=1)
            values[h] = np.take_along_axis(q_values, policy[h][:, None], axis=1)[:, 0]
    return Solution(mdp, beta, policy, values, _start_risk(mdp, values[0], beta))


def evaluate(mdp: FiniteMDP, policy: Any, beta: float) -> Evaluation:
    """Entropic risk of the return under a policy ``(H, S)``; positive ``beta`` is risk-seeking.

    Examples
    --------
    >>> import entropic_bpi as eb, numpy as np
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> always_safe = np.zeros((7, 8), dtype=int)
    >>> eb.evaluate(bridge, always_safe, beta=-1.0).value
    1.0
    """
    beta = check_finite("beta", beta)
    policy = check_policy(policy, mdp.horizon, mdp.n_states, mdp.n_actions)
    values = np.zeros((mdp.horizon + 1, mdp.n_states))
    for h in reversed(range(mdp.horizon)):
        rows = _policy_rows(mdp, policy, h)
        assert rows.rewards is not None
        _entropic.backup_rows(
            rows.indptr, rows.indices, rows.probabilities, rows.rewards, values[h + 1], beta, values[h]
        )
    return Evaluation(values, _start_risk(mdp, values[0], beta))


# -- backups ---------------------------------------------------------------------------------------------


def _centre_and_reach(values: np.ndarray, beta: float) -> tuple[float, float]:
    """The shift that keeps the shared exponentials accurate, and the largest exponent after it."""
    low, high = float(values.min()), float(values.max())
    centre = min(max(0.0, low), high)
    return centre, abs(beta) * max(high - centre, centre - low)


def _step_q_values(mdp: FiniteMDP, h: int, values: np.ndarray, beta: float) -> np.ndarray:
    """The backup ``(S, A)`` of ``values`` at step ``h``."""
    shape = (mdp.n_states, mdp.n_actions)
    centre, reach = _centre_and_reach(values, beta)
    if mdp.next_state_rewards or mdp.is_sparse or reach > _entropic.LARGEST_EXPONENT:
        rows, risks = mdp.step_rows(h), np.empty(shape[0] * shape[1])
        entry_rewards = np.empty(0) if rows.rewards is None else rows.rewards
        _entropic.backup_rows(rows.indptr, rows.indices, rows.probabilities, entry_rewards, values, beta, risks)
    else:
        risks = _dense_risks(mdp, h, values, beta, centre, reach)
    risks = risks.reshape(shape)
    return risks if mdp.next_state_rewards else risks + mdp.step_rewards(h)


def _dense_risks(mdp: FiniteMDP, h: int, values: np.ndarray, beta: float, centre: float, reach: float) -> np.ndarray:
    """One matrix product for all rows; rows where its ``log1p`` would lose digits are recomputed on their own."""
    kernel = mdp.step_kernel(h)
    assert kernel is not None
    if reach < _entropic.LINEAR_EXPONENT:
        return np.asarray(centre + kernel @ (values - centre))
    totals = kernel @ np.expm1(beta * (values - centre))
    unsafe = np.flatnonzero(totals <= _entropic.SMALLEST_ARGUMENT - 1.0)
    totals[unsafe] = 0.0
    risks = centre + np.log1p(totals) / beta
    if unsafe.size:
        rows = mdp.step_rows(h)
        _entropic.refine_rows(rows.indptr, rows.indices, rows.probabilities, values, beta, unsafe, risks)
    return np.asarray(risks)


def _best_sparse(
    mdp: FiniteMDP, h: int, values: np.ndarray, beta: float, best: np.ndarray, policy: np.ndarray
) -> None:
    """Best value and action of every state at step ``h``, without forming the ``(S, A)`` table."""
    rows = mdp.step_rows(h)
    centre, reach = _centre_and_reach(values, beta)
    if reach < _entropic.LINEAR_EXPONENT:
        beta, shared = 0.0, values - centre
    elif reach > _entropic.LARGEST_EXPONENT:
        shared = np.full(len(values), -1.0)  # sends every row to its own scale
    else:
        shared = np.expm1(beta * (values - centre))
    parallel = mdp.n_states * mdp.n_actions >= _PARALLEL_ROWS
    _entropic.backup_best[parallel](
        rows.indptr, rows.indices, rows.probabilities, mdp.step_rewards(h), values, shared, centre, beta, best, policy
    )


def _policy_rows(mdp: FiniteMDP, policy: np.ndarray, h: int) -> Rows:
    """The rows of step ``h`` that the policy plays, one per state, with their rewards per entry."""
    rows = mdp.step_rows(h)
    chosen = np.arange(mdp.n_states) * mdp.n_actions + policy[h]
    lengths = (rows.indptr[1:] - rows.indptr[:-1])[chosen]
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    entries = np.repeat(rows.indptr[chosen] - indptr[:-1], lengths) + np.arange(indptr[-1])
    if rows.rewards is not None:
        rewards = rows.rewards[entries]
    else:
        rewards = np.repeat(mdp.step_rewards(h)[np.arange(mdp.n_states), policy[h]], lengths)
    return Rows(indptr, rows.indices[entries], rows.probabilities[entries], rewards)


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
    best = np.zeros(mdp.n_states)
    for h in reversed(range(mdp.horizon)):
        rows = mdp.step_rows(h)
        entries = best[rows.indices] if rows.rewards is None else best[rows.indices] + rows.rewards
        top = np.maximum.reduceat(entries, rows.indptr[:-1]).reshape(mdp.n_states, mdp.n_actions)
        if rows.rewards is None:
            top = top + mdp.step_rewards(h)
        best = top.max(axis=1)
    return float(best[mdp.start_distribution > 0].max())


# -- the law of the return -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ReturnLaw:
    """The distribution of the return: increasing ``support`` and its ``probabilities``."""

    support: np.ndarray
    probabilities: np.ndarray

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
        cumulative = np.cumsum(self.probabilities)
        index = int(np.searchsorted(cumulative, q - 1e-12))
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
        scale = float(self.support[-1] - self.support[0])

        def loss(log_strength: float) -> float:
            strength = math.exp(log_strength) / scale
            return -(self.entropic_risk(-strength) + math.log(alpha) / strength)

        grid = np.linspace(-12.0, 12.0, 97)
        best = int(np.argmin([loss(x) for x in grid]))
        bounds = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
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
    policy = check_policy(policy, mdp.horizon, mdp.n_states, mdp.n_actions)
    max_support = check_integer("max_support", max_support)
    if bins is None:
        return _propagate(mdp, policy, max_support, width=0.0, origin=0.0, up=False)
    bins = check_integer("bins", bins)
    low, high = mdp.reward_range
    span = max(high - low, 1e-300) * mdp.horizon
    laws = [_propagate(mdp, policy, max_support, width=span / bins, origin=low, up=up) for up in (False, True)]
    return ReturnLawBracket(*laws)


def _propagate(
    mdp: FiniteMDP, policy: np.ndarray, max_support: int, *, width: float, origin: float, up: bool
) -> ReturnLaw:
    """Push (state, return so far) forward; with ``width`` the returns live on the grid ``h * origin + width * k``."""
    low, high = mdp.reward_range
    tolerance = 1e-13 * mdp.horizon * max(abs(low), abs(high), 1e-300)
    state = np.flatnonzero(mdp.start_distribution > 0)
    mass = mdp.start_distribution[state]
    returns = np.zeros(len(state))
    for h in range(mdp.horizon):
        rows = _policy_rows(mdp, policy, h)
        assert rows.rewards is not None
        lengths = (rows.indptr[1:] - rows.indptr[:-1])[state]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        entry = np.repeat(rows.indptr[state] - offsets[:-1], lengths) + np.arange(offsets[-1])
        returns = np.repeat(returns, lengths) + rows.rewards[entry]
        mass = np.repeat(mass, lengths) * rows.probabilities[entry]
        state = rows.indices[entry]
        if width:
            steps = (returns - (h + 1) * origin) / width
            steps = np.ceil(steps - 1e-9) if up else np.floor(steps + 1e-9)
            returns = (h + 1) * origin + width * steps
        state, returns, mass = _merge(state, returns, mass, tolerance)
        if len(state) > max_support:
            raise InvalidProblemError(
                f"the law of the return needs {len(state)} atoms at step {h}, more than max_support={max_support}: "
                "pass bins=1000 (say) for two laws that bracket it, or raise max_support"
            )
    _, returns, mass = _merge(np.zeros_like(state), returns, mass, tolerance)
    return ReturnLaw(returns, mass / mass.sum())


def _merge(
    state: np.ndarray, returns: np.ndarray, mass: np.ndarray, tolerance: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Add up the mass of equal (state, return) pairs."""
    order = np.lexsort((returns, state))
    state, returns, mass = state[order], returns[order], mass[order]
    new = np.ones(len(state), dtype=bool)
    new[1:] = (np.diff(state) != 0) | (np.diff(returns) > tolerance)
    first = np.flatnonzero(new)
    return state[first], returns[first], np.add.reduceat(mass, first)


def _check_level(alpha: float) -> float:
    return 1.0 if alpha == 1 else check_probability("alpha", alpha)


# -- tilting ---------------------------------------------------------------------------------------------------


def _tilts(mdp: FiniteMDP, policy: np.ndarray, beta: float) -> tuple[Evaluation, list[tuple[Rows, np.ndarray]]]:
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
    with np.errstate(over="ignore", invalid="ignore"):
        for h in reversed(range(mdp.horizon)):
            rows, log_weight = steps[h]
            spread = np.expm1(log_weight) ** 2 + np.exp(2 * log_weight) * result[h + 1][rows.indices]
            result[h] = np.add.reduceat(rows.probabilities * spread, rows.indptr[:-1])
    return evaluation, result


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
    beta = check_finite("beta", beta)
    policy = check_policy(policy, mdp.horizon, mdp.n_states, mdp.n_actions)
    evaluation, relative = _relative_variances(mdp, policy, beta)
    with np.errstate(over="ignore", invalid="ignore"):
        variance = np.where(relative == 0, 0.0, np.exp(2 * beta * evaluation.values) * relative)
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
    131.044
    """
    beta = check_finite("beta", beta)
    policy = check_policy(policy, mdp.horizon, mdp.n_states, mdp.n_actions)
    evaluation, relative = _relative_variances(mdp, policy, beta)
    start = mdp.start_distribution
    states = np.flatnonzero(start > 0)
    log_weight = beta * (evaluation.values[0][states] - evaluation.value)
    with np.errstate(over="ignore", invalid="ignore"):
        spread = np.expm1(log_weight) ** 2 + np.exp(2 * log_weight) * relative[0][states]
        result = float(start[states] @ spread)
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
    beta = check_finite("beta", beta)
    policy = check_policy(policy, mdp.horizon, mdp.n_states, mdp.n_actions)
    evaluation, steps = _tilts(mdp, policy, beta)
    repeated = [_repeat_rows(rows, np.exp(log_weight), mdp.n_actions) for rows, log_weight in steps]
    first = np.cumsum([0] + [len(rows.indices) for rows in repeated])
    rows = Rows(
        np.concatenate([[0], *(rows.indptr[1:] + offset for rows, offset in zip(repeated, first, strict=False))]),
        np.concatenate([rows.indices for rows in repeated]),
        np.concatenate([rows.probabilities for rows in repeated]),
        np.concatenate([rows.rewards for rows in repeated if rows.rewards is not None])[None],
    )
    start = mdp.start
    if not isinstance(start, int):
        start = start * np.exp(beta * (evaluation.values[0] - evaluation.value), where=start > 0, out=np.zeros(len(start)))
        start = start / start.sum()
    return FiniteMDP(
        rows,
        (mdp.n_states, mdp.n_actions),
        horizon=mdp.horizon,
        start=start,
        state_names=mdp.state_names,
        action_names=mdp.action_names,
    )


def _repeat_rows(rows: Rows, weights: np.ndarray, n_actions: int) -> Rows:
    """Tilt the policy's rows and give the same row to each action; entries that vanish in doubles are dropped."""
    mass = rows.probabilities * weights
    kept = mass > 0
    lengths = np.add.reduceat(kept.astype(np.int64), rows.indptr[:-1])
    mass = mass[kept]
    sums = np.add.reduceat(mass, np.concatenate([[0], np.cumsum(lengths)[:-1]]))
    assert rows.rewards is not None
    parts = (rows.indices[kept], mass / np.repeat(sums, lengths), rows.rewards[kept])
    first = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    repeated = np.repeat(lengths, n_actions)
    indptr = np.concatenate([[0], np.cumsum(repeated)])
    entries = np.repeat(np.repeat(first, n_actions) - indptr[:-1], repeated) + np.arange(indptr[-1])
    indices, probabilities, rewards = (part[entries] for part in parts)
    return Rows(indptr, indices, probabilities, rewards)
