"""The file of a certificate: how its parts are written as JSON, and read from files of this and earlier versions."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from entropic_bpi._version import __version__
from entropic_bpi.certificate import codec
from entropic_bpi.certificate.codec import Reader, encode, require
from entropic_bpi.certificate.provenance import Provenance
from entropic_bpi.errors import CertificateError
from entropic_bpi.problem.declarations import FIXED, REWARD_LAWS
from entropic_bpi.problem.known_rewards import KnownRewards
from entropic_bpi.problem.masks import Masks
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.risk import AnyReward, Entropic, EVaR, Risk
from entropic_bpi.problem.rows import Slots
from entropic_bpi.sources.assumption_tests import REJECTED_FROM
from entropic_bpi.tools.checks import check_positive, check_probability
from entropic_bpi.types import BOXES, PAIRS, RATIO, Cell, Transitions

if TYPE_CHECKING:
    from entropic_bpi.certificate.certificate import Certificate

_FORMAT = "entropic-bpi certificate"
_VERSION = 4
# What earlier files of these versions say in other words.
_REWORDED = {
    "the start is random; its distribution is learned as an artificial first step": (
        "the distribution of the first state is estimated from the episodes"
    ),
    "except that an ending may have 8 different ones and a step back to the same state 2": (
        "except for up to 8 different rewards at the end of an episode and up to 2 when the state does not change"
    ),
    ", and did not reject it: each test rejects what is true with probability at most 0.01, from 4.61 on": (
        ": no sign of a violation; each test has a false-alarm rate of at most 1 % (alarm at 4.61)"
    ),
    " and that transitions do not depend": ", that transitions do not depend",
}
# Declarations that earlier files of these versions do not have.
_ADDED = ("noise", "allowed", "reward", "state_labels", "action_labels", "unit", "title")
# What has the same name in the file, what is in its claim, and what of that follows from the rest.
_PLAIN = ("method", "constants", "provenance", "assumptions", "policy")
_CLAIM = ("lower", "upper", "gap", "reached", "test", "cells", "cuts")
_IMPLIED = ("assumptions", "reached")
_EXPLORED = ("betas", "rewards")
_METHODS: dict[
    str, tuple[tuple[str | None, ...], tuple[str | None, ...]]
] = {  # the constants, and the tests of the gap
    "kl": ((None,), (RATIO, PAIRS, BOXES, "explored")),
    "bernstein": (("verified", "sharp", "printed"), (None,)),
}
# The range of rewards follows from the slots; the risk is written as beta and alpha.
_OF_THE_PROBLEM = {
    field.name: field.name for field in fields(Problem) if field.name not in ("risk", "reward_range", "source_hash")
} | {"source_hash": "source"}


# -- writing -----------------------------------------------------------------------------------------------------


def content_of(certificate: Certificate) -> dict[str, Any]:
    """Return all that the file of a certificate has, except for the digest."""
    problem, cells, risk = certificate.problem, certificate.cells, certificate.problem.risk
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "library": __version__,
        "problem": {
            **{key: encode(getattr(problem, name)) for name, key in _OF_THE_PROBLEM.items()},
            "reward": None if problem.reward is None else True,  # its values are those of the slots
            "beta": None if math.isnan(problem.beta) else problem.beta,
            "alpha": certificate.alpha,
            "explored": {name: [*getattr(risk, name)] for name in _EXPLORED} if isinstance(risk, AnyReward) else None,
        },
        **{name: encode(getattr(certificate, name)) for name in _PLAIN},
        "counts": {"episodes": certificate.episodes, **encode(certificate.transitions)},
        "claim": {name: encode(getattr(certificate, name)) for name in _CLAIM}
        | {"cells": None if cells is None else encode_cells(cells)},
    }


def encode_cells(cells: tuple[Cell, ...]) -> list[dict[str, Any]]:
    """Return the cells of an entropic value at risk in terms of JSON; the last has no end."""
    return [{**encode(cell), "until": None if cell.until == math.inf else cell.until} for cell in cells]


def digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


# -- reading -----------------------------------------------------------------------------------------------------


def checked(content: Any, path: str | Path) -> dict[str, Any]:
    """Return the content of the file ``path``, without its digest and in the terms of this version."""
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise CertificateError(f"{path} is not a certificate of entropic-bpi")
    version = content.get("version")
    if version not in (3, _VERSION):
        raise CertificateError(f"{path} has certificate version {version!r:.80}, this library reads 3 and {_VERSION}")
    content = dict(content)
    if content.pop("digest", None) != digest(content):
        raise CertificateError(f"{path} was changed after it was written: its digest does not match")
    try:
        return _in_this_version(content)
    except (KeyError, TypeError, AttributeError):
        raise CertificateError(f"{path} is not a certificate of version {version}") from None


def _in_this_version(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content in the words of this version; one of version 3 tests one assumption less."""
    if content["version"] == 3:
        origin = content.pop("circumstances")
        added: dict[str, dict[str, Any]] = {"tests": {"unchanging": None}, "log": {"seen": False}}
        content["provenance"] = {
            **{name: part for name, part in origin.items() if name != "announcement"},
            **{name: origin[name] and {**origin[name], **more} for name, more in added.items()},
            "preregistration": origin["announcement"],
        }
    # which the first files of version 4 lack
    content["provenance"] = {"accepted": [], "rewards": None, **content["provenance"]}
    content["claim"] = {"cuts": None, **content["claim"]}
    content["problem"] = {**dict.fromkeys((*_ADDED, "explored")), **content["problem"]}
    if content["problem"]["noise"] is not None:
        content["problem"]["noise"] = {"observed": False, **content["problem"]["noise"]}
    content["counts"] = {"labels": [], **content["counts"]}
    said = content["assumptions"]
    for old, new in _REWORDED.items():
        said = [sentence.replace(old, new) for sentence in said]
    return {**content, "version": _VERSION, "assumptions": said}


