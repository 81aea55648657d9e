r"""Tests of the assumptions about an environment, by data that the counts do not contain.

Two tests of :mod:`homogeneity <entropic_bpi.sources.homogeneity>` compare visits at different steps, if counts are pooled
over the steps, and visits with different previous states. The test of :mod:`drift <entropic_bpi.sources.drift>` compares
visits over time. Finally, the returns of all episodes bound V* from below, since no rule of choosing actions earns more.

**Returns.** Let :math:`Y=e^{\beta R}` for the return :math:`R` of an episode, :math:`\beta>0` (for :math:`\beta<0` all
inequalities are reversed; :math:`Y=R` for :math:`\beta=0`), :math:`Y\ge y_0` and :math:`m=e^{\beta V^\star}`. Each episode
has :math:`\mathbb E[Y\mid\text{past}]\le m`. So the wealth of a portfolio that invests the fraction :math:`v` in
:math:`(Y-y_0)/(m-y_0)` and the rest in cash, rebalanced after every episode, is a supermartingale for every
:math:`v\in[0,1]`; so is the mixture over :math:`v` with the density of Beta(½,½). For two assets, the wealth of this mixture
is at least :math:`e^{-c_2(n)}` times that of the best :math:`v` in hindsight,
:math:`c_2(n)=\log(\sqrt\pi\,\Gamma(n+1)/\Gamma(n+\frac12))` (Cover and Ordentlich), which is
:math:`\exp(n\min\{\mathrm{KL}(\hat p,q): q\text{ on the observed values and }y_0,\ q\cdot Y\le m\})`. By Ville's
inequality, with probability :math:`1-\delta_t`, for all :math:`n` at once,

.. math:: e^{\beta V^\star} \ge \min\{q\cdot Y: \mathrm{KL}(\hat p,q)\le(\log(1/\delta_t)+c_2(n))/n\} .

Returns are counted in cells, and each counts as the lower end of its cell, which makes the bound smaller.
"""

import math
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from entropic_bpi.problem.problem import Problem
from entropic_bpi.sources.drift import DriftTest
from entropic_bpi.sources.homogeneity import HomogeneityTest, Tally
from entropic_bpi.types import Transitions

LEVEL = 0.01
"""The largest probability with which a test ever rejects a true assumption."""
REJECTED_FROM = math.log(1 / LEVEL)
"""A test rejects if the logarithm of its evidence is at least this."""

BEFORE_THE_FIRST = -1
"""The previous state at the first step of an episode."""
CELLS = 1024
# The largest number of groups by previous state: about half a gigabyte.
MOST_GROUPS = 1_000_000

Visit = tuple[int, int, int, int, float, int]
"""One step of an episode: step, state, action, next state, reward, previous state."""


class Batch(NamedTuple):
    """Some episodes: how often each first state, each visit and each return was seen."""

    starts: Counter[int]
    visits: Counter[Visit]
    returns: Counter[float]


