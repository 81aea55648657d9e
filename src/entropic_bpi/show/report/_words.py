"""The claim of a certificate in sentences for somebody who has never heard of β.

Bounds are rounded to few digits and to the safe side, after what floating point left of exact numbers was taken away: less
than a billionth of the largest return.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import NamedTuple

from entropic_bpi.certificate.certificate import Certificate
from entropic_bpi.problem.risk import EVaR
from entropic_bpi.tools.text import printable

__all__ = ["Claim", "Risk", "Rounding", "claim_of", "name", "probability", "risk_of", "signed"]

_DIGITS = 4
_DUST_DIGITS = 9
_LONGEST_NAME = 60
_MOST_NINES = Decimal("1e-12")  # below it there are too many nines to read, and Decimal rounds them to 100 in the end


class Claim(NamedTuple):
    """What is claimed: in one sentence, what the words in it mean, and the two bounds."""

    sentence: str
    meaning: str
    bounds: str
    reached: bool


class Risk(NamedTuple):
    """How uncertain returns are judged: a short name, and the value of a policy in words."""

    name: str
    value: str


class Rounding:
    """Rounds bounds about a problem whose returns are of the size ``largest``."""

    def __init__(self, largest: float) -> None:
        self.dust = Decimal(1).scaleb(Decimal(repr(largest)).adjusted() - _DUST_DIGITS) if largest > 0 else None

    @classmethod
    def of(cls, certificate: Certificate) -> Rounding:
        problem = certificate.problem
        return cls(max(problem.return_spread, *(problem.duration * abs(side) for side in problem.possible_rewards)))

    def at_least(self, bound: float) -> str:
        """A lower bound with few digits, rounded down.

        >>> to = Rounding(10.0)
        >>> to.at_least(0.79999), to.at_least(-1.00001), to.at_least(-8e-13)
        ('0.7999', '−1.001', '0')
        """
        return self._few_digits(bound, ROUND_FLOOR)

    def at_most(self, bound: float) -> str:
        """An upper bound with few digits, rounded up.

        >>> to = Rounding(10.0)
        >>> to.at_most(0.2), to.at_most(1.28491), to.at_most(2.00000000001), to.at_most(1e300)
        ('0.2', '1.285', '2', '1e+300')
        """
        return self._few_digits(bound, ROUND_CEILING)

    def _few_digits(self, bound: float, rounding: str) -> str:
        if not math.isfinite(bound):
            return "anything"
        exact = Decimal(repr(float(bound)))
        if self.dust is not None and abs(exact) < self.dust * 10**20:  # Decimal has 28 digits
            exact = exact.quantize(self.dust)
        rounded = _rounded(exact, rounding, _DIGITS)
        plain = not rounded or -6 <= rounded.adjusted() <= 9
        return signed(f"{rounded:f}" if plain else f"{rounded.normalize():e}")


def claim_of(certificate: Certificate) -> Claim:
    """The claim of a certificate in words."""
    to = Rounding.of(certificate)
    surely, eps, gap = probability(certificate.delta), to.at_most(certificate.eps), to.at_most(certificate.gap)
    if certificate.reached:
        sentence = f"With probability at least {surely}, the policy below is within {eps} of the best possible one."
    else:
        sentence = (
            f"The goal, a policy within {eps} of the best possible one, was not reached. With probability at least "
            f"{surely}, the policy below is within {gap}."
        )
    lower, upper = to.at_least(certificate.lower), to.at_most(certificate.upper)
    bounds = (
        f"The policy is worth at least {lower}, and no policy is worth more than {upper}: it is at most {gap} worse than "
        "the best policy."
    )
    risk = certificate.problem.risk
    if isinstance(risk, EVaR):
        bounds += f" Its return falls below {lower} in at most {100 * risk.alpha:g} % of its episodes."
    meaning = f"What a policy is worth is {risk_of(certificate).value}. All of it is in units of reward."
    discount = certificate.problem.discount
    if discount is not None:
        meaning += f" The return never ends, and a reward counts {discount!r} times as much with every step."
    return Claim(sentence, meaning, bounds, certificate.reached)


def risk_of(certificate: Certificate) -> Risk:
    """How the certificate judges uncertain returns."""
    beta, alpha = certificate.beta, certificate.alpha
    if alpha is not None:
        return Risk(
            f"entropic value at risk, α = {alpha:g}",
            f"its entropic value at risk (EVaR): a lower bound on the mean return of the worst {100 * alpha:g} % of its "
            "episodes (CVaR). It is not that mean, and a policy with the best EVaR need not have the best CVaR",
        )
    if beta == 0:
        return Risk("mean return (β = 0)", "the mean of its return")
    sure = "the sure amount that is as good as its uncertain return to somebody who"
    if beta < 0:
        return Risk(f"risk-averse, β = {signed(beta)}", f"{sure} avoids risk: bad outcomes weigh more than good ones")
    return Risk(f"risk-seeking, β = {signed(beta)}", f"{sure} seeks risk: good outcomes weigh more than bad ones")


def probability(delta: float) -> str:
    """1 - δ in per cent, never more than it is.

    >>> probability(0.05), probability(1e-7), probability(0.33333), probability(1e-30)
    ('95 %', '99.99999 %', '66 %', '1 − 1e−30')
    """
    failing = _rounded(Decimal(repr(delta)), ROUND_CEILING, 2)
    if failing < _MOST_NINES:
        return f"1 − {signed(f'{failing.normalize():e}')}"
    return f"{_plain(100 - 100 * failing):f} %"


def name(text: str) -> str:
    """A name from somebody else's file: nothing in it acts on the page, and it is not too long."""
    text = printable(text)
    return text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 1] + "…"


def signed(number: float | str) -> str:
    """A number with a minus sign that reads as one."""
    text = number if isinstance(number, str) else f"{number:g}"
    return text.replace("-", "−")


def _rounded(exact: Decimal, rounding: str, digits: int) -> Decimal:
    if not exact:
        return Decimal(0)
    return _plain(exact.quantize(Decimal(1).scaleb(exact.adjusted() - digits + 1), rounding=rounding))


def _plain(number: Decimal) -> Decimal:
    """Without zeros at the end."""
    return Decimal(int(number)) if number == number.to_integral() else number.normalize()
