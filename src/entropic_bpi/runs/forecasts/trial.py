"""Before a run: what it would probably take, and which declarations would help, by short trial runs of it.

A trial run is the run itself, ended early; its own last gaps say how much longer it would go on
(:mod:`entropic_bpi.runs.forecasts.timings`).
Then each declaration that could be true is made, alone and all of them together, and the trial run is repeated. What a
model is known to have is read from the model. Of an environment nobody knows: a declaration that fits all that was seen is
tried, and the factor that is told is what it would bring *if* it is true. Nothing is certified by any of this.
"""

import inspect
import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.runs.forecasts.advice import all_together, fitting, true_of
from entropic_bpi.runs.forecasts.timings import Forecast, between, count
from entropic_bpi.runs.identification import Setup, identify
from entropic_bpi.runs.loop import Loop
from entropic_bpi.runs.settings import Settings, refuse_renamed
from entropic_bpi.tools.checks import check_integer, check_positive
from entropic_bpi.types import Summarised

# Of the arguments of identify, those that do not change what a run takes.
_NOT_ASKED = {"max_episodes", "max_seconds", "checkpoint", "accept_errors", "preregister", "progress", "renamed"}
# A gap that is smaller by this factor, after no more episodes, speaks for a declaration.
_NARROWER = 0.95
# A smaller factor than this is none.
_ALIKE = 1.05


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
    >>> found.trial.episodes, found.trial.reached
    (200, False)
    """

    episodes: int
    seconds: float
    gap: float
    reached: bool
    until: Forecast | None

    @property
    def so_far(self) -> str:
        """What is known without a forecast, in words."""
        return f"no forecast yet: a gap of {self.gap:.3g} after {self.episodes:,} episodes"


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
    trial : TrialRun
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

    @property
    def helps(self) -> bool:
        """Whether the trial runs show that it does."""
        return self.factor is not None and self.factor[0] > 1 and self.factor[1] >= _ALIKE

    @property
    def effect(self) -> str:
        """In words, what it does to the number of episodes."""
        if self.factor is None:
            return self.trial.so_far
        low, high = self.factor
        if max(low, 1 / low, high, 1 / high) < _ALIKE:
            return "about as many episodes"
        if high < 1:
            return "more episodes"
        if high == math.inf:
            return f"more than {_times(low)} times fewer episodes" if low > 1 else "a forecast, where there is none yet"
        if low <= 1:
            return "no measurable difference; try a longer trial run"
        return f"{between(low, high, _times)} times fewer episodes"

    def __str__(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.declared.items())


@dataclass(frozen=True)
class RunForecast(Summarised):
    """What a run would probably take: the outcome of :func:`forecast`.

    Attributes
    ----------
    trial : TrialRun
        With the arguments as given.
    declarations : tuple of Declaration
        Those that were tried, the most helpful first.

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

    @property
    def episodes(self) -> tuple[float, float] | None:
        """The range of the episodes to the goal, or None if there is no forecast yet."""
        return None if self.trial.until is None else self.trial.until.episodes

    @property
    def seconds(self) -> tuple[float, float] | None:
        """The same of the seconds."""
        return None if self.trial.until is None else self.trial.until.seconds

    def __str__(self) -> str:
        trial, first = self.trial, self.trial.so_far
        if trial.until is not None:
            first = f"{'reached by the trial run:' if trial.reached else 'probably'} {trial.until.in_all()}"
        others = (f"{one}: {one.effect}{'' if one.true else ', if it is true'}" for one in self.declarations)
        return "\n".join((first, *others))

    __repr__ = __str__


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
    known = set(inspect.signature(identify).parameters) - _NOT_ASKED
    refuse_renamed("forecast", [name for name in arguments if name not in known])
    seconds = check_positive("trial_seconds", trial_seconds)
    episodes = None if trial_episodes is None else check_integer("trial_episodes", trial_episodes)
    source, settings = Settings.read(source, **arguments, max_seconds=seconds, max_episodes=episodes)
    first, trial = _run_trial(source, settings)
    true, declared = isinstance(source, FiniteMDP), first.settings.declared
    found = true_of(source, declared) if true else fitting(first.state.counts, declared)
    tried = [_tried(source, settings, one, true, trial) for one in (*found, *all_together(found))]
    # By the factor; without a forecast by the gap, and where the effect is the same what declares less.
    measured = sorted(
        filter(None, tried),
        key=lambda one: (one.factor or (0.0, 0.0), -one.trial.gap, -len(one.declared)),
        reverse=True,
    )
    return RunForecast(trial, tuple(measured))


def _run_trial(source: Any, settings: Settings) -> tuple[Loop, TrialRun]:
    """The beginning of a run, and what it says about the rest."""
    with closing(Setup(source, settings)) as setup:
        loop = setup.loop()
        loop.go(lambda plan: None)
    assert loop.state.best is not None
    bounds, played, seconds = loop.state.best.plan.bounds, loop.state.counts.episodes, loop.elapsed()
    reached = bounds.reached(loop.state.problem.goal)
    more = Forecast((0.0, 0.0), (0.0, 0.0)) if reached else loop.forecast()
    until = None if more is None else more.after(played, seconds)
    return loop, TrialRun(played, seconds, float(bounds.certified.gap), reached, until)


def _tried(
    source: Any, settings: Settings, declared: dict[str, Any], true: bool, without: TrialRun
) -> Declaration | None:
    """Make a trial run with a declaration; None if the run contradicts it, or makes no use of it."""
    try:
        loop, trial = _run_trial(source, replace(settings, declared=replace(settings.declared, **declared)))
    except InvalidProblemError:
        return None
    return None if loop.state.provenance.ignored else Declaration(declared, true, trial, _factor(trial, without))


def _factor(trial: TrialRun, without: TrialRun) -> tuple[float, float] | None:
    """How many times fewer episodes one run takes than the other; None without a forecast."""
    if trial.until is None:
        return None
    fewest, most = trial.until.episodes
    # Without a forecast all that is known is that the goal was not reached by then.
    others = (without.episodes, math.inf) if without.until is None else without.until.episodes
    # What is certified before the first episode counts as one.
    return max(others[0], 1) / max(most, 1), max(others[1], 1) / max(fewest, 1)


def advised(declarations: Sequence[Declaration], without: TrialRun) -> Declaration | None:
    """Return the declaration to advise: the first that helps or else, of those that narrow the gap, the best; or None."""
    for one in declarations:
        if one.helps or (without.until is None and one.trial.until is not None):
            return one
    most, gap = without.episodes, _NARROWER * without.gap
    narrower = [one for one in declarations if one.trial.gap < gap and one.trial.episodes <= most]
    return min(narrower, key=lambda one: (one.trial.gap, len(one.declared)), default=None)
