"""Known models from Gymnasium environments that publish their transition table."""

import math
import operator
import warnings
from contextlib import AbstractContextManager, closing, nullcontext
from itertools import product
from typing import Any

import numpy as np

from entropic_bpi.errors import InvalidModelError, InvalidProblemError
from entropic_bpi.model.gymnasium.ids import env_factory
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.model.parts.arrays import SUM_TOLERANCE, SparseTransitions, starts_of
from entropic_bpi.model.parts.reading import read_start
from entropic_bpi.tools.checks import check_integer
from entropic_bpi.tools.text import shown

# Action names of the toy-text families, in the order of their action numbers.
_ACTION_NAMES = {
    "FrozenLake": ("left", "down", "right", "up"),
    "CliffWalking": ("up", "right", "down", "left"),
    "Taxi": ("south", "north", "east", "west", "pickup", "dropoff"),
}

_Place = tuple[int, int]  # next state (n_states for the end of the episode), and the number of its twin (0 for itself)
_Outcome = tuple[float, float]  # probability, reward


def from_gymnasium(env_or_id: Any, *, horizon: int, start: Any = None, **make_kwargs: Any) -> FiniteMDP:
    """Read the model of an environment that publishes its transition table ``env.unwrapped.P``.

    FrozenLake, CliffWalking and Taxi do. State ``s`` of the model is observation ``s`` of the environment. Transitions
    that terminate the episode lead to an additional state, ``end``, which is absorbing and has reward 0. The environment's
    own time limit is replaced by ``horizon``.

    The reward of a model is a function of state, action and next state. If a state and action reach the same next state
    with different rewards, as in ``CliffWalkingSlippery``, the lowest reward belongs to the state itself and each other one
    to a twin of it (``36'``, ``36''``, …): an additional state with the same transitions and rewards. Likewise, the end has
    copies (``end 2``, …) if an episode can terminate with different rewards. All states and actions share the twins, so
    that a state has one twin less than the largest number of rewards with which a single state and action reach it. Twins
    and ends are numbered after the environment's states, twins first.

    Parameters
    ----------
    env_or_id : gymnasium.Env or str
        An environment, which is not played; or an id for ``gymnasium.make`` (``"package:Env-v0"`` imports the package
        first); or ``"file.py:Class"``.
    horizon : int
        Number of steps, at least 1.
    start : optional
        First state, or distribution over the environment's states. The default is the environment's
        ``initial_state_distrib``; required if it has none.
    **make_kwargs
        Options for ``gymnasium.make``, such as ``map_name="8x8"``; only with an id.

    Returns
    -------
    FiniteMDP
        The model.

    Raises
    ------
    InvalidModelError
        If there is no table, if a space is not ``Discrete``, or if a wrapper changes the environment, so that the table does
        not describe it.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> lake = eb.from_gymnasium("FrozenLake-v1", horizon=30, is_slippery=False)
    >>> lake
    FiniteMDP(17 states, 4 actions, horizon 30, stationary, sparse)
    >>> round(eb.solve(lake, beta=1.0).value, 9)
    1.0
    """
    horizon = check_integer("horizon", horizon)
    with _opened(env_or_id, make_kwargs) as env:
        label = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
        _check_table_is_all(env, label)
        n_states, n_actions = (_size_of(env.unwrapped, kind, label) for kind in ("observation", "action"))
        rows = [_read_row(env.unwrapped.P, s, a, n_states) for s, a in product(range(n_states), range(n_actions))]
        if start is None and not hasattr(env.unwrapped, "initial_state_distrib"):
            expected = "pass start= (a state, or a distribution over its states)"
            raise InvalidModelError(f"{label} does not publish initial_state_distrib: {expected}")
        given = env.unwrapped.initial_state_distrib if start is None else start
        family = "" if env.spec is None else env.spec.name
    table, names = _number(rows, n_states, n_actions)
    known = (a for name, a in _ACTION_NAMES.items() if family.startswith(name) and len(a) == n_actions)
    named: dict[str, Any] = {"state_names": names, "action_names": next(known, None)}
    first = _first(given, n_states, len(names))
    return FiniteMDP(*_compress(table, n_actions), horizon=horizon, start=first, **named)


