"""Play an environment for a few seconds without declarations, and record the observations.

A quarter of the episodes choose actions uniformly at random. The others go towards the state-action pairs that were tried
least, by transitions that were seen.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from entropic_bpi.errors import EntropicBPIError
from entropic_bpi.sources.assumption_tests import BEFORE_THE_FIRST, Batch
from entropic_bpi.sources.environment import Environment

LONGEST_EPISODE = 1000
"""Episodes are stopped after this many steps."""
ENDED, TRUNCATED, LEFT = "ended", "truncated", "left"
_END = -1  # the next state of a step that terminates, until all states are numbered
# The size of a batch is this fraction of the number of episodes before it, at least _SHORTEST_BATCH. The least tried pairs
# are determined again when the number of steps has grown by this fraction, at least by _SOONEST steps.
_GROWTH, _SHORTEST_BATCH, _SOONEST = 0.1, 4, 200
# Only the first episodes are seeded, since seeding takes time: this shows whether the start depends on the seed.
_SEEDED = 100


@dataclass
class Observed:
    """The observations of an environment.

    Attributes
    ----------
    states : list of str
        Labels of the states, in the order in which they were first seen.
    n_actions : int
        Number of actions.
    outcomes : dict
        For each pair (state, action), how often each (next state, reward) was seen; the next state ``len(states)`` is the
        end of the episode.
    starts : Counter
        First states.
    lengths : Counter
        Episodes by their number of steps and how they stopped: ``"ended"``, ``"truncated"`` or ``"left"`` (before an end).
    batches : list of Batch
        All steps, in chronological order.
    masks : dict of set of bytes
        For each state, the distinct action masks that came with it: 1 for each action that is allowed, and 0 for others.
    enforced : bool
        Whether the environment raises an error for actions that its mask forbids.
    steps : int
        Number of steps.
    seconds : float
        Duration of play.
    last_new : dict
        The number of the step at which a new ``"state"`` or ``"outcome"``, or a ``"reward"`` outside the range before, was
        last seen.
    reward_range : (float, float)
        Smallest and largest reward.
    """

    states: list[str]
    n_actions: int
    outcomes: dict[tuple[int, int], Counter[tuple[int, float]]] = field(default_factory=dict)
    starts: Counter[int] = field(default_factory=Counter)
    lengths: Counter[tuple[int, str]] = field(default_factory=Counter)
    batches: list[Batch] = field(default_factory=list)
    masks: dict[int, set[bytes]] = field(default_factory=dict)
    enforced: bool = False
    steps: int = 0
    seconds: float = 0.0
    last_new: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("state", "outcome", "reward"), 0))
    reward_range: tuple[float, float] = (math.inf, -math.inf)

    @property
    def episodes(self) -> int:
        return self.lengths.total()

    def allowed(self, state: int) -> Sequence[int]:
        """Return the actions that can be tried: all, unless the environment raises errors for forbidden ones."""
        masks = self.masks.get(state) if self.enforced else None
        if masks is None:
            return range(self.n_actions)
        return [a for a in range(self.n_actions) if all(mask[a] for mask in masks)]

    @cached_property
    def least_tried(self) -> int:
        """The number of tries of the state-action pair that was tried least."""
        tries = {pair: outcomes.total() for pair, outcomes in self.outcomes.items()}
        return min(tries.get((s, a), 0) for s in range(len(self.states)) for a in self.allowed(s))


def observe(environment: Environment, *, seconds: float, episodes: int | None, seed: int) -> Observed:
    """Play for this number of ``seconds``, or of ``episodes`` if these take less time, and return the observations.

    Raises
    ------
    InvalidProblemError
        If the environment raises an error, or if a reward is not a finite number.
    """
    began = time.perf_counter()
    tour = _Tour(environment, seed, began + seconds)
    seen, limit = tour.seen, math.inf if episodes is None else episodes
    while seen.episodes < limit and (time.perf_counter() < tour.deadline or not seen.episodes):
        batch = max(_SHORTEST_BATCH, math.ceil(_GROWTH * seen.episodes))
        tour.play(int(min(batch, limit - seen.episodes)))
    seen.seconds = time.perf_counter() - began
    _number_the_end(seen)
    return seen


def _number_the_end(seen: Observed) -> None:
    """Replace the provisional number of the end of an episode by the number after the last state."""
    end = len(seen.states)
    for pair, outcomes in seen.outcomes.items():
        seen.outcomes[pair] = Counter({(end if y == _END else y, r): n for (y, r), n in outcomes.items()})
    for i, (starts, visits, returns) in enumerate(seen.batches):
        numbered = Counter({(h, s, a, end if y == _END else y, r, p): n for (h, s, a, y, r, p), n in visits.items()})
        seen.batches[i] = Batch(starts, numbered, returns)


@dataclass
class _Walk:
    """An episode that is being played."""

    state: int
    previous: int = BEFORE_THE_FIRST
    steps: int = 0
    earned: float = 0.0
    how: str = ""


class _Tour:
    """Plays an environment, counts, and computes for each state the action towards the pairs that were tried least."""

    def __init__(self, environment: Environment, seed: int, deadline: float) -> None:
        self.environment, self.deadline = environment, deadline
        self.rng = np.random.default_rng(seed)
        self.seen = Observed(environment.states.found, environment.actions.size)  # type: ignore[union-attr]
        self.tries: list[list[int]] = []
        self.ways: dict[int, int] = {}
        self.rarely, self.look_again = 0, 0

    def play(self, episodes: int) -> None:
        """Play a batch; a quarter of its episodes choose actions at random."""
        seen, batch, done = self.seen, Batch(Counter(), Counter(), Counter()), 0
        while done < episodes and (time.perf_counter() < self.deadline or not seen.episodes):
            for walk in self._episode(batch, directed=done % 4 > 0):
                seen.lengths[walk.steps, walk.how or LEFT] += 1
                batch.returns[walk.earned] += 1
                done += 1
        seen.batches.append(batch)

    def _episode(self, batch: Batch, directed: bool) -> list[_Walk]:
        """Play one episode of each copy; a last step that raised an error for a forbidden action is not counted."""
        seed = int(self.rng.integers(2**31)) if self.seen.episodes < _SEEDED else None
        observations, info = self.environment.reset(seed)
        walks = [_Walk(self.environment.states.index(observation)) for observation in observations]
        self._note_masks([walk.state for walk in walks], info)
        for walk in walks:
            self.seen.starts[walk.state] += 1
            batch.starts[walk.state] += 1
        for h in range(LONGEST_EPISODE):
            actions = [self._choose(walk.state, directed) for walk in walks]
            try:
                answers = self._step(actions)
            except EntropicBPIError:
                if self.seen.enforced or not self._forbidden(walks, actions):
                    raise
                self.seen.enforced = True
                break
            for walk, action, (state, reward, terminated, truncated) in zip(walks, actions, answers, strict=True):
                if not walk.how:
                    batch.visits[h, walk.state, action, state, reward, walk.previous] += 1
                    self._count(walk.state, action, state, reward)
                    walk.previous, walk.state = walk.state, state
                    walk.steps, walk.earned = h + 1, walk.earned + reward
                    walk.how = ENDED if terminated else TRUNCATED if truncated else ""
            if all(walk.how for walk in walks) or time.perf_counter() >= self.deadline:
                break
        return walks

    def _count(self, state: int, action: int, following: int, reward: float) -> None:
        seen, n_known = self.seen, len(self.tries)
        seen.steps += 1
        if max(state, following) >= n_known:
            self.tries += [[0] * seen.n_actions for _ in range(max(state, following) + 1 - n_known)]
            seen.last_new["state"], seen.states = seen.steps, self.environment.states.found  # type: ignore[union-attr]
        self.tries[state][action] += 1
        outcomes = seen.outcomes.setdefault((state, action), Counter())
        if (following, reward) not in outcomes and all(following != y for y, _ in outcomes):
            seen.last_new["outcome"] = seen.steps
        outcomes[following, reward] += 1
        low, high = seen.reward_range
        if not low <= reward <= high:
            seen.last_new["reward"], seen.reward_range = seen.steps, (min(low, reward), max(high, reward))

    def _forbidden(self, walks: list[_Walk], actions: list[int]) -> bool:
        masks = [self.seen.masks.get(walk.state, set()) for walk in walks]
        return any(not all(mask[a] for mask in known) for known, a in zip(masks, actions, strict=True))

    def _choose(self, state: int, directed: bool) -> int:
        """Return a random action or, if ``directed``, the least tried one or one that leads to less tried pairs."""
        if state < 0:  # the episode of this copy has ended, but not those of all copies
            return 0
        actions = self.seen.allowed(state)
        if directed and state < len(self.tries):
            if self.seen.steps >= self.look_again:
                self._look()
            least = min(actions, key=self.tries[state].__getitem__)
            return least if self.tries[state][least] <= self.rarely else self.ways.get(state, least)
        return actions[int(self.rng.integers(len(actions)))]

    def _look(self) -> None:
        """Compute, for each state, the action that leads towards the pairs that were tried least."""
        seen = self.seen
        self.look_again = seen.steps + max(_SOONEST, int(_GROWTH * seen.steps))
        least = [min(self.tries[s][a] for a in seen.allowed(s)) for s in range(len(self.tries))]
        self.rarely = 2 * min(least) + 1
        distance = {s: 0 for s, tries in enumerate(least) if tries <= self.rarely}
        arrivals: dict[int, set[int]] = {}
        for (s, _), outcomes in seen.outcomes.items():
            for y, _ in outcomes:
                arrivals.setdefault(y, set()).add(s)
        queue = deque(distance)
        while queue:
            y = queue.popleft()
            for s in arrivals.get(y, set()) - distance.keys():
                distance[s] = distance[y] + 1
                queue.append(s)
        self.ways = {
            s: max(seen.allowed(s), key=lambda a: self._share_nearer(s, a, distance))
            for s, steps in distance.items()
            if steps
        }

    def _share_nearer(self, state: int, action: int, distance: dict[int, int]) -> float:
        outcomes = self.seen.outcomes.get((state, action), Counter())
        nearer = sum(n for (y, _), n in outcomes.items() if distance.get(y, math.inf) < distance[state])
        return nearer / max(outcomes.total(), 1)

    def _step(self, actions: list[int]) -> list[tuple[int, float, bool, bool]]:
        environment = self.environment
        answers, info = environment.step(actions)
        numbered = [
            (_END if ended else environment.states.index(observation), environment.paid(reward), ended, cut)
            for observation, reward, ended, cut in answers
        ]
        self._note_masks([state for state, *_ in numbered], info)
        return numbered

    def _note_masks(self, states: list[int], info: Any) -> None:
        """Record the masks in ``info``."""
        for state, mask in zip(states, self.environment.masks(info), strict=False):
            if mask is not None and state >= 0 and np.size(mask) == self.seen.n_actions:
                self.seen.masks.setdefault(state, set()).add(np.asarray(mask, dtype=bool).tobytes())
