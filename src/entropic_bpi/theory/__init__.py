"""The theorems as programs: how many episodes identification must, and may, take."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from entropic_bpi.theory.bounds import condition_a, lower_bound, small_eps_limit, upper_bound

if TYPE_CHECKING:
    from entropic_bpi.lab.limits.characteristic import CharacteristicTime, characteristic_time

__all__ = ["CharacteristicTime", "characteristic_time", "condition_a", "lower_bound", "small_eps_limit", "upper_bound"]


def __getattr__(name: str) -> Any:
    """Load the characteristic time, which belongs to the research code, when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("entropic_bpi.lab.limits.characteristic"), name)
