"""An appraisal: several measures of several policies, checked against the counts of the certificate in it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

from entropic_bpi.verification._claim import Claim
from entropic_bpi.verification._file import Rejected, a_list, a_number, a_string, an_object, integers, one_of
from entropic_bpi.verification._kl import bounds_at
from entropic_bpi.verification._tails import Law
from entropic_bpi.verification.methods._evar import evar_bounds

_NUMBERED = ("entropic", "evar", "cvar", "quantile", "below", "above")

Report = Callable[[], None]


def check_appraisal(content: dict[str, Any], claim: Claim, report: Report) -> list[str]:
    """Return what is stated and does not follow from the counts; ``claim`` is that of the certificate."""
    if claim.method != "kl":
        raise Rejected("an appraisal rests on a certificate of the KL method")
    policies = _read_policies(content["policies"], claim)
    step = content["step"]
    if step is not None and not a_number("step", step) > 0:
        raise Rejected(f"step must be positive, got {step}")
    cells = {}
    for given in a_list("cells", content["cells"]):
        part = an_object("cells", given)
        cells[a_string("cells.policy", part["policy"]), a_string("cells.measure", part["measure"])] = part["cells"]
    laws: dict[str, Law] = {}
    stated: set[tuple[str, str]] = set()
    problems = []
    for given in a_list("table", content["table"]):
        row = an_object("table", given)
        name, measure = one_of("table.policy", row["policy"], tuple(policies)), a_string("measure", row["measure"])
        if (name, measure) in stated:
            raise Rejected(f"table states the measure {measure!r} of policy {name!r} twice")
        stated.add((name, measure))
        lower, upper = a_number("table.lower", row["lower"]), a_number("table.upper", row["upper"])
        kind, number = _read_measure(measure)
        implied = (-math.inf, math.inf)
        if kind in ("mean", "entropic", "evar"):
            implied = _risk_bounds(policies[name], kind, number, cells.get((name, measure)), report)
        elif step is None:
            raise Rejected(f"step is needed for the measure {measure!r}")
        if kind in ("cvar", "quantile", "below", "above") or (
            kind == "mean" and step is not None and not (lower <= implied[0] and implied[1] <= upper)
        ):
            if name not in laws:
                laws[name] = Law(policies[name], float(step), report)
            least, most = laws[name].bounds_of(kind, number)
            implied = max(implied[0], least), min(implied[1], most)
        if not lower <= implied[0]:
            problems.append(
                f"{measure} of {name}: at least {lower!r} is stated, but the counts imply only {implied[0]!r}"
            )
        if not upper >= implied[1]:
            problems.append(
                f"{measure} of {name}: at most {upper!r} is stated, but the counts imply only {implied[1]!r}"
            )
    return problems


def _read_policies(given: Any, claim: Claim) -> dict[str, Claim]:
    """The claim, by name, with each of the policies instead of its own, and no other to choose from."""
    if not isinstance(given, dict) or not given:
        raise Rejected(f"policies must be an object with a policy for each name, got {given!r:.80}")
    shape, found = (claim.horizon, claim.n_states), {}
    for name, actions in given.items():
        own = copy.copy(claim)
        own.policy = integers(f"policies.{name:.80}", actions, shape, 0, claim.n_actions - 1)
        own.check_masks()
        own.alone, own.alpha, own.cells = True, None, None
        found[name] = own
    return found


def _read_measure(text: str) -> tuple[str, float]:
    words = text.split()
    if words == ["mean"]:
        return "mean", 0.0
    if len(words) != 2 or words[0] not in _NUMBERED:
        raise Rejected(f"{text!r:.80} is not a measure")
    try:
        number = float(words[1])
    except ValueError:
        number = math.nan
    level = 0 < number < 1 or (words[0] == "cvar" and number == 1)
    if not (level if words[0] in ("evar", "cvar", "quantile") else abs(number) <= 1e300):
        raise Rejected(f"{text!r:.80} is not a measure")
    return words[0], number


def _risk_bounds(own: Claim, kind: str, number: float, cells: Any, report: Report) -> tuple[float, float]:
    """Bounds of the entropic value, or of the entropic value at risk, of a policy."""
    if own.random_rewards and not (own.lams is not None if kind == "evar" else own.lams is None and number == own.beta):
        raise Rejected(f"random rewards were not learned for the measure {kind} {number:g}")
    if kind != "evar":
        return bounds_at(own, number, None, report)[:2]
    own = copy.copy(own)
    own.alpha = number
    own.cells = own.read_cells(a_list("cells.cells", cells))
    bounds = evar_bounds(own, report)
    return bounds.lower, bounds.upper
