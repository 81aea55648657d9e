"""Which further visits would make a certificate tighter.

The gap of a certificate falls when the balls of some rows shrink. Which rows matter, and by how much, is found by computing
the bounds again with hypothetical visits:

- *twice the visits* of a row means that each of its transitions was seen twice as often;
- an action that was never tried is assumed to behave like the most tried action of its state, in about a hundred visits;
- the plan of experiments doubles all visits until the gap is small enough, and then removes visits that are not needed.

The result is a forecast from the data so far. It certifies nothing.
"""

import math
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from entropic_bpi import methods
from entropic_bpi.certificate.certificate import Certificate
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.runs.loop import Identification
from entropic_bpi.runs.walk import walk_observed
from entropic_bpi.tools.checks import check_integer, check_positive
from entropic_bpi.types import Summarised, Transitions, with_renamed_attributes

_FIRST_TRIES = 100
_MOST_DOUBLINGS = 24
_MOST_TRIALS = 300
# Weight of an action that neither policy plays, relative to the probability of its state.
_UNPLAYED_WEIGHT = 0.1


@with_renamed_attributes
class Row(NamedTuple):
    """An action in a state, at one step or at all of them (None); without either, the first states of episodes.

    ``gap_reduction`` is by how much the gap falls with twice the ``visits``, and ``visits_needed`` is the number of visits
    in the plan of experiments, those so far included.
    """

    step: int | None
    state: str | None
    action: str | None
    visits: int
    gap_reduction: float
    visits_needed: int


@dataclass(frozen=True)
class Missing(Summarised):
    """Which visits a certificate needs for a smaller gap.

    Attributes
    ----------
    gap, target : float
        The certified gap, and the one that the plan of experiments is for.
    rows : tuple of Row
        The rows that were examined, the most helpful ones first.
    expected : float
        The gap after the plan, if new visits resemble those so far. If it is above ``target`` there is no plan: more visits
        of the same kind are not enough, because something was never seen.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=5)
    >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, successors="model", seed=1)
    >>> needs = eb.missing(result, target=0.2)
    >>> needs.target, needs.gap == result.certificate.gap
    (0.2, True)
    """

    gap: float
    target: float
    rows: tuple[Row, ...]
    expected: float

    def __str__(self) -> str:
        return "\n".join([f"the certified gap is {self.gap:.3g}, the target {self.target:.3g}", *self.suggestions])

    __repr__ = __str__

    @property
    def suggestions(self) -> list[str]:
        """The plan of experiments, in words."""
        words = []
        for row in sorted(self.rows, key=lambda row: row.visits - row.visits_needed):
            more = _rounded(row.visits_needed - row.visits)
            if more and row.action is None:
                words.append(f"play about {more} more episodes, for their first states")
            elif more:
                when = "" if row.step is None else f" at step {row.step}"
                tries = f"about {more} {'more ' if row.visits else ''}times"
                words.append(f"try action {row.action} in state {row.state}{when} {tries}")
        return words


def missing(certificate: Certificate | Identification, *, target: float | None = None, rows: int = 12) -> Missing:
    """Compute which visits a certificate needs: the rows that contribute most to its gap, and a plan of experiments.

    Parameters
    ----------
    certificate : Certificate or Identification
        Of method ``"kl"``, from a log or a run.
    target : float, optional
        The gap to be reached. Default: the certificate's ε or, if that is reached already, half of the gap.
    rows : int
        Number of rows to examine.

    Returns
    -------
    Missing
        The state-action pairs, with the visits that are needed.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=5)
    >>> run = eb.identify(bridge, beta=-1.0, eps=0.1, delta=0.1, successors="model", max_episodes=30, seed=0)
    >>> needs = eb.missing(run)
    >>> needs.expected < needs.gap
    True
    """
    certificate = getattr(certificate, "certificate", certificate)
    if not isinstance(certificate, Certificate):
        kind = type(certificate).__name__
        raise InvalidProblemError(f"missing needs a certificate, or the result of identify; got {kind}")
    if certificate.method != "kl":
        raise InvalidProblemError(f"missing needs a certificate of method 'kl', got one of {certificate.method!r}")
    if certificate.risk == "any reward":
        raise InvalidProblemError("missing needs a certificate for one reward: give what Exploration.solve(…) returns")
    if target is None:
        target = max(certificate.gap / 2, sys.float_info.min) if certificate.reached else certificate.eps
    return _Experiments(certificate, check_integer("rows", rows)).plan(check_positive("target", target))


