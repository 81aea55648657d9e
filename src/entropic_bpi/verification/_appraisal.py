"""An appraisal: several measures of several policies, checked against the counts of the certificate in it."""

import copy
import math
from types import SimpleNamespace
from typing import Any

from entropic_bpi.verification._claim import Claim
from entropic_bpi.verification._file import Rejected, an_array, one_of
from entropic_bpi.verification._kl import Report, bounds_at
from entropic_bpi.verification._tails import Law
from entropic_bpi.verification.methods._evar import evar_bounds

_UNBOUNDED = ("entropic", "below", "above")  # measures of any number; others have a level between 0 and 1


def check_appraisal(content: SimpleNamespace, claim: Claim, report: Report) -> list[str]:
    """Return what is stated and does not follow from the counts; ``claim`` is that of the certificate."""
    if claim.method != "kl":
        raise Rejected("an appraisal rests on a certificate of the KL method")
    policies = _read_policies(content.policies, claim)
    cells = {(part.policy, part.measure): part.cells for part in content.cells}
    laws: dict[str, Law] = {}
    if len({(row.policy, row.measure) for row in content.table}) < len(content.table):
        raise Rejected("table states a measure of a policy twice")
    problems = []
    for row in content.table:
        name, measure, lower, upper = row.policy, row.measure, row.lower, row.upper
        own = policies[one_of("table.policy", name, tuple(policies))]
        kind, number = _read_measure(measure)
        implied, by_risk = (-math.inf, math.inf), kind in ("mean", "entropic", "evar")
        if by_risk:
            implied = _risk_bounds(own, kind, number, cells.get((name, measure), []), report)
        elif content.step is None:
            raise Rejected(f"step is needed for the measure {measure!r}")
        is_implied = lower <= implied[0] and implied[1] <= upper
        if content.step is not None and (not by_risk or (kind == "mean" and not is_implied)):
            if name not in laws:
                laws[name] = Law(own, content.step, report)
            least, most = laws[name].bounds_of(kind, number)
            implied = max(implied[0], least), min(implied[1], most)
        for word, said, bound, holds in (
            ("least", lower, implied[0], lower <= implied[0]),
            ("most", upper, implied[1], upper >= implied[1]),
        ):
            if not holds:
                stated = f"at {word} {said!r} is stated, but the counts imply only {bound!r}"
                problems.append(f"{measure} of {name}: {stated}")
    return problems


def _read_policies(given: Any, claim: Claim) -> dict[str, Claim]:
    """Return the claim, by name, with each of the policies instead of its own, and no other to choose from."""
    if not isinstance(given, dict) or not given:
        raise Rejected(f"policies must be an object with a policy for each name, got {given!r:.80}")
    shape, found = (claim.horizon, claim.n_states), {}
    for name, actions in given.items():
        own = found[name] = copy.copy(claim)
        own.policy = an_array(f"policies.{name:.80}", actions, shape, 0, claim.n_actions - 1)
        own.check_masks()
        own.alone = True
    return found


def _read_measure(text: str) -> tuple[str, float]:
    kind, *words = text.split() or [""]
    if kind == "mean" and not words:
        return kind, 0.0
    try:
        (number,) = map(float, words)
    except ValueError:
        number = math.nan
    level = 0 < number < 1 or (kind == "cvar" and number == 1)
    if not (level if kind in ("evar", "cvar", "quantile") else kind in _UNBOUNDED and abs(number) <= 1e300):
        raise Rejected(f"{text!r:.80} is not a measure")
    return kind, number


def _risk_bounds(
    own: Claim, kind: str, number: float, cells: list[SimpleNamespace], report: Report
) -> tuple[float, float]:
    """Return bounds of the entropic value, or of the entropic value at risk, of a policy."""
    if own.random_rewards and not (own.lams is not None if kind == "evar" else own.lams is None and number == own.beta):
        raise Rejected(f"random rewards were not learned for the measure {kind} {number:g}")
    if kind != "evar":
        return bounds_at(own, number, None, report)[:2]
    bounds = evar_bounds(own, number, own.checked_cells(cells), report)
    return bounds.lower, bounds.upper
