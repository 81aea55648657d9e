r"""Discounted returns: a process that never ends, as a problem of finitely many steps and a tail.

The discounted return :math:`\sum_{h\ge0}\gamma^h r_h` is that of the first :math:`H` steps, whose rewards are
:math:`\gamma^h r_h`, and a tail. With rewards in :math:`[r_-,r_+]` the tail lies between

.. math:: \frac{\gamma^H}{1-\gamma}\,r_-\qquad\text{and}\qquad\frac{\gamma^H}{1-\gamma}\,r_+

whatever is done. The entropic risk grows with the return and moves with what is added to it, so bounds of the first
:math:`H` steps are bounds of the whole when the two ends are added to them, and the gap grows by their difference. This is
about every policy that continues the one of the first :math:`H` steps, in any way. β is one fixed number: a reward that
comes later is a smaller risk, so that the optimal policy depends on the step even where nothing else does.
"""

import math

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.mdp import FiniteMDP, check_model
from entropic_bpi.tools.checks import check_integer, check_memory, check_probability

# The part of ε that the tail may take on either side, where the horizon is chosen from ε.
SHARE_OF_EPS = 0.1
# γ^H where nothing says how exact to be.
NEGLIGIBLE = 1e-9
_ROUNDING = 4e-15


def factors(discount: float | None, horizon: int) -> np.ndarray:
    """γ^h of every step; 1 without a discount."""
    return np.array([1.0 if discount is None else math.pow(discount, h) for h in range(horizon)])


def tail_of(discount: float | None, horizon: int, reward_range: tuple[float, float]) -> tuple[float, float]:
    """Between what the discounted rewards after the first ``horizon`` steps add up to, rounded outwards."""
    if discount is None:
        return 0.0, 0.0
    share = math.pow(discount, horizon) / (1 - discount)
    low, high = (share * reward for reward in reward_range)
    return low - _ROUNDING * abs(low), high + _ROUNDING * abs(high)


def horizon_for(discount: float, reward_range: tuple[float, float], eps: float) -> int:
    """The smallest horizon whose tail is at most a tenth of ε on either side."""
    largest = max(map(abs, reward_range)) / (1 - discount)
    return max(1, _steps(discount, SHARE_OF_EPS * eps / largest)) if largest > 0 else 1


def _steps(discount: float, share: float) -> int:
    """The smallest H with γ^H at most ``share``."""
    return 0 if share >= 1 else math.ceil(math.log(share) / math.log(discount) * (1 + 1e-12))


def repeated(mdp: FiniteMDP, horizon: int) -> FiniteMDP:
    """The same model for another number of steps, which must be alike."""
    if not mdp.stationary or len(mdp._payoffs) > 1:
        raise InvalidProblemError(
            "discount is for processes that never end: transitions and rewards must be the same at every step, and those of "
            "this model change; discounted rewards of finitely many steps are a model of their own, with rewards (H, S, A)"
        )
    ambiguous = mdp.rewards is not None and mdp.rewards.shape == (horizon,) * 3  # (S, A, S), or (H, S, A)
    rows = {"transitions": mdp.rows, "rewards": (mdp.n_states, mdp.n_actions)} if ambiguous else {}
    return mdp._with(horizon=horizon, **rows)


def discounted(mdp: FiniteMDP, discount: float, horizon: int | None = None) -> FiniteMDP:
    """The first ``horizon`` steps of a process that never ends, with rewards γ^h r.

    Every function for known models can be asked about it: :func:`entropic_bpi.return_law`, :func:`entropic_bpi.front`,
    :func:`entropic_bpi.solve_evar`. What comes after these steps is not in it.

    Parameters
    ----------
    mdp : FiniteMDP
        Its own horizon is ignored; transitions and rewards must be the same at every step.
    discount : float
        γ, strictly between 0 and 1.
    horizon : int, optional
        Default: as many steps as it takes until γ^h is a billionth.

    Returns
    -------
    FiniteMDP
        The model with a finite horizon whose rewards are discounted.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> forever = eb.discounted(eb.instances.river_swim(6, horizon=1), 0.9)
    >>> forever
    FiniteMDP(6 states, 2 actions, horizon 197, stationary, dense)
    >>> round(eb.solve(forever, 0.0).value, 3)
    1.304
    """
    mdp, discount = check_model(mdp), check_probability("discount", discount)
    horizon = _steps(discount, NEGLIGIBLE) if horizon is None else check_integer("horizon", horizon)
    check_memory(f"{horizon} discounted steps of {mdp!r}", horizon * mdp.n_states * mdp.n_actions)
    mdp = repeated(mdp, horizon)
    return mdp._with_rewards(np.array([factor * mdp._payoffs[0] for factor in factors(discount, horizon)]))
