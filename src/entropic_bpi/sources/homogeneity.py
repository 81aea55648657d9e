r"""A test of whether different groups of visits have the same law, valid at all times.

The visits of a row (a state-action pair) are divided into groups: by the step of the visit, or by the previous state. The
group is known before the outcome. The hypothesis is that the outcomes of a row are i.i.d. with one law :math:`p` for all
groups; :math:`p` has at most :math:`k` possible outcomes, a number declared before any data.

**One row.** Let :math:`N_g(y)` be the outcomes in group :math:`g`, :math:`n_y` their sums over the groups and
:math:`n=\sum n_y`. For a set :math:`B` of :math:`j` outcomes,

.. math:: \mathrm{KT}_B(N) = \frac{\Gamma(j/2)}{\Gamma(\sum_y N_y+j/2)} \prod_{y\in B}\frac{\Gamma(N_y+1/2)}{\Gamma(1/2)}

is the probability of a sequence with counts :math:`N` under the Krichevsky-Trofimov mixture on :math:`B` (0 if it contains
another outcome). The set must not be chosen after the data. So take all sets, with weights fixed in advance:

.. math:: Q = \sum_{\emptyset\ne B\subseteq\{1,\dots,k\}} w_B \prod_g \mathrm{KT}_B(N_g),\qquad
          w_B = \frac{2^{-|B|}}{\binom{k}{|B|}},\qquad \sum_B w_B = \sum_{j=1}^k 2^{-j} < 1 .

For every rule that chooses the groups by the past, each product is the probability of the outcomes given the groups, for a
process in which every group has its own law. Hence :math:`M = Q/\prod_y p_y^{n_y}` is, for the true :math:`p`, a nonnegative
supermartingale that starts below 1: at a visit of group :math:`g`, the expected factor of each term is
:math:`\sum_y p_y\,q_B(y)/p_y\le 1`. Keeping only the term of the set of outcomes that were *seen* in the row, and replacing
the true likelihood by the largest one, makes it smaller:

.. math:: \log E = \log w_j + \sum_g\log\mathrm{KT}_j(N_g) - \sum_y n_y\log\frac{n_y}{n} \;\le\; \log M .

So the seen outcomes may serve as the alphabet of every group at the price :math:`\log\binom kj + j\log 2`, once for the row.
The result depends only on the counts, not on their order or on the names of the outcomes.

**All rows.** A visit changes the :math:`M` of one row. So the mean over :math:`P` rows, a number fixed before any data, is
also a supermartingale, and by Ville's inequality

.. math:: \Pr\Big(\exists t:\ \tfrac1P\sum_{\text{rows}}E_{\text{row}} \ge 1/\delta_t\Big)\le\delta_t ,

however often it is evaluated. A row that was never visited has :math:`E=1`.
"""

import math
from collections import Counter, defaultdict
from functools import partial
from typing import NamedTuple

import numpy as np

_Outcome = tuple[int, float]  # next state, reward
_LOG_GAMMA_HALF = 0.5 * math.log(math.pi)


class Tally(NamedTuple):
    """Visits by row, group and outcome: ``times[i]`` visits went to ``successors[i]`` with reward ``rewards[i]``."""

    rows: np.ndarray
    groups: np.ndarray
    successors: np.ndarray
    times: np.ndarray
    rewards: np.ndarray


def log_price(seen: int, possible: int) -> float:
    """Return minus the logarithm of the weight of one set of ``seen`` outcomes out of ``possible``."""
    ways = math.lgamma(possible + 1) - math.lgamma(seen + 1) - math.lgamma(possible - seen + 1)
    return ways + seen * math.log(2.0)


def log_kt(times: list[int], alphabet: int) -> float:
    """Return the log-probability of a sequence with these counts under the mixture; counts of 0 may be left out."""
    rising = math.fsum(math.lgamma(n + 0.5) - _LOG_GAMMA_HALF for n in times)
    return math.lgamma(alphabet / 2) - math.lgamma(sum(times) + alphabet / 2) + rising


def _log_likelihood(outcomes: Counter[_Outcome], law: Counter[_Outcome]) -> float:
    """Return the log-likelihood of these outcomes under the frequencies of ``law``."""
    total = law.total()
    return math.fsum(n * math.log(law[outcome] / total) for outcome, n in outcomes.items())


