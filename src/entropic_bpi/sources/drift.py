r"""A test of whether the law of a row changes over the episodes, valid at all times.

The hypothesis is that the outcomes of a row are i.i.d. with one law :math:`p`, whenever it is visited; :math:`p` has at
most :math:`k` possible outcomes, a number declared before any data.

**One event.** Take an event of the row, such as "the next state is 3". Number the visits of this row,
:math:`t=0,1,2,\dots`, and divide them into blocks of consecutive visits, such as "the first 40, and all later ones". The
event occurred at :math:`m_g` of the :math:`n_g` visits in block :math:`g`, and at :math:`m` of all :math:`n`. With the
Krichevsky-Trofimov mixture of two outcomes,

.. math:: E_\pi = \frac{\prod_{g\in\pi}\mathrm{KT}(m_g, n_g-m_g)}{(m/n)^m(1-m/n)^{n-m}},\qquad
          \mathrm{KT}(m, l) = \frac{\Gamma(m+\frac12)\Gamma(l+\frac12)}{\pi\,\Gamma(m+l+1)} ,

is at most a nonnegative martingale that starts at 1: the block of a visit is known before its outcome, and the largest
likelihood is at least the true one (as in :mod:`homogeneity <entropic_bpi.sources.homogeneity>`). So is the sum over
partitions :math:`\pi` with weights that are fixed in advance and add up to 1:

- Half of the weight is for **one change**: the visits before number :math:`c`, and those from :math:`c` on. The numbers
  :math:`c` are a geometric grid, four per octave: 4, 8, 12, …, 32, 40, 48, 56, 64, 80, …. Each of the four numbers in group
  :math:`o=0,1,\dots` of this list has the share :math:`1/(4(o+1)(o+2))`.
- The other half is for **slow and repeated changes**: all blocks have :math:`4\cdot2^i` visits. Each :math:`i=0,1,\dots`
  has the share :math:`1/((i+1)(i+2))`.

Omitting terms makes the sum smaller. The computed terms are the last 16 numbers :math:`c`, since an earlier change was
detected earlier or concerns few visits, and the two :math:`i` that divide the visits into 3 to 8 blocks. All visits of a row
in one batch are put into the block of the first of them, which is known before the batch. This costs power, not validity.

**One row.** :math:`E_{\text{row}}` is the mean over the :math:`k` events "the outcome is :math:`y`". Random rewards are not
part of the outcome. For them, half of the weight is for the 63 events "the reward is below the :math:`i`-th of 64 equal
parts of its range", with the share 1/64 each. Events that coincide on the observed rewards are combined into one event with
the sum of their shares, and at most ten different events are computed.

**All rows.** A visit changes the :math:`E` of one row. Hence the product over :math:`P` rows of
:math:`1-\theta+\theta E_{\text{row}}` is at most a supermartingale that starts at 1. For :math:`\theta=1/(P+1)` it is at
least :math:`1/e` of the mean of all :math:`E_{\text{row}}`, and much larger if many rows change. By Ville's inequality, the
probability that it ever reaches :math:`1/\delta_t` is at most :math:`\delta_t`, however often it is evaluated.
"""

import math
from itertools import chain
from typing import NamedTuple

import numpy as np

from entropic_bpi.sources.homogeneity import Tally, carriers
from entropic_bpi.types import Transitions

REWARD_CLASSES = 64
# The events about rewards that are computed: at these quantiles of the observed rewards, and of their classes.
_SPREAD = np.arange(1, 6) / 6
# Number of possible changes that are tested: the last four octaves of the visits.
_CUTS = 16
# Rows that are first visited when there are this many lines of counts are ignored: about 200 megabytes.
MOST_LINES = 200_000
_ROWS_AT_ONCE = 1024


class Change(NamedTuple):
    """The most likely change of a row.

    Attributes
    ----------
    row : int
        The number of the row.
    share : float
        The row's share of the evidence.
    successor : int or None
        The event is this next state or, if None, a reward below ``limit``.
    limit : float
        The upper end of the rewards of the event; NaN if the event is a next state.
    visits, times : (int, int)
        Numbers of visits of the row before and after the most likely change, and of those at which the event occurred.
    """

    row: int
    share: float
    successor: int | None
    limit: float
    visits: tuple[int, int]
    times: tuple[int, int]


def cell_of(visits: np.ndarray) -> np.ndarray:
    """Return the cell of a visit, given the number of visits before it; cells begin at 0, 4, …, 32, 40, …, 64, 80, …."""
    fours = visits >> 2
    shift = np.maximum(np.frexp(fours)[1] - 3, 0)
    return 4 * shift + (fours >> shift)


