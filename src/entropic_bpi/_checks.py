"""Argument checks shared by the public functions; each names what was given and what was expected."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from entropic_bpi.errors import InvalidProblemError

__all__ = ["check_choice", "check_finite", "check_integer", "check_policy", "check_positive", "check_probability"]


def check_finite(name: str, value: Any) -> float:
    """Return ``value`` as a float, or raise if it is not a finite real number."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidProblemError(f"{name} must be a finite real number, got {value!r}") from None
    if not math.isfinite(number):
        raise InvalidProblemError(f"{name} must be a finite real number, got {number}")
    return number


def check_positive(name: str, value: Any) -> float:
    number = check_finite(name, value)
    if number <= 0:
        raise InvalidProblemError(f"{name} must be greater than 0, got {number}")
    return number


def check_probability(name: str, value: Any) -> float:
    """Return ``value`` as a float strictly between 0 and 1."""
    number = check_finite(name, value)
    if not 0 < number < 1:
        raise InvalidProblemError(f"{name} must lie strictly between 0 and 1, got {number}")
    return number


def check_integer(name: str, value: Any, *, at_least: int = 1) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise InvalidProblemError(f"{name} must be an integer, got {value!r}")
    if value < at_least:
        raise InvalidProblemError(f"{name} must be at least {at_least}, got {value}")
    return int(value)


def check_choice(name: str, value: Any, choices: Iterable[str]) -> str:
    options = list(choices)
    if value not in options:
        raise InvalidProblemError(f"{name} must be one of {', '.join(options)}; got {value!r}")
    return str(value)


def check_policy(policy: Any, horizon: int, n_states: int, n_actions: int) -> np.ndarray:
    """Return ``policy`` as an int64 array ``(H, S)`` of valid actions."""
    try:
        array = np.asarray(policy)
    except ValueError:
        raise InvalidProblemError(f"policy must be an array of shape ({horizon}, {n_states})") from None
    if array.shape != (horizon, n_states):
        raise InvalidProblemError(
            f"policy must have shape (horizon, states) = ({horizon}, {n_states}), got {array.shape}"
        )
    if array.dtype.kind not in "iu":
        raise InvalidProblemError(f"policy must hold integers, got dtype {array.dtype}")
    outside = (array < 0) | (array >= n_actions)
    if outside.any():
        h, s = np.argwhere(outside)[0]
        raise InvalidProblemError(
            f"policy[h={h}, s={s}] = {array[h, s]} is not an action: expected 0 to {n_actions - 1}"
        )
    return array.astype(np.int64)