def limits(certificate: Certificate, *, rows: int = 8) -> tuple[Row, ...]:
    """Return the rows whose visits limit the gap now: those of :func:`missing`, without its plan of experiments.

    There are none for a method other than ``"kl"``.

    Parameters
    ----------
    certificate : Certificate
    rows : int
        Number of rows to examine.

    Returns
    -------
    tuple of Row
        Those with a positive ``gap_reduction``, the largest first.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> from entropic_bpi.runs.data_needs import limits
    >>> bridge = eb.instances.risky_bridge(horizon=5)
    >>> run = eb.identify(bridge, beta=-1.0, eps=0.1, delta=0.1, successors="model", max_episodes=30, seed=0)
    >>> reductions = [row.gap_reduction for row in limits(run.certificate)]
    >>> reductions[0] > 0 and reductions == sorted(reductions, reverse=True)
    True
    """
    if certificate.method != "kl":
        return ()
    experiments = _Experiments(certificate, check_integer("rows", rows))
    useful = [experiments.row(row, fall) for row, fall in experiments.reductions().items() if fall > 0]
    return tuple(sorted(useful, key=lambda row: -row.gap_reduction))


class _Experiments:
    """Bounds of one policy with hypothetical further visits."""

    def __init__(self, certificate: Certificate, rows: int) -> None:
        self.certificate, self.problem, self.rows = certificate, certificate.problem, rows
        method: Any = methods.make("kl", self.problem, {}, 0)
        self.method, method.boxed = method, -1  # boxes tell only whether eps is reached
        self.policy, self.seen, self.counts = certificate._planned, certificate.transitions, certificate.counts
        self.visits = np.bincount(self.seen.rows, self.seen.times, self.problem.n_rows).astype(np.int64)
        self.collected, self.trials = self.counts.state(), 0

    def _promising(self) -> list[int]:
        """Return the rows worth a trial: often played by the policy, or by the one that looks best, and seldom visited."""
        problem, played = self.problem, np.zeros(self.problem.n_rows)
        pairs = problem.n_rows - problem.artificial
        of_state = played[:pairs].reshape(-1, problem.n_actions)
        self.counts.restore(self.collected)
        greedy = self.method.plan_once(self.counts).behaviour.greedy
        for policy in (self.policy, greedy):
            for _, masses, rows in walk_observed(problem, self.seen, policy):
                played[rows] += masses
                inner = rows < pairs
                of_state[rows[inner] // problem.n_actions] += _UNPLAYED_WEIGHT * masses[inner, None]
        promise = np.where(problem.at_risk, played, 0.0) / np.sqrt(self.visits + 1)
        return [int(row) for row in np.argsort(-promise, kind="stable")[: self.rows] if promise[row] > 0]

    def reductions(self, *others: int) -> dict[int, float]:
        """Return by how much the gap falls with twice the visits of each row worth a trial, and of the ``others``."""
        gap = self.gap({})
        return {row: gap - self.gap({row: 2}) for row in {*self._promising(), *others}}

    def gap(self, extra: dict[int, int]) -> float:
        """Return the gap if each row had ``extra[row]`` times its visits; infinite if that contradicts a declaration."""
        self.counts.restore(self.collected)
        more = [self._repeated(row, factor) for row, factor in extra.items()]
        try:
            if more:
                *columns, labels = zip(*more, strict=True)
                self.counts.add(Transitions(*map(np.concatenate, columns))._replace(labels=np.sum(labels, axis=0)), 0)
        except InvalidProblemError:
            return math.inf
        return float(self.method.bounds_of(self.counts, self.policy).gap)

    def _repeated(self, row: int, factor: int) -> Transitions:
        """Return the transitions that raise a row to ``factor`` times its visits, or the first ones of an untried row."""
        source, scale = row, factor - 1.0
        if not self.visits[row]:
            source = self._sibling(row)
            scale = factor / 2 * min(1.0, _FIRST_TRIES / max(1, self.visits[source]))
        own = self.seen.rows == source
        part = Transitions(*(column[own] if column.size else column for column in self.seen[:5]))
        times = np.ceil(part.times * scale).astype(np.int64)
        return part._replace(rows=np.full(own.sum(), row), times=times, labels=self._labels(row, int(times.sum())))

    def _labels(self, row: int, times: int) -> np.ndarray:
        """Return the labels of ``times`` more visits if noise is observed: in the shares seen so far of the row's law."""
        noise, seen = self.problem.noise, self.seen.labels
        if not seen.size or noise is None or row >= len(noise.law):
            return np.zeros_like(seen)
        law = np.repeat(np.arange(len(noise.labels)), [*map(len, noise.labels)])
        own = np.where(law == noise.law[row], seen, 0)
        return np.ceil(own * (times / max(own.sum(), 1))).astype(np.int64)

    def _sibling(self, row: int) -> int:
        """Return the row of the most tried action of the same state."""
        if self.problem.artificial and row == self.problem.n_rows - 1:
            return row
        first = row - row % self.problem.n_actions
        return first + int(np.argmax(self.visits[first : first + self.problem.n_actions]))

    def plan(self, target: float) -> Missing:
        """Double all visits until the gap is at most ``target``, then remove those that are not needed."""
        factor: dict[int, int] = {}
        gap, everything = self.gap({}), self._repeatable()
        for doublings in range(1, _MOST_DOUBLINGS + 1):
            if gap <= target:
                break
            factor = dict.fromkeys(everything, 2**doublings)
            gap = self.gap(factor)
        if gap <= target:
            # Doubling once more gives room to remove the rows with the most visits, which are tried first.
            factor = self._trimmed({row: 2 * times for row, times in factor.items()}, target)
            gap = self.gap(factor)
        else:
            factor = {}
        most_added = sorted(factor, key=lambda row: -factor[row] * self.visits[row])[: self.rows]
        reductions = dict.fromkeys(factor, 0.0) | self.reductions(*most_added)
        rows = [self.row(row, max(fall, 0.0), factor.get(row, 1)) for row, fall in reductions.items()]
        rows.sort(key=lambda row: (-row.gap_reduction, row.visits - row.visits_needed, str(row)))
        return Missing(self.certificate.gap, target, tuple(rows), gap)

    def _repeatable(self) -> list[int]:
        """Return the rows that matter and can have more visits, those with the most visits first."""
        rows = [int(row) for row in np.argsort(-self.visits, kind="stable") if self.problem.at_risk[row]]
        untried = [row for row in rows if not self.visits[row] and self.visits[self._sibling(row)]]
        possible = [row for row in untried if self.gap({row: 2}) < math.inf]
        return [row for row in rows if self.visits[row]] + possible

    def _trimmed(self, factor: dict[int, int], target: float) -> dict[int, int]:
        """Remove from a plan what ``target`` does not need: whole groups first, then row by row."""
        groups = [list(factor)]
        while groups:
            group = groups.pop()
            without = {row: times for row, times in factor.items() if row not in group}
            if self._reaches(without, target):
                factor = without
            elif len(group) > 1:
                groups += [group[len(group) // 2 :], group[: len(group) // 2]]
            else:
                (row,) = group
                while factor[row] > 2 and self._reaches(factor | {row: factor[row] // 2}, target):
                    factor[row] //= 2
        return factor

    def _reaches(self, factor: dict[int, int], target: float) -> bool:
        """Return whether a plan reaches the target; after too many trials the answer is False."""
        self.trials += 1
        return self.trials <= _MOST_TRIALS and self.gap(factor) <= target

    def row(self, row: int, reduction: float, factor: int = 1) -> Row:
        """Return the description of a row by its number."""
        problem, visits = self.problem, int(self.visits[row])
        needed = visits + (int(self._repeated(row, factor).times.sum()) if factor > 1 else 0)
        if problem.artificial and row == problem.n_rows - 1:
            return Row(None, None, None, visits, reduction, needed)
        pair, action = divmod(row, problem.n_actions)
        step, state = divmod(pair, problem.n_states)
        names = problem.state_names[state], problem.action_names[action]
        return Row(None if problem.stationary else step, *names, visits, reduction, needed)


def _rounded(times: Any) -> int:
    """Round up to two digits, which are enough for a suggestion."""
    size = 10 ** max(0, len(str(int(times))) - 2)
    return math.ceil(times / size) * size
