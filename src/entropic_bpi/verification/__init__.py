r"""Check a certificate again, from its counts alone.

This package is meant to be read by a sceptic. It shares no code with the learner: it reads the file, checks that the
counts can be those of the stated number of episodes, computes the bounds anew, and compares them with the claim. It uses
NumPy, on all states and actions of a step at once, and no compiled code of its own; best read in this order:

- ``_file``, ``_problem``, ``_slots``, ``_claim``: what the file says, and that nothing in it contradicts the rest;
- ``_assumptions``: what the claim rests on, in words;
- ``_balance``: that the counts can be those of so many episodes;
- ``_intervals``: outward rounding;
- ``_ball``, ``_pairs``, ``_kl``: the bounds of the KL method;
- ``_measures``: the entropic value at risk, the law of the return of policies, and an appraisal of several of them;
- ``_explored``: those of explorations, for all rewards at once;
- ``_bernstein``: those of the Bernstein method;
- ``rigorous``: the formulas of the KL method once more, in ball arithmetic.

The tests hold a version in plain Python that computes one number after another. The two agree on every kind of
certificate, and on forged ones.

**Rounding.** Floating point must not decide in favour of a claim. In the KL method every stored number is a bound from one
side, and every operation is rounded to that side, so what comes out is implied by the counts in exact arithmetic. The
recursion of the Bernstein method is not monotone; there every number is an interval that contains the exact one.

**KL method.** With probability :math:`1-\delta` every row of the kernel lies in its ball
:math:`\{q:\mathrm{KL}(\hat p,q)\le x\}`, :math:`x=(\log(P/\delta)+R_{mix})/n`. By weak duality, *every* :math:`w>0` gives a
bound on the largest mean over a ball,

.. math:: \max_{q} q f \;\le\; M - w\Big(\exp\big(\textstyle\sum_i\hat p_i\log(1+d_i/w) - x\big) - 1\Big),\qquad
          M=\max f,\quad d=M-f,

so a good :math:`w` is found with ordinary floats, for many balls together, and the bound is evaluated once, rounded up;
its limit for :math:`w\to0` is :math:`M-\exp(\sum\hat p\log d-x)`. From these bounds, backwards:
:math:`Z^o` bounds the optimum, :math:`Z^p` the stated policy, and :math:`\rho` the ratio of the two.

**Bernstein method.** The recursion of the paper with its machine-checked constants, the printed ones or sharper ones.
"""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from itertools import count
from typing import Any

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.verification._assumptions import check_assumptions
from entropic_bpi.verification._balance import unbalanced
from entropic_bpi.verification._bernstein import bernstein_bounds
from entropic_bpi.verification._claim import Bounds, Claim
from entropic_bpi.verification._explored import explored_bounds, explored_gap
from entropic_bpi.verification._file import APPRAISAL, Rejected, content_of, read
from entropic_bpi.verification._kl import Report
from entropic_bpi.verification._measures import check_appraisal, risk_bounds

__all__ = ["Verification", "verify"]

