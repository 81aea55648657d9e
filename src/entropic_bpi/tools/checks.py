"""Argument checks shared by the public functions. The message of each error says what was given and what was expected."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.tools.text import shown

if TYPE_CHECKING:
    import numpy as np

_LARGEST_INTEGER = 2**63 - 1
LARGEST_REACH = 600.0
# The largest numbers that a certificate can state. The verifier has its own limits, which allow these numbers.
LARGEST_REAL = 1e300
LARGEST_COUNT = 2**53  # beyond, integers are not exact as floats


def _require(holds: Any, name: str, expected: str, value: Any) -> None:
    if not holds:
        raise InvalidProblemError(f"{name} must {expected}, got {shown(value)}")


def check_finite(name: str, value: Any) -> float:
    """Return ``value`` as a float, or raise if it is not a finite real number."""
    try:
        number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    except OverflowError:
        number = math.inf
    _require(math.isfinite(number), name, "be a finite real number", value)
    return number


def check_positive(name: str, value: Any) -> float:
    number = check_finite(name, value)
    _require(number > 0, name, "be greater than 0", number)
    return number


def check_probability(name: str, value: Any) -> float:
    """Return ``value`` as a float strictly between 0 and 1."""
    number = check_finite(name, value)
    _require(0 < number < 1, name, "lie strictly between 0 and 1", number)
    return number


def check_range(name: str, value: Any) -> tuple[float, float]:
    """Return ``value`` as a pair of numbers, the smaller one first."""
    try:
        low, high = (check_finite(name, bound) for bound in value)
    except (TypeError, ValueError):
        raise InvalidProblemError(f"{name} must be a pair of numbers, got {shown(value)}") from None
    _require(low <= high, name, "be finite with low <= high", (low, high))
    return low, high


def check_integer(name: str, value: Any, *, at_least: int = 1, at_most: float = _LARGEST_INTEGER) -> int:
    """Return ``value`` as an int from ``at_least`` to ``at_most``; by default, the result fits into 64 bits."""
    _require(isinstance(value, Integral) and not isinstance(value, bool), name, "be an integer", value)
    _require(value >= at_least, name, f"be at least {at_least}", value)
    most = "below 2**63" if at_most == _LARGEST_INTEGER else f"at most {at_most}"
    _require(value <= at_most, name, f"be {most}", value)
    return int(value)


def check_seed(name: str, value: Any) -> int:
    """Return ``value`` as a seed: a non-negative integer of any size."""
    return check_integer(name, value, at_least=0, at_most=math.inf)


def check_reach(beta: float, exponent: float, what: str) -> None:
    """Raise an error if ``exponent``, which is ``|beta|`` times ``what``, is too large for a method's bounds."""
    if not exponent <= LARGEST_REACH:
        usable = 0.999 * LARGEST_REACH * abs(beta) / exponent  # 0.999: the rounded number in the message is usable, too
        raise InvalidProblemError(
            f"|beta| * {what} = {exponent:.4g} exceeds {LARGEST_REACH:g}, beyond which the bounds overflow: the largest "
            f"usable |beta| is {usable:.4g}"
        )


def check_flag(name: str, value: Any) -> bool:
    is_numpy_flag = str(getattr(value, "dtype", "")) == "bool" and value.ndim == 0
    _require(isinstance(value, bool) or is_numpy_flag, name, "be True or False", value)
    return bool(value)


def check_choice(name: str, value: Any, choices: Iterable[str]) -> str:
    options = list(choices)
    if not isinstance(value, str) or value not in options:
        listed = [repr(option) if "," in option else option for option in options]
        raise InvalidProblemError(f"{name} must be one of {', '.join(listed)}; got {shown(value)}")
    return str(value)


def check_device(name: str, device: Any) -> str:
    return check_choice(name, device, ("cpu", "gpu"))


def check_list(name: str, value: Any) -> list[Any]:
    """Return the elements of ``value`` as a list; a string is refused, not split into letters."""
    _require(isinstance(value, Iterable) and not isinstance(value, (str, bytes)), name, "be a list", value)
    return list(value)


def check_path(name: str, value: Any) -> Path:
    try:
        return Path(value)
    except TypeError:
        raise InvalidProblemError(f"{name} must be a path, got {shown(value)}") from None


def check_policy(policy: Any, horizon: int, n_states: int, n_actions: int) -> np.ndarray:
    """Return ``policy`` as an int64 array ``(H, S)`` of valid actions."""
    import numpy as np

    try:
        array = np.asarray(policy)
    except (TypeError, ValueError):
        raise InvalidProblemError(f"policy must be an array of shape ({horizon}, {n_states})") from None
    shape = (horizon, n_states)
    _require(array.shape == shape, "policy", f"have shape (horizon, states) = {shape}", array.shape)
    _require(array.dtype.kind in "iu", "policy", "hold integers", array.dtype)
    for h, s in np.argwhere((array < 0) | (array >= n_actions)):
        raise InvalidProblemError(
            f"policy[h={h}, s={s}] = {array[h, s]} is not an action: expected 0 to {n_actions - 1}"
        )
    return array.astype(np.int64)


def refuse_for(reasons: Mapping[str, Any], prefix: str = "") -> None:
    """Raise an error for the first reason that applies; its message is ``prefix`` and the reason."""
    for words, applies in reasons.items():
        if applies:
            raise InvalidProblemError(f"{prefix}{words}")


def check_memory(what: str, numbers: int) -> None:
    """Raise an error if the machine has less memory than ``numbers`` numbers of 8 bytes. Nothing is allocated."""
    needed, there = 8 * numbers, machine_memory()
    if needed > there:
        raise InvalidProblemError(
            f"{what} needs at least {needed / 2**30:.3g} GiB of memory, this machine has {there / 2**30:.3g} GiB"
        )


def machine_memory() -> float:
    """Return the memory of the machine in bytes; infinite if the system does not report it."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return math.inf


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ask(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of the user. If it raises an exception, raise an error that names the call."""
    try:
        return function(*arguments)
    except Exception as error:
        call = f"{name}({', '.join(map(shown, arguments))})"
        raise InvalidProblemError(f"{call} raised {type(error).__name__}: {error}") from error
