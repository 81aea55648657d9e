r"""Discounted returns of a process that never ends, as a problem with finitely many steps and bounds of the rest.

The discounted return :math:`\sum_{h\ge0}\gamma^h r_h` is the sum of the first :math:`H` terms and a tail. If all rewards are
in :math:`[r_-,r_+]`, the tail lies between

.. math:: \frac{\gamma^H}{1-\gamma}\,r_-\qquad\text{and}\qquad\frac{\gamma^H}{1-\gamma}\,r_+

for every policy. The entropic risk is monotone, and a constant that is added to the return is added to the risk. So bounds
for the first :math:`H` steps become bounds for the whole return if the two ends of the tail are added to them, and the gap
grows by the difference of the ends. They hold for every policy that continues the policy of the first :math:`H` steps in any
way. β is the same at every step, so that a later, smaller reward carries a smaller risk: the optimal policy depends on the
step even if transitions and rewards do not.
"""

import math

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.mdp import FiniteMDP, check_model
from entropic_bpi.tools.checks import check_integer, check_memory, check_probability

# The largest tail on either side, as a fraction of ε, if the horizon is chosen from ε.
SHARE_OF_EPS = 0.1
# The default horizon is the smallest one with γ^H at most this.
NEGLIGIBLE = 1e-9
_ROUNDING = 4e-15


def factors(discount: float | None, horizon: int) -> np.ndarray:
    """Return γ^h for every step; ones without a discount."""
    return np.array([1.0 if discount is None else math.pow(discount, h) for h in range(horizon)])


def tail_of(discount: float | None, horizon: int, reward_range: tuple[float, float]) -> tuple[float, float]:
    """Return bounds of the sum of the discounted rewards after the first ``horizon`` steps, rounded outwards."""
    if discount is None:
        return 0.0, 0.0
    share = math.pow(discount, horizon) / (1 - discount)
    low, high = (share * reward for reward in reward_range)
    return low - _ROUNDING * abs(low), high + _ROUNDING * abs(high)


def horizon_for(discount: float, reward_range: tuple[float, float], eps: float) -> int:
    """Return the smallest horizon whose tail is at most a tenth of ε on either side."""
    largest = max(map(abs, reward_range)) / (1 - discount)
    # A share that underflows is replaced by the smallest positive double, since 0 has no logarithm.
    return max(1, _steps(discount, max(SHARE_OF_EPS * eps / largest, math.ulp(0.0)))) if largest > 0 else 1


def _steps(discount: float, share: float) -> int:
    """Return the smallest H with γ^H at most ``share``."""
    return 0 if share >= 1 else math.ceil(math.log(share) / math.log(discount) * (1 + 1e-12))


def repeated(mdp: FiniteMDP, horizon: int) -> FiniteMDP:
    """Return a model with another horizon; transitions and rewards must be the same at every step."""
    if not mdp.stationary or len(mdp._payoffs) > 1:
        raise InvalidProblemError(
            "discount= is for processes that never end, so transitions and rewards must be the same at every step; in this "
            "model they change. To discount finitely many steps, build a model with discounted rewards (H, S, A)"
        )
    ambiguous = mdp.rewards is not None and mdp.rewards.shape == (horizon,) * 3  # (S, A, S), or (H, S, A)
    rows = {"transitions": mdp.rows, "rewards": (mdp.n_states, mdp.n_actions)} if ambiguous else {}
    return mdp._with(horizon=horizon, **rows)


def discounted(mdp: FiniteMDP, discount: float, horizon: int | None = None) -> FiniteMDP:
    """Return the first ``horizon`` steps of a process that never ends, as a model with rewards γ^h r.

    Every function for known models takes the result, for example :func:`entropic_bpi.return_law`,
    :func:`entropic_bpi.front` and :func:`entropic_bpi.solve_evar`. Rewards of later steps are ignored.

    Parameters
    ----------
    mdp : FiniteMDP
        Its own horizon is ignored; transitions and rewards must be the same at every step.
    discount : float
        γ, strictly between 0 and 1.
    horizon : int, optional
        Number of steps. The default is the smallest one with γ^H at most 1e-9.

    Returns
    -------
    FiniteMDP
        A model with a finite horizon and discounted rewards.

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
