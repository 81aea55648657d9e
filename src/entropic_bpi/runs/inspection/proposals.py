"""The lines of an inspection, and the declarations that it proposes, from what was seen of a source."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.problem.known_rewards import index_or_end
from entropic_bpi.problem.noise import Noise
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.sentences import END_REWARDS, SAME_REWARD, STAY_REWARDS
from entropic_bpi.runs.forecasts.advice import NARROW, extremes, most_successors
from entropic_bpi.runs.verdicts import check_assumptions
from entropic_bpi.sources.assumption_tests import LEVEL, REJECTED_FROM, AssumptionTests
from entropic_bpi.sources.environment import transitions_of
from entropic_bpi.sources.observed import ENDED, LEFT, LONGEST_EPISODE, TRUNCATED, Observed
from entropic_bpi.sources.spaces import FiniteSpace

# First states that must be the same before a fixed start is proposed.
_ENOUGH_STARTS = 20
# Every pair must have been tried so often before anything is said about all pairs; for a guess, this share of them.
_ENOUGH_TRIES, _MOST_PAIRS = 3, 0.9
# In n visits an outcome of probability 3/n is missed with a probability of 5 %.
_RARE = 3
# Steps after which a range of returns that has not changed for half of them is taken not to change any more.
_LONG = 2 * LONGEST_EPISODE
_CANNOT_TELL = "cannot tell"


class Finding(NamedTuple):
    """A line of an inspection: what was found, and how often it was seen."""

    name: str
    text: str
    seen: str


def read_from(mdp: FiniteMDP) -> dict[str, tuple[Any, str]]:
    """Return what is true of a model, in place of proposals."""
    true = {"horizon": mdp.horizon, "successors": "model", "max_successors": most_successors(mdp)}
    true |= {"stationary": True} if mdp.stationary and mdp.horizon > 1 else {}
    return {name: (value, "true: read from the model") for name, value in true.items()}


class Notes:
    """Conclusions from what was seen of a source."""

    def __init__(self, seen: Observed, *, limit: int | None = None, listed: int | None = None) -> None:
        self.seen, self.limit, self.listed = seen, limit, listed
        self.noise_problems, self.noise_findings = tuple[str, ...](), tuple[Finding, ...]()
        low, high = seen.reward_range
        self.same = SAME_REWARD * max(high - low, abs(low), abs(high))

    def check_noise(self, noise: Noise, states: FiniteSpace, actions: FiniteSpace) -> None:
        """Compare every transition that was seen with the outcomes of the declared labels."""
        table = noise.read(states.elements(), actions.elements(), index_or_end(states))
        seen, unexplained = self.seen, Counter[str]()
        numbers = {name: i for i, name in enumerate(states.labels())}
        at = [*(numbers.get(name, -2) for name in seen.states), states.size]
        names = [*(f"state {name}" for name in seen.states), "the end"]
        for (s, a), outcomes in seen.outcomes.items():
            following, paid = (part[at[s] * actions.size + a] for part in (table.following, table.rewards))
            for (y, reward), times in outcomes.items():
                fits = (following == at[y]) & ~(np.abs(paid - reward) > self.same)
                if at[s] < 0 or not fits.any():
                    went = f"{names[s]}, action {actions.element(a)} went to {names[y]} with reward {reward:g}"
                    unexplained[went] += times
        total = sum(outcomes.total() for outcomes in seen.outcomes.values())
        if unexplained:
            first, often = next(iter(unexplained)), f"{unexplained.total():,} of {total:,} transitions seen"
            self.noise_problems = (f"the declared noise is wrong: {first}, which no label explains ({often})",)
        else:
            text = f"all {total:,} transitions seen are explained by the declared labels"
            self.noise_findings = (Finding("noise", text, f"{len(seen.outcomes):,} states and actions"),)

    # -- rewards --------------------------------------------------------------------------------------------------

    def _distinct(self, rewards: Iterable[float]) -> list[float]:
        """Return the rewards that differ by more than rounding."""
        kept: list[float] = []
        for reward in sorted(rewards):
            if not kept or reward - kept[-1] > self.same:
                kept.append(reward)
        return kept

    def _paid(self, by_step: bool) -> dict[tuple[int, ...], tuple[list[float], int]]:
        """Return the different rewards and the visits of each ([step,] state, action, next state)."""
        paid: defaultdict[tuple[int, ...], Counter[float]] = defaultdict(Counter)
        for batch in self.seen.batches:
            for (h, *move, reward, _), n in batch.visits.items():
                paid[(h, *move) if by_step else tuple(move)][reward] += n
        return {key: (self._distinct(rewards), rewards.total()) for key, rewards in paid.items()}

    def _varying(self, by_step: bool) -> list[float]:
        """Return the rewards of transitions with more different rewards than fixed rewards may have."""
        end, found = len(self.seen.states), set[float]()
        for (*_, s, _, y), (rewards, _) in self._paid(by_step).items():
            if len(rewards) > (END_REWARDS if y == end else STAY_REWARDS if y == s else 1):
                found.update(rewards)
        return sorted(found)

    @cached_property
    def varying(self) -> list[float]:
        return self._varying(False)

    @cached_property
    def by_step(self) -> bool:
        """Whether rewards vary, but not among visits at the same step."""
        repeated = sum(visits - 1 for _, visits in self._paid(True).values()) if self.varying else 0
        return repeated >= _ENOUGH_STARTS and not self._varying(True)

    def _reward_text(self) -> str:
        if self.by_step:
            return "depends on the step (or on what happened before)"
        if self.varying:
            low, high = self.varying[0], self.varying[-1]
            two = len(self.varying) == 2
            values = f"{low:g} or {high:g}" if two else f"{len(self.varying):,} values in [{low:g}, {high:g}]"
            return f"varies for the same state, action and next state: {values}"
        if all(len(self._distinct(reward for _, reward in pair)) == 1 for pair in self.seen.outcomes.values()):
            return "one reward for each state and action"
        end = len(self.seen.states)
        most = max((len(rewards) for (*_, y), (rewards, _) in self._paid(False).items() if y == end), default=1)
        ends = f"; up to {most} different ones at the end of an episode" if most > 1 else ""
        return f"one reward for each state, action and next state{ends}"

    # -- transitions ----------------------------------------------------------------------------------------------

    @cached_property
    def outcomes(self) -> int:
        """The largest number of different outcomes of a state and action (at a step, if they depend on it)."""
        most: Counter[tuple[int, ...]] = Counter()
        for key, (rewards, _) in self._paid(self.by_step or self.tests[1] == "stationary").items():
            most[key[:-1]] += 1 if self.varying and not self.by_step else len(rewards)
        return max(most.values())

    @cached_property
    def unsettled(self) -> str:
        """Why nothing can be said about all states and actions; empty if something can."""
        seen = self.seen
        if seen.least_tried < _ENOUGH_TRIES:
            return f"{_CANNOT_TELL}: in some state an action was {_tried(seen.least_tried)}"
        late = max(seen.last_new["outcome"], seen.last_new["state"])
        if late > seen.steps / 2:
            return f"{_CANNOT_TELL}: a new transition was still seen at step {late:,} of {seen.steps:,}"
        return ""

    @cached_property
    def guessable(self) -> bool:
        """Whether most states and actions were tried often enough for a guess about all of them."""
        seen = self.seen
        often = sum(outcomes.total() >= _ENOUGH_TRIES for outcomes in seen.outcomes.values())
        return often >= _MOST_PAIRS * sum(len(seen.allowed(s)) for s in range(len(seen.states)))

    @property
    def _coverage(self) -> str:
        """How much was seen, or why nothing can be said about all states and actions."""
        if self.unsettled:
            return self.unsettled
        seen, rare = self.seen, max(self.seen.least_tried // _RARE, 1)
        text = f"each action of {len(seen.states):,} states was {_tried(seen.least_tried)} or more"
        text += f", so that outcomes rarer than 1 in {rare:,} may be missing"
        return f"{text}; nothing new after step {max(seen.last_new.values()):,} of {seen.steps:,}"

    @cached_property
    def tests(self) -> tuple[str, str]:
        """The result of the tests of the assumptions, and what they reject: ``"stationary"``, ``"Markov"`` or nothing."""
        text, rejected = self._test(stationary=True)
        if rejected == "Markov" and not self._test(stationary=False)[1]:
            return f"transitions are not the same at every step: {text}", "stationary"
        return text, rejected

    def _test(self, stationary: bool) -> tuple[str, str]:
        seen, law = self.seen, "random" if self.varying else "fixed"
        given: dict[str, Any] = {"eps": 1.0, "delta": LEVEL, "beta": 0.0, "source": "inspection"}
        given |= {"horizon": max(n for n, _ in seen.lengths), "reward_range": seen.reward_range, "reward_law": law}
        given |= {"stationary": stationary, "state_labels": (*seen.states, "end")}
        try:
            problem = Problem.black_box(len(seen.states), seen.n_actions, **given)
        except InvalidProblemError as error:
            return f"{_CANNOT_TELL}: {error}", ""
        tests = AssumptionTests(problem)
        for batch in seen.batches:
            tests.add(batch, transitions_of(batch, problem))
        try:
            evidence = check_assumptions(tests, math.inf)
        except InvalidProblemError as error:
            return str(error), "stationary" if str(error).startswith("transitions are not the same") else "Markov"
        largest = max(e for e in (evidence.stationary, evidence.memoryless, evidence.unchanging) if e is not None)
        return f"no sign of a violation: evidence {largest:.1f}, alarm at {REJECTED_FROM:.1f} (false alarms: 1 %)", ""

    @property
    def problems(self) -> tuple[str, ...]:
        return self.noise_problems + self.tests[:1] * (self.tests[1] == "Markov" and not self.by_step)

    # -- episodes -------------------------------------------------------------------------------------------------

    @cached_property
    def lengths(self) -> dict[str, list[int]]:
        """The lengths of all episodes in increasing order, by how they stopped."""
        found: dict[str, list[int]] = {ENDED: [], TRUNCATED: [], LEFT: []}
        for (steps, how), times in sorted(self.seen.lengths.items()):
            found[how] += [steps] * times
        return found

    def _lengths_text(self) -> str:
        texts = {
            ENDED: "{0:,} ended by themselves after {1:,} to {2:,} steps (median {3:,})",
            TRUNCATED: "{0:,} were truncated after {1:,} to {2:,} steps",
            LEFT: "{0:,} had not ended after {2:,} steps",
        }
        stopped = ((texts[how], steps) for how, steps in self.lengths.items() if steps)
        return ", ".join(text.format(len(n), n[0], n[-1], n[len(n) // 2]) for text, n in stopped)

    def _horizon(self) -> tuple[int | None, str]:
        ended, cut, left = self.lengths.values()
        limit = cut[0] if cut else self.limit
        if limit is not None:
            text = f"episodes are truncated after {limit:,} steps; a smaller number is a different, easier problem"
            return limit, text
        if (left and left[-1] == LONGEST_EPISODE) or not ended:
            return None, f"{_CANNOT_TELL}: {self._lengths_text()}; choose the number of steps that count"
        return ended[-1], f"{len(ended):,} episodes ended by themselves, the longest after {ended[-1]:,} steps"

    def _return_range(self, horizon: int | None) -> tuple[tuple[float, float] | None, str]:
        """Return the range of the returns of all sequences of transitions that were seen, and a remark."""
        if self.varying or not self.guessable:
            return None, f"{_CANNOT_TELL}: rewards vary" if self.varying else self._coverage
        steps = _LONG if horizon is None else horizon
        ranges = _ranges_of_returns(self.seen, steps)
        low, high = ranges[-1]
        if horizon is None and ranges[steps // 2] != ranges[-1]:
            return None, f"{_CANNOT_TELL}: it depends on the horizon"
        least, most = self.seen.reward_range
        if not high - low < NARROW * steps * (max(most, 0.0) - min(least, 0.0)):
            return None, "not narrower than what the rewards allow"
        return (low, high), f"returns along all transitions seen lie in it; {self._coverage}"

    # -- the proposals --------------------------------------------------------------------------------------------

    def proposals(self) -> dict[str, tuple[Any, str]]:
        """Return a value, or None, and what was seen, for each declaration."""
        horizon = self._horizon()
        proposals: dict[str, tuple[Any, str]] = {
            "horizon": horizon,
            "stationary": self._stationary(),
            "start": self._start(),
            "reward_range": self._reward_range(),
            "reward_law": self._reward_law(),
            "max_states": self._max_states(),
            "max_successors": (self.outcomes if self.guessable else None, self._coverage),
            "return_range": self._return_range(horizon[0]),
        }
        if self.seen.masks:
            proposals["allowed"] = self._allowed()
        return proposals

    def _stationary(self) -> tuple[bool | None, str]:
        text, rejected = self.tests
        if self.by_step:
            return False, f"rewards depend on the step, in {self.seen.steps:,} steps"
        return (None, f"{_CANNOT_TELL}: {text}") if rejected == "Markov" else (rejected != "stationary", text)

    def _start(self) -> tuple[Any, str]:
        starts = self.seen.starts
        if len(starts) > 1:
            return None, f"{len(starts):,} different first states in {starts.total():,} episodes"
        if starts.total() < _ENOUGH_STARTS:
            return None, f"{_CANNOT_TELL}: only {starts.total()} episodes"
        return "fixed", f"the same first state in all {starts.total():,} episodes, with different seeds"

    def _reward_range(self) -> tuple[tuple[float, float], str]:
        text, late = self._coverage, self.seen.last_new["reward"]
        if self.varying:
            text = f"{_CANNOT_TELL}: rewards vary, and others may lie outside"
        elif late > self.seen.steps / 2:
            text = f"{_CANNOT_TELL}: a larger or smaller reward was still seen at step {late:,} of {self.seen.steps:,}"
        pairs = len(self.seen.outcomes)
        return self.seen.reward_range, f"the smallest and the largest reward of {pairs:,} states and actions; {text}"

    def _reward_law(self) -> tuple[str | None, str]:
        if self.tests[1] == "Markov" and not self.by_step:
            return None, f"{_CANNOT_TELL}: the observation is not a Markov state"
        if self.varying and not self.by_step:
            return "random", f"{self._reward_text()}; {_CANNOT_TELL} whether visits are independent"
        repeated = sum(n.total() > 1 for n in self.seen.outcomes.values())
        return "fixed", f"{self._reward_text()}; {repeated:,} states and actions were tried more than once"

    def _max_states(self) -> tuple[int | None, str]:
        states = len(self.seen.states)
        if not self.unsettled and states < (self.listed or math.inf):
            return states, f"{states:,} distinct observations before an end; {self._coverage}"
        if self.listed is not None:
            return None, self.unsettled or f"all {states:,} elements of the space were seen"
        return 2 * states, f"{self.unsettled}; {states:,} were seen, twice as many is a guess"

    def _allowed(self) -> tuple[str | None, str]:
        masks = self.seen.masks
        if any(len(different) > 1 for different in masks.values()):
            return None, f"info['action_mask'] differs between visits of a state, {len(masks):,} states have one"
        must = "; a forbidden action raises an error" if self.seen.enforced else ""
        return "info", f"info['action_mask'] is the same at every visit of each of {len(masks):,} states{must}"

    # -- the summary ----------------------------------------------------------------------------------------------

    def findings(self) -> Iterator[Finding]:
        seen, tries = self.seen, f"{self.seen.steps:,} steps"
        low, high = seen.reward_range
        first = "always the same" if len(seen.starts) == 1 else f"{len(seen.starts):,} different ones"
        yield Finding("first state", first, f"{seen.starts.total():,} episodes")
        yield Finding("rewards", f"from {low:g} to {high:g}; {self._reward_text()}", tries)
        pairs = f"{len(seen.outcomes):,} states and actions, the rarest {_tried(seen.least_tried)}"
        yield Finding("outcomes", f"at most {self.outcomes:,} for a state and action", pairs)
        yield Finding("episodes", self._lengths_text(), f"{seen.episodes:,} episodes")
        if seen.masks:
            yield Finding("action masks", self._allowed()[1], "")
        yield from self.noise_findings
        yield Finding("assumptions", self.tests[0], tries)
        if seen.seconds > 0:
            horizon, rate = self._horizon()[0] or LONGEST_EPISODE, seen.steps / seen.seconds
            cost = f"1,000 episodes of {horizon:,} steps take {1000 * horizon / rate:.2g} s or less"
            yield Finding("speed", f"{rate:,.0f} steps per second", cost)
            plan = 64 * horizon * (len(seen.states) + 1) * seen.n_actions / 2**20
            yield Finding(
                "memory", f"at least {plan:.2g} MiB for a plan", f"{horizon:,} steps, {len(seen.states):,} states"
            )


def _ranges_of_returns(seen: Observed, steps: int) -> list[tuple[float, float]]:
    """Return the range of the returns of all walks of at most 1, 2, … steps along transitions that were seen."""
    seen_moves = [(s, y, r) for (s, _), outcomes in seen.outcomes.items() for y, r in outcomes]
    moves = [np.array(column) for column in zip(*seen_moves, strict=True)]
    n = len(seen.states) + 1
    # A random start may be any state: not all first states may have been seen.
    starts = np.array(list(seen.starts)) if len(seen.starts) == 1 else np.arange(n)
    ends = [(float(low[starts].min()), float(high[starts].max())) for low, high in extremes([moves] * steps, n)]
    lows, highs = zip(*ends, strict=True)
    return list(zip(accumulate(lows, min), accumulate(highs, max), strict=True))


def _tried(n: int) -> str:
    return "not tried" if n == 0 else "tried only once" if n == 1 else f"tried {n:,} times"
