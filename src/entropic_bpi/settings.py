"""The arguments of a run, checked once: by name, by the sweeps, and by the command line alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from entropic_bpi import methods
from entropic_bpi._checks import (
    check_choice,
    check_finite,
    check_flag,
    check_integer,
    check_positive,
    check_probability,
    check_range,
    check_seed,
)
from entropic_bpi._text import shown
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.log import Log
from entropic_bpi.problem import REWARD_LAWS
from entropic_bpi.types import Goal

__all__ = ["CHECKS", "EVERY", "Settings"]

EVERY = 0.0
"""The batch ratio of ``replan="every"``."""


def check_replan(name: str, replan: Any) -> float:
    """The batch ratio."""
    if isinstance(replan, str):
        if replan == "every":
            return EVERY
        raise InvalidProblemError(f"{name} must be 'every' or a positive ratio such as 0.01, got {shown(replan)}")
    ratio = check_finite(name, replan)
    if not 0 < ratio <= 1:
        raise InvalidProblemError(f"{name} must be 'every' or a ratio in (0, 1], got {ratio}")
    return ratio


def check_ties(name: str, ties: Any) -> str:
    return check_choice(name, ties, ("random", "lowest"))


def check_rewards(name: str, rewards: Any) -> str:
    return check_choice(name, rewards, REWARD_LAWS)


def check_log(name: str, data: Any) -> Log:
    if not isinstance(data, Log):
        raise InvalidProblemError(f"{name} must be a Log, got {type(data).__name__}")
    return data


def check_method(name: str, method: Any) -> str:
    return check_choice(name, method, methods.names())


CHECKS: Mapping[str, Callable[[str, Any], Any]] = {
    "beta": check_finite,
    "eps": check_positive,
    "delta": check_probability,
    "method": check_method,
    "stationary": check_flag,
    "replan": check_replan,
    "max_successors": check_integer,
    "reward_range": check_range,
    "return_range": check_range,
    "discount": check_probability,
    "horizon": check_integer,
    "max_episodes": check_integer,
    "seed": check_seed,
    "ties": check_ties,
    "num_envs": check_integer,
    "max_states": check_integer,
    "data": check_log,
    "rewards": check_rewards,
}
"""For each argument that can be judged alone: ``check(name, value)`` returns it in its final form or raises."""


@dataclass(frozen=True)
class Settings:
    """How to run, whatever the source: the arguments of :func:`entropic_bpi.identify`, checked and complete.

    ``successors`` are as given: what they must be depends on the source.

    Attributes
    ----------
    goal : Goal
    method : str
    options : dict
        Those of the method.
    replan : float or None
        After t episodes play this fraction of t more before the next plan; 0: one episode; None: the loop's pace.
    ties : str
    stationary : bool or None
        None: the source's default.
    successors : None, str, array, dict or function
    max_successors : int or None
    horizon : int or None
    reward_range, return_range : (float, float) or None
    discount : float or None
    rewards : str
        The law of the rewards, one of :data:`entropic_bpi.problem.REWARD_LAWS`.
    data : Log or None
        Where the counts begin.
    num_envs : int
    max_states : int or None
    max_episodes : int or None
    seed : int or None
        None: a fresh one.
    """

    goal: Goal
    method: str
    options: dict[str, str]
    replan: float | None = None
    ties: str = "random"
    stationary: bool | None = None
    successors: Any = None
    max_successors: int | None = None
    horizon: int | None = None
    reward_range: tuple[float, float] | None = None
    rewards: str = "fixed"
    return_range: tuple[float, float] | None = None
    discount: float | None = None
    data: Log | None = None
    num_envs: int = 1
    max_states: int | None = None
    max_episodes: int | None = None
    seed: int | None = None

    @classmethod
    def of(cls, *, beta: Any, eps: Any, delta: Any, method: Any = "kl", **given: Any) -> Settings:
        """Check the arguments of a run; None stands for the default."""
        goal = Goal(*(CHECKS[name](name, value) for name, value in (("beta", beta), ("eps", eps), ("delta", delta))))
        method = CHECKS["method"]("method", method)
        options = {name: given.pop(name, None) for name in ("constants", "sampling")}
        checked = {
            name: CHECKS[name](name, value) if name in CHECKS else value
            for name, value in given.items()
            if value is not None
        }
        return cls(goal=goal, method=method, options=methods.check_options(method, options), **checked)

    def facts(self) -> dict[str, Any]:
        """What makes a run the one that it is: everything but its length, its seed, and the goal, which the problem has."""
        apart = ("goal", "options", "max_episodes", "seed")
        return {
            field.name: getattr(self, field.name) for field in fields(self) if field.name not in apart
        } | self.options
