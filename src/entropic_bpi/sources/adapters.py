"""Environments of other interfaces, opened through their official adapters to Gymnasium (the package shimmy).

==================================  ====================================================================
interface                           adapter
==================================  ====================================================================
Gym 0.26, ``gym.Env``               ``shimmy.GymV26CompatibilityV0``
Gym 0.21 and older, with 4-tuples   ``shimmy.GymV21CompatibilityV0``
dm_env, such as bsuite              ``shimmy.BSuiteCompatibilityV0``
dm_control                          ``shimmy.DmControlCompatibilityV0``
PettingZoo                          none, since one of the agents has to be chosen; the error describes how
==================================  ====================================================================
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

from entropic_bpi.errors import InvalidProblemError

_EXTRA = "pip install 'entropic-bpi[compat]'"


def as_gymnasium_env(env: Any, name: str) -> Any:
    """Return an environment of another interface as a Gymnasium environment; other objects are returned unchanged.

    Parameters
    ----------
    env : object
        The environment.
    name : str
        Its name in error messages.

    Returns
    -------
    gymnasium.Env, or ``env``

    Raises
    ------
    InvalidProblemError
        If the adapter is not installed or fails, or if there is none for the interface.
    """
    ancestry = {f"{part.__module__.split('.')[0]}.{part.__name__}" for part in type(env).__mro__}
    if "gym.Env" in ancestry:
        steps = "26" if "seed" in inspect.signature(env.reset).parameters else "21"
        return _adapted(env, name, "Gym", f"GymV{steps}CompatibilityV0")
    if "dm_env.Environment" in ancestry:
        control = any(part.startswith("dm_control.") for part in ancestry)
        return _adapted(env, name, "dm_env", f"{'DmControl' if control else 'BSuite'}CompatibilityV0")
    if any(part.startswith("pettingzoo.") for part in ancestry):
        raise InvalidProblemError(
            f"{name} is a PettingZoo environment of several agents: wrap it in a gymnasium.Env in which one agent plays and "
            "the others follow fixed policies (its step plays them until it is that agent's turn again)"
        )
    return env


def _adapted(env: Any, name: str, interface: str, adapter: str) -> Any:
    try:
        make = getattr(import_module("shimmy"), adapter)
    except (ImportError, AttributeError) as error:
        raise InvalidProblemError(
            f"{name} is an environment of {interface}, which is opened through shimmy.{adapter}: {_EXTRA} ({error})"
        ) from None
    try:
        return make(env=env)
    except Exception as error:  # adapters, and environments that deviate from their interface, may raise any exception
        raise InvalidProblemError(f"shimmy.{adapter} cannot adapt {name}, made for {interface}: {error}") from error
