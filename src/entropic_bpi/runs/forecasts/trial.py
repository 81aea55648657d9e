"""Forecasts before a run: how long it would probably take, and which declarations would shorten it, from short trial runs.

A trial run is the beginning of the run. From its last gaps follows how much longer the run would take
(:mod:`entropic_bpi.runs.forecasts.timings`). Then the trial run is repeated with each declaration that could be true, alone
and all of them together. For a model, declarations are read from the model and are true. For an environment, declarations
that agree with all observations are tried, and the reported factor is the estimated effect *if* the declaration is true.
Forecasts certify nothing.
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
from entropic_bpi.types import Summarised, with_renamed_attributes

# Arguments of identify that only end, save or show a run, and that forecast does not accept.
_NOT_ACCEPTED = {"max_episodes", "max_seconds", "checkpoint", "accept_errors", "preregister", "progress", "renamed"}
# A declaration is advised if the gap is smaller by this factor after no more episodes.
_NARROWER = 0.95
# Smaller factors count as no difference.
_ALIKE = 1.05


class TrialRun(NamedTuple):
    """A short run, the beginning of the run that is forecast.

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


@with_renamed_attributes
class Declaration(NamedTuple):
    """A declaration that could be made, and its effect.

    Attributes
    ----------
    declared : dict
        The declaration, by the names of arguments of ``identify``.
    true : bool
        Whether it was read from the model; otherwise it only agrees with all observations.
    trial : TrialRun
        The trial run with this declaration.
    factor : (float, float) or None
        How many times fewer episodes the run takes with this declaration, from one end of the forecasts' ranges to the
        other. The upper end is infinite if the run without it has no forecast. None if the run with it has no forecast.

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
        """Whether the trial runs show that the declaration shortens the run."""
        return self.factor is not None and self.factor[0] > 1 and self.factor[1] >= _ALIKE

    @property
    def effect(self) -> str:
        """The effect on the number of episodes, in words."""
        if self.factor is None:
            return self.trial.so_far
        low, high = self.factor
        if max(low, 1 / low, high, 1 / high) < _ALIKE:
            return "about as many episodes"
        if high < 1:
            return "more episodes"
        if high == math.inf:
            return f"more than {_times(low)} times fewer episodes" if low > 1 else "a forecast, unlike without it"
        if low <= 1:
            return "no measurable difference; try a longer trial run"
        return f"{between(low, high, _times)} times fewer episodes"

    def __str__(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.declared.items())


@with_renamed_attributes
@dataclass(frozen=True)
class RunForecast(Summarised):
    """What a run would probably take: the outcome of :func:`forecast`.

    Attributes
    ----------
    trial : TrialRun
        The trial run with the arguments as given.
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
        """The range of the seconds to the goal, or None if there is no forecast yet."""
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
    """Estimate how long a run of :func:`identify` would take, and which declarations would shorten it, by short trial runs.

    Parameters
    ----------
    source : FiniteMDP, Gymnasium environment, vector environment, environment id, class, factory or problem file
        As for :func:`identify`. The trial runs play episodes of an environment: one run with the arguments as given,
        and one with each declaration that is tried.
    trial_seconds : float
        How long each trial run may take, compiling not included. Longer trial runs give better forecasts.
    trial_episodes : int, optional
        How many episodes each trial run may play, for environments whose episodes are expensive.
    **arguments
        The arguments of :func:`identify`: ``beta`` or ``risk``, ``eps``, ``delta``, ``horizon`` and so on, except for those
        that end, save or show a run.

    Returns
    -------
    RunForecast
        The forecast, and the declarations that were tried.

    Examples
    --------
    A model this small is certified by the trial run itself. The declarations are read from the model, so they are true.

    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> estimate = eb.forecast(bridge, beta=-1.0, eps=0.5, delta=0.1, seed=1, trial_seconds=60.0)
    >>> print(estimate)  # doctest: +ELLIPSIS
    reached by the trial run: 1,400 episodes, ...
    successors='model': 31 times fewer episodes
    stationary=True, successors='model': 30 times fewer episodes
    stationary=True: 2.7 times fewer episodes
    max_successors=2: 1.2 times fewer episodes

    A shorter trial run gives a range, which is not a bound:

    >>> low, high = eb.forecast(bridge, beta=-1.0, eps=0.5, delta=0.1, seed=1, trial_episodes=200).episodes
    >>> low < estimate.trial.episodes < high
    True

    The run with the declaration that helps most:

    >>> best = estimate.declarations[0]
    >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, **best.declared, seed=1)
    >>> result.stopped
    True
    """
    known = set(inspect.signature(identify).parameters) - _NOT_ACCEPTED
    refuse_renamed("forecast", [name for name in arguments if name not in known])
    seconds = check_positive("trial_seconds", trial_seconds)
    episodes = None if trial_episodes is None else check_integer("trial_episodes", trial_episodes)
    source, settings = Settings.read(source, **arguments, max_seconds=seconds, max_episodes=episodes)
    first, trial = _run_trial(source, settings)
    true, declared = isinstance(source, FiniteMDP), first.settings.declared
    found = true_of(source, declared) if true else fitting(first.state.counts, declared)
    tried = [_tried(source, settings, one, true, trial) for one in (*found, *all_together(found))]
    # By the factor; without a forecast by the gap; and if these are equal, the one with fewer declarations.
    measured = sorted(
        filter(None, tried),
        key=lambda one: (one.factor or (0.0, 0.0), -one.trial.gap, -len(one.declared)),
        reverse=True,
    )
    return RunForecast(trial, tuple(measured))


def _run_trial(source: Any, settings: Settings) -> tuple[Loop, TrialRun]:
    """Play the beginning of a run; return its loop and what it says about the rest."""
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
    """Make a trial run with a declaration; None if the run contradicts the declaration or ignores it."""
    try:
        loop, trial = _run_trial(source, replace(settings, declared=replace(settings.declared, **declared)))
    except InvalidProblemError:
        return None
    return None if loop.state.provenance.ignored else Declaration(declared, true, trial, _factor(trial, without))


def _factor(trial: TrialRun, without: TrialRun) -> tuple[float, float] | None:
    """Return how many times fewer episodes one run takes than the other; None without a forecast."""
    if trial.until is None:
        return None
    fewest, most = trial.until.episodes
    # Without a forecast it is only known that these episodes did not reach the goal.
    others = (without.episodes, math.inf) if without.until is None else without.until.episodes
    # A claim that is certified before the first episode counts as one episode.
    return max(others[0], 1) / max(most, 1), max(others[1], 1) / max(fewest, 1)


def advised(declarations: Sequence[Declaration], without: TrialRun) -> Declaration | None:
    """Return the declaration to advise: the first that helps, otherwise the one with the smallest gap, or None."""
    for one in declarations:
        if one.helps or (without.until is None and one.trial.until is not None):
            return one
    most, gap = without.episodes, _NARROWER * without.gap
    narrower = [one for one in declarations if one.trial.gap < gap and one.trial.episodes <= most]
    return min(narrower, key=lambda one: (one.trial.gap, len(one.declared)), default=None)
