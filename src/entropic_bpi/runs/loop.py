"""The loop that advances a run, and its outcome."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from entropic_bpi import methods
from entropic_bpi.certificate.certificate import Certificate, Reported
from entropic_bpi.certificate.estimate import best_by_estimates
from entropic_bpi.certificate.policy import NOT_CERTIFIED, Policy
from entropic_bpi.compile.decorators import compile_clock, run_clock
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.problem.risk import AnyReward
from entropic_bpi.runs.forecasts.timings import Forecast, Timings, forecast_of
from entropic_bpi.runs.settings import EVERY, Settings
from entropic_bpi.runs.state import HISTORY, BestPlan, RunState, certificate_of
from entropic_bpi.runs.verdicts import check_assumptions
from entropic_bpi.sources.environment import EnvironmentRaised, Player
from entropic_bpi.sources.simulator import Simulator
from entropic_bpi.types import Bounds, Plan

# By default, plan again when the episodes have grown by this fraction, or by a larger one.
REPLAN = 0.01
# A plan processes about so many (step, state, action) in the time of one step of an environment.
PAIRS_PER_STEP = 5
# A simulated model with so many state-action pairs per step is planned at each doubling of the episodes until there are as
# many episodes as rows, and later after this fraction.
LARGE_STEP, LATE = 8_000, 0.3
# Episodes that the compiled plan-test-play loop handles before it returns to Python.
EVERY_CHUNK = 2_000
# A forecast uses so many of the last parts of the history.
_RECENT = 400
# A checkpoint keeps so many characters of an error message.
LONGEST_MESSAGE = 300
# Beyond this many episodes, the history of replan="every" has one plan for each growth of the episodes by 0.1 %.
FULL_HISTORY = 10_000


@dataclass(frozen=True, eq=False)
class RunResult(Reported):
    """The fields that all results of runs have; the subclasses describe them."""

    stopped: bool
    episodes: int
    certificate: Certificate
    history: np.ndarray
    seconds: float
    seed: int
    forecast: Forecast | None = None
    compile_seconds: float = 0.0


class Identification(RunResult):
    """The outcome of :func:`identify`.

    Attributes
    ----------
    policy : int array ``(H, S)``
        The certified policy.
    episodes : int
        Episodes played.
    stopped : bool
        Whether the gap of ε was reached (otherwise the budget was spent).
    certificate : Certificate
        The claim about ``policy`` and the counts it follows from: those at the stop or, when the budget was spent, those
        of the plan with the smallest gap.
    history : structured array ``episodes, lower, upper, gap``
        One row per plan (thinned beyond ten thousand plans with ``replan="every"``).
    seconds : float
        Time spent, over all parts of a resumed run, without that for compiling.
    seed : int
        The seed; passing it again repeats the run.
    forecast : Forecast or None
        If the budget was spent: how many more episodes and seconds the goal would probably take, if that can be estimated.
    compile_seconds : float
        Time spent on compiling, which is done once per installation.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=5)
    >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, successors="model", seed=1)
    >>> result.stopped, result.policy.shape, result.certificate.gap <= 0.5
    (True, (5, 8), True)
    """

    @property
    def policy(self) -> np.ndarray:
        """The certified policy."""
        return self.certificate.policy

    @property
    def best_estimate(self) -> Policy:
        """The policy that is best by the estimates alone, about which nothing is certified.

        It maximises the value with the observed frequencies as probabilities, among the actions that were tried.
        """
        return Policy(self.certificate, actions=best_by_estimates(self.certificate))

    def policy_of(self, observation: Any, step: int = 0) -> Any:
        """Return the action of the certified policy on an observation, see :meth:`Certificate.policy_of`.

        Parameters
        ----------
        observation : object
            An observation of the environment, the number or name of a state of a model, or a label of a log.
        step : int
            The step, from 0.

        Returns
        -------
        object
            The action, as the environment's ``step`` takes it.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=5)
        >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, successors="model", seed=1)
        >>> bool(result.policy_of("s0") == result.policy[0, 0])
        True
        """
        return self.certificate.policy_of(observation, step)

    def policy_table(self) -> list[dict[str, Any]]:
        """Return the policy as a table, see :meth:`entropic_bpi.Policy.table`.

        Returns
        -------
        list of dict
            Rows ``step, state, action``.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=5)
        >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, successors="model", seed=1)
        >>> result.policy_table()[0]
        {'step': 0, 'state': 's0', 'action': 'safe'}
        """
        return Policy(self.certificate).table()

    def __repr__(self) -> str:
        claim, warning = self.certificate, "" if self.stopped else f"{NOT_CERTIFIED}; "
        return (
            f"Identification({warning}stopped={self.stopped}, episodes={self.episodes}, gap={claim.gap:.6g}, "
            f"lower={claim.lower:.6g}, upper={claim.upper:.6g}, seconds={self.seconds:.2f})"
        )


class Loop:
    """Advances the ``state`` of a run under its ``settings``, with transitions that come from ``source``."""

    def __init__(self, source: Any, settings: Settings, state: RunState) -> None:
        self.source, self.settings, self.state = source, settings, state
        tie_seed = state.tie_seed() if settings.ties == "random" else 0
        self.method: Any = methods.make(settings.method, state.problem, settings.options, tie_seed, settings.device)
        self._restore(state.memory)
        if state.discovered_states:
            source.states.restore(state.discovered_states)
        self.simulated = isinstance(source, FiniteMDP)
        if self.simulated:
            self.sampler: Any = Simulator(source, state.problem, state.rng)
        else:
            assert state.tests is not None
            self.sampler = Player(source, state.problem, state.seed, state.tests)
        self.smallest_gap = min((float(part["gap"].min()) for part in state.history if len(part)), default=math.inf)
        self.compiled, self.started, self.clock = compile_clock.seconds, run_clock(), Timings()

    def go(self, observe: Callable[[Plan], object]) -> None:
        """Plan, test and play until the goal or the end of the budget.

        ``observe`` is called with every plan, and must not change anything.
        """
        state = self.state
        problem, counts = state.problem, state.counts
        while True:
            began = run_clock()
            plan = self.method.plan(counts, state.round)
            self.clock.made_plan(run_clock() - began)
            self._check_assumptions(plan.bounds)
            self._note(plan)
            observe(plan)
            # What is declared about an environment must have had a chance to be contradicted.
            seen = counts.episodes > 0 or not problem.black_box_rewards
            if seen and (plan.bounds.reached(problem.goal) or self._left() < 1):
                return
            began, before = run_clock(), counts.episodes
            self._play(plan)
            self.clock.played(counts.episodes - before, run_clock() - began)

    def forecast(self) -> Forecast | None:
        """Return the forecast of what is left to do by the plans so far; None if there is none yet."""
        if not self.state.history:
            return None
        history = np.concatenate(self.state.history[-_RECENT:])
        batch = (lambda played: EVERY_CHUNK) if self._compiled() else self._batch
        return forecast_of(history, self.state.problem.eps, self.clock, batch)

    def _check_assumptions(self, bounds: Bounds) -> None:
        """Raise an error if the episodes contradict what is assumed."""
        state = self.state
        if state.tests is None:
            return
        try:
            evidence = check_assumptions(state.tests, bounds.upper)
        except InvalidProblemError as error:
            error.counts = state.counts
            raise
        state.provenance = state.provenance._replace(tests=evidence)

    def _left(self) -> float:
        """Return how many more episodes both budgets allow, with time left for the next plan and the claim."""
        settings, clock, played = self.settings, self.clock, self.state.counts.episodes
        episodes = math.inf if settings.max_episodes is None else settings.max_episodes - played
        if settings.max_seconds is None:
            return episodes
        left = settings.max_seconds - (run_clock() - self.started) - (0.0 if math.isnan(clock.plan) else 2 * clock.plan)
        if left <= 0:
            return min(episodes, 0)
        # If nothing was played in this call yet: the time per episode of earlier calls, or a single episode to measure it.
        each = self.state.seconds / max(1, played) or left if math.isnan(clock.episode) else clock.episode
        return min(episodes, left / max(each, sys.float_info.min))

    def _play(self, plan: Plan) -> None:
        """Play what the plan asks for; after an error or an interrupt, restore the state from before."""
        state, counts = self.state, self.state.counts
        before, rng, round, memory = counts.state(), state.rng.bit_generator.state, state.round, self._memory()
        try:
            if self._compiled():
                self._play_chunk(plan)
            else:
                episodes = max(1, int(min(self._batch(counts.episodes), self._left())))
                self.sampler.play(plan.behaviour, episodes, counts, state.round)
                state.round += 1
        except BaseException as error:
            reached = counts.episodes
            counts.restore(before)
            state.rng.bit_generator.state, state.round = rng, round
            self._restore(memory)
            if not self.simulated and not isinstance(error, KeyboardInterrupt):
                # The environment lost episodes: this is checked when the run is resumed.
                contradicted = isinstance(error, InvalidProblemError) and not isinstance(error, EnvironmentRaised)
                setattr(state, "contradiction" if contradicted else "error", str(error)[:LONGEST_MESSAGE])
            # The complete episodes before one that contradicts the problem are kept: they are played again.
            while isinstance(error, InvalidProblemError) and counts.episodes < reached:
                plan, left = self.method.plan(counts, state.round), reached - counts.episodes
                self.method.play_every(plan, counts, self.sampler, state.round, left)
                state.round = round + counts.episodes - int(before["episodes"])
            if isinstance(error, InvalidProblemError):
                error.counts = counts
            raise

    def _memory(self) -> dict[str, Any]:
        """Return the state of the method; empty for a method without one."""
        return self.method.state() if hasattr(self.method, "state") else {}

    def _restore(self, memory: dict[str, Any]) -> None:
        if memory:
            self.method.restore(memory)

    def _compiled(self) -> bool:
        """Return whether a single compiled loop plans, tests and plays after every episode."""
        possible = self.simulated and hasattr(self.method, "play_every") and self.state.problem.noise is None
        return self.settings.replan == EVERY and possible

    def _batch(self, played: int) -> int:
        """Return how many episodes to play before the next plan, after ``played`` episodes."""
        replan = self.settings.replan
        if replan is not None:
            return max(1, math.ceil(replan * played))
        more = self._simulated_batch(played) if self.simulated else min(self.episodes_per_plan, played)
        return max(1, math.ceil(REPLAN * played), more)

    def _simulated_batch(self, played: int) -> int:
        """Return how many simulated episodes to play, by the sizes and the gap: fewer if plans are cheap, more at first.

        A gap does not fall faster than like 1/n for long, so before n·gap/ε episodes the target is not reached.
        """
        problem = self.state.problem
        size = min(1.0, len(problem.frame.states) * problem.n_actions / problem.horizon / LARGE_STEP)
        early = min(1.0, max(LATE, problem.n_rows / max(played, 1)))
        # 1e-6 is room for products that are integers up to rounding.
        return int(min(size**0.75 * early, self.smallest_gap / problem.eps - 1.0) * played + 1e-6)

    @cached_property
    def episodes_per_plan(self) -> int:
        """Number of episodes of an environment that take about as long as a plan; 0 if nothing is random.

        It is a rule and not measured, so that a seed repeats a run. If nothing is random, all episodes of a plan are alike.
        """
        problem = self.state.problem
        if not (problem.uncertain.any() or problem.random_rewards):
            return 0
        return len(problem.frame.states) * problem.n_actions // (PAIRS_PER_STEP * problem.horizon)

    def _play_chunk(self, plan: Plan) -> None:
        """Plan, test and play after each episode; the episodes do not depend on how much room the counts have left."""
        state, counts = self.state, self.state.counts
        last = counts.episodes + max(1, int(min(EVERY_CHUNK, self._left())))
        while True:
            before = counts.episodes
            bounds = self.method.play_every(plan, counts, self.sampler, state.round, last - before)
            played = counts.episodes - before
            state.round += played
            rows = np.empty(played, dtype=HISTORY)
            rows["episodes"] = before + 1 + np.arange(played)
            rows["lower"], rows["upper"], rows["gap"] = bounds
            if counts.episodes == last or (played and Bounds(*rows[-1].item()[1:]).reached(state.problem.goal)):
                state.history.append(_thinned(rows[:-1]))  # the last one is planned again, and noted then
                return
            state.history.append(_thinned(rows))
            plan = self.method.plan(counts, state.round)

    def _note(self, plan: Plan) -> None:
        bounds, state, counts = plan.bounds, self.state, self.state.counts
        state.history.append(np.array([(counts.episodes, *bounds)], dtype=HISTORY))
        self.smallest_gap = min(self.smallest_gap, float(bounds.gap))
        if bounds.reached(state.problem.goal) or (self.settings.limited and self._is_better(plan)):
            state.best = BestPlan(plan, counts.episodes, counts.transitions())

    def _is_better(self, plan: Plan) -> bool:
        """Whether its gap is smaller; of an exploration, whose data are for every reward, also if it is the same."""
        if self.state.best is None:
            return True
        gap, smallest = plan.bounds.certified.gap, self.state.best.plan.bounds.certified.gap
        return gap < smallest or (gap == smallest and isinstance(self.state.problem.risk, AnyReward))

    def snapshot(self) -> RunState:
        """Return the state from which the run goes on as it would now."""
        history = np.concatenate([np.empty(0, dtype=HISTORY), *self.state.history])
        # The row of the latest plan is left out: a resumed run makes that plan again.
        history = history[history["episodes"] < self.state.counts.episodes]
        states = [] if self.state.problem.max_states is None else self.source.states.found
        memory = self._memory()
        return replace(self.state, seconds=self.elapsed(), memory=memory, discovered_states=states, history=[history])

    def elapsed(self) -> float:
        return self.state.seconds + run_clock() - self.started

    def result_so_far(self, plan: Plan) -> Identification | None:
        """Return the result if the run ended with this plan; None if the episodes contradict the assumptions."""
        state = self.state
        if self._is_better(plan):
            state.best = BestPlan(plan, state.counts.episodes, state.counts.transitions())
        try:
            return self.result()
        except InvalidProblemError:
            return None

    def result(self) -> Identification:
        state = self.state
        assert state.best is not None
        problem = replace(state.problem, state_names=tuple(state.problem.state_names))
        plan, episodes, transitions = state.best
        settings, method = self.settings, self.method
        if problem.allowed is not None:  # a file has only the masks of states that were seen
            successors, played = transitions.successors, transitions.rows[transitions.rows < problem.n_rows - 1]
            seen = np.union1d(successors, played // problem.n_actions % problem.n_states)
            problem = replace(problem, allowed=problem.allowed.seen_in(seen))
            plan = plan._replace(policy=problem.replace_forbidden(plan.policy))
            method = methods.make(settings.method, problem, settings.options, 0, settings.device)
        everything = state.counts.state()  # the counts are reused, because a second set may be large
        state.counts.clear()
        state.counts.add(transitions, episodes)
        claim = method.claim(state.counts, plan)
        state.counts.restore(everything)
        self._check_assumptions(claim)
        how = {"method": settings.method, "constants": settings.options.get("constants")}
        data = {"episodes": episodes, "transitions": transitions, "provenance": state.provenance}
        certificate = certificate_of(problem, plan.policy, claim, **how, **data)
        return Identification(
            episodes=state.counts.episodes,
            stopped=plan.bounds.reached(state.problem.goal),
            certificate=certificate,
            history=np.concatenate(state.history),
            seconds=self.elapsed(),
            seed=state.seed,
            forecast=self.forecast(),
            compile_seconds=compile_clock.seconds - self.compiled,
        )


def _thinned(rows: np.ndarray) -> np.ndarray:
    """Return all rows up to ``FULL_HISTORY`` episodes, and after that one for each growth of the episodes by 0.1 %."""
    episodes = rows["episodes"]
    late = episodes > FULL_HISTORY
    passed = np.floor(1000 * np.log(episodes)) > np.floor(1000 * np.log(np.maximum(episodes - 1, 1)))
    return rows[~late | passed]