def parts_of(kind: type[Certificate], content: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the certificate with this content, each of them checked."""
    given = codec.object_with(
        "the certificate", content, "format", "version", "library", "problem", *_PLAIN, "counts", "claim"
    )
    codec.text("library", given["library"])
    problem = _read_problem(given["problem"])
    counts = codec.object_with("counts", given["counts"], "episodes", *Transitions._fields)
    claim = codec.object_with("claim", given["claim"], *_CLAIM)
    places = {name: name for name in _PLAIN} | {name: f"claim.{name}" for name in _CLAIM}
    places = {"episodes": "counts.episodes"} | {name: at for name, at in places.items() if name not in _IMPLIED}
    readers: dict[str, Reader] = {
        "policy": partial(codec.array, shape=(problem.horizon, problem.n_states), kind=int),
        "cells": _optional(partial(codec.items, container=tuple, read=_read_cell)),
    }
    parts = codec.read_fields(kind, {**given, **claim, "episodes": counts["episodes"]}, places, readers)
    seen = {name: value for name, value in counts.items() if name != "episodes"}
    _check_method(problem, **{name: parts[name] for name in ("method", "constants", "test")})
    _check_provenance(parts["provenance"])
    return {**parts, "problem": problem, "transitions": Transitions(**codec.read_object(Transitions, "counts", seen))}


def _check_method(problem: Problem, method: str, constants: str | None, test: str | None) -> None:
    """Refuse constants or a test that a method does not have; one that somebody registered may have any constants."""
    evar = not isinstance(problem.risk, Entropic)
    known, tests = _METHODS.get(method, ((constants,), (None, RATIO, PAIRS, BOXES)))
    codec.choice(f"constants of method {method!r}", constants, known)
    codec.choice(f"claim.test of method {method!r}", test, (None,) if evar and method == "kl" else tests)
    require(method != "bernstein" or problem.discount is None, f"method {method!r} does not discount")
    require(method == "kl" or not evar, f"{problem.risk} is certified by method 'kl'", method)


def _read_cell(name: str, value: Any) -> Cell:
    readers: dict[str, Reader] = {
        "until": lambda name, value: math.inf if value is None else codec.real(name, value),
        "test": partial(codec.choice, choices=(RATIO, PAIRS, None)),
    }
    return Cell(**codec.read_object(Cell, name, value, **readers))


def _read_problem(content: Any) -> Problem:
    given = codec.object_with("problem", content, *_OF_THE_PROBLEM.values(), "beta", "alpha", "explored")
    n_states, n_actions, _ = (codec.integer(name, given[name], 1) for name in ("n_states", "n_actions", "horizon"))
    listed = given["slots"].get("successor") if isinstance(given["slots"], dict) else None
    ends = partial(codec.array, shape=(None, len(listed) if isinstance(listed, list) else 0), kind=float)
    table = partial(codec.array, shape=(None, n_states, n_actions))
    readers: dict[str, Reader] = {
        "start": partial(_read_start, n_states=n_states),
        "eps": lambda name, value: check_positive(name, codec.real(name, value)),
        "delta": lambda name, value: check_probability(name, codec.real(name, value)),
        "successors": partial(codec.choice, choices=("unknown", "model", "mask", "noise")),
        "reward_law": partial(codec.choice, choices=REWARD_LAWS),
        "slots": lambda name, value: Slots(**codec.read_object(Slots, name, value, low=ends, high=ends)),
        "reward": partial(codec.choice, choices=(None, True)),
        "allowed": _optional(
            lambda name, value: Masks(**codec.read_object(Masks, name, value, table=partial(table, kind=int)))
        ),
        "rewards": _optional(partial(table, kind=float)),
        "state_names": partial(codec.names, length=n_states),
        "action_names": partial(codec.names, length=n_actions),
        "state_labels": _optional(partial(codec.names, length=n_states)),
        "action_labels": _optional(partial(codec.names, length=n_actions)),
    }
    values = codec.read_fields(
        Problem, {name: given[key] for name, key in _OF_THE_PROBLEM.items()}, _OF_THE_PROBLEM, readers
    )
    low, high, successor, used = (getattr(values["slots"], name) for name in ("low", "high", "successor", "used"))
    require(len(successor) and len(used) and len(low) == len(high), "slots must not be empty, and low be like high")
    if values["reward"] and low.size:
        head = 2 + int(used[-1])
        values["reward"] = KnownRewards(None, low[0, head:], high[0, head:])
    problem = Problem(**values, risk=_read_risk(given["beta"], given["alpha"], given["explored"]))
    if problem.black_box_rewards and low.size:
        problem = replace(problem, reward_range=(low[0, 0], high[0, 0]))
    return problem


def _optional(read: Reader) -> Reader:
    return lambda name, value: None if value is None else read(name, value)


def _read_start(name: str, value: Any, n_states: int) -> Any:
    if isinstance(value, list):
        return [codec.integer(name, state, 0, n_states - 1) for state in value]
    return value if value is None or value == FIXED else codec.integer(name, value, 0, n_states - 1)


def _read_risk(beta: Any, alpha: Any, explored: Any) -> Risk:
    if explored is not None and (beta, alpha) == (None, None):
        ranges = codec.object_with("explored", explored, *_EXPLORED)
        return AnyReward(*(codec.items(name, ranges[name], tuple, codec.real) for name in _EXPLORED))
    if alpha is None:
        return Entropic(codec.real("beta", beta))
    require(beta is None, f"beta must be null beside alpha = {alpha!r:.80}", beta)
    return EVaR(codec.real("alpha", alpha))


def _check_provenance(provenance: Provenance) -> None:
    ignored, digits, tests = provenance.ignored, provenance.preregistration, provenance.tests
    known = ignored in ((), ("stationary",), ("successors",), ("stationary", "successors"))
    require(known, "provenance.ignored must name 'stationary' and 'successors'", ignored)
    is_digest = digits is None or re.fullmatch("[0-9a-f]{64}", digits)
    require(is_digest, "preregistration must be a digest of 64 hexadecimal digits", digits)
    if provenance.log is not None:
        codec.integer("provenance.log.longest", provenance.log.longest, 1)
    if tests is not None:
        largest = max(tests.stationary or 0.0, tests.memoryless, tests.unchanging or 0.0)
        require(largest < REJECTED_FROM, "tests must not have rejected what is assumed", tests)