class DriftTest:
    """The test for one set of rows.

    Parameters
    ----------
    possible : int array
        k, the number of possible outcomes of each row.
    rows : int
        P, the number of rows that can be visited.
    reward_range : (float, float) or None
        The range of random rewards; None if rewards are part of the outcome.
    """

    def __init__(self, possible: np.ndarray, rows: int, reward_range: tuple[float, float] | None = None) -> None:
        self.possible, self.rows, self.reward_range = possible, rows, reward_range
        # A row has one key for its outcomes and, if rewards are random, a second one for the classes of its rewards.
        self.kinds = 1 if reward_range is None else 2
        self.visits = np.zeros(len(possible), dtype=np.int64)
        # Each (outcome or class, reward) of a key has a line of ``times``: how often it was seen in each cell.
        self.lines: dict[int, dict[tuple[int, float], int]] = {}
        self.names: list[tuple[int, int, float]] = []
        self.times = np.zeros((0, 0), dtype=np.int64)
        self.room = 0  # lines that are used or reserved for classes of rewards
        self.stale: set[int] = set()
        self.log_es: dict[int, float] = {}

    def add(self, moves: Transitions) -> None:
        """Add the visits of some episodes, which were played after all episodes that were added before."""
        if self.room >= MOST_LINES:
            known = self.visits[moves.rows] > 0
            moves = Transitions(*(column[known] for column in moves[:4]))
        keys, outcomes, times, rewards = moves[:4]
        if self.reward_range is not None:
            low, high = self.reward_range
            classes = np.clip((rewards - low) / ((high - low) or 1.0) * REWARD_CLASSES, 0, REWARD_CLASSES - 1)
            keys, outcomes = np.append(2 * keys, 2 * keys + 1), np.append(outcomes, classes.astype(np.int64))
            # Merge equal names first: the loop over them is slow, and there are often as many rewards as visits.
            names = keys * (outcomes.max(initial=0) + 1) + outcomes
            _, first, which = np.unique(names, return_index=True, return_inverse=True)
            times = np.bincount(which, np.tile(times, 2)).astype(np.int64)
            keys, outcomes, rewards = keys[first], outcomes[first], np.zeros(len(first))
        self.restore(Tally(keys, cell_of(self.visits[keys // self.kinds]), outcomes, times, rewards))

    def restore(self, tally: Tally) -> None:
        """Add visits by key and cell."""
        keys, cells, outcomes, times, rewards = tally
        names = zip(keys.tolist(), outcomes.tolist(), rewards.tolist(), strict=True)
        lines = np.array([self._line(*name) for name in names], dtype=np.int64)
        missing = np.maximum((len(self.names), cells.max(initial=0) + 1) - np.array(self.times.shape), 0)
        if missing.any():
            missing[0] += len(self.times) if missing[0] else 0  # double the length, so that copies are rare
            self.times = np.pad(self.times, [(0, more) for more in missing])
        np.add.at(self.times, (lines, cells), times)
        rows, kinds = np.divmod(keys, self.kinds)
        np.add.at(self.visits, rows, np.where(kinds == 0, times, 0))
        self.stale.update(rows.tolist())

    def _line(self, key: int, outcome: int, reward: float) -> int:
        is_reward = key % self.kinds
        if key not in self.lines:
            self.lines[key] = {}
            self.room += REWARD_CLASSES * is_reward
        line = self.lines[key].setdefault((outcome, reward), len(self.names))
        if line == len(self.names):
            self.names.append((key, outcome, reward))
            self.room += 1 - is_reward
        return line

    def tally(self) -> Tally:
        """Return all visits by key and cell, from which :meth:`restore` makes an equal test."""
        lines, cells = np.nonzero(self.times)
        keys, outcomes, rewards = np.array(self.names, dtype=object).reshape(-1, 3)[lines].T
        times = self.times[lines, cells]
        return Tally(keys.astype(np.int64), cells, outcomes.astype(np.int64), times, rewards.astype(float))

    def log_e(self) -> float:
        """Return the logarithm of the product over the rows; only rows with new visits are computed again."""
        stale = sorted(self.stale)
        for begin in range(0, len(stale), _ROWS_AT_ONCE):
            rows = stale[begin : begin + _ROWS_AT_ONCE]
            log_es, (owners, visits, times, weights) = np.full(len(rows), -np.inf), self._events(rows)
            terms = np.logaddexp.reduce(_log_terms(visits, times, owners), axis=1)
            np.logaddexp.at(log_es, owners, terms + np.log(weights))
            self.log_es.update(zip(rows, log_es.tolist(), strict=True))
        self.stale.clear()
        return math.fsum(map(self._gain, self.log_es.values()))

    def _gain(self, log_e: float) -> float:
        """Return log(1 - θ + θE) of a row."""
        return float(np.logaddexp(math.log(self.rows), log_e)) - math.log(self.rows + 1)

    def suspects(self, most: int) -> list[Change]:
        """Return the change of each row with a large share of the evidence, at most ``most`` of them."""
        gains = {row: max(self._gain(log_e), 0.0) for row, log_e in self.log_es.items()}
        return [self._change(row, share) for row, share in carriers(gains, most).items()]

    def _change(self, row: int, share: float) -> Change:
        owners, visits, times, weights = self._events([row])
        terms = _log_terms(visits, times, owners)[:, :-2] + np.log(weights)[:, None]
        first = cell_of(visits.sum() - 1) - np.arange(terms.shape[1])  # the cell after each change
        before = np.append(0, np.cumsum(visits))[np.maximum(first, 0)]
        terms[:, (before == 0) | (before == visits.sum())] = -np.inf
        event, change = np.unravel_index(np.argmax(terms), terms.shape)
        cell = first[change]
        ends = [(int(seen[:cell].sum()), int(seen[cell:].sum())) for seen in (visits[0], times[event])]
        successors = [outcome for outcome, _ in self.lines[row * self.kinds]]
        if event < len(successors):
            return Change(row, share, successors[event], math.nan, *ends)
        assert self.reward_range is not None
        low, high = self.reward_range
        limit = int(self._reward_events([row])[3][event - len(successors)])
        return Change(row, share, None, low + (high - low) * limit / REWARD_CLASSES, *ends)

    def _events(self, rows: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the row of each event, the visits of each row by cell, and the counts by cell and weight of each event."""
        lines = [self.lines[row * self.kinds].values() for row in rows]
        sizes = np.array([len(some) for some in lines])
        times = self.times[list(chain(*lines))]
        visits = np.add.reduceat(times, np.cumsum(sizes) - sizes)
        owners = np.repeat(np.arange(len(rows)), sizes)
        weights = 1 / (self.kinds * self.possible[rows][owners])
        if self.reward_range is not None:
            of, below, shares, _ = self._reward_events(rows)
            owners, times, weights = np.append(owners, of), np.vstack([times, below]), np.append(weights, shares / 2)
        return owners, visits, times, weights

    def _reward_events(self, rows: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the events "the reward is below a class": their rows, counts by cell, weights, and classes."""
        paid = np.zeros((len(rows), REWARD_CLASSES, self.times.shape[1]), dtype=np.int64)
        for i, row in enumerate(rows):
            lines = self.lines[row * self.kinds + 1]
            paid[i, [which for which, _ in lines]] = self.times[list(lines.values())]
        below = np.cumsum(paid, axis=1)
        counts = below.sum(axis=2)
        seen = np.diff(counts, axis=1, prepend=0) > 0
        kept = np.zeros(seen.shape, dtype=bool)
        for order in (counts, np.cumsum(seen, axis=1)):
            far_enough = order[:, :, None] >= order[:, -1:, None] * _SPREAD
            np.put_along_axis(kept, np.argmax(far_enough, axis=1), True, axis=1)
        owners, last = np.nonzero(kept & (counts < counts[:, -1:]))
        # There is no reward between the last class and the next class that was seen, so the events there coincide.
        places = np.where(seen, np.arange(REWARD_CLASSES), REWARD_CLASSES)
        following = np.minimum.accumulate(places[:, ::-1], axis=1)[:, ::-1][owners, last + 1]
        return owners, below[owners, last], (following - last) / REWARD_CLASSES, following


def _log_terms(visits: np.ndarray, times: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """Return log E of each event with its weight: a column for each of the last changes, and two for equal blocks."""
    from scipy.special import gammaln, xlogy

    seen, happened = np.cumsum(visits, axis=1), np.cumsum(times, axis=1)
    n, m = seen[:, -1:], happened[:, -1:]
    cuts = cell_of(n - 1) - np.arange(1, _CUTS + 1)
    length = np.maximum(np.frexp((n - 1) >> 2)[1] - 3, 0)
    ends = np.hstack([cuts, cell_of(4 * np.arange(1, 9) << length) - 1])
    ends = np.clip(ends, 0, seen.shape[1] - 1)
    in_blocks, happened = _blocks(seen, ends), _blocks(happened, ends[owners])
    mixtures = gammaln(happened + 0.5) + gammaln(in_blocks[owners] - happened + 0.5)
    mixtures -= (gammaln(in_blocks + 1.0) + math.log(math.pi))[owners]
    early, late, eighths, quarters = np.split(mixtures, np.cumsum([_CUTS, _CUTS, 8]), axis=1)
    octave, exponent = np.maximum(cuts, 0) // 4, length + [0, 1]
    shares = np.where(cuts < 0, -np.inf, -np.log(8 * (octave + 1) * (octave + 2)))
    equal = np.stack([eighths.sum(axis=1), quarters.sum(axis=1)], axis=1)
    terms = np.hstack([early + late, equal])
    terms += np.hstack([shares, -np.log(2 * (exponent + 1) * (exponent + 2))])[owners]
    n = n[owners]
    return terms - xlogy(m, m / n) - xlogy(n - m, 1 - m / n)


def _blocks(seen: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return counts before and after each cut, and in 8 and in 4 equal blocks, given cumulative counts by cell."""
    until = np.take_along_axis(seen, ends, axis=1)
    before, eighths = until[:, :_CUTS], np.diff(until[:, _CUTS:], prepend=0)
    return np.hstack([before, seen[:, -1:] - before, eighths, eighths[:, ::2] + eighths[:, 1::2]])
