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
from typing import TYPE_CHECKING, Any, get_type_hints

from entropic_bpi._version import __version__
from entropic_bpi.certificate.codec import (
    Reader,
    array,
    choice,
    encode,
    integer,
    items,
    names,
    object_with,
    parse,
    read_object,
    reader_of,
    real,
    text,
)
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
from entropic_bpi.types import BOXES, EMPTY, PAIRS, RATIO, Cell, Cut, Transitions

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
_ADDED = ("noise", "allowed", "reward")
_PARTS = ("problem", "method", "constants", "provenance", "assumptions", "policy", "counts", "claim")
# The range of rewards follows from the slots; the risk is written as beta and alpha.
_OF_THE_PROBLEM = {
    field.name: field.name for field in fields(Problem) if field.name not in ("risk", "reward_range", "source_hash")
} | {"source_hash": "source"}


# -- writing -----------------------------------------------------------------------------------------------------


def content_of(certificate: Certificate) -> dict[str, Any]:
    """Return all that the file of a certificate has, except for the digest."""
    problem, cells, risk = certificate.problem, certificate.cells, certificate.problem.risk
    explored = {"betas": [*risk.betas], "rewards": [*risk.rewards]} if isinstance(risk, AnyReward) else None
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "library": __version__,
        "problem": {
            **{key: encode(getattr(problem, name)) for name, key in _OF_THE_PROBLEM.items()},
            "reward": None if problem.reward is None else True,  # its values are those of the slots
            "beta": None if math.isnan(problem.beta) else problem.beta,
            "alpha": certificate.alpha,
            "explored": explored,
        },
        "method": certificate.method,
        "constants": certificate.constants,
        "provenance": encode(certificate.provenance),
        "assumptions": list(certificate.assumptions),
        "policy": encode(certificate.policy),
        "counts": {"episodes": certificate.episodes, **encode(certificate.transitions)},
        "claim": {
            **{name: getattr(certificate, name) for name in ("lower", "upper", "gap", "reached", "test")},
            "cells": cells and encode_cells(cells),
            "cuts": encode(certificate.cuts),
        },
    }


def encode_cells(cells: tuple[Cell, ...]) -> list[dict[str, Any]]:
    """Return the cells of an entropic value at risk in terms of JSON; the last has no end."""
    return [{**encode(cell), "until": None if cell.until == math.inf else cell.until} for cell in cells]


def digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


# -- reading -----------------------------------------------------------------------------------------------------


def read(path: Path) -> tuple[dict[str, Any], int]:
    """Return the content of a certificate file, without its digest and in the terms of this version, and its size."""
    content, size = parse(path)
    return checked(content, path), size


def checked(content: Any, path: Path) -> dict[str, Any]:
    """Return the content of the file ``path``, without its digest and in the terms of this version."""
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise CertificateError(f"{path} is not a certificate of entropic-bpi")
    if content.get("version") not in (3, _VERSION):
        raise CertificateError(
            f"{path} has certificate version {content.get('version')!r:.80}, this library reads 3 and {_VERSION}"
        )
    if digest({key: value for key, value in content.items() if key != "digest"}) != content.pop("digest", None):
        raise CertificateError(f"{path} was changed after it was written: its digest does not match")
    try:
        return _in_this_version(content)
    except (KeyError, TypeError, AttributeError):
        raise CertificateError(f"{path} is not a certificate of version {content['version']}") from None