def _opened(env_or_id: Any, make_kwargs: dict[str, Any]) -> AbstractContextManager[Any]:
    """Return a context of the given environment, or of a new one, which is closed at the end."""
    import gymnasium

    if isinstance(env_or_id, gymnasium.Env):
        if make_kwargs:
            raise InvalidModelError(f"{', '.join(make_kwargs)}: options apply to an id, not to an existing environment")
        return nullcontext(env_or_id)
    if not isinstance(env_or_id, str):
        raise InvalidModelError(f"expected a Gymnasium environment or an id, got {shown(env_or_id)}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # an outdated id either works or fails below
            return closing(env_factory(env_or_id, make_kwargs)())
    except InvalidProblemError as error:
        raise InvalidModelError(str(error)) from None
    except Exception as error:  # environments may raise any exception for invalid options
        raise InvalidModelError(f"gymnasium cannot make {env_or_id!r}: {type(error).__name__}: {error}") from error


def _check_table_is_all(env: Any, label: str) -> None:
    """Raise an error if the environment has no table, or behaves in another way than its table says."""
    import gymnasium

    if not hasattr(env.unwrapped, "P"):
        raise InvalidModelError(
            f"{label} publishes no transition table (env.unwrapped.P), so its model cannot be read; "
            "FrozenLake, CliffWalking and Taxi do. It can be played as a black box: identify with reward_range=(low, high) "
            "(--reward-range LOW HIGH)"
        )
    if getattr(env.unwrapped, "fickle_passenger", False):
        raise InvalidModelError(f"the table of {label} does not include fickle_passenger=True")
    changing = (gymnasium.RewardWrapper, gymnasium.ObservationWrapper, gymnasium.ActionWrapper)
    while env is not env.unwrapped:
        if isinstance(env, changing):
            wrapper = type(env).__name__
            raise InvalidModelError(f"the table of {label} does not include its wrapper {wrapper}: unwrap it")
        env = env.env


def _size_of(env: Any, kind: str, label: str) -> int:
    from gymnasium.spaces import Discrete

    space = getattr(env, f"{kind}_space")
    if not isinstance(space, Discrete) or space.start != 0:
        raise InvalidModelError(f"the {kind} space of {label} must be Discrete and start at 0, got {space}")
    return int(space.n)


def _read_row(table: Any, state: int, action: int, n_states: int) -> dict[_Place, _Outcome]:
    """Return the outcomes of a state and action; the rewards of a next state go to its twins in increasing order."""
    place = f"P[{state}][{action}]"
    try:
        outcomes = [(float(p), operator.index(s), float(r), bool(done)) for p, s, r, done in table[state][action]]
    except (KeyError, IndexError):
        raise InvalidModelError(f"{place} is missing from the transition table") from None
    except (TypeError, ValueError):
        raise InvalidModelError(f"{place} must list (probability, next state, reward, terminated)") from None
    law: dict[int, dict[float, float]] = {}  # next state → reward → probability
    for probability, successor, reward, terminated in outcomes:
        if not (probability >= -SUM_TOLERANCE and math.isfinite(reward) and 0 <= successor < n_states):
            outcome = (probability, successor, reward, terminated)
            raise InvalidModelError(f"{place} holds {outcome}: not a valid outcome")
        if probability > 0:
            rewards = law.setdefault(n_states if terminated else successor, {})
            rewards[reward] = rewards.get(reward, 0.0) + probability
    if not law:
        raise InvalidModelError(f"{place} has no outcome of positive probability")
    return {(s, copy): (law[s][reward], reward) for s in law for copy, reward in enumerate(sorted(law[s]))}


def _number(
    rows: list[dict[_Place, _Outcome]], n_states: int, n_actions: int
) -> tuple[list[dict[int, _Outcome]], list[str]]:
    """Return the rows with numbered next states, the rows of twins and ends included, and the names of all states."""
    added = sorted({place for row in rows for place in row if place[0] == n_states or place[1] > 0})
    number = {(s, 0): s for s in range(n_states)} | {place: n_states + i for i, place in enumerate(added)}
    table = [dict(sorted((number[place], outcome) for place, outcome in row.items())) for row in rows]
    names = list(map(str, range(n_states)))
    for s, copy in added:
        if s < n_states:
            table += table[s * n_actions : (s + 1) * n_actions]
            names.append(str(s) + "'" * copy)
        else:
            table += [{number[s, copy]: (1.0, 0.0)}] * n_actions
            names.append(f"end {copy + 1}" if copy else "end")
    return table, names


def _first(start: Any, n_states: int, n_all: int) -> int | np.ndarray:
    """Return the start over all states, given that over the environment's states; a single state if it is certain."""
    checked = read_start(start, n_states)
    if isinstance(checked, int):
        return checked
    possible = np.flatnonzero(checked)
    return int(possible[0]) if len(possible) == 1 else np.pad(np.asarray(start, dtype=float), (0, n_all - n_states))


def _compress(table: list[dict[int, _Outcome]], n_actions: int) -> tuple[SparseTransitions, Any]:
    """Return compressed rows, and rewards ``(S, A)``, or the sizes ``(S, A)`` if rewards depend on the next state."""
    indptr = starts_of([len(row) for row in table])
    indices = np.array([successor for row in table for successor in row], dtype=np.int32)
    probabilities, rewards = np.array([outcome for row in table for outcome in row.values()]).T
    low, high = np.minimum.reduceat(rewards, indptr[:-1]), np.maximum.reduceat(rewards, indptr[:-1])
    if (low == high).all():
        return SparseTransitions(indptr, indices, probabilities), low.reshape(-1, n_actions)
    return SparseTransitions(indptr, indices, probabilities, rewards), (len(table) // n_actions, n_actions)
