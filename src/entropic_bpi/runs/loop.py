"""One run: its state, and the loop that advances it."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from entropic_bpi import methods
from entropic_bpi.certificate.certificate import Certificate, Provenance
from entropic_bpi.certificate.estimate import best_by_estimates
from entropic_bpi.certificate.policy import NOT_CERTIFIED, Policy
from entropic_bpi.compile.decorators import compile_clock, run_clock
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.facts import facts_of, problem_facts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.runs.advice import Candidates, fitting, true_of
from entropic_bpi.runs.checkpoint import HISTORY, State
from entropic_bpi.runs.settings import EVERY, Settings
from entropic_bpi.runs.timings import Forecast, Timings, forecast_of
from entropic_bpi.runs.verdicts import check_assumptions
from entropic_bpi.sources import open_sampler
from entropic_bpi.sources.environment import EnvironmentRaised
from entropic_bpi.sources.simulator import Simulator
from entropic_bpi.types import Bounds, Plan, Transitions

if TYPE_CHECKING:
    from entropic_bpi.verification import Verification

__all__ = ["Identification", "Loop"]

# Unless something else is asked for, plan again after this fraction of the episodes so far.
REPLAN = 0.01
# In the time that an environment takes for a step, a plan passes about so many places (step, state, action).
PLACES_PER_STEP = 5
# Episodes that the compiled plan-test-play loop handles before it returns to Python.
EVERY_CHUNK = 2_000
_NO_MEMORY = np.empty(0)
# Of the history, the last so many parts are enough for a forecast.
_RECENT = 400
# What a checkpoint keeps of an error's message.
LONGEST_MESSAGE = 300
# Beyond this many plans, replan="every" keeps only one in about a thousandth of the episodes so far.
FULL_HISTORY = 10_000


@dataclass(frozen=True, eq=False)
class Identification:
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
        If the budget was spent: how many more episodes and seconds the goal would probably take, where that can be told.
    compile_seconds : float
        Time spent on compiling before the run could go on, which is done once per installation.
    candidates : Candidates
        If the budget was spent: ``candidates.declarations`` agree with everything that was seen and may help, if they are
        true.
    """

    policy: np.ndarray
    episodes: int
    stopped: bool
    certificate: Certificate
    history: np.ndarray
    seconds: float
    seed: int
    forecast: Forecast | None = None
    compile_seconds: float = 0.0
    candidates: Candidates = field(default_factory=Candidates)

    @property
    def best_estimate(self) -> Policy:
        """The policy that is best by the estimates alone, about which nothing is certified.

        It maximises the value with the observed frequencies as probabilities, among the actions that were tried.
        """
        return Policy(self.certificate, actions=best_by_estimates(self.certificate))

    def policy_of(self, observation: Any, step: int = 0) -> Any:
        """What the certified policy does on an observation; see :meth:`Certificate.policy_of`."""
        return self.certificate.policy_of(observation, step)

    def policy_table(self) -> list[dict[str, Any]]:
        """What the policy does, one row ``step, state, action`` by their names; see :meth:`entropic_bpi.Policy.table`."""
        import entropic_bpi

        return entropic_bpi.Policy(self.certificate).table()

    def report(
        self, path: str | Path, *, grid: tuple[int, int] | None = None, actions: Sequence[str] | None = None
    ) -> Verification:
        """Write a page that shows this result to whoever has to believe it; see :func:`entropic_bpi.show.report.write`."""
        import entropic_bpi

        return entropic_bpi.report.write(self, path, grid=grid, actions=actions)

    def _repr_html_(self) -> str:
        import entropic_bpi

        return entropic_bpi.report.short(self)

    def __repr__(self) -> str:
        claim, warning = self.certificate, "" if self.stopped else f"{NOT_CERTIFIED}; "
        return (
            f"Identification({warning}stopped={self.stopped}, episodes={self.episodes}, gap={claim.gap:.6g}, "
            f"lower={claim.lower:.6g}, upper={claim.upper:.6g}, seconds={self.seconds:.2f})"
        )


