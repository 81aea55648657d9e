"""Sweeps as data: a sweep is a list of :class:`RunSpec`, and :func:`grid` makes one as the product of its axes.

The result of a run depends on its spec alone. A run has an id for people,
``risky_bridge/h7/beta=2.5/kl/successors=model/seed=3``, without the settings that have the paper's value, and a hash of
everything that its result depends on, including the content of the model. Two runs with the same hash are the same run.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from entropic_bpi import methods
from entropic_bpi.errors import EntropicBPIError, InvalidProblemError
from entropic_bpi.lab.learners._run import find, names, parameters_of
from entropic_bpi.model.formats.registry import SUFFIXES
from entropic_bpi.model.instances.sources import named_model
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.problem.declarations import ENTRIES
from entropic_bpi.runs.settings import CHECKS
from entropic_bpi.tools.checks import (
    check_choice,
    check_finite,
    check_integer,
    check_memory,
    check_path,
    check_positive,
)
from entropic_bpi.tools.text import printable, shown

IDENTIFY_DEFAULTS: dict[str, Any] = {"eps": 0.2, "delta": 0.1}
LEARNER_DEFAULTS: dict[str, Any] = {"delta": 0.1, "scale": 1.0}
_IDENTIFY_OPTIONS = (
    "eps",
    "delta",
    "constants",
    "stationary",
    "successors",
    "replan",
    "sampling",
    "max_episodes",
    "ties",
)
_LEARNER_OPTIONS = ("episodes", "delta", "scale", "ties")

# The stopping rules that are compared with each other: a method with its constants and what is declared.
RULES: dict[str, dict[str, Any]] = {
    "paper, printed constants": {"method": "bernstein", "constants": "printed"},
    "paper, verified constants": {"method": "bernstein", "constants": "verified"},
    "paper, sharp constants": {"method": "bernstein", "constants": "sharp"},
    "KL, nothing assumed": {"method": "kl"},
    "KL, stationary": {"method": "kl", "stationary": True},
    "KL, successors known": {"method": "kl", "successors": "model"},
    "KL, both": {"method": "kl", "stationary": True, "successors": "model"},
}
_RULE_OPTIONS = ("constants", "stationary", "successors")


class SweepError(InvalidProblemError):
    """A sweep is invalid."""


@dataclass(frozen=True, eq=False)
class RunSpec:
    """One run on one model; see ``entropic_bpi.lab.experiments.kinds`` for the kinds.

    Attributes
    ----------
    instance : str
        Name of the instance, the file or the environment that the model came from.
    params : dict
        Its parameters, except the horizon.
    kind, algorithm : str
        ``"learner"`` and the name of one, or ``"identify"``, ``"validate"`` or ``"ablation"`` and a method.
    beta : float
        Risk parameter; positive is risk-seeking. NaN where the options have the level ``evar`` instead.
    options : dict
        Keyword arguments of ``identify`` or ``run``.
    seed : int
        Seed of the run.
    mdp : FiniteMDP
        The model. It travels with the spec, so that a worker needs no file.
    """

    instance: str
    params: dict[str, Any]
    kind: str
    algorithm: str
    beta: float
    options: dict[str, Any]
    seed: int
    mdp: FiniteMDP = field(repr=False)

    @property
    def id(self) -> str:
        defaults = LEARNER_DEFAULTS if self.kind == "learner" else IDENTIFY_DEFAULTS
        given = {name: value for name, value in self.options.items() if defaults.get(name) != value}
        risk = [] if math.isnan(self.beta) else [f"beta={_as_typed(self.beta)}"]
        parts = [self.instance, f"h{self.mdp.horizon}", *_assignments(self.params), *risk]
        special = [self.kind] if self.kind in ("validate", "ablation") else []
        return "/".join([*parts, self.algorithm, *_assignments(given), *special, f"seed={self.seed}"])

    @cached_property
    def as_json(self) -> str:
        """Everything that the result depends on, in canonical form, with the content hash of the model."""
        fields = {
            "instance": self.instance,
            "params": self.params,
            "horizon": self.mdp.horizon,
            "model": self.mdp.content_hash,
            "kind": self.kind,
            "algorithm": self.algorithm,
            "beta": self.beta,
            "options": self.options,
            "seed": self.seed,
        }
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))

    @cached_property
    def hash(self) -> str:
        return hashlib.sha256(self.as_json.encode()).hexdigest()[:32]


def grid(
    *,
    instance: str = "risky-bridge",
    beta: Any,
    seeds: Any,
    method: Any = None,
    learner: Any = None,
    horizon: Any = None,
    params: Mapping[str, Any] | None = None,
    folder: str | Path = ".",
    **options: Any,
) -> list[RunSpec]:
    """Return the runs of a product of axes: every argument but ``instance`` may be one value or a list of values.

    Parameters
    ----------
    instance : str
        Name of an instance, a saved model (``model.npz``), or ``gym:ENV_ID``.
    beta : float or list
        Risk parameters; positive is risk-seeking.
    seeds : int or list of int
        The number of seeds, counted from 0, or a list of seeds.
    method, learner : str or list
        One of the two: methods of ``identify``, or learners of ``run``.
    horizon : int or list, optional
        Steps of the model; a saved model has its own.
    params : dict, optional
        Further parameters of the instance, each one value or a list: ``params={"n_states": [5, 10], "n_actions": 2,
        "branching": 2, "seed": 0}`` for ``instance="garnet"``.
    folder : path
        Folder of relative paths of saved models.
    **options
        Keyword arguments of ``identify`` (``eps`` 0.2 and ``delta`` 0.1 unless given, as in the paper) or of ``run``
        (``episodes`` is required; ``delta`` is 0.1 and ``scale`` 1 unless given).

    Returns
    -------
    list of RunSpec
        The runs.

    Examples
    --------
    >>> from entropic_bpi.lab.experiments import grid
    >>> runs = grid(horizon=7, method="kl", beta=[2.5, 3], successors="model", seeds=2)
    >>> [run.id for run in runs][:2]
    ['risky_bridge/h7/beta=2.5/kl/successors=model/seed=0', 'risky_bridge/h7/beta=2.5/kl/successors=model/seed=1']
    """
    if (method is None) == (learner is None):
        raise SweepError("give either method or learner")
    if learner is None:
        kind, default = "identify", IDENTIFY_DEFAULTS
        algorithms = [CHECKS["method"]("method", name) for name in _axis(method)]
    else:
        kind, default = "learner", LEARNER_DEFAULTS
        algorithms = [check_choice("learner", name, names()) for name in _axis(learner)]
    given_axes = {"method": method, "learner": learner, "horizon": horizon, "beta": beta, "seeds": seeds, **options}
    for name, values in given_axes.items():
        if not _axis(values):
            raise SweepError(f"{name} must not be an empty list")
    chosen_seeds = _check_seeds(seeds)
    options = {**default, **{name: value for name, value in options.items() if value is not None}}
    axes = {
        name: [_check_option(kind, algorithms, name, value) for value in _axis(values)]
        for name, values in options.items()
    }
    if kind == "learner" and "episodes" not in axes:
        raise SweepError("learners need the number of episodes")
    betas = [check_finite("beta", value) for value in _axis(beta)]
    if not isinstance(params, (Mapping, NoneType)):
        raise SweepError(f"params must be a dict, got {shown(params)}")
    params = params or {}
    lists = [*map(_axis, params.values()), *axes.values(), _axis(horizon), algorithms, betas, chosen_seeds]
    runs = math.prod(map(len, lists))
    check_memory(f"a sweep of {runs} runs", 50 * runs)  # a spec takes several hundred bytes
    models = [
        (dict(zip(params, values, strict=True)), steps)
        for steps in _axis(horizon)
        for values in itertools.product(*map(_axis, params.values()))
    ]
    where = check_path("folder", folder)
    built = [(label_of(instance), given, _build(instance, steps, given, where)) for given, steps in models]
    return [
        RunSpec(name, given, kind, algorithm, value, dict(zip(axes, chosen, strict=True)), seed, mdp)
        for name, given, mdp in built
        for algorithm in algorithms
        for chosen in itertools.product(*axes.values())
        for value in betas
        for seed in chosen_seeds
    ]


# -- axes ------------------------------------------------------------------------------------------------------------


def _axis(values: Any) -> list[Any]:
    if isinstance(values, np.ndarray):
        values = values.tolist()
    return list(values) if isinstance(values, (list, tuple, range)) else [values]


def _check_seeds(seeds: Any) -> Sequence[int]:
    if isinstance(seeds, (int, np.integer)):
        return range(check_integer("seeds", seeds))
    chosen = [check_integer("seeds", seed, at_least=0) for seed in _axis(seeds)]
    if len(set(chosen)) < len(chosen):
        raise SweepError(f"seeds must differ, got {chosen}")
    return chosen


_OPTION_CHECKS: dict[str, Any] = {
    **CHECKS,
    **{name: entry.check for name, entry in ENTRIES.items()},
    "scale": check_positive,
    "episodes": check_integer,
    "successors": lambda key, value: check_choice(key, value, ("model",)),
}


_OF_THE_INSTANCE = "; parameters of the instance belong in params"


def _check_option(kind: str, algorithms: list[str], name: str, value: Any) -> Any:
    known = _IDENTIFY_OPTIONS if kind == "identify" else _LEARNER_OPTIONS
    if name not in known:
        for algorithm in algorithms:
            own = parameters_of(find(algorithm)) if kind == "learner" else []
            if name not in own:
                taken = ", ".join([*known, *own])
                raise SweepError(f"unknown option {name!r}: expected one of {taken}{_OF_THE_INSTANCE}")
        return value
    if name in ("constants", "sampling"):
        for algorithm in algorithms:
            methods.check_options(algorithm, {name: value})
        return value
    checked = _OPTION_CHECKS[name](name, value)
    return value if name == "replan" else checked  # as it was given: it is part of the run's id


# -- models ----------------------------------------------------------------------------------------------------------


def label_of(instance: str) -> str:
    """Return the name of the model in ids; it is the same on every machine."""
    if not isinstance(instance, str):
        raise SweepError(f"instance must be a name, a file or gym:ENV_ID; got {shown(instance)}")
    if instance.startswith("gym:"):
        return instance
    path = Path(instance)
    return printable(path.name) if path.suffix in SUFFIXES else instance.replace("-", "_")


def _build(instance: str, horizon: int | None, params: dict[str, Any], folder: Path) -> FiniteMDP:
    if "horizon" in params:
        raise SweepError("the horizon is an axis of its own, not one of params")
    try:
        return named_model(instance, {"horizon": horizon}, params, folder)
    except EntropicBPIError as error:
        incomplete = "; it takes " in str(error)  # a list of parameters, which may contain the horizon
        hint = f"{_OF_THE_INSTANCE}, except its horizon" if incomplete else ""
        raise SweepError(f"{error}{hint}") from None


# -- ids -------------------------------------------------------------------------------------------------------------


def _assignments(settings: Mapping[str, Any]) -> Iterable[str]:
    return [f"{name}={_as_typed(value)}" for name, value in settings.items()]


def _as_typed(value: Any) -> str:
    """Return a value as a person types it: 2 rather than 2.0, with all digits."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def rule_of(fields: Mapping[str, Any]) -> str:
    """Return the name in :data:`RULES` of the rule that a recorded run used; ``fields`` are those of its spec."""
    declared = {name: value for name, value in fields["options"].items() if name in _RULE_OPTIONS}
    wanted = {"method": fields["algorithm"], **declared}
    return next(name for name, settings in RULES.items() if settings == wanted)
