"""The file of a certificate: how its parts are written as JSON and read again, from files of this and earlier versions.

The content of a file is used only after the verifier's reader has checked that its parts fit together, so compiled code gets
valid arrays only. Whether the counts imply the claim is checked by :func:`entropic_bpi.verify`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from entropic_bpi._version import __version__
from entropic_bpi.certificate.codec import decode, decode_fields, encode
from entropic_bpi.errors import CertificateError, EntropicBPIError
from entropic_bpi.problem.known_rewards import KnownRewards
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.risk import AnyReward, Entropic, EVaR, Risk
from entropic_bpi.types import RATIO, Transitions
from entropic_bpi.verification._claim import Claim
from entropic_bpi.verification._file import Rejected, content_of

if TYPE_CHECKING:
    from entropic_bpi.certificate.certificate import Certificate

_FORMAT = "entropic-bpi certificate"
_VERSION = 4
# Fields with the same name in the file; those of its claim; and those of both that follow from the rest.
_PLAIN = ("method", "constants", "provenance", "assumptions", "policy")
_CLAIM = ("lower", "upper", "gap", "reached", "test", "cells", "cuts")
_IMPLIED = ("assumptions", "reached")
# The range of rewards follows from the slots; the risk is written as beta and alpha.
_OF_THE_PROBLEM = {
    field.name: field.name for field in fields(Problem) if field.name not in ("risk", "reward_range", "source_hash")
} | {"source_hash": "source"}


# -- writing -----------------------------------------------------------------------------------------------------


def write_content(certificate: Certificate) -> dict[str, Any]:
    """Return the content of a certificate's file, without the digest."""
    problem, risk = certificate.problem, certificate.problem.risk
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "library": __version__,
        "problem": {
            **{key: encode(getattr(problem, name)) for name, key in _OF_THE_PROBLEM.items()},
            "reward": None if problem.reward is None else True,  # its values are those of the slots
            "beta": None if math.isnan(problem.beta) else problem.beta,
            "alpha": certificate.alpha,
            "explored": {name: [*ends] for name, ends in vars(risk).items()} if isinstance(risk, AnyReward) else None,
        },
        **{name: encode(getattr(certificate, name)) for name in _PLAIN},
        "counts": {"episodes": certificate.episodes, **encode(certificate.transitions)},
        "claim": {name: encode(getattr(certificate, name)) for name in _CLAIM},
    }


def digest(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the content, written as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


# -- reading -----------------------------------------------------------------------------------------------------


@contextmanager
def refusals(path: str | Path) -> Iterator[None]:
    """Turn the errors that a file of unknown origin causes into one that names the file."""
    try:
        with np.errstate(all="ignore"):
            yield
    except (Rejected, EntropicBPIError) as reason:
        where = "" if str(path) in str(reason) else f"{path}: "
        raise CertificateError(f"{where}{reason}") from None
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise CertificateError(f"{path} has parts that do not fit together: {error!r}") from None


def read_content(source: Any) -> dict[str, Any]:
    """Return the checked content of a certificate's file, or of a parsed file, in the form of this version."""
    content = content_of(source)
    if content["format"] != _FORMAT:
        raise CertificateError("this is not a certificate, but an appraisal")
    if content["method"] in ("kl", "bernstein"):
        Claim(content)
    else:  # a registered method: its constants and its test are its own, the rest is checked as for method="kl"
        test = RATIO if content["problem"]["beta"] is not None else None
        Claim({**content, "method": "kl", "constants": None, "claim": {**content["claim"], "test": test}})
    return content


def parts_of(kind: type[Certificate], content: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the certificate with this content."""
    counts, claim = dict(content["counts"]), content["claim"]
    stated = {"episodes": counts.pop("episodes"), **{name: content[name] for name in _PLAIN}, **claim}
    parts = decode_fields(kind, {name: value for name, value in stated.items() if name not in _IMPLIED})
    return {**parts, "problem": _read_problem(content["problem"]), "transitions": decode(Transitions, counts)}


def _read_problem(given: dict[str, Any]) -> Problem:
    values = decode_fields(Problem, {name: given[key] for name, key in _OF_THE_PROBLEM.items() if name != "reward"})
    slots = values["slots"]
    low, high = (np.reshape(ends, (-1, len(slots.successor))) for ends in (slots.low, slots.high))
    problem = Problem(**{**values, "slots": slots._replace(low=low, high=high)}, risk=_read_risk(given))
    if given["reward"]:
        head = 2 + int(slots.used[-1])
        problem = replace(problem, reward=KnownRewards(None, low[0, head:], high[0, head:]))
    return replace(problem, reward_range=(low[0, 0], high[0, 0])) if problem.black_box_rewards else problem


def _read_risk(given: dict[str, Any]) -> Risk:
    if given["explored"] is not None:
        return AnyReward(**given["explored"])
    return Entropic(given["beta"]) if given["alpha"] is None else EVaR(given["alpha"])