class AssumptionTests:
    """Tests of the assumptions about an environment, on all episodes.

    Attributes
    ----------
    by_step : HomogeneityTest or None
        The test of visits of the pooled rows by step; None if counts are not pooled, which assumes nothing.
    by_previous : HomogeneityTest
        The test of visits of the rows by previous state.
    over_time : DriftTest
        The test of visits of the rows, including the random start, by the number of visits before them.
    by_pair : HomogeneityTest or None
        With declared noise, the test of the visits that feed a ball by state-action pair.
    lowest, highest : float
        The range of the return.
    returns : int array
        The number of episodes with a return in each cell; cell ``i`` begins at ``edges[i]``.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        possible = problem.slots.possible[:-1]
        # No action is played in the last state, the end.
        rows = len(possible) // problem.n_states * (problem.n_states - 1)
        self.by_step = HomogeneityTest(possible, rows) if problem.stationary else None
        self.by_previous = HomogeneityTest(possible, rows, MOST_GROUPS)
        balls, self.by_pair = problem.balls, None
        if balls is not None and balls.cells:
            self.by_pair = HomogeneityTest(np.bincount(balls.ball_of_cell), len(np.unique(balls.ball_of_cell)))
        random = problem.declared_range if problem.random_rewards else None
        self.over_time = DriftTest(problem.slots.possible, rows + 1, random)
        self.lowest, self.highest = (reward * problem.duration for reward in problem.possible_rewards)
        if problem.limits_returns:
            self.lowest, self.highest = problem.return_limits
        self.edges = np.linspace(self.lowest, self.highest, CELLS + 1)[:-1]
        self.returns = np.zeros(CELLS, dtype=np.int64)
        self.rewards: dict[tuple[int, int], list[float]] = {}

    def add(self, batch: Batch, *moves: Transitions) -> None:
        """Add some episodes; ``moves`` are their transitions, including first states, in consecutive parts."""
        problem = self.problem
        stride = 0 if problem.stationary else problem.n_states * problem.n_actions
        for (h, state, action, following, paid, previous), times in batch.visits.items():
            row = h * stride + state * problem.n_actions + action
            outcome = following, self._reward(row, following, paid)
            if self.by_step is not None:
                self.by_step.add(row, h, outcome, times)
            self.by_previous.add(row, previous, outcome, times)
            if self.by_pair is not None:
                self._add_to_balls(self.by_pair, row, outcome, times)
        cells = np.searchsorted(self.edges, np.array(list(batch.returns)), side="right") - 1
        np.add.at(self.returns, np.maximum(cells, 0), list(batch.returns.values()))
        for part in moves:
            if not problem.random_rewards:
                columns = (column.tolist() for column in (part.rows, part.successors, part.rewards))
                part = part._replace(rewards=np.array(list(map(self._reward, *columns))))
            self.over_time.add(part)

    def _add_to_balls(self, by_pair: HomogeneityTest, pair: int, outcome: tuple[int, float], times: int) -> None:
        """Add visits to the test of every ball in which they count, with the class as outcome and the pair as group."""
        balls, slots, begin = self.problem.balls, self.problem.slots, self.problem.slots.begin[pair]
        assert balls is not None
        listed = [i for i in range(slots.used[pair]) if slots.successor[begin + i] == outcome[0]]
        slot = min(listed, key=lambda i: abs(slots.low[0, begin + i] - outcome[1]))
        for ball, cell in balls.classes_of(pair, slot):
            by_pair.add(ball, pair, (cell, 0.0), times)

    def _reward(self, row: int, following: int, paid: float) -> float:
        """Return the reward that identifies an outcome: the nearest one seen before, if they are equal up to rounding.

        Random rewards are not part of the outcome: the tests by step and by previous state then use only next states.
        """
        if self.problem.random_rewards:
            return 0.0
        seen = self.rewards.setdefault((row, following), [])
        if paid in seen:
            return paid
        nearest = min(seen, key=lambda reward: abs(reward - paid), default=math.inf)
        if abs(nearest - paid) <= self.problem.same_reward:
            return nearest
        seen.append(paid)
        return paid

    def state(self) -> dict[str, np.ndarray]:
        """Return all data as arrays, for :meth:`restore`."""
        tallies = {name: test.tally()._asdict() for name, test in self._tests().items()}
        arrays = {f"{name}.{column}": array for name, tally in tallies.items() for column, array in tally.items()}
        return {"returns": self.returns, **arrays}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Add the data of other tests of the same problem."""
        self.returns = state["returns"].copy()
        for name, test in self._tests().items():
            tally = Tally(*(state[f"{name}.{column}"] for column in Tally._fields))
            test.restore(tally)
            visits = zip(*(column.tolist() for column in tally), strict=True)
            for row, _, successor, _, reward in visits if test is not self.by_pair else ():
                self._reward(row, successor, reward)

    def _tests(self) -> dict[str, HomogeneityTest | DriftTest]:
        tests = {name: getattr(self, name) for name in ("by_step", "by_previous", "over_time", "by_pair")}
        return {name: test for name, test in tests.items() if test is not None}