def carriers(evidence: dict[int, float], most: int) -> dict[int, float]:
    """Return the rows with the most evidence and their shares of it, without rows with less than a tenth of the largest."""
    rows = sorted(evidence, key=evidence.__getitem__, reverse=True)[:most]
    total = math.fsum(evidence.values())
    return {row: evidence[row] / total for row in rows if evidence[row] >= 0.1 * evidence[rows[0]]}


class HomogeneityTest:
    """The test for one set of rows.

    Parameters
    ----------
    possible : int array
        k, the number of possible outcomes of each row.
    rows : int
        P, the number of rows that can be visited.
    most_groups : int, optional
        The largest number of groups; visits of further groups are ignored. Whether a group is new is known before its
        outcome, so this costs power, not validity.
    """

    def __init__(self, possible: np.ndarray, rows: int, most_groups: int | None = None) -> None:
        self.possible, self.rows, self.most_groups = possible, rows, most_groups
        self.n_groups = 0
        # For each row, the outcomes in each group and in all groups, and the cached mixtures of unchanged groups.
        self.groups: dict[int, dict[int, Counter[_Outcome]]] = defaultdict(partial(defaultdict, Counter))
        self.outcomes: dict[int, Counter[_Outcome]] = defaultdict(Counter)
        self.mixtures: dict[int, dict[int, float]] = defaultdict(dict)
        self.stale: set[int] = set()
        self.log_es: dict[int, float] = {}

    def add(self, row: int, group: int, outcome: _Outcome, times: int) -> None:
        groups, outcomes, mixtures = self.groups[row], self.outcomes[row], self.mixtures[row]
        if group not in groups:
            if self.n_groups == self.most_groups:
                return
            self.n_groups += 1
        if outcome not in outcomes:
            mixtures.clear()  # they were computed for a smaller alphabet
        outcomes[outcome] += times
        groups[group][outcome] += times
        mixtures.pop(group, None)
        self.stale.add(row)

    def _log_e_of(self, row: int) -> float:
        """Return log E of a row; sums are exact (fsum), so that the result does not depend on the order of the visits."""
        outcomes, mixtures, possible = self.outcomes[row], self.mixtures[row], int(self.possible[row])
        alphabet = len(outcomes)
        if alphabet == 1:
            return -log_price(1, possible)
        for group in self.groups[row].keys() - mixtures.keys():
            mixtures[group] = log_kt(list(self.groups[row][group].values()), alphabet)
        return math.fsum(mixtures.values()) - _log_likelihood(outcomes, outcomes) - log_price(alphabet, possible)

    def log_e(self) -> float:
        """Return the logarithm of the mean over the rows; only rows with new visits are computed again."""
        for row in self.stale:
            self.log_es[row] = self._log_e_of(row)
        self.stale.clear()
        largest = max(self.log_es.values(), default=0.0)
        unvisited = float(self.rows - len(self.log_es))
        # If all rows were visited, all e-values may underflow: divide them by the largest one.
        scale = max(largest, 0.0) if unvisited else largest
        unvisited *= math.exp(-scale) if unvisited else 0.0
        return scale + math.log((unvisited + math.fsum(math.exp(e - scale) for e in self.log_es.values())) / self.rows)

    def suspects(self, most: int) -> list[tuple[int, float, int]]:
        """Return rows with a large share of the evidence, their shares, and the group that differs most from the others."""

        def unlike(row: int, group: int) -> float:
            """Return n_g KL(group, row)."""
            seen = self.groups[row][group]
            return _log_likelihood(seen, seen) - _log_likelihood(seen, self.outcomes[row])

        largest = max(self.log_es.values())
        shares = carriers({row: math.exp(log_e - largest) for row, log_e in self.log_es.items()}, most)
        return [(row, share, max(self.groups[row], key=partial(unlike, row))) for row, share in shares.items()]

    def tally(self) -> Tally:
        """Return all visits, in the order in which groups were first seen; :meth:`restore` makes an equal test of them."""
        entries = [
            (row, group, successor, times, reward)
            for row, groups in self.groups.items()
            for group, outcomes in groups.items()
            for (successor, reward), times in outcomes.items()
        ]
        columns = zip(*entries, strict=True) if entries else [()] * 5
        return Tally(*(np.array(column, kind) for column, kind in zip(columns, [np.int64] * 4 + [float], strict=True)))

    def restore(self, tally: Tally) -> None:
        for row, group, successor, times, reward in zip(*(column.tolist() for column in tally), strict=True):
            self.add(row, group, (successor, reward), times)
