"""Reports: a certificate as one HTML page, for readers who do not know the library.

The page contains the claim with its probability, the assumptions, the policy, an estimate of the return, what limits the
gap, and how to check the claim. The result of :func:`~entropic_bpi.verify` when the page was made is at its top. The page
loads nothing from elsewhere; charts are embedded as SVG images. A content security policy allows only the page's own script
to run, whatever the names in a certificate contain.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from entropic_bpi.certificate.certificate import Certificate
from entropic_bpi.tools.checks import check_path
from entropic_bpi.tools.files import write_text_atomically
from entropic_bpi.verification import Verification

__all__ = ["statement", "summary_html", "write"]


def write(source: Any, path: str | Path) -> Verification:
    """Write a report as one HTML file.

    Parameters
    ----------
    source : Identification, Exploration, Certificate, Appraisal or path
        The result of a run; a certificate, or its file; or the folder that ``identify --out`` wrote. A certificate alone
        contains neither the history of the gap nor the seed.
    path : path
        The file to write.

    Returns
    -------
    Verification
        The result of the check when the report was made. If it is not ``ok``, the page says so at its top, in red. An
        appraisal of a known model has no data to check; its result is ``ok``.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=5)
    >>> result = eb.identify(bridge, beta=-1.0, eps=0.3, delta=0.1, successors="model", seed=1)
    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checked = eb.report.write(result, f"{folder}/report.html")
    ...     page = pathlib.Path(folder, "report.html").read_text(encoding="utf-8")
    >>> checked.ok, "the policy is at most 0.3 worse than the best policy." in page
    (True, True)
    """
    from entropic_bpi.show.report._page import inputs_of, page_of

    target = check_path("path", path)
    inputs = inputs_of(source)
    write_text_atomically(target, page_of(inputs))
    return inputs.verification


def statement(certificate: Certificate) -> str:
    """Return the claim of a certificate as a sentence.

    Parameters
    ----------
    certificate : Certificate
        The claim.

    Returns
    -------
    str
        The probability, and the bounds on the values.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=5)
    >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, successors="model", seed=1)
    >>> eb.report.statement(result.certificate) == result.certificate.statement
    True
    """
    from entropic_bpi.show.words import ascii_minus, claim_of, probability

    return ascii_minus(f"With probability at least {probability(certificate.delta)}: {claim_of(certificate).bounds}")


def summary_html(thing: Any) -> str:
    """Return the HTML that a notebook shows for an object of this library.

    Parameters
    ----------
    thing : object
        A certificate, the result of a run or an appraisal is shown by its claim, any other object by its text.

    Returns
    -------
    str
        HTML.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> "8 states" in eb.report.summary_html(eb.instances.risky_bridge(horizon=7))
    True
    """
    from entropic_bpi.show.report._summary import summary_of

    return summary_of(thing)