Progress = Callable[[int, int], object]


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
    proved : bool
        Whether the claim is proved up to the assumptions, with ``rigorous=True``.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=5)
    >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, successors="model", seed=1)
    >>> check = eb.verify(result.certificate)
    >>> check.ok, check.problems
    (True, [])
    """

    ok: bool
    lower: float
    upper: float
    gap: float
    problems: list[str] = field(default_factory=list)
    proved: bool = False

    def _repr_html_(self) -> str:
        verdict = "The counts imply the claim." if self.ok else "NOT verified."
        bounds = f"value of the policy ≥ {self.lower:.6g}, best value ≤ {self.upper:.6g}, gap ≤ {self.gap:.6g}"
        lines = [*self.problems, *([] if math.isnan(self.gap) else [bounds])]
        return f"<p><strong>{verdict}</strong></p><ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"


def _bounds_of(claim: Claim, report: Report) -> Bounds:
    if claim.method != "kl":
        return bernstein_bounds(claim, report)
    if claim.explored is not None:
        return explored_bounds(claim, report)
    if claim.test == "explored":
        bounds = risk_bounds(claim, None, report)
        return bounds._replace(gap=min(bounds.gap, explored_gap(claim)))
    return risk_bounds(claim, claim.test, report)


def _report_to(progress: Progress | None, claim: Claim) -> Report:
    """Return a function that reports each step that is done, and the number of all steps."""
    tests = [claim.test] if claim.cells is None else [cell.test for cell in claim.cells]
    parts = sum(any(leaf.test != "empty" for leaf in leaves) for leaves in claim.leaf_batches)
    total, done = claim.steps * (len(tests) + tests.count("pairs") + parts), count(1)
    return lambda: None if progress is None else progress(next(done), total)


def verify(certificate_or_path: Any, *, rigorous: bool = False, progress: Progress | None = None) -> Verification:
    """Recompute the bounds of a certificate from its counts and compare them with its claim.

    Parameters
    ----------
    certificate_or_path : Certificate, Appraisal, str or path
        A certificate or an appraisal, or the file that it was saved to (``.json``, or compressed ``.json.gz``). Of an
        appraisal, the bounds of the result are those of the certificate in it; all of its table is checked.
    rigorous : bool
        Compute the bounds a second time, by the same formulas in ball arithmetic, and compare them with the claim without
        any tolerance. The bounds of the result are then those that are proved; a claim that goes beyond them, be it by
        rounding, is not ``ok``. Only for ``method="kl"``; needs python-flint (``pip install 'entropic-bpi[rigorous]'``).
    progress : callable, optional
        Called as ``progress(done, total)`` after each step of the recursion.

    Returns
    -------
    Verification
        Whatever is wrong with a file is among its ``problems``; no file makes this function fail.

    Raises
    ------
    InvalidProblemError
        If the argument is neither a certificate nor a path, or if ``rigorous`` is true and python-flint is missing.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> from entropic_bpi.verification import verify
    >>> bridge = eb.instances.risky_bridge(horizon=5)
    >>> result = eb.identify(bridge, beta=-1.0, eps=0.3, delta=0.1, successors="model", seed=1)
    >>> verify(result.certificate).ok
    True
    >>> verify(result.certificate, rigorous=True).proved
    True
    """
    prove = _rigorous_verifier() if rigorous else None
    is_certificate = hasattr(certificate_or_path, "_content")
    if not is_certificate and not isinstance(certificate_or_path, (str, os.PathLike)):
        given = type(certificate_or_path).__name__
        raise InvalidProblemError(f"verify needs a certificate, an appraisal or the path of one, got {given}")
    nothing = (math.nan, math.nan, math.nan)
    try:
        # NaN and infinities fall on the safe side by themselves, so NumPy's warnings are not needed.
        with np.errstate(all="ignore"):
            content, appraisal = content_of(certificate_or_path), None
            if content.get("format") == APPRAISAL:
                if rigorous:
                    raise Rejected(
                        "rigorous is for certificates: the intervals of an appraisal are not proved in this way"
                    )
                appraisal = read("appraisal", "appraisal", content)
                content = appraisal.certificate
            claim = Claim(content)
            if not rigorous:
                content = {}  # the claim has its content in arrays
            check_assumptions(claim)
            problems = unbalanced(claim)
            bounds = _bounds_of(claim, _report_to(progress, claim))
            if appraisal is not None:
                problems += check_appraisal(appraisal, claim, _report_to(progress, claim))
    except Rejected as reason:
        return Verification(False, *nothing, [str(reason)])
    except Exception as error:  # whatever error a hostile file causes, it is not verified
        return Verification(False, *nothing, [f"the bounds cannot be computed: {error!r}"])
    problems += [*bounds.problems, *bounds.not_implied(claim)]
    if prove is not None and not problems:
        proved, problems = prove(content)
        return Verification(not problems, *proved, problems, proved=not problems)
    return Verification(not problems, bounds.lower, bounds.upper, bounds.gap, problems)


def _rigorous_verifier() -> Callable[[dict[str, Any]], tuple[tuple[float, float, float], list[str]]]:
    try:
        from entropic_bpi.verification.rigorous import prove
    except ModuleNotFoundError as error:
        if error.name != "flint":
            raise
        raise InvalidProblemError("rigorous=True needs python-flint: pip install 'entropic-bpi[rigorous]'") from None
    return prove
