"""The table of declarations: what a user states about a problem.

Each field of :class:`Declarations` is an entry of the table. The entry defines the check of the value, the kinds of source
that it does not apply to, the declarations that it excludes, the help text, the forms on the command line and in a problem
file, and the sentence in a certificate. Checks of arguments, command-line options, errors, checkpoints and certificates are
derived from the entries. To add a declaration, add a field here, its mathematics in :mod:`entropic_bpi.problem.problem` and,
independently, in :mod:`entropic_bpi.verification`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.problem import sentences
from entropic_bpi.problem import toml_values as toml
from entropic_bpi.problem.risk import check_risk
from entropic_bpi.tools import checks
from entropic_bpi.tools.files import reading
from entropic_bpi.tools.text import parse_literal, shown

if TYPE_CHECKING:
    from entropic_bpi.problem.problem_file import ProblemFile

INFO = "info"
"""Value of ``allowed``: the masks come with each observation, as ``info["action_mask"]``."""
FIXED = "fixed"
"""Value of ``start``: every episode starts in the same state as the first one."""
MOST_STATES = 100_000  # the largest max_states, and the largest size of a space whose elements are listed
REWARD_LAWS = ("fixed", "random", "random-pair")
"""The reward given state, action and next state: a number, random, or random and independent of the next state."""


def _as_array(name: str, value: Any) -> Any:
    """Return the array in a file if the value is the path of one (``.npy``), otherwise the value."""
    if not isinstance(value, str) or not value.endswith(".npy"):
        return value
    import numpy as np

    with reading(value, f"{value} is not a readable .npy file"):
        return np.load(value, allow_pickle=False)


class Entry(NamedTuple):
    """An entry of the table of declarations.

    Attributes
    ----------
    check : function ``(name, value)``
        Returns the value in its final form, or raises an error.
    help : str
        The help text of the command-line option.
    kind : type or None
        The type of the option's value; None if there is no option.
    metavar : str or None
        The placeholder of the option's value in the help text.
    neutral : value
        A value that declares nothing, and is accepted for every source.
    not_for : dict
        For each kind of source that it does not apply to (``"model"``, ``"environment"``, ``"log"``, ``"exploration"``), the
        reason.
    excludes : dict
        For each declaration that it cannot be combined with, the reason.
    section : {"declare", "names"}
        Its section in a problem file. Entries in ``"names"`` are not part of the proof and need no confirmation.
    from_toml : function ``(name, value)``
        Converts a value of a problem file to the form that ``check`` takes, or raises an error.
    from_text : function or None
        Converts the text of the option to a value, if ``kind`` does not.
    sentence : function ``(problem, transitions)`` or None
        Returns the sentence of a certificate about it, or None. Certificates list the sentences in the order of the table.
    always_said : bool
        Whether certificates have the sentence also if nothing is declared.
    """

    check: Callable[[str, Any], Any]
    help: str
    kind: Any = None
    metavar: str | None = None
    neutral: Any = None
    not_for: Mapping[str, str] = {}
    excludes: Mapping[str, str] = {}
    section: str = "declare"
    from_toml: Callable[[str, Any], Any] = lambda name, value: value  # which the source checks
    from_text: Callable[[str], Any] | None = None
    sentence: Callable[[Any, Any], str | None] | None = None
    always_said: bool = False


def _entry(check: Callable[[str, Any], Any], help: str, kind: Any = None, **rest: Any) -> Any:
    return field(default=None, metadata={"entry": Entry(check, help, kind, **rest)})


def _named(check: Callable[[str, Any], Any], help: str, metavar: str | None = None) -> Any:
    """Return an entry that is not part of the proof; on the command line, names in a list are separated by commas."""
    from_text = None if metavar is None else lambda text: text.split(",")
    return _entry(check, help, str, metavar=metavar, section="names", from_text=from_text)


def _check_start(name: str, value: Any) -> Any:
    """Return a state, a list of states, or "fixed"; a state that is neither an integer nor a string as a list."""
    if isinstance(value, list) and not value:
        raise InvalidProblemError(f"{name} must name at least one first state")
    return value if isinstance(value, (int, str, list)) else [value]


def _check_allowed(name: str, value: Any) -> Any:
    """Return the declared masks; a string must be "info" or the path of an array, and the source checks other values."""
    value = _as_array(name, value)
    return checks.check_choice(name, value, (INFO,)) if isinstance(value, str) else value


def _check_noise(name: str, value: Any) -> Any:
    from entropic_bpi.model.parts.mechanics import Mechanics, Partitioned  # which need NumPy
    from entropic_bpi.problem.noise import MODEL, Noise

    if not isinstance(value, Noise | Mechanics | Partitioned) and value != MODEL:
        raise InvalidProblemError(f"{name} must be an eb.Noise, or 'model' for that of a model; got {shown(value)}")
    return value


def _check_reward(name: str, value: Any) -> Any:
    """Return a function, a table or known rewards unchanged, and an array with three axes."""
    value = _as_array(name, value)
    if callable(value) or isinstance(value, Mapping) or hasattr(value, "checked"):
        return value
    import numpy as np

    try:
        array = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.ndim not in (2, 3) or not np.isfinite(array).all():
        raise InvalidProblemError(
            f"{name} must be a function (state, action, next_state) -> reward, a table {{(state, action): reward}} or "
            f"{{(state, action, next_state): reward}}, or an array (S, A) or (S, A, S) of finite numbers; got {shown(value)}"
        )
    return array if array.ndim == 3 else array[..., None]


def _check_names(name: str, value: Any) -> Any:
    """Return a sequence of names; the problem checks that their number is right and that they are distinct."""
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise InvalidProblemError(f"{name} must be a list of names, got {shown(value)}")
    return value if isinstance(value, list | tuple) else tuple(value)


def _check_text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidProblemError(f"{name} must be a non-empty string, got {shown(value)}")
    return value


@dataclass(frozen=True, kw_only=True, eq=False)
class Declarations:
    """The declarations about a problem; a field is None if nothing is declared.

    Attributes
    ----------
    horizon : int
        Number of steps.
    start : state, list of states or "fixed"
        The possible first states; with ``"fixed"``, every episode starts in the first state of the first episode.
    stationary : bool
        Whether transitions are the same at every step.
    successors : "model", mask, dict or function
        The possible next states.
    max_successors : int
        The largest number of different outcomes of a state-action pair.
    reward_range : (float, float)
        The range of all rewards, also of those that were not observed yet.
    reward_law : str
        ``"fixed"``, ``"random"`` or ``"random-pair"``: the reward given state, action and next state.
    return_range : (float, float)
        The range of the return of every episode.
    max_states : int
        Upper bound on the number of distinct observations.
    discount : float
        The discount factor of a return that never ends.
    allowed : bool array, function or "info"
        The actions that may be played.
    reward : function, table or array
        The known rewards of an environment or a log.
    noise : Noise or "model"
        The outcome is a known function of state, action and a random label whose law is unknown.
    state_names, action_names : sequence of str
        Names for tables, plots, reports and files, in the order of the states and of the actions.
    unit, title : str
        The unit of the rewards, such as ``"€"``, and a title, for tables and reports.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> eb.Declarations(horizon=10, reward_range=(0, 1)).given()
    {'horizon': 10, 'reward_range': (0.0, 1.0)}
    """

    horizon: int | None = _entry(checks.check_integer, "Number of steps that count.", int)
    stationary: bool | None = _entry(
        checks.check_flag, "Transitions are the same at every step.", bool, sentence=sentences.stationary
    )
    successors: Any = _entry(  # noqa: RUF009
        _as_array,
        "The possible next states: those of the model, or a boolean array (S, A, S).",
        str,
        metavar="model|FILE.npy",
        from_toml=toml.successors_from_toml,
        sentence=sentences.successors,
    )
    max_states: int | None = _entry(
        partial(checks.check_integer, at_most=MOST_STATES),
        "Upper bound on the number of distinct observations.",
        int,
        not_for={
            "model": "max_states is for environments that are played, with reward_range=; a FiniteMDP's states are known"
        },
        sentence=sentences.max_states,
    )
    max_successors: int | None = _entry(
        partial(checks.check_integer, at_most=checks.LARGEST_COUNT),
        "Every state-action pair has at most this many different outcomes.",
        int,
        sentence=sentences.max_successors,
    )
    return_range: tuple[float, float] | None = _entry(
        checks.check_range,
        "The return of every episode lies in this range, whatever is played.",
        tuple[float, float],
        metavar="LOW HIGH",
        not_for={
            "model": "return_range is for environments: the episodes of a FiniteMDP are drawn many at once, so that the "
            "return of each cannot be checked",
            "exploration": "return_range is not for explore, which ignores the rewards that are paid",
        },
        excludes={"discount": "their combination is not proved"},
        sentence=sentences.return_range,
    )
    reward_range: tuple[float, float] | None = _entry(
        checks.check_range,
        "The range of all rewards, also of those not observed yet.",
        tuple[float, float],
        metavar="LOW HIGH",
        not_for={"model": "reward_range is for environments with unknown rewards; a FiniteMDP's are known"},
        sentence=sentences.rewards,
        always_said=True,
    )
    reward_law: str | None = _entry(
        partial(checks.check_choice, choices=REWARD_LAWS),
        "The reward given state, action and next state: fixed, random, or random-pair (independent of the next state).",
        str,
        neutral="fixed",
        not_for={
            "model": "reward_law is for environments; a FiniteMDP's rewards are known and fixed",
            "exploration": "reward_law is not for explore, which ignores the rewards that are paid",
        },
    )
    discount: float | None = _entry(
        checks.check_probability,
        "Discount factor of a return that never ends.",
        float,
        not_for={
            "log": "discount is not supported for logs, whose returns are not discounted",
            "exploration": "discount is not for explore, whose claim is for a finite number of steps",
        },
        sentence=sentences.discount,
    )
    start: Any = _entry(  # noqa: RUF009
        _check_start,
        "The first state, a list of the possible ones, or fixed: every episode starts in the same state as the first one.",
        Any,
        metavar="STATE|[STATE,...]|fixed",
        from_toml=toml.start_from_toml,
        from_text=parse_literal,
        sentence=sentences.start,
        always_said=True,
    )
    noise: Any = _entry(  # noqa: RUF009
        _check_noise,
        "Outcomes are a known function of state, action and a random label: the mechanics of the model.",
        str,
        metavar="model",
        not_for={"exploration": "noise is not for explore, which learns one law for each state-action pair"},
        excludes={
            "max_successors": "noise determines the possible next states",
            "max_states": "the outcomes of noise are states, which must be listed",
            "reward_law": "include the randomness of rewards in the labels of noise",
        },
        from_toml=toml.noise_from_toml,
        sentence=sentences.noise,
    )

    allowed: Any = _entry(  # noqa: RUF009
        _check_allowed,
        "The actions that may be played: a boolean array (S, A) or (H, S, A), or info (the environment's action_mask).",
        str,
        metavar="info|FILE.npy",
        sentence=sentences.allowed,
    )

    reward: Any = _entry(  # noqa: RUF009
        _check_reward,
        "The known rewards: an array (S, A) or (S, A, S).",
        str,
        metavar="FILE.npy",
        not_for={
            "model": "reward is for environments and logs; a FiniteMDP's rewards are known",
            "exploration": "reward is not for explore, whose claim is for every reward",
        },
        excludes={
            "max_states": "known rewards need states that are listed",
            "noise": "the outcome of a label includes its reward",
            "reward_law": "known rewards are not random",
        },
        from_toml=toml.rewards_from_toml,
    )
    state_names: Any = _named(_check_names, "Names of the states, in their order.", metavar="NAME,...")  # noqa: RUF009
    action_names: Any = _named(_check_names, "Names of the actions, in their order.", metavar="NAME,...")  # noqa: RUF009
    unit: str | None = _named(_check_text, "The unit of the rewards, such as €.")
    title: str | None = _named(_check_text, "A title for tables and reports.")

    def __post_init__(self) -> None:
        for name, entry in ENTRIES.items():
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, entry.check(name, value))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.given().items())})"

    def given(self) -> dict[str, Any]:
        """Return the declarations that were made.

        Returns
        -------
        dict
            Values by name.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> declared = eb.Declarations(horizon=10, reward_range=(0, 1))
        >>> declared.given()
        {'horizon': 10, 'reward_range': (0.0, 1.0)}
        """
        return {name: getattr(self, name) for name in ENTRIES if getattr(self, name) is not None}

    @staticmethod
    def load(path: str | Path) -> ProblemFile:
        """Read a problem file.

        Parameters
        ----------
        path : path
            A TOML file as :meth:`save` writes it; see ``entropic_bpi.problem.problem_file`` for the format.

        Returns
        -------
        ProblemFile
            All declarations, also unconfirmed ones, with the source and the risk. This object, or the path of the file, is a
            source for :func:`entropic_bpi.identify` and other functions.

        Raises
        ------
        InvalidProblemError
            If the file cannot be read, or has an unknown key or an invalid value; the message names the file and the key.

        Examples
        --------
        >>> import tempfile, pathlib, entropic_bpi as eb
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "problem.toml"
        >>> _ = path.write_text('''
        ... source = "risky-bridge"
        ... [declare.horizon]
        ... value = 7
        ... confirmed = true
        ... [declare.max_successors]
        ... value = 2
        ... confirmed = false
        ... ''')
        >>> problem = eb.Declarations.load(path)
        >>> problem.source, problem.given(), problem.unconfirmed
        ('risky-bridge', {'horizon': 7, 'max_successors': 2}, ['max_successors'])
        """
        import entropic_bpi

        return entropic_bpi.ProblemFile.read(path)

    def save(self, path: str | Path) -> None:
        """Write the declarations to a problem file, with a comment for each; :meth:`load` reads it.

        Parameters
        ----------
        path : path
            The file to write. The name of a problem file ends in ``.toml``.

        Raises
        ------
        InvalidProblemError
            If a declaration is a function; use a table instead.

        Examples
        --------
        >>> import tempfile, pathlib, entropic_bpi as eb
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "problem.toml"
        >>> eb.Declarations(horizon=10, reward_range=(0, 1)).save(path)
        >>> eb.Declarations.load(path).given()
        {'horizon': 10, 'reward_range': (0.0, 1.0)}
        """
        import entropic_bpi

        entropic_bpi.ProblemFile(**self.given()).save(path)

    def check_source(self, kind: str) -> None:
        """Raise an error if a declaration does not apply to a kind of source.

        Parameters
        ----------
        kind : str
            ``"model"``, ``"environment"``, ``"log"`` or ``"exploration"``.

        Raises
        ------
        InvalidProblemError
            If a declaration does not apply; the message says why.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> declared = eb.Declarations(horizon=10, reward_range=(0, 1))
        >>> declared.check_source("environment")
        """
        for name in self._stated():
            if kind in ENTRIES[name].not_for:
                raise InvalidProblemError(ENTRIES[name].not_for[kind])

    def check_combinations(self) -> None:
        """Raise an error if two declarations exclude each other.

        Raises
        ------
        InvalidProblemError
            If there are two such declarations; the message says why.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> declared = eb.Declarations(horizon=10, reward_range=(0, 1))
        >>> declared.check_combinations()
        """
        stated = self._stated()
        for name in stated:
            for other, reason in ENTRIES[name].excludes.items():
                if other in stated:
                    raise InvalidProblemError(f"{other} and {name}: {reason}; give one of them")

    def _stated(self) -> list[str]:
        """Return the names of the declarations that were made, without those with a neutral value."""
        given = self.given()
        return [name for name in given if not isinstance(given[name], str) or given[name] != ENTRIES[name].neutral]


def goal_of(arguments: dict[str, Any]) -> tuple[dict[str, Any], Declarations]:
    """Return the goal, which must be complete, and the declarations among the arguments of a run."""
    eps = checks.check_positive("eps", arguments.pop("eps"))
    delta = checks.check_probability("delta", arguments.pop("delta"))
    risk = check_risk(arguments.pop("beta", None), arguments.pop("risk", None))
    declared = Declarations(**arguments)
    if declared.noise is not None and declared.successors is not None:
        raise InvalidProblemError("successors and noise: noise determines the possible next states; give one of them")
    return {"risk": risk, "eps": eps, "delta": delta}, declared


ENTRIES: Mapping[str, Entry] = {item.name: item.metadata["entry"] for item in fields(Declarations)}
"""The table: the entry of each declaration, by name."""
