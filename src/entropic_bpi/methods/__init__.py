"""Methods: ways to turn counts into bounds. Each is one class; this page says what it must have, and knows them by name.

A method of your own is registered as a learner is; see the page "Write your own certificate".
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
    """Bounds from counts, and what to play to make them tighter. It is made as ``kind(problem, seed=…, **options)``.

    If its plans depend on more than the counts and the round, it has ``state()``, which returns that as a dict of numbers
    and arrays, and ``restore(state)``: a checkpoint saves it.

    Attributes
    ----------
    options : dict
        The choices of each option, ``constants`` or ``sampling``, the default first.
    events : tuple of str
        Names in :data:`entropic_bpi.lab.events.EVENTS` of what a referee watches.
    proof : tuple of str
        Those on which every claim is true: if they held and a claim is false, the proof or the code is wrong.
    unused : dict
        For a choice of an option, the declarations (``"stationary"``, ``"successors"``) that it does not use.
    devices : tuple of str, optional
        Where it can plan, if not on the CPU alone; it is then made with ``device=…`` for another.
    """

    options: ClassVar[Mapping[str, tuple[str, ...]]]
    events: ClassVar[tuple[str, ...]]
    proof: ClassVar[tuple[str, ...]]
    unused: ClassVar[Mapping[str, tuple[str, ...]]]

    def plan(self, counts: Counts, round: int) -> Plan:
        """Bounds, candidate and what to play next; ``round`` counts how often something was played."""

    def claim(self, counts: Counts, plan: Plan) -> Bounds | Claim:
        """What a certificate states about the candidate of a plan that was made from these counts."""


def names() -> list[str]:
    """Names of the methods that :func:`entropic_bpi.identify` accepts.

    Examples
    --------
    >>> from entropic_bpi import methods
    >>> methods.names()[:2]
    ['kl', 'bernstein']
    """
    return [*_BUILT_IN, *_REGISTERED]


def register(name: str, method: type[Any]) -> None:
    """Make a method available to :func:`entropic_bpi.identify` as ``name``; see the page "Write your own certificate"."""
    if name in _BUILT_IN:
        raise InvalidProblemError(f"{name!r} is the name of a built-in method")
    _REGISTERED[name] = method


def find(name: str) -> type[Method]:
    """The class behind a name."""
    check_choice("method", name, names())
    if name in _REGISTERED:
        return _REGISTERED[name]
    module, attribute = _BUILT_IN[name]
    return getattr(import_module(f"entropic_bpi.methods.{module}"), attribute)


def check_options(name: str, given: Mapping[str, Any]) -> dict[str, str]:
    """The options of a method with their defaults; None stands for the default."""
    known = find(name).options
    for option, value in given.items():
        if value is not None and option not in known:
            owners = " or ".join(repr(other) for other in names() if option in find(other).options)
            raise InvalidProblemError(f"{option}={shown(value)} belongs to method {owners}; method={name!r} has none")
    chosen = {option: choices[0] for option, choices in known.items()}
    chosen |= {option: value for option, value in given.items() if value is not None}
    return {option: check_choice(f"{option} of method={name!r}", chosen[option], known[option]) for option in known}


def check_device(name: str, device: str) -> None:
    """Whether the method can plan there; where nothing is said, it is the CPU."""
    if device not in getattr(find(name), "devices", ("cpu",)):
        raise InvalidProblemError(f"device={device!r} is for method='kl'; method={name!r} plans on the CPU")


def make(name: str, problem: Problem, options: Mapping[str, str], seed: int, device: str = "cpu") -> Method:
    """The method, ready for counts of ``problem``; ``seed`` breaks ties, 0 in favour of the lowest action."""
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
        raise InvalidProblemError(f"the array memory of method {name!r} is now state() and restore(state)")
    return method
