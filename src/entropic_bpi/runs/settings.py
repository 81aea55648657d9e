"""The arguments of a run, checked once: by name, by the sweeps, and by the command line alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from entropic_bpi import methods
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.evar import EVaR
from entropic_bpi.problem.problem import REWARD_LAWS
from entropic_bpi.sources.log import Log
from entropic_bpi.tools.checks import (
    LARGEST_COUNT,
    check_choice,
    check_device,
    check_finite,
    check_flag,
    check_integer,
    check_positive,
    check_probability,
    check_range,
    check_seed,
)
from entropic_bpi.tools.text import shown
from entropic_bpi.types import Goal

__all__ = ["CHECKS", "EVERY", "Settings", "check_risk"]

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


def check_risk(beta: Any, risk: Any) -> tuple[float, float | None]:
    """The risk parameter, NaN if there is none, and the level of the entropic value at risk, where that is asked for."""
    if (beta is None) == (risk is None):
        raise InvalidProblemError(
            "give either beta=, the risk parameter of the entropic risk, or risk=EVaR(alpha), not "
            + ("both" if risk is not None else "neither")
        )
    if risk is None:
        return check_finite("beta", beta), None
    if not isinstance(risk, EVaR):
        raise InvalidProblemError(f"risk must be EVaR(alpha), such as EVaR(0.05); got {shown(risk)}")
    return math.nan, float(risk.alpha)


CHECKS: Mapping[str, Callable[[str, Any], Any]] = {
    "beta": check_finite,
    "eps": check_positive,
    "delta": check_probability,
    "method": check_method,
    "stationary": check_flag,
    "replan": check_replan,
    "max_successors": partial(check_integer, at_most=LARGEST_COUNT),
    "reward_range": check_range,
    "return_range": check_range,
    "discount": check_probability,
    "horizon": check_integer,
    "max_episodes": check_integer,
    "max_seconds": check_positive,
    "seed": check_seed,
    "ties": check_ties,
    "num_envs": check_integer,
    "max_states": check_integer,
    "data": check_log,
    "rewards": check_rewards,
    "device": check_device,
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
        The law of the rewards, one of :data:`entropic_bpi.problem.problem.REWARD_LAWS`.
    data : Log or None
        Where the counts begin.
    num_envs : int
    max_states : int or None
    max_episodes : int or None
    max_seconds : float or None
    seed : int or None
        None: a fresh one.
    device : str
        Where plans are made.
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
    max_seconds: float | None = None
    seed: int | None = None
    device: str = "cpu"

    @classmethod
    def of(
        cls, *, eps: Any, delta: Any, beta: Any = None, risk: Any = None, method: Any = "kl", **given: Any
    ) -> Settings:
        """Check the arguments of a run; None stands for the default."""
        beta, alpha = check_risk(beta, risk)
        goal = Goal(beta, CHECKS["eps"]("eps", eps), CHECKS["delta"]("delta", delta), alpha)
        method = CHECKS["method"]("method", method)
        options = {name: given.pop(name, None) for name in ("constants", "sampling")}
        checked = {
            name: CHECKS[name](name, value) if name in CHECKS else value
            for name, value in given.items()
            if value is not None
        }
        settings = cls(goal=goal, method=method, options=methods.check_options(method, options), **checked)
        methods.check_device(method, settings.device)
        if settings.device != "cpu" and settings.replan == EVERY:
            raise InvalidProblemError(
                f"device={settings.device!r} plans after batches of episodes; leave replan='every' to device='cpu'"
            )
        return settings

    @property
    def limited(self) -> bool:
        """Whether the run may end before its goal."""
        return self.max_episodes is not None or self.max_seconds is not None

    def facts(self) -> dict[str, Any]:
        """What makes a run the one that it is: everything but its length, its seed, and the goal, which the problem has."""
        apart = ("goal", "options", "max_episodes", "max_seconds", "seed")
        return {
            field.name: getattr(self, field.name) for field in fields(self) if field.name not in apart
        } | self.options
