"""Methods turn counts into bounds. This module has the protocol of a method and the registry of methods by name.

See the page "Write your own certificate" for a method of your own.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar, Protocol

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.risk import AnyReward, EVaR
from entropic_bpi.tools.checks import check_choice
from entropic_bpi.tools.text import shown
from entropic_bpi.types import Bounds, Claim, Plan

__all__ = ["Method", "check_device", "check_options", "find", "make", "names", "register"]

_BUILT_IN = {"kl": ("kl.method", "KL"), "bernstein": ("bernstein", "Bernstein")}
_REGISTERED: dict[str, type[Method]] = {}


class Method(Protocol):
    """What a method has: bounds from counts, and what to play to make them tighter.

    A method is constructed by ``kind(problem, seed=…, **options)``. If its plans depend on more than the counts and the
    round, it also has ``state()``, which returns the rest as a dict of numbers and arrays, and ``restore(state)``;
    checkpoints save this state.

    Attributes
    ----------
    options : dict
        The choices of each option, ``constants`` or ``sampling``, the default first.
    events : tuple of str
        Names in :data:`entropic_bpi.lab.events.EVENTS` of the events that the lab checks against the true model.
    proof : tuple of str
        Those that imply every claim: if all of them hold and a claim is false, the proof or the code is wrong.
    unused : dict
        For each choice of an option, the declarations (``"stationary"``, ``"successors"``) that it ignores.
    devices : tuple of str, optional
        Devices that the method can plan on. Default: the CPU only. For another one it is constructed with ``device=…``.
    """

    options: ClassVar[Mapping[str, tuple[str, ...]]]
    events: ClassVar[tuple[str, ...]]
    proof: ClassVar[tuple[str, ...]]
    unused: ClassVar[Mapping[str, tuple[str, ...]]]

    def plan(self, counts: Counts, round: int) -> Plan:
        """Return bounds, a candidate policy and what to play next; ``round`` is the number of batches played so far."""

    def claim(self, counts: Counts, plan: Plan) -> Bounds | Claim:
        """Return what a certificate states about the candidate of a plan that was made from these counts."""


def names() -> list[str]:
    """Return the names of the methods that :func:`entropic_bpi.identify` accepts.

    Returns
    -------
    list of str
        The built-in methods first.

    Examples
    --------
    >>> from entropic_bpi import methods
    >>> methods.names()[:2]
    ['kl', 'bernstein']
    """
    return [*_BUILT_IN, *_REGISTERED]


def register(name: str, method: type[Any]) -> None:
    """Make a method available to :func:`entropic_bpi.identify`; see the page "Write your own certificate".

    Parameters
    ----------
    name : str
        The value of ``method=``, not the name of a built-in method.
    method : class
        A class that has what :class:`Method` describes.
    """
    if name in _BUILT_IN:
        raise InvalidProblemError(f"{name!r} is the name of a built-in method")
    _REGISTERED[name] = method


def find(name: str) -> type[Method]:
    """Return the class of a method by its name."""
    check_choice("method", name, names())
    if name in _REGISTERED:
        return _REGISTERED[name]
    module, attribute = _BUILT_IN[name]
    return getattr(import_module(f"entropic_bpi.methods.{module}"), attribute)


def check_options(name: str, given: Mapping[str, Any]) -> dict[str, str]:
    """Return the checked options of a method, with its defaults for those that are None."""
    known = find(name).options
    for option, value in given.items():
        if value is not None and option not in known:
            owners = " or ".join(repr(other) for other in names() if option in find(other).options)
            raise InvalidProblemError(f"{option}={shown(value)} belongs to method {owners}; method={name!r} has none")
    chosen = {option: choices[0] for option, choices in known.items()}
    chosen |= {option: value for option, value in given.items() if value is not None}
    return {option: check_choice(f"{option} of method={name!r}", chosen[option], known[option]) for option in known}


def check_device(name: str, device: str) -> None:
    """Raise an error if the method cannot plan on a device."""
    if device not in getattr(find(name), "devices", ("cpu",)):
        raise InvalidProblemError(f"device={device!r} is for method='kl'; method={name!r} plans on the CPU")


def make(name: str, problem: Problem, options: Mapping[str, str], seed: int, device: str = "cpu") -> Method:
    """Return a new method for counts of ``problem``; ``seed`` breaks ties, 0 in favour of the lowest action."""
    kind: Any = find(name)
    where = {} if device == "cpu" else {"device": device}
    if isinstance(problem.risk, EVaR):
        if name != "kl" or where:
            raise InvalidProblemError(
                "risk=EVaR needs method='kl', whose event holds for every beta at once, on the CPU; "
                f"got method={name!r}, device={device!r}"
            )
        from entropic_bpi.methods.kl.evar import EVaRKL as kind
    if isinstance(problem.risk, AnyReward):
        from entropic_bpi.methods.reward_free import RewardFree as kind
    method: Method = kind(problem, seed=seed, **options, **where)
    if hasattr(method, "memory") and not hasattr(method, "state"):
        raise InvalidProblemError(f"method {name!r} has memory, which is replaced by state() and restore(state)")
    return method
