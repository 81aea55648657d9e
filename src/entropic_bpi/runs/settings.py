"""The arguments of a run, checked in one place for the functions, the sweeps and the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from entropic_bpi import methods
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.problem.declarations import ENTRIES, Declarations
from entropic_bpi.problem.risk import check_risk
from entropic_bpi.sources.log import Log
from entropic_bpi.sources.opening import open_problem
from entropic_bpi.tools import checks
from entropic_bpi.tools.text import shown
from entropic_bpi.types import Goal

EVERY = 0.0  # the batch ratio of replan="every"
_RENAMED = {"rewards": "reward_law", "announce": "preregister"}


def check_replan(name: str, replan: Any) -> float:
    """Return the batch ratio, which is 0 for ``"every"``."""
    if isinstance(replan, str) and replan == "every":
        return EVERY
    if isinstance(replan, str) or not 0 < checks.check_finite(name, replan) <= 1:
        raise InvalidProblemError(f"{name} must be 'every' or a ratio in (0, 1] such as 0.01, got {shown(replan)}")
    return float(replan)


def check_log(name: str, data: Any) -> Log:
    if not isinstance(data, Log):
        raise InvalidProblemError(f"{name} must be a Log, got {type(data).__name__}")
    return data


# For each setting of a run: check(name, value) returns it in its final form or raises.
CHECKS: Mapping[str, Callable[[str, Any], Any]] = {
    "eps": checks.check_positive,
    "delta": checks.check_probability,
    "method": lambda name, method: checks.check_choice(name, method, methods.names()),
    "replan": check_replan,
    "max_episodes": checks.check_integer,
    "max_seconds": checks.check_positive,
    "seed": checks.check_seed,
    "ties": partial(checks.check_choice, choices=("random", "lowest")),
    "num_envs": checks.check_integer,
    "data": check_log,
    "device": checks.check_device,
}


@dataclass(frozen=True)
class Settings:
    """How to run, whatever the source: the arguments of :func:`entropic_bpi.identify`, checked and complete.

    Attributes
    ----------
    goal : Goal
    declared : Declarations
        What is declared about the source.
    method : str
    options : dict
        Those of the method.
    replan : float or None
        Plan again when the number of episodes has grown by this fraction; 0: after every episode; None: the loop's rule.
    ties : str
    data : Log or None
        A log whose counts the run starts with.
    num_envs : int
    max_episodes : int or None
    max_seconds : float or None
    seed : int or None
        None: a new one.
    device : str
        Where plans are made.
    accepted : tuple of str
        Declarations of a problem file that are used although the file does not confirm them.
    """

    goal: Goal
    declared: Declarations
    method: str
    options: dict[str, str]
    replan: float | None = None
    ties: str = "random"
    data: Log | None = None
    num_envs: int = 1
    max_episodes: int | None = None
    max_seconds: float | None = None
    seed: int | None = None
    device: str = "cpu"
    accepted: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, *, eps: Any = None, delta: Any = None, beta: Any = None, risk: Any = None, method: Any = "kl", **given: Any
    ) -> Settings:
        """Check the arguments of a run; None stands for the default."""
        goal = Goal(check_risk(beta, risk), CHECKS["eps"]("eps", eps), CHECKS["delta"]("delta", delta))
        method = CHECKS["method"]("method", method)
        options = {name: given.pop(name, None) for name in ("constants", "sampling")}
        declared = Declarations(**{name: given.pop(name) for name in ENTRIES if name in given})
        checked = {name: CHECKS[name](name, value) for name, value in given.items() if value is not None}
        chosen = methods.check_options(method, options)
        settings = cls(goal=goal, declared=declared, method=method, options=chosen, **checked)
        methods.check_device(method, settings.device)
        if settings.device != "cpu" and settings.replan == EVERY:
            raise InvalidProblemError(
                f"device={settings.device!r} plans in batches: use device='cpu' with replan='every'"
            )
        return settings

    @classmethod
    def read(cls, source: Any, **given: Any) -> tuple[Any, Settings]:
        """Return the source and the settings of a run; a problem file supplies what is not given."""
        opened, arguments, accepted = open_problem(source, given)
        return opened, replace(cls.of(**arguments), accepted=accepted)

    @property
    def limited(self) -> bool:
        """Whether the run may end before it reaches its goal."""
        return self.max_episodes is not None or self.max_seconds is not None

    def facts(self) -> dict[str, Any]:
        """Return what identifies a run: all but its length, its seed and the goal, which is part of the problem."""
        excluded = ("goal", "declared", "options", "max_episodes", "max_seconds", "seed", "accepted")
        own = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in excluded}
        return own | {name: getattr(self.declared, name) for name in ENTRIES} | self.options


def refuse_renamed(function: str, arguments: Iterable[str]) -> None:
    """Raise an error for arguments that ``function`` does not have, with the new name of those that were renamed."""
    for name in arguments:
        if name in _RENAMED:
            raise InvalidProblemError(f"{name}= of {function} is now {_RENAMED[name]}=")
        raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
