r"""Tilting: the trajectories of a policy reweighted by :math:`e^{\beta R}`, and the divergence from the original law."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.mdp import FiniteMDP, check_model
from entropic_bpi.model.parts.arrays import SparseTransitions, joined
from entropic_bpi.model.planning import evaluate
from entropic_bpi.tools.checks import check_finite


class _Tilt:
    """Values of a policy; for each step its rows and the log-weight ``β (r + V_{h+1}(s') - V_h(s))`` of every entry."""

    def __init__(self, mdp: FiniteMDP, policy: Any, beta: float) -> None:
        self.mdp, self.beta = check_model(mdp), check_finite("beta", beta)
        policy = self.mdp.check_policy(policy)
        found = evaluate(self.mdp, policy, self.beta)
        self.values, self.steps = found.values, []
        for h in range(self.mdp.horizon):
            rows = self.mdp.policy_rows(policy, h)
            here = np.repeat(self.values[h], np.diff(rows.indptr))
            self.steps.append((rows, self.beta * (rows.rewards + self.values[h + 1][rows.indices] - here)))
        # The start is a lottery as well.
        self.start = np.flatnonzero(self.mdp.start_distribution)
        self.start_weight = self.beta * (self.values[0][self.start] - found.value)

    def relative_variances(self) -> np.ndarray:
        r"""Compute :math:`\operatorname{Var}(e^{\beta R_h} \mid s) / Z_h(s)^2` for every step and state.

        With :math:`w = e^{\beta(r + V_{h+1}(s') - V_h(s))}`, whose mean is 1, the recursion of the entropic variance
        divided by :math:`Z_h^2` is :math:`\chi_h(s) = \sum p\,(w-1)^2 + \sum p\,w^2 \chi_{h+1}(s')`: only positive terms.
        """
        result = np.zeros_like(self.values)
        for h, (rows, log_weight) in reversed(list(enumerate(self.steps))):
            spread = _spread(rows.probabilities, log_weight, result[h + 1][rows.indices])
            result[h] = np.add.reduceat(spread, rows.indptr[:-1])
        return result


def _spread(probabilities: np.ndarray, log_weight: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Compute ``p (w - 1)² + p w² after``, with the root of p inside the squares, since w may be as large as 1/p."""
    root = np.sqrt(probabilities)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray((root * np.expm1(log_weight)) ** 2 + (root * np.exp(log_weight)) ** 2 * after)


def entropic_variance(mdp: FiniteMDP, policy: Any, beta: float) -> np.ndarray:
    r"""Compute the conditional variance of the exponentiated return under a policy: Var(e^{βR_h} | s_h = s).

    It obeys :math:`\sigma_h(s) = e^{2\beta r}[\operatorname{Var}_p(Z_{h+1}) + p\,\sigma_{h+1}]`. It grows like
    :math:`e^{2\beta R}`; where that exceeds the range of doubles the call fails and :func:`chi_square`, the same
    variance in units of :math:`Z^2`, is the quantity to use.

    Parameters
    ----------
    mdp : FiniteMDP
        The model.
    policy : int array ``(H, S)``
        The action at each step and state.
    beta : float
        Risk parameter, any finite number: positive is risk-seeking, negative risk-averse, 0 the expectation.

    Returns
    -------
    float array ``(H + 1, S)``
        The variance from each step and state on.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> policy = eb.solve(bridge, beta=1.5).policy
    >>> variance = eb.entropic_variance(bridge, policy, beta=1.5)
    >>> variance.shape
    (8, 8)
    """
    tilt = _Tilt(mdp, policy, beta)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        variance = np.exp(2 * tilt.beta * tilt.values + np.log(tilt.relative_variances()))
    if not np.isfinite(variance).all():
        raise InvalidProblemError(
            f"the variance of exp(beta * return) exceeds double precision at beta={beta}; "
            "use chi_square, the same variance relative to the squared mean"
        )
    return variance


def chi_square(mdp: FiniteMDP, policy: Any, beta: float) -> float:
    r"""Compute χ²(P_β, P), the divergence of the tilted law of trajectories from the original one.

    It is equal to :math:`\operatorname{Var}(e^{\beta R}) / (\mathbb E e^{\beta R})^2`, the constant that governs how many
    episodes the paper's method needs; about :math:`\beta^2 \operatorname{Var}(R)` for small β.

    Parameters
    ----------
    mdp : FiniteMDP
        The model.
    policy : int array ``(H, S)``
        The action at each step and state.
    beta : float
        Risk parameter, any finite number: positive is risk-seeking, negative risk-averse, 0 the expectation.

    Returns
    -------
    float
        The divergence.

    Raises
    ------
    InvalidProblemError
        If the result exceeds double precision.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> round(eb.chi_square(bridge, eb.solve(bridge, beta=2.5).policy, beta=2.5), 3)
    132.202
    """
    tilt = _Tilt(mdp, policy, beta)
    chances, relative = tilt.mdp.start_distribution[tilt.start], tilt.relative_variances()[0][tilt.start]
    result = float(_spread(chances, tilt.start_weight, relative).sum())
    if not math.isfinite(result):
        raise InvalidProblemError(f"the chi-square divergence exceeds double precision at beta={beta}")
    return result


def tilted(mdp: FiniteMDP, policy: Any, beta: float) -> FiniteMDP:
    r"""Return the twisted dynamics under a policy: trajectories reweighted by :math:`e^{\beta R} / \mathbb E e^{\beta R}`.

    The transitions are :math:`\tilde p_h(s'\mid s) \propto p_h(s'\mid s,\pi(s))\, e^{\beta(r + V_{h+1}(s'))}`, and a
    start distribution is tilted in the same way. Every action of the result has the transitions of the policy's action.

    Parameters
    ----------
    mdp : FiniteMDP
        The model.
    policy : int array ``(H, S)``
        The action at each step and state.
    beta : float
        Risk parameter, any finite number: positive is risk-seeking, negative risk-averse, 0 the expectation.

    Returns
    -------
    FiniteMDP
        The tilted model.

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
    tilt = _Tilt(mdp, policy, beta)
    mdp, start = tilt.mdp, tilt.mdp.start
    rows = joined([_tilt_rows(rows, log_weight, mdp.n_actions) for rows, log_weight in tilt.steps])
    if not isinstance(start, int):
        weight = np.zeros(mdp.n_states)
        weight[tilt.start] = start[tilt.start] * np.exp(tilt.start_weight - tilt.start_weight.max())
        start = weight / weight.sum()
    names: dict[str, Any] = {"state_names": mdp.state_names, "action_names": mdp.action_names}
    return FiniteMDP(rows, (mdp.n_states, mdp.n_actions), horizon=mdp.horizon, start=start, **names)


def _tilt_rows(rows: SparseTransitions, log_weight: np.ndarray, n_actions: int) -> SparseTransitions:
    """Tilt the rows of the policy, and use the result for every action."""
    starts, lengths = rows.indptr[:-1], np.diff(rows.indptr)
    mass = rows.probabilities * np.exp(log_weight - np.repeat(np.maximum.reduceat(log_weight, starts), lengths))
    mass /= np.repeat(np.add.reduceat(mass, starts), lengths)
    return replace(rows, probabilities=mass)._rows(np.repeat(np.arange(len(lengths)), n_actions))
