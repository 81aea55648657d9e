"""Instances: example problems, built by a function or by name.

``make("risky-bridge", horizon=9)`` and ``risky_bridge(horizon=9)`` build the same model; names may be written with
hyphens, as on the command line, or with underscores. The command ``entropic-bpi instances`` shows the first line of each
function's docstring.
"""

import inspect
from collections.abc import Callable
from typing import Any

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.gymnasium.table import from_gymnasium
from entropic_bpi.model.instances.classic import garnet, risky_bridge, river_swim
from entropic_bpi.model.instances.hard import hard_instance
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.tools.text import shown

__all__ = ["builder", "from_gymnasium", "garnet", "hard_instance", "make", "names", "risky_bridge", "river_swim"]

_BUILDERS: dict[str, Callable[..., FiniteMDP]] = {
    "risky-bridge": risky_bridge,
    "hard-instance": hard_instance,
    "garnet": garnet,
    "river-swim": river_swim,
}


def names() -> list[str]:
    """Return the names of all instances, which :func:`make` accepts.

    Returns
    -------
    list of str
        The names.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> eb.instances.names()
    ['risky-bridge', 'hard-instance', 'garnet', 'river-swim']
    """
    return list(_BUILDERS)


def builder(name: str) -> Callable[..., FiniteMDP]:
    """Return the function that builds an instance.

    Parameters
    ----------
    name : str
        One of :func:`names`.

    Returns
    -------
    callable
        The function that builds the model.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> eb.instances.builder("river-swim") is eb.instances.river_swim
    True
    """
    build = _BUILDERS.get(name.replace("_", "-")) if isinstance(name, str) else None
    if build is None:
        raise InvalidProblemError(f"unknown instance {shown(name)}: expected one of {', '.join(names())}")
    return build


def make(name: str, **params: Any) -> FiniteMDP:
    """Build the instance ``name``; ``params`` are the arguments of its function.

    Parameters
    ----------
    name : str
        One of :func:`names`; underscores may replace hyphens.
    **params
        Parameters of the instance.

    Returns
    -------
    FiniteMDP
        The model.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> eb.instances.make("risky-bridge", horizon=9)
    FiniteMDP(8 states, 2 actions, horizon 9, stationary, dense)
    """
    return _build(name, params)


def _build(name: str, params: dict[str, Any]) -> FiniteMDP:
    """Build an instance with parameters of any names, also ``name``, which :func:`make` could not accept."""
    build = builder(name)
    signature = inspect.signature(build)
    try:
        signature.bind(**params)
    except TypeError as error:
        raise InvalidProblemError(f"{name}: {error}; it takes {', '.join(signature.parameters)}") from None
    return build(**params)