@dataclass
class Loop:
    """A run of ``settings`` on ``problem``, whose transitions come from ``source``."""

    source: Any
    problem: Problem
    settings: Settings
    seed: int
    provenance: Provenance
    round: int = 0
    seconds: float = 0.0
    history: list[np.ndarray] = field(default_factory=list)
    best: tuple[Plan, int, Transitions] | None = None
    error: str | None = None
    contradiction: str | None = None

    def __post_init__(self) -> None:
        draws, ties = np.random.SeedSequence(self.seed).spawn(2)
        self.rng = np.random.Generator(np.random.PCG64(draws))
        # A positive 63-bit number; 0 stands for "lowest index".
        tie_seed = (int(ties.generate_state(1, np.uint64)[0]) >> 2) + 1 if self.settings.ties == "random" else 0
        settings = self.settings
        self.method: Any = methods.make(settings.method, self.problem, settings.options, tie_seed, settings.device)
        self.counts = Counts(self.problem)
        self.sampler = open_sampler(self.source, self.problem, self.rng, self.seed)
        self.compiled, self.started, self.clock = compile_clock.seconds, run_clock(), Timings()

    def go(self, observe: Callable[[Plan], object]) -> None:
        """Plan, test, play. ``observe`` is told of every plan; it changes nothing."""
        while True:
            began = run_clock()
            plan = self.method.plan(self.counts, self.round)
            self.clock.made_plan(run_clock() - began)
            self._examine(plan.bounds)
            self._note(plan)
            observe(plan)
            # What is declared about an environment must have had a chance to be contradicted.
            seen = self.counts.episodes > 0 or not self.problem.black_box_rewards
            if seen and (plan.bounds.reached(self.problem.goal) or self._left() < 1):
                return
            began, before = run_clock(), self.counts.episodes
            self._play(plan)
            self.clock.played(self.counts.episodes - before, run_clock() - began)

    def forecast(self) -> Forecast | None:
        """What is to be expected until the goal, by the plans so far."""
        if not self.history:
            return None
        history = np.concatenate(self.history[-_RECENT:])
        return forecast_of(history, self.problem.eps, self.clock, self._until_plan)

    def candidates(self) -> Candidates:
        """The declarations that were not made: true of the model, or in agreement with all that was seen."""
        declared = self.settings.declared
        return true_of(self.source, declared) if isinstance(self.source, FiniteMDP) else fitting(self.counts, declared)

    def _until_plan(self, played: int) -> int:
        return EVERY_CHUNK if self._compiled() else self._batch(played)

    def _examine(self, bounds: Bounds) -> None:
        """End the run if what was seen speaks against what is assumed."""
        if self.sampler.witness is None:
            return
        try:
            evidence = check_assumptions(self.sampler.witness, bounds.upper)
        except InvalidProblemError as error:
            error.counts = self.counts
            raise
        self.provenance = self.provenance._replace(tests=evidence)

    def _left(self) -> float:
        """How many more episodes both budgets allow."""
        budget = self.settings.max_episodes
        return min(math.inf if budget is None else budget - self.counts.episodes, self._left_in_time())

    def _left_in_time(self) -> float:
        """How many more episodes the budget of time allows, with room for the next plan and the claim."""
        budget, clock = self.settings.max_seconds, self.clock
        if budget is None:
            return math.inf
        left = budget - (run_clock() - self.started) - (0.0 if math.isnan(clock.plan) else 2 * clock.plan)
        if left <= 0:
            return 0
        # If nothing was played in this call yet: the time per episode of earlier calls, or a single episode to measure it.
        before = self.seconds / max(1, self.counts.episodes) or left
        return left / max(before if math.isnan(clock.episode) else clock.episode, sys.float_info.min)

    def _play(self, plan: Plan) -> None:
        """Play what the plan asks for, wholly or, when interrupted, not at all."""
        before, rng, round, memory = (
            self.counts.state(),
            self.rng.bit_generator.state,
            self.round,
            self._memory().copy(),
        )
        try:
            if self._compiled():
                self._play_chunk(plan)
            else:
                self._play_batch(plan)
        except BaseException as error:
            reached = self.counts.episodes
            self.counts.restore(before)
            self.rng.bit_generator.state, self.round, self._memory()[:] = rng, round, memory
            if self.sampler.can_lose_episodes and not isinstance(error, KeyboardInterrupt):
                self._mark(error)
            # The whole episodes before one that contradicts the problem are kept: play them again.
            while isinstance(error, InvalidProblemError) and self.counts.episodes < reached:
                plan, left = self.method.plan(self.counts, self.round), reached - self.counts.episodes
                self.method.play_every(plan, self.counts, self.sampler, self.round, left)
                self.round = round + self.counts.episodes - int(before["episodes"])
            if isinstance(error, InvalidProblemError):
                error.counts = self.counts
            raise

    def _memory(self) -> np.ndarray:
        """What the method remembers of its plans, if anything."""
        memory: np.ndarray = getattr(self.method, "memory", _NO_MEMORY)
        return memory

    def _compiled(self) -> bool:
        """Whether a single compiled loop plans, tests and plays after every episode."""
        simulated = isinstance(self.sampler, Simulator) and hasattr(self.method, "play_every")
        return self.settings.replan == EVERY and simulated

    def _mark(self, error: BaseException) -> None:
        """Remember that the environment lost episodes: who goes on must know."""
        message = str(error)[:LONGEST_MESSAGE]
        if isinstance(error, InvalidProblemError) and not isinstance(error, EnvironmentRaised):
            self.contradiction = message
        else:
            self.error = message

    def _play_batch(self, plan: Plan) -> None:
        episodes = max(1, int(min(self._batch(self.counts.episodes), self._left())))
        self.sampler.play(plan.behaviour, episodes, self.counts, self.round)
        self.round += 1

    def _batch(self, played: int) -> int:
        """How many episodes to play before the next plan, after ``played``."""
        replan = self.settings.replan
        if replan is not None:
            return max(1, math.ceil(replan * played))
        return max(1, math.ceil(REPLAN * played), min(self.pace, played))

    @cached_property
    def pace(self) -> int:
        """How many episodes of an environment take about as long as a plan; simulated ones take no time.

        A rule and no clock, so that a seed repeats a run.
        """
        if isinstance(self.sampler, Simulator):
            return 0
        places = len(self.problem.frame.states) * self.problem.n_actions
        return places // (PLACES_PER_STEP * self.problem.horizon)

    def _play_chunk(self, plan: Plan) -> None:
        """Plan, test and play after each episode; the same episodes whatever room the counts have left."""
        last = self.counts.episodes + max(1, int(min(EVERY_CHUNK, self._left())))
        while True:
            before = self.counts.episodes
            bounds = self.method.play_every(plan, self.counts, self.sampler, self.round, last - before)
            played = self.counts.episodes - before
            self.round += played
            rows = np.empty(played, dtype=HISTORY)
            rows["episodes"] = before + 1 + np.arange(played)
            rows["lower"], rows["upper"], rows["gap"] = bounds
            if self.counts.episodes == last or (played and bounds.last.reached(self.problem.goal)):
                self.history.append(_thinned(rows[:-1]))  # the last one is planned again, and noted then
                return
            self.history.append(_thinned(rows))
            plan = self.method.plan(self.counts, self.round)

    def _note(self, plan: Plan) -> None:
        bounds, limited = plan.bounds, self.settings.limited
        self.history.append(np.array([(self.counts.episodes, *bounds)], dtype=HISTORY))
        better = self.best is None or bounds.certified.gap < self.best[0].bounds.certified.gap
        if bounds.reached(self.problem.goal) or (limited and better):
            self.best = (plan, self.counts.episodes, self.counts.transitions())

    def facts(self) -> dict[str, str]:
        """All that makes the run the one that it is, except its seed and its budget."""
        ignored = {"ignored": self.provenance.ignored}
        return facts_of({**self.settings.facts(), **ignored, **problem_facts(self.problem), **self.sampler.facts()})

    def state(self) -> State:
        history = np.concatenate(self.history) if self.history else np.empty(0, dtype=HISTORY)
        return State(
            seed=self.seed,
            round=self.round,
            seconds=self.elapsed(),
            rng=dict(self.rng.bit_generator.state),
            counts=self.counts,
            witness=self.sampler.witness,
            # The row of the plan that comes next is noted when the run goes on.
            history=history[history["episodes"] < self.counts.episodes],
            best=self.best,
            errors=self.provenance.errors,
            error=self.error,
            contradiction=self.contradiction,
            preregistration=self.provenance.preregistration,
            found=[] if self.problem.max_states is None else self.source.states.found,
            memory=self._memory().copy(),
        )

    def resumed(self, saved: State, *, accept_errors: bool) -> Loop:
        """The run that was saved, ready to go on."""
        if saved.contradiction is not None:
            raise InvalidProblemError(
                f"this run ended because the environment contradicted what is assumed of it ({saved.contradiction!r}): "
                "to go on would be to discard the contradiction; start another run"
            )
        if saved.error is not None and accept_errors is not True:
            raise InvalidProblemError(
                f"this run ended in an error of the environment ({saved.error!r}), which lost the episodes of that "
                "moment: accept_errors=True (--accept-errors) goes on, and the certificate will say so"
            )
        loop = replace(
            self,
            seed=saved.seed,
            round=saved.round,
            seconds=saved.seconds,
            history=[saved.history],
            best=saved.best if self.settings.limited else None,
            provenance=self.provenance._replace(
                errors=saved.errors + (saved.error is not None), preregistration=saved.preregistration
            ),
        )
        loop.counts, loop.rng.bit_generator.state = saved.counts, saved.rng
        if saved.found:
            loop.source.states.restore(saved.found)
        loop.sampler.witness = saved.witness
        if saved.memory.size:
            if saved.memory.size != loop._memory().size:
                raise InvalidProblemError(f"the checkpoint's memory does not fit method {self.settings.method!r}")
            loop._memory()[:] = saved.memory
        return loop

    def close(self) -> None:
        self.sampler.close()

    def elapsed(self) -> float:
        return self.seconds + run_clock() - self.started

    def result_so_far(self, plan: Plan) -> Identification | None:
        """The result if the run ended with this plan of all episodes so far; None if what was seen contradicts it."""
        better = self.best is None or plan.bounds.certified.gap < self.best[0].bounds.certified.gap
        if better:
            self.best = plan, self.counts.episodes, self.counts.transitions()
        try:
            return self.result()
        except InvalidProblemError:
            return None

    def result(self) -> Identification:
        assert self.best is not None
        plan, episodes, transitions = self.best
        claim = self.method.claim(Counts.of(self.problem, transitions, episodes), plan)
        self._examine(claim)
        certificate = Certificate(
            policy=plan.policy[int(self.problem.artificial) :],
            episodes=episodes,
            **claim._asdict(),
            method=self.settings.method,
            constants=self.settings.options.get("constants"),
            problem=replace(self.problem, state_names=tuple(self.problem.state_names)),
            transitions=transitions,
            provenance=self.provenance,
        )
        stopped = plan.bounds.reached(self.problem.goal)
        return Identification(
            policy=certificate.policy,
            episodes=self.counts.episodes,
            stopped=stopped,
            candidates=Candidates() if stopped else self.candidates(),
            certificate=certificate,
            history=np.concatenate(self.history),
            seconds=self.elapsed(),
            seed=self.seed,
            forecast=self.forecast(),
            compile_seconds=compile_clock.seconds - self.compiled,
        )


def _thinned(rows: np.ndarray) -> np.ndarray:
    """Every plan at first; later those that pass another thousandth of the episodes."""
    episodes = rows["episodes"]
    late = episodes > FULL_HISTORY
    passed = np.floor(1000 * np.log(episodes)) > np.floor(1000 * np.log(np.maximum(episodes - 1, 1)))
    return rows[~late | passed]
