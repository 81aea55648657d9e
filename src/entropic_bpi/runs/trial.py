"""Before a run: what it would probably take, and which declarations would help, by short trial runs of it.

A trial run is the run itself, ended early; its own last gaps say how much longer it would go on
(:mod:`entropic_bpi.runs.timings`).
Then each declaration that could be true is made, alone and all of them together, and the trial run is repeated. What a
model is known to have is read from the model. Of an environment nobody knows: a declaration that fits all that was seen is
tried, and the factor that is told is what it would bring *if* it is true. Nothing is certified by any of this.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, NoReturn

import numpy as np

from entropic_bpi import theory
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.model.return_law import max_return
from entropic_bpi.problem.declarations import FIXED
from entropic_bpi.problem.risk import EVaR
from entropic_bpi.runs.identification import identify, refuse_renamed, start_run
from entropic_bpi.runs.loop import Loop
from entropic_bpi.runs.settings import EVERY, Settings
from entropic_bpi.runs.timings import Forecast, between, count
from entropic_bpi.tools.checks import check_integer, check_positive, refuse_attribute

__all__ = ["Declaration", "RunForecast", "TrialRun", "forecast"]

# Of the arguments of identify, those that do not change what a run takes.
_NOT_ASKED = {
    "source",
    "max_episodes",
    "max_seconds",
    "checkpoint",
    "accept_errors",
    "preregister",
    "progress",
    "renamed",
}
# Larger models than this many rows (h, s, a) are too much for the proved lower bound, which is looked for so long.
_LARGEST_FOR_BOUND, _BOUND_SECONDS = 150, 1.0
# A range of returns is worth declaring if it is narrower than this part of what the rewards allow.
_NARROW = 0.9
# A smaller factor than this is none.
_ALIKE = 1.05
_RENAMED = {"pilot": "trial"}
_UPPER_FORMS = {"verified": "verified", "sharp": "implicit"}


class TrialRun(NamedTuple):
    """A short run, the beginning of the run that is forecast.

    ``until`` is all that the run takes, from its first episode to the goal: known if the trial run ``reached`` it, otherwise
    a range by its last gaps, or None where there is no ground for a forecast yet. Time for compiling is left out.

    Attributes
    ----------
    episodes : int
        Episodes played.
    seconds : float
        Time, without compiling.
    gap : float
        The gap at the end.
    reached : bool
        Whether the target was reached.
    until : Forecast or None
        Episodes and seconds of the whole run: known if the target was reached, otherwise a range, or None if there is no
        forecast yet.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> found = eb.forecast(bridge, beta=-1.0, eps=0.5, delta=0.1, seed=1, trial_episodes=200)
    >>> found.pilot.episodes, found.pilot.reached
    (200, False)
    """

    episodes: int
    seconds: float
    gap: float
    reached: bool
    until: Forecast | None


class Declaration(NamedTuple):
    """A declaration that could be made, and its effect.

    ``true`` says that it was read from the model; otherwise it only fits what was seen. With it the run takes a ``factor``
    fewer episodes, from one end of the forecasts' ranges to the other: the upper end is infinite where the run without it
    has no forecast, and None where this one has none.

    Attributes
    ----------
    declared : dict
        The declaration, by the names of arguments of ``identify``.
    true : bool
        Whether it was read from the model; otherwise it only agrees with all observations.
    pilot : TrialRun
        The trial run with this declaration.
    factor : (float, float) or None
        How many times fewer episodes the run takes with it, from one end of the forecasts' ranges to the other. The upper
        end is infinite if the run without it has no forecast; None if this one has none.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> found = eb.forecast(bridge, beta=-1.0, eps=0.5, delta=0.1, seed=1, trial_episodes=200)
    >>> found.declarations[0].declared
    {'successors': 'model'}
    """

    declared: dict[str, Any]
    true: bool
    trial: TrialRun
    factor: tuple[float, float] | None

    def __getattr__(self, name: str) -> NoReturn:
        refuse_attribute(self, name, _RENAMED)

    @property
    def helps(self) -> bool:
        """Whether the trial runs show that it does."""
        return self.factor is not None and self.factor[0] > 1

    @property
    def effect(self) -> str:
        """In words, what it does to the number of episodes."""
        if self.factor is None:
            return f"no forecast yet: a gap of {self.trial.gap:.3g} after {self.trial.episodes:,} episodes"
        low, high = self.factor
        if max(low, 1 / low, high, 1 / high) < _ALIKE:
            return "about as many episodes"
        if low <= 1 <= high:
            none = "no measurable difference; try a longer trial run"
            return "a forecast, where there is none yet" if high == math.inf else none
        if high < 1:
            return "more episodes"
        if high == math.inf:
            return f"more than {_times(low)} times fewer episodes"
        return f"{between(low, high, _times)} times fewer episodes"

    def __str__(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.declared.items())


@dataclass(frozen=True)
class RunForecast:
    """What a run would probably take: the outcome of :func:`forecast`.

    Attributes
    ----------
    trial : TrialRun
        With the arguments as given.
    declarations : tuple of Declaration
        Those that were tried, the most helpful first.
    lower : float or None
        No algorithm with the same guarantee takes fewer episodes, on average, on this model (small known models alone; see
        :func:`entropic_bpi.theory.characteristic_time`).
    upper : float or None
        With ``method="bernstein"`` on a known model: how many episodes are proved to be enough.
    memory : int or None
        Bytes: the most that this process has had so far, where the system tells.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> found = eb.forecast(bridge, beta=-1.0, eps=0.5, delta=0.1, seed=1, trial_episodes=200)
    >>> low, high = found.episodes
    >>> 200 < low < high
    True
    """

    trial: TrialRun
    declarations: tuple[Declaration, ...]
    lower: float | None
    upper: float | None
    memory: int | None

    def __getattr__(self, name: str) -> NoReturn:
        refuse_attribute(self, name, _RENAMED)

    @property
    def episodes(self) -> tuple[float, float] | None:
        """The range of the episodes to the goal, or None if there is no forecast yet."""
        return None if self.trial.until is None else self.trial.until.episodes

    @property
    def seconds(self) -> tuple[float, float] | None:
        """The same of the seconds."""
        return None if self.trial.until is None else self.trial.until.seconds

    def _repr_html_(self) -> str:
        import entropic_bpi

        return entropic_bpi.report.summary_html(self)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        trial = self.trial
        if trial.until is None:
            yield f"no forecast yet: a gap of {trial.gap:.3g} after {trial.episodes:,} episodes"
        else:
            yield ("reached by the trial run: " if trial.reached else "probably ") + trial.until.in_all()
        for one in self.declarations:
            yield f"{one}: {one.effect}{'' if one.true else ', if it is true'}"


def _times(factor: float) -> str:
    return f"{factor:.2g}" if factor < 99 else count(factor)


def forecast(
    source: Any, *, trial_seconds: float = 3.0, trial_episodes: int | None = None, **arguments: Any
) -> RunForecast:
    """What a run of :func:`identify` would probably take, by a short trial run of it, and which declarations would help.

    Parameters
    ----------
    source : FiniteMDP, Gymnasium environment, vector environment, environment id, class, factory or problem file
        As of :func:`identify`. An environment is played by the trial runs, of which there are up to five.
    trial_seconds : float
        How long a trial run may take, besides compiling. A longer one has seen more of how the gap falls.
    trial_episodes : int, optional
        How many episodes it may play, for environments whose episodes are expensive.
    **arguments
        Those of :func:`identify`: ``beta`` or ``risk``, ``eps``, ``delta``, ``horizon`` and so on, except for what ends or
        saves a run.

    Returns
    -------
    RunForecast
        The forecast, and the declarations that were tried.

    Examples
    --------
    A model this small is certified by the trial run itself. What is advised is true: it is read from the model.

    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> outlook = eb.forecast(bridge, beta=-1.0, eps=0.5, delta=0.1, seed=1, trial_seconds=60.0)
    >>> print(outlook)  # doctest: +ELLIPSIS
    reached by the trial run: 1,400 episodes, ...
    successors='model': 31 times fewer episodes
    stationary=True, successors='model': 30 times fewer episodes
    stationary=True: 2.7 times fewer episodes
    max_successors=2: 1.2 times fewer episodes

    A shorter one foresees a range, which is no bound:

    >>> low, high = eb.forecast(bridge, beta=-1.0, eps=0.5, delta=0.1, seed=1, trial_episodes=200).episodes
    >>> low < outlook.trial.episodes < high
    True

    The run, with what helps:

    >>> best = outlook.declarations[0]
    >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, **best.declared, seed=1)
    >>> result.stopped
    True
    """
    unknown = set(arguments) - (set(inspect.signature(identify).parameters) - _NOT_ASKED)
    if unknown:
        refuse_renamed("forecast", {name: arguments[name] for name in unknown if name in ("rewards", "announce")})
        raise TypeError(f"forecast() takes the arguments of identify() that describe a run, not {sorted(unknown)[0]!r}")
    source, settings = Settings.read(
        source,
        **arguments,
        max_seconds=check_positive("trial_seconds", trial_seconds),
        max_episodes=None if trial_episodes is None else check_integer("trial_episodes", trial_episodes),
    )
    first, trial = _run_trial(source, settings)
    known = isinstance(source, FiniteMDP)
    found = list(_of_model(source, settings) if known else _of_environment(first))
    tried = [_declared(source, settings, one, known, trial) for one in (*found, *_together(found))]
    declarations = sorted(filter(None, tried), key=lambda one: one.factor or (0.0, 0.0), reverse=True)
    # The theorems are about entropic risks of returns that end.
    proved = known and not isinstance(settings.goal.risk, EVaR) and settings.declared.discount is None
    return RunForecast(
        trial,
        tuple(declarations),
        lower=_lower(source, settings) if proved else None,
        upper=_upper(source, settings) if proved and settings.method == "bernstein" else None,
        memory=_memory(),
    )


def _together(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """All declarations at once, where there are several; to name the successors says more than to count them."""
    every = {name: value for one in found for name, value in one.items()}
    if "successors" in every:
        every.pop("max_successors", None)
    return [every] if len(every) > 1 else []


def _run_trial(source: Any, settings: Settings) -> tuple[Loop, TrialRun]:
    """The beginning of a run, and what it says about the rest."""
    with closing(start_run(source, settings)) as loop:
        loop.go(lambda plan: None)
    assert loop.state.best is not None
    bounds, played, seconds = loop.state.best.plan.bounds, loop.state.counts.episodes, loop.elapsed()
    reached = bounds.reached(loop.state.problem.goal)
    more = Forecast((0.0, 0.0), (0.0, 0.0)) if reached else loop.forecast()
    until = None if more is None else more.after(played, seconds)
    return loop, TrialRun(played, seconds, float(bounds.certified.gap), reached, until)


def _declared(
    source: Any, settings: Settings, declared: dict[str, Any], true: bool, without: TrialRun
) -> Declaration | None:
    """The trial run with a declaration; None if the method makes no use of it, or if what is seen contradicts it."""
    try:
        loop, trial = _run_trial(source, replace(settings, declared=replace(settings.declared, **declared)))
    except InvalidProblemError:
        return None
    if loop.state.provenance.ignored:
        return None
    if trial.until is None:
        return Declaration(declared, true, trial, None)
    fewest, most = trial.until.episodes
    # Without a forecast all that is known is that the goal was not reached by then.
    others = (without.episodes, math.inf) if without.until is None else without.until.episodes
    # What is certified before the first episode counts as one.
    return Declaration(declared, true, trial, (max(others[0], 1) / max(most, 1), max(others[1], 1) / max(fewest, 1)))


def _of_model(mdp: FiniteMDP, settings: Settings) -> Iterator[dict[str, Any]]:
    """What is true of a model and was not declared."""
    declared = settings.declared
    if mdp.stationary and mdp.horizon > 1 and not declared.stationary and declared.discount is None:
        yield {"stationary": True}
    if declared.successors is None:
        yield {"successors": "model"}
        steps = range(1 if mdp.stationary else mdp.horizon)
        most = max(int(np.diff(mdp.step_rows(h).indptr).max()) for h in steps)
        if declared.max_successors is None and most < mdp.n_states:
            yield {"max_successors": most}


def _of_environment(loop: Loop) -> Iterator[dict[str, Any]]:
    """What fits all that was seen of an environment and was not declared."""
    declared, state = loop.settings.declared, loop.state
    if declared.stationary is False:
        yield {"stationary": True}
    starts = np.count_nonzero(state.counts.transitions().rows == state.problem.n_rows - 1)
    if declared.start is None and starts == 1:
        yield {"start": FIXED}
    if declared.reward_law not in (None, "fixed"):
        yield {"reward_law": "fixed"}
    if declared.max_states is not None and len(loop.source.states.found) < declared.max_states:
        yield {"max_states": len(loop.source.states.found)}
    if declared.successors is None and declared.max_successors is None:
        yield {"max_successors": _most_outcomes(loop)}
    if declared.return_range is None and declared.discount is None and declared.reward_law in (None, "fixed"):
        low, high = _returns(loop)
        if low < high and high - low < _NARROW * loop.state.problem.return_spread:
            yield {"return_range": (low, high)}


def _most_outcomes(loop: Loop) -> int:
    """The largest number of different outcomes that a state and action was seen to have."""
    problem, seen = loop.state.problem, loop.state.counts.transitions()
    pairs = problem.n_states * problem.n_actions
    played = seen.rows < problem.n_rows - int(problem.artificial)
    paid = np.zeros(len(seen.rows)) if problem.random_rewards else seen.rewards
    outcomes = np.unique(np.column_stack([seen.rows % pairs, seen.successors, paid])[played], axis=0)
    return int(np.unique(outcomes[:, 0], return_counts=True)[1].max(initial=1))


def _returns(loop: Loop) -> tuple[float, float]:
    """The smallest and the largest return along transitions that were seen, whichever way they are put together."""
    problem, seen = loop.state.problem, loop.state.counts.transitions()
    ends = []
    for extreme, none in ((np.minimum, math.inf), (np.maximum, -math.inf)):
        values = np.zeros(problem.n_states)
        for h in reversed(range(problem.artificial, problem.steps)):
            at_step = np.isin(seen.rows, problem.rows_at(h, np.arange(problem.n_states)))
            states = seen.rows[at_step] // problem.n_actions % problem.n_states
            best = np.full(problem.n_states, none)
            extreme.at(best, states, seen.rewards[at_step] + values[seen.successors[at_step]])
            values = np.where(np.isfinite(best), best, 0.0)
        # The start is random in every environment: an artificial first step, whose row is the last.
        ends.append(float(extreme.reduce(values[seen.successors[seen.rows == problem.n_rows - 1]])))
    return ends[0], ends[1]


def _lower(mdp: FiniteMDP, settings: Settings) -> float | None:
    """What every algorithm needs on this model, where it is small."""
    if mdp.horizon * mdp.n_states * mdp.n_actions > _LARGEST_FOR_BOUND:
        return None
    risk, eps, delta = settings.goal
    pooled = bool(settings.declared.stationary) and mdp.stationary
    try:
        bound = theory.characteristic_time(mdp, risk.beta, eps, delta=delta, stationary=pooled, seconds=_BOUND_SECONDS)
    except InvalidProblemError:
        return None
    return bound.episodes if bound.episodes > 0 else None


def _upper(mdp: FiniteMDP, settings: Settings) -> float | None:
    """What the paper's rule is proved to need at most: if it tests after every episode, in units of the rewards' range."""
    form = _UPPER_FORMS.get(settings.options["constants"])
    low, high = mdp.reward_range
    if form is None or not low < high or settings.replan != EVERY:
        return None
    unit, (risk, eps, delta) = high - low, settings.goal
    try:
        return theory.upper_bound(
            mdp.n_states,
            mdp.n_actions,
            mdp.horizon + (not isinstance(mdp.start, int)),
            beta=risk.beta * unit,
            eps=eps / unit,
            delta=delta,
            max_return=(max_return(mdp) - mdp.horizon * low) / unit,
            form=form,
        )
    except InvalidProblemError:
        return None


def _memory() -> int | None:
    """The most memory that this process has had."""
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * unit
