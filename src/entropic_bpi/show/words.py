"""Claims and numbers in words: one set of sentences and one rounding for the command line, reports and notebooks.

Bounds are rounded to three significant digits and to the safe side. Before that, they are rounded to a billionth of the
largest return, which removes rounding errors of floating-point numbers.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from typing import TYPE_CHECKING, NamedTuple

from entropic_bpi.problem.risk import AnyReward, EVaR
from entropic_bpi.tools.text import printable

if TYPE_CHECKING:  # commands that need no arrays import this module too
    from entropic_bpi.certificate.certificate import Certificate

_DIGITS = 3
_DUST_DIGITS = 9
_LONGEST_NAME = 60
_CURRENCIES = "€$£¥"
_MOST_NINES = Decimal("1e-12")  # below it there are too many nines to read, and Decimal rounds them to 100 in the end


class Claim(NamedTuple):
    """A claim: its sentence, the meaning of a value, the bounds on the values, and whether the target is reached."""

    sentence: str
    meaning: str
    bounds: str
    reached: bool


class Risk(NamedTuple):
    """A risk measure: its short name, and the definition of the value of a policy in words."""

    name: str
    value: str


class Rounding:
    """Round bounds of a problem whose returns have an absolute value of at most ``largest``."""

    def __init__(self, largest: float = 0.0) -> None:
        self.dust = Decimal(1).scaleb(Decimal(repr(largest)).adjusted() - _DUST_DIGITS) if largest > 0 else None

    @classmethod
    def of(cls, certificate: Certificate, times: float = 1.0) -> Rounding:
        """Return the rounding for a certificate; ``times`` coarsens that of the rounding errors."""
        problem = certificate.problem
        return cls(times * max(problem.return_spread, *(problem.duration * abs(r) for r in problem.possible_rewards)))

    def at_least(self, bound: float, digits: int = _DIGITS) -> str:
        """Return a lower bound with few digits, rounded down.

        >>> to = Rounding(10.0)
        >>> to.at_least(0.79999), to.at_least(-1.00001), to.at_least(-8e-13), to.at_least(float("nan"))
        ('0.799', '−1.01', '0', '−infinity')
        """
        return self._few_digits(bound, ROUND_FLOOR, digits) if math.isfinite(bound) else "−infinity"

    def at_most(self, bound: float, digits: int = _DIGITS) -> str:
        """Return an upper bound with few digits, rounded up.

        >>> to = Rounding(10.0)
        >>> to.at_most(0.2), to.at_most(1.28491), to.at_most(2.00000000001), to.at_most(29941), to.at_most(1e300)
        ('0.2', '1.29', '2', '30,000', '1e+300')
        """
        return self._few_digits(bound, ROUND_CEILING, digits) if math.isfinite(bound) else "infinity"

    def _few_digits(self, bound: float, rounding: str, digits: int) -> str:
        exact = Decimal(repr(float(bound)))
        if self.dust is not None and abs(exact) < self.dust * 10**20:  # Decimal has 28 digits
            exact = exact.quantize(self.dust)
        rounded = _rounded(exact, rounding, digits)
        plain = not rounded or -6 <= rounded.adjusted() <= 9
        return signed(f"{rounded:,f}" if plain else f"{rounded.normalize():e}")


def number(value: float, digits: int = _DIGITS) -> str:
    """Return a number with few significant digits and thousands separators, rounded to the nearest.

    >>> number(0.12345), number(-12345.6), number(2.0), number(float("inf")), number(3.0430561, digits=6)
    ('0.123', '-12,300', '2', 'inf', '3.04306')
    """
    return ascii_minus(Rounding()._few_digits(value, ROUND_HALF_EVEN, digits)) if math.isfinite(value) else f"{value:g}"


def claim_of(certificate: Certificate) -> Claim:
    """Return the claim of a certificate in words."""
    to, risk = Rounding.of(certificate), certificate.problem.risk
    reached, unit = certificate.reached, unit_of(certificate)
    bounds = to.at_least(certificate.lower), to.at_most(certificate.upper), to.at_most(certificate.gap)
    lower, upper, gap, eps = (with_unit(text, unit) for text in (*bounds, to.at_most(certificate.eps, 6)))
    surely, value = f"With probability at least {probability(certificate.delta)}", risk_of(certificate).value
    worse = f"is at most {eps if reached else gap} worse than the best policy."
    if isinstance(risk, AnyReward):
        promise = f"or every reward {value}, the policy that is best by the estimates"
        sentence, target = f"{surely}, f{promise} {worse}", f"a promise of {eps} for every reward"
        claimed, value = f"F{promise} is at most {gap} worse than the best policy.", "the entropic risk of its return"
    else:
        sentence, target = f"{surely}, the policy {worse}", f"a policy at most {eps} worse than the best one"
        what = "an EVaR" if isinstance(risk, EVaR) else "a value"
        claimed = (
            f"The policy has {what} of at least {lower}, and no policy has {what} above {upper}. This policy is at most "
            f"{gap} worse than the best one."
        )
    if isinstance(risk, EVaR):
        claimed += (
            f" In at most {100 * risk.alpha:g} % of its episodes, the return is below {lower}. Its CVaR is at least as "
            "high; another policy may have a better CVaR."
        )
    if not reached:
        sentence = f"The target, {target}, is not reached. {sentence}"
    meaning = f"The value of a policy is {value}. Values have the unit of the rewards."
    discount = certificate.problem.discount
    if discount is not None:
        meaning += f" The return is an infinite sum: every step multiplies the weight of rewards by {discount!r}."
    return Claim(sentence, meaning, claimed, reached)


def risk_of(certificate: Certificate) -> Risk:
    """Return the risk measure of a certificate in words."""
    risk = certificate.problem.risk
    if isinstance(risk, AnyReward):
        rewards, betas = (f"from {few(low, 6)} to {few(high, 6)}" for low, high in (risk.rewards, risk.betas))
        return Risk(f"every reward {rewards}, every β {betas}", f"{rewards} and every β {betas}")
    if isinstance(risk, EVaR):
        return Risk(
            f"entropic value at risk, α = {risk.alpha:g}",
            f"its entropic value at risk (EVaR): a lower bound on the mean return of the worst {100 * risk.alpha:g} % of "
            "its episodes (CVaR). It is not that mean, and a policy with the best EVaR need not have the best CVaR",
        )
    if risk.beta == 0:
        return Risk("mean return (β = 0)", "the mean of its return")
    attitude, words = "risk-averse", "avoids risk: bad outcomes weigh more than good ones"
    if risk.beta > 0:
        attitude, words = "risk-seeking", "seeks risk: good outcomes weigh more than bad ones"
    sure = "the certain amount that is as good as its uncertain return to somebody who"
    return Risk(f"{attitude}, β = {few(risk.beta, 6)}", f"{sure} {words}")


def unit_of(certificate: Certificate) -> str | None:
    """Return the declared unit of the rewards."""
    unit = getattr(certificate.problem, "unit", None)
    return None if unit is None else name(unit)


def with_unit(text: str, unit: str | None) -> str:
    """Return a number with its unit.

    >>> with_unit("−1,240", "€"), with_unit("12", "points"), with_unit("12", None)
    ('−€1,240', '12 points', '12')
    """
    if unit is None or text.endswith("infinity"):
        return text
    if unit in _CURRENCIES:
        return f"−{unit}{text[1:]}" if text.startswith("−") else f"{unit}{text}"
    return f"{text} {unit}"


def probability(delta: float) -> str:
    """Return 1 - δ in per cent, rounded down.

    >>> probability(0.05), probability(1e-7), probability(0.33333), probability(1e-30)
    ('95 %', '99.99999 %', '66 %', '1 − 1e−30')
    """
    failing = _rounded(Decimal(repr(delta)), ROUND_CEILING, 2)
    if failing < _MOST_NINES:
        return f"1 − {signed(f'{failing.normalize():e}')}"
    return f"{_plain(100 - 100 * failing):f} %"


def name(text: object, longest: int = _LONGEST_NAME) -> str:
    """Return a name from a file as printable text of limited length."""
    shown = printable(str(text))
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def few(value: float, digits: int = _DIGITS) -> str:
    """Return a number with few digits and a typographic minus sign, for pages."""
    return signed(number(float(value), digits))


def signed(value: float | str) -> str:
    """Return a number with a typographic minus sign, for pages."""
    return (value if isinstance(value, str) else f"{value:g}").replace("-", "−")


def ascii_minus(text: str) -> str:
    """Return a text for terminals, whose encoding may lack the typographic minus sign."""
    return text.replace("−", "-")


def _rounded(exact: Decimal, rounding: str, digits: int) -> Decimal:
    if not exact:
        return Decimal(0)
    return _plain(exact.quantize(Decimal(1).scaleb(exact.adjusted() - digits + 1), rounding=rounding))


def _plain(value: Decimal) -> Decimal:
    """Return a decimal number without trailing zeros."""
    return Decimal(int(value)) if value == value.to_integral() else value.normalize()
