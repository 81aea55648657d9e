"""Measures of a return: how they are written, and what is better."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.return_law import ReturnLaw, check_level
from entropic_bpi.problem.risk import Entropic, EVaR, Risk
from entropic_bpi.tools.checks import check_finite, check_probability
from entropic_bpi.tools.text import shown

MEASURES = ("mean", "cvar 0.05", "quantile 0.05", "entropic -1", "evar 0.05", "below 0")
_CHECKS: dict[str, Callable[[float], float]] = {
    "cvar": check_level,
    "quantile": lambda level: check_probability("the level of a quantile", level),
    "entropic": lambda beta: Entropic(beta).beta,
    "evar": lambda level: EVaR(level).alpha,
    "below": lambda x: check_finite("below", x),
    "above": lambda x: check_finite("above", x),
}


class Measure(NamedTuple):
    """A measure of the return.

    Attributes
    ----------
    text : str
        The measure as it was given, such as ``"cvar 0.05"``.
    kind : str
        ``mean``, ``cvar``, ``quantile``, ``entropic``, ``evar``, ``below`` or ``above``.
    number : float
        Its level, risk parameter or threshold.
    """

    text: str
    kind: str
    number: float

    @property
    def risk(self) -> Risk | None:
        """The risk whose value this measure is; None if the measure is computed from the law of the return."""
        if self.kind == "evar":
            return EVaR(self.number)
        return Entropic(self.number) if self.kind in ("mean", "entropic") else None

    @property
    def is_probability(self) -> bool:
        return self.kind in ("below", "above")

    @property
    def sign(self) -> int:
        """1 if larger is better, -1 if smaller is better."""
        return -1 if self.kind == "below" else 1

    def of(self, law: ReturnLaw) -> float:
        """Return the exact value of the measure under a law."""
        number = self.number
        if self.is_probability:
            room = 1e-12 * float(abs(law.support).max())  # returns that differ by rounding count as equal
            inside = law.support <= number + room if self.kind == "below" else law.support >= number - room
            return float(law.probabilities[inside].sum())
        if self.kind in ("mean", "entropic"):
            return law.entropic_risk(number)
        return {"cvar": law.cvar, "quantile": law.quantile, "evar": law.evar}[self.kind](number)


def read_measures(given: Iterable[str] | str) -> list[Measure]:
    """Return measures from their texts, or raise an error."""
    texts = [given] if isinstance(given, str) else list(given)
    if not texts or len(set(texts)) < len(texts):
        raise InvalidProblemError(f"measures must be one or more different texts, got {shown(texts)}")
    return [_read(text) for text in texts]


def _read(text: str) -> Measure:
    words = text.split() if isinstance(text, str) else []
    if words == ["mean"]:
        return Measure(text, "mean", 0.0)
    if len(words) == 2 and words[0] in _CHECKS:
        try:
            return Measure(text, words[0], _CHECKS[words[0]](float(words[1])))
        except ValueError as error:  # of the number, or of its check
            raise InvalidProblemError(f"measure {shown(text)}: {error}") from None
    known = "'mean', 'cvar 0.05', 'quantile 0.05', 'entropic -1', 'evar 0.05', 'below 0' or 'above 0'"
    raise InvalidProblemError(f"a measure is {known}; got {shown(text)}")