def _in_this_version(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content in the words of this version; one of version 3 tests one assumption less."""
    if content["version"] == 3:
        origin = dict(content.pop("circumstances"))
        origin["preregistration"] = origin.pop("announcement")
        if origin["tests"] is not None:
            origin["tests"] = {**origin["tests"], "unchanging": None}
        if origin["log"] is not None:
            origin["log"] = {**origin["log"], "seen": False}
        content |= {"version": _VERSION, "provenance": origin}
    # which the first files of version 4 lack
    content["provenance"] = {"accepted": [], "rewards": None, **content["provenance"]}
    content["claim"] = {"cuts": None, **content["claim"]}
    content["problem"] = {**dict.fromkeys((*_ADDED, "explored")), **content["problem"]}
    said = content["assumptions"]
    for old, new in _REWORDED.items():
        said = [sentence.replace(old, new) for sentence in said]
    return {**content, "assumptions": said}


def parts_of(content: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parts of the certificate with this content, each of them checked, and what the file says besides."""
    given = object_with("the certificate", content, "format", "version", "library", *_PARTS)
    text("library", given["library"])
    problem = _read_problem(given["problem"])
    counts = object_with("counts", given["counts"], "episodes", *Transitions._fields)
    claim = object_with("claim", given["claim"], "lower", "upper", "gap", "reached", "test", "cells", "cuts")
    method, evar = text("method", given["method"]), not isinstance(problem.risk, Entropic)
    constants, tests = _read_constants(method, given["constants"], evar)
    if method == "bernstein" and problem.discount is not None:
        raise CertificateError(f"method {method!r} does not discount")
    if evar and method != "kl":
        raise CertificateError(f"{problem.risk} is certified by method 'kl', got {method!r}")
    seen = {name: value for name, value in counts.items() if name != "episodes"}
    parts = {
        "policy": array("policy", given["policy"], (problem.horizon, problem.n_states), int),
        "episodes": integer("counts.episodes", counts["episodes"], 0),
        **{name: real(f"claim.{name}", claim[name]) for name in ("lower", "upper", "gap")},
        "method": method,
        "constants": constants,
        "problem": problem,
        "transitions": Transitions(**read_object(Transitions, "counts", seen)),
        "provenance": _read_provenance(given["provenance"]),
        "test": choice(f"claim.test of method {method!r}", claim["test"], *tests),
        "cells": None if claim["cells"] is None else items("claim.cells", claim["cells"], tuple, _read_cell),
        "cuts": None if claim["cuts"] is None else items("claim.cuts", claim["cuts"], tuple, _read_cut),
    }
    return parts, {"reached": claim["reached"], "assumptions": given["assumptions"]}


def _read_constants(method: str, constants: Any, evar: bool) -> tuple[str | None, tuple[str | None, ...]]:
    """Return the constants of a method, and what its gap may come from."""
    if method == "kl":
        choice("constants of method 'kl'", constants, None)
        return None, (None,) if evar else (RATIO, PAIRS, BOXES, "explored")
    if method == "bernstein":
        return choice("constants of method 'bernstein'", constants, "verified", "sharp", "printed"), (None,)
    # one that somebody registered
    return reader_of(str | None)(f"constants of method {method!r}", constants), (None, RATIO, PAIRS, BOXES)


def _read_cut(name: str, value: Any) -> Cut | str:
    return Cut(**read_object(Cut, name, value)) if isinstance(value, dict) else choice(name, value, RATIO, EMPTY)


def _read_cell(name: str, value: Any) -> Cell:
    readers: dict[str, Reader] = {
        "until": lambda name, value: math.inf if value is None else real(name, value),
        "test": lambda name, value: choice(name, value, RATIO, PAIRS, None),
    }
    return Cell(**read_object(Cell, name, value, **readers))


def _read_problem(content: Any) -> Problem:
    given = object_with("problem", content, *_OF_THE_PROBLEM.values(), "beta", "alpha", "explored")
    n_states, n_actions, horizon = (integer(name, given[name], 1) for name in ("n_states", "n_actions", "horizon"))
    readers: dict[str, Reader] = {
        "start": partial(_read_start, n_states=n_states),
        "eps": lambda name, value: check_positive(name, real(name, value)),
        "delta": lambda name, value: check_probability(name, real(name, value)),
        "successors": lambda name, value: choice(name, value, "unknown", "model", "mask", "noise"),
        "reward_law": lambda name, value: choice(name, value, *REWARD_LAWS),
        "slots": _read_slots,
        "reward": lambda name, value: choice(name, value, None, True),
        "allowed": partial(_read_masks, shape=(None, n_states, n_actions)),
        "rewards": partial(_read_rewards, shape=(None, n_states, n_actions), horizon=horizon),
        "state_names": partial(names, length=n_states),
        "action_names": partial(names, length=n_actions),
    }
    hints = get_type_hints(Problem, include_extras=True)
    values = {
        name: (readers.get(name) or reader_of(hints[name]))(key, given[key]) for name, key in _OF_THE_PROBLEM.items()
    }
    slots, head = values["slots"], 2 + (int(values["slots"].used[-1]) if values["slots"].used.size else 0)
    if values["reward"] and slots.low.size and slots.high.size:
        values["reward"] = KnownRewards(None, slots.low[0, head:], slots.high[0, head:])
    problem = Problem(**values, risk=_read_risk(given["beta"], given["alpha"], given["explored"]))
    if problem.black_box_rewards and problem.slots.low.size:
        problem = replace(problem, reward_range=(problem.slots.low[0, 0], problem.slots.high[0, 0]))
    return problem


def _read_slots(name: str, value: Any) -> Slots:
    listed = value.get("successor") if isinstance(value, dict) else None
    ends = partial(array, shape=(None, len(listed) if isinstance(listed, list) else 0), kind=float)
    return Slots(**read_object(Slots, name, value, low=ends, high=ends))


def _read_masks(name: str, value: Any, shape: tuple[int | None, ...]) -> Masks | None:
    return (
        None if value is None else Masks(**read_object(Masks, name, value, table=partial(array, shape=shape, kind=int)))
    )


def _read_rewards(name: str, value: Any, shape: tuple[int | None, ...], horizon: int) -> Any:
    if value is None:
        return None
    rewards = array(name, value, shape, float)
    if len(rewards) not in (1, horizon):
        raise CertificateError(f"rewards must have 1 or {horizon} steps, got {len(rewards)}")
    return rewards


def _read_start(name: str, value: Any, n_states: int) -> Any:
    if isinstance(value, list):
        return [integer(name, state, 0, n_states - 1) for state in value]
    return value if value is None or value == FIXED else integer(name, value, 0, n_states - 1)


def _read_risk(beta: Any, alpha: Any, explored: Any) -> Risk:
    if explored is not None and (beta, alpha) == (None, None):
        ranges = object_with("explored", explored, "betas", "rewards")
        return AnyReward(*(tuple(items(name, ranges[name], tuple, real)) for name in ("betas", "rewards")))
    if alpha is None:
        return Entropic(real("beta", beta))
    if beta is not None:
        raise CertificateError(f"beta must be null beside alpha = {alpha!r:.80}, got {beta!r:.80}")
    return EVaR(real("alpha", alpha))


def _read_provenance(content: Any) -> Provenance:
    provenance = Provenance(**read_object(Provenance, "provenance", content))
    ignored, preregistration, tests = provenance.ignored, provenance.preregistration, provenance.tests
    if ignored not in ((), ("stationary",), ("successors",), ("stationary", "successors")):
        raise CertificateError(f"provenance.ignored must name 'stationary' and 'successors', got {ignored!r:.80}")
    if preregistration is not None and not re.fullmatch("[0-9a-f]{64}", preregistration):
        raise CertificateError(
            f"preregistration must be a digest of 64 hexadecimal digits, got {preregistration!r:.80}"
        )
    if provenance.log is not None:
        integer("provenance.log.longest", provenance.log.longest, 1)
    if (
        tests is not None
        and not max(tests.stationary or 0.0, tests.memoryless, tests.unchanging or 0.0) < REJECTED_FROM
    ):
        raise CertificateError(f"tests must not have rejected what is assumed, got {tests}")
    return provenance
