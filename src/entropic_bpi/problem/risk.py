"""Risk measures: the entropic risk with parameter β, and the entropic value at risk at level α."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.tools.checks import check_finite, check_probability, check_range
from entropic_bpi.tools.text import shown


@dataclass(frozen=True)
class Entropic:
    """Entropic risk of the return: ``(1/beta) log E[exp(beta * return)]``.

    Parameters
    ----------
    beta : float
        Positive is risk-seeking, negative is risk-averse, 0 is the expectation.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> eb.Entropic(-1.0)
    Entropic(beta=-1.0)
    """

    beta: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "beta", check_finite("beta", self.beta))

    def __str__(self) -> str:
        return f"beta = {self.beta:g}"


@dataclass(frozen=True)
class EVaR:
    """Entropic value at risk (EVaR): a lower bound on the mean of the worst fraction ``alpha`` of the returns (CVaR).

    It is not equal to this mean, and a policy with the largest EVaR need not have the largest CVaR.

    Parameters
    ----------
    alpha : float
        The level, strictly between 0 and 1.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> eb.EVaR(0.05)
    EVaR(alpha=0.05)
    """

    alpha: float
    beta: ClassVar[float] = math.nan  # EVaR has a level instead of a risk parameter

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", check_probability("alpha", self.alpha))

    def __str__(self) -> str:
        return f"EVaR({self.alpha:g})"

    @property
    def cost(self) -> float:
        """log(1/α)."""
        return -math.log(self.alpha)


@dataclass(frozen=True)
class AnyReward:
    """All entropic risks with β in an interval, for all rewards in a range; the risk of :func:`entropic_bpi.explore`.

    Parameters
    ----------
    betas : (float, float)
        Smallest and largest risk parameter.
    rewards : (float, float)
        Smallest and largest reward.

    Examples
    --------
    >>> from entropic_bpi.problem.risk import AnyReward
    >>> AnyReward((-1, 2), (0, 1)).sizes
    (0.0, 2.0)
    """

    betas: tuple[float, float]
    rewards: tuple[float, float]
    beta: ClassVar[float] = math.nan  # there are many risk parameters

    def __post_init__(self) -> None:
        object.__setattr__(self, "betas", check_range("betas", self.betas))
        object.__setattr__(self, "rewards", check_range("reward_range", self.rewards))

    def __str__(self) -> str:
        (low, high), (least, most) = self.betas, self.rewards
        return f"every beta from {low:g} to {high:g}, every reward from {least:g} to {most:g}"

    @property
    def sizes(self) -> tuple[float, float]:
        """Smallest and largest absolute value of a risk parameter."""
        low, high = self.betas
        return (0.0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))


Risk = Entropic | EVaR | AnyReward


def check_risk(beta: Any, risk: Any) -> Risk:
    """Return the risk that is given as ``beta=`` or as ``risk=``; exactly one of them must be given."""
    if (beta is None) == (risk is None):
        raise InvalidProblemError(
            "give either beta=, the risk parameter of the entropic risk, or risk=EVaR(alpha), not "
            + ("both" if risk is not None else "neither")
        )
    if risk is None:
        return Entropic(beta)
    if not isinstance(risk, Risk):
        raise InvalidProblemError(f"risk must be Entropic(beta) or EVaR(alpha), such as EVaR(0.05); got {shown(risk)}")
    return risk
