"""The verifier one number after another, in plain Python: what the vectorised one must agree with.

It reads files and derives the assumptions with the code under test; everything else is its own. Formulas and their reasons
are in the docstrings; :mod:`entropic_bpi.verification` says how it goes together.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from typing import Any

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.verification._assumptions import check_assumptions
from entropic_bpi.verification._file import Rejected, content_of
from reference.verifier._balance import unbalanced
from reference.verifier._bernstein import bernstein_bounds
from reference.verifier._claim import Bounds, Claim
from reference.verifier._evar import evar_bounds
from reference.verifier._kl import kl_bounds

__all__ = ["Verification", "verify"]


@dataclass(frozen=True)
class Verification:
    """What the counts of a certificate imply.

    Attributes
    ----------
    ok : bool
        Whether the file is sound and its counts imply the claim.
    lower, upper, gap : float
        The bounds that the counts imply for the stated policy, NaN where they could not be derived: with probability at
        least 1 - δ, lower ≤ V^π, V* ≤ upper and V* - V^π ≤ gap.
    problems : list of str
        What is wrong; empty if ``ok``.
    """

    ok: bool
    lower: float
    upper: float
    gap: float
    problems: list[str] = field(default_factory=list)


def _bounds_of(claim: Claim) -> Bounds:
    if claim.method != "kl":
        return bernstein_bounds(claim)
    return kl_bounds(claim) if claim.alpha is None else evar_bounds(claim)


def verify(certificate_or_path: Any) -> Verification:
    """Recompute the bounds of a certificate from its counts and compare them with its claim."""
    is_certificate = hasattr(certificate_or_path, "_content")
    if not is_certificate and not isinstance(certificate_or_path, (str, os.PathLike)):
        given = type(certificate_or_path).__name__
        raise InvalidProblemError(f"verify needs a certificate or the path of one, got {given}")
    nothing = (math.nan, math.nan, math.nan)
    try:
        claim = Claim(content_of(certificate_or_path))
        check_assumptions(claim)
        problems = unbalanced(claim)
        bounds = _bounds_of(claim)
    except Rejected as reason:
        return Verification(False, *nothing, [str(reason)])
    except Exception as error:  # whatever a hostile file provokes, it is not verified
        return Verification(False, *nothing, [f"the bounds cannot be computed: {error!r}"])
    problems += [*bounds.problems, *bounds.not_implied(claim)]
    return Verification(not problems, bounds.lower, bounds.upper, bounds.gap, problems)
