"""The claim of a certificate in sentences for somebody who has never heard of β. Numbers are rounded to the safe side."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import NamedTuple

from entropic_bpi._text import printable
from entropic_bpi.certificate import Certificate

__all__ = ["Claim", "at_least", "at_most", "claim_of", "name", "probability", "risk_of"]

_DIGITS = 4
_LONGEST_NAME = 60


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


def claim_of(certificate: Certificate) -> Claim:
    """The claim of a certificate in words."""
    surely, eps = f"With probability at least {probability(certificate.delta)}", at_most(certificate.eps)
    if certificate.reached:
        sentence = f"{surely}, the policy below is within {eps} of the best possible one."
    else:
        sentence = (
            f"The goal, a policy within {eps} of the best possible one, was not reached. {surely}, the policy below is "
            f"within {at_most(certificate.gap)}."
        )
    lower, upper = at_least(certificate.lower), at_most(certificate.upper)
    return Claim(
        sentence=sentence,
        meaning=f"What a policy is worth is {risk_of(certificate).value}. All of it is in units of reward.",
        bounds=f"The policy is worth at least {lower}, and no policy is worth more than {upper}: of the best one it misses "
        f"at most {at_most(certificate.gap)}.",
        reached=certificate.reached,
    )


def risk_of(certificate: Certificate) -> Risk:
    """How the certificate judges uncertain returns."""
    beta = certificate.beta
    if beta == 0:
        return Risk("mean return (β = 0)", "the mean of its return")
    sure = "the sure amount that is as good as its uncertain return to somebody who"
    if beta < 0:
        return Risk(f"risk-averse, β = {_signed(beta)}", f"{sure} avoids risk: bad outcomes weigh more than good ones")
    return Risk(f"risk-seeking, β = {_signed(beta)}", f"{sure} seeks risk: good outcomes weigh more than bad ones")


def probability(delta: float) -> str:
    """1 - δ in per cent, never more than it is.

    >>> probability(0.05), probability(1e-7), probability(0.33333)
    ('95 %', '99.99999 %', '66 %')
    """
    return f"{_plain(100 - 100 * _rounded(delta, ROUND_CEILING, 2)):f} %"


def at_least(bound: float) -> str:
    """A lower bound with few digits, rounded down.

    >>> at_least(0.79999), at_least(-1.00001), at_least(0.0)
    ('0.7999', '−1.001', '0')
    """
    return _few_digits(bound, ROUND_FLOOR)


def at_most(bound: float) -> str:
    """An upper bound with few digits, rounded up.

    >>> at_most(0.2), at_most(1.28491), at_most(123456.0)
    ('0.2', '1.285', '123500')
    """
    return _few_digits(bound, ROUND_CEILING)


def name(text: str) -> str:
    """A name from somebody else's file: nothing in it acts on the page, and it is not too long."""
    text = printable(text)
    return text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 1] + "…"


def _few_digits(bound: float, rounding: str) -> str:
    if not math.isfinite(bound):
        return "anything"
    rounded = _rounded(bound, rounding, _DIGITS)
    small = rounded.adjusted() < -6 or rounded.adjusted() > 9
    return _signed(f"{rounded:e}" if small and rounded else f"{rounded:f}")


def _rounded(number: float, rounding: str, digits: int) -> Decimal:
    exact = Decimal(repr(float(number)))
    if not exact:
        return Decimal(0)
    rounded = exact.quantize(Decimal(1).scaleb(exact.adjusted() - digits + 1), rounding=rounding)
    return _plain(rounded)


def _plain(number: Decimal) -> Decimal:
    """Without zeros at the end."""
    return Decimal(int(number)) if number == number.to_integral() else number.normalize()


def _signed(number: float | str) -> str:
    text = number if isinstance(number, str) else f"{number:g}"
    return text.replace("-", "−")
