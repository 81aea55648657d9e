"""Inspect a source: play it for a few seconds and propose what could be declared about it.

A proposal agrees with everything that was seen. Whether it is true is for the user to decide: nothing is used before it is
confirmed. Where too little was seen for a proposal, the remark says so.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model import instances
from entropic_bpi.model.formats.registry import format_of
from entropic_bpi.model.gymnasium.env import as_gymnasium
from entropic_bpi.model.gymnasium.ids import env_factory
from entropic_bpi.model.instances.sources import is_environment, named_model
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.problem.declarations import MOST_STATES, Declarations
from entropic_bpi.problem.noise import Noise
from entropic_bpi.problem.problem_file import ProblemFile, Remark
from entropic_bpi.runs.inspection.proposals import Finding, Notes, read_from
from entropic_bpi.sources.environment import Environment, open_environment
from entropic_bpi.sources.log import Log
from entropic_bpi.sources.observed import observe
from entropic_bpi.sources.opening import as_problem_file
from entropic_bpi.sources.spaces import FiniteSpace, finite
from entropic_bpi.tools.checks import check_integer, check_positive, check_seed
from entropic_bpi.tools.text import shown
from entropic_bpi.types import Summarised

EXAMPLE_HORIZON = 10  # of the suggested command, if none is proposed
_CONFIRM = "An assumption: confirm it if it is true of your problem"
# How a declaration helps, in words.
_BENEFITS = {
    "stationary": "the visits of all steps are counted together",
    "start": "the distribution of the first state need not be estimated",
    "reward_range": "required; a narrow range needs fewer episodes",
    "reward_law": "fixed rewards are known after one visit",
    "max_successors": "outcomes beyond this number need not be ruled out; 1 makes a pair known after one visit",
    "max_states": "states that were not seen need not be considered",
    "return_range": "bounds on the return are as narrow as this range",
    "allowed": "forbidden actions need not be tried",
}


@dataclass(frozen=True, eq=False)
class Inspection(Summarised):
    """What a few seconds of play show, and which declarations agree with it: the outcome of :func:`inspect`.

    Attributes
    ----------
    source : str
    declarations : Declarations
        Declarations that agree with everything that was seen. None of them is confirmed.
    remarks : dict of str
        What was seen, for each proposal; the reason, for each declaration that is not proposed.
    findings : tuple of Finding
        ``name``, ``text`` and ``seen``, one for each line of the summary.
    problems : tuple of str
        What makes a certificate impossible, such as observations that are not a Markov state.
    episodes, steps : int
    seconds : float
    origin : str or None
        The source as a problem file names it; None if it has no name.
    params : dict
        Parameters of the source.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> eb.inspect("FrozenLake-v1", episodes=50, seed=0).episodes
    50
    """

    source: str
    declarations: Declarations
    remarks: Mapping[str, str]
    findings: tuple[Finding, ...]
    problems: tuple[str, ...]
    episodes: int
    steps: int
    seconds: float
    origin: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)

    def save(self, path: str | Path) -> None:
        """Write the proposals as a problem file, each with ``confirmed = false`` and what was seen.

        Parameters
        ----------
        path : path
            Where to write it. The name of a problem file ends in ``.toml``.

        Examples
        --------
        >>> import tempfile, pathlib, entropic_bpi as eb
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "problem.toml"
        >>> eb.inspect("FrozenLake-v1", episodes=50, seed=0).save(path)
        >>> "reward_range" in eb.Declarations.load(path).unconfirmed
        True
        """
        given = self.declarations.given()
        benefits = {name: f"; its use: {_BENEFITS[name]}" if name in _BENEFITS else "" for name in given}
        remarks = {name: Remark(False, f"{self.remarks[name]}. {_CONFIRM}{text}.") for name, text in benefits.items()}
        ProblemFile(**given, source=self.origin, params=self.params, remarks=remarks).save(path)

    @property
    def not_proposed(self) -> dict[str, str]:
        """For each declaration that could not be proposed, the reason."""
        return {name: text for name, text in self.remarks.items() if name not in self.declarations.given()}

    @property
    def spread(self) -> float:
        """How much returns can differ, as proposed; without a horizon in ``EXAMPLE_HORIZON`` steps; 1 if that is unknown."""
        declared = self.declarations
        low, high = declared.return_range or declared.reward_range or (0.0, 1.0)
        steps = 1 if declared.return_range or not declared.reward_range else declared.horizon or EXAMPLE_HORIZON
        return steps * (high - low) or 1.0

    def _lines(self) -> Iterator[tuple[str, str, str]]:
        yield from (("PROBLEM", text, "") for text in self.problems)
        yield from self.findings
        for name, value in self.declarations.given().items():
            yield f"{name} = {_written(value)}", "proposal, not confirmed", self.remarks[name]
        for name, text in self.not_proposed.items():
            yield name, "not proposed", text

    def __str__(self) -> str:
        width = max(len(name) for name, _, _ in self._lines())
        rows = (f"{name:{width}}  {text}{f' ({seen})' if seen else ''}" for name, text, seen in self._lines())
        return "\n".join((self.source, *rows))

    def __repr__(self) -> str:
        declared = ", ".join(f"{name}={_written(value)}" for name, value in self.declarations.given().items())
        return f"Inspection({self.source}, {self.episodes} episodes, proposals: {declared or 'none'})"


def inspect(
    source: Any,
    *,
    seconds: float = 5.0,
    episodes: int | None = None,
    seed: int | None = None,
    noise: Noise | None = None,
) -> Inspection:
    """Play a source for a few seconds, report what was seen, and propose what could be declared.

    A quarter of the episodes is played at random, the others towards the actions that were tried least. Nothing has to be
    declared. The proposals agree with everything that was seen, which does not make them true: confirm those that are true
    of your problem.

    Parameters
    ----------
    source : environment, FiniteMDP or problem file
        A Gymnasium environment, a vector environment, an environment id, a class, a factory, the path of a problem file, or
        a source as on the command line, such as ``"gym:FrozenLake-v1"`` or ``"risky-bridge"``. A model is played, too, but
        its declarations are read from it and are true.
    seconds : float
        How long to play.
    episodes : int, optional
        How many episodes to play at most.
    seed : int, optional
        With ``episodes``, repeats an inspection if the seconds suffice.
    noise : Noise, optional
        Mechanics to check: whether one of the labels explains each transition that is seen. Default: those of the problem
        file.

    Returns
    -------
    Inspection
        Print it for a summary; :meth:`Inspection.save` writes a problem file.

    Raises
    ------
    InvalidProblemError
        If the source cannot be opened, its actions are not finite, or a reward is not a finite number.

    Examples
    --------
    >>> import gymnasium, entropic_bpi as eb
    >>> lake = gymnasium.make("FrozenLake-v1", is_slippery=False)
    >>> found = eb.inspect(lake, episodes=400, seed=0)
    >>> found.declarations.reward_range, found.declarations.max_successors, found.declarations.horizon
    ((0.0, 1.0), 1, 100)
    """
    check_positive("seconds", seconds)
    limit = None if episodes is None else check_integer("episodes", episodes)
    entropy: Any = np.random.SeedSequence().entropy if seed is None else check_seed("seed", seed)
    file = _file_of(source)
    opened = source if file is None else _open(file)
    declared: Any = noise if noise is not None or file is None else file.noise
    if isinstance(opened, Log):
        raise InvalidProblemError(
            "inspect plays episodes, which a log cannot; certify says which declarations a log needs"
        )
    world = as_gymnasium(opened) if isinstance(opened, FiniteMDP) else opened
    with closing(open_environment(world, 1, MOST_STATES)) as env:
        seen = observe(env, seconds=seconds, episodes=limit, seed=entropy)
        spaces, states = _spaces(env, len(seen.states))
        notes = Notes(seen, limit=env.time_limit, listed=None if states is None else states.size)
        actions = env.actions
        name = env.name if env.env.spec is not None else type(env.env).__name__
    if isinstance(declared, Noise):
        if states is None:
            raise InvalidProblemError("noise= needs observations that can be listed before they are seen")
        notes.check_noise(declared, states, actions)
    proposals = read_from(opened) if isinstance(opened, FiniteMDP) else notes.proposals()
    return Inspection(
        source=name if file is None else file.named_source,
        declarations=Declarations(**{name: value for name, (value, _) in proposals.items()}),
        remarks={name: text for name, (_, text) in proposals.items()},
        findings=(*spaces, *notes.findings()),
        problems=notes.problems,
        episodes=seen.episodes,
        steps=seen.steps,
        seconds=seen.seconds,
        origin=None if file is None else file.source,
        params={} if file is None else file.params,
    )


def _file_of(source: Any) -> ProblemFile | None:
    """Return the problem file of a source, or one that names it if it is a text; None for any other source."""
    file = as_problem_file(source)
    if file is not None or not isinstance(source, str):
        return file
    is_model = format_of(Path(source)) is not None or source.replace("_", "-") in instances.names()
    return ProblemFile(source=source if is_model or is_environment(source) else f"gym:{source}")


def _open(file: ProblemFile) -> Any:
    """Return the environment or the model that a problem file names."""
    word = file.named_source
    if is_environment(word):
        return env_factory(word.removeprefix("gym:"), dict(file.params))
    return named_model(word, file.given(), file.params, file.folder)


def _spaces(environment: Environment, states: int) -> tuple[list[Finding], FiniteSpace | None]:
    """Return the findings about the spaces, and the space of the observations if its elements can be listed."""
    space = environment.single_observation_space
    found = finite(space)
    found = found if found is not None and found.listable else None
    listed = "not finite or too many to list" if found is None else f"{found.size:,} elements"
    actions = Finding("actions", shown(environment.single_action_space), f"{environment.actions.size} actions")
    seen = f"{listed}; {states:,} distinct ones seen before an end"
    return [Finding("observations", shown(space), seen), actions], found


def _written(value: Any) -> str:
    return f"({', '.join(f'{item:g}' for item in value)})" if isinstance(value, tuple) else str(value)
