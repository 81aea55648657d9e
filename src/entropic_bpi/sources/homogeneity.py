r"""Whether visits of different kinds have one law: a test that may be looked at after every visit.

The visits of a row (a state-action pair) fall into groups: the steps at which it was visited, or the states it was reached
from. The group is known before the outcome. The hypothesis is that outcomes of a row are i.i.d. with one law :math:`p`,
whatever the group; :math:`p` has at most :math:`k` possible outcomes, a number declared before any data.

**One row.** Let :math:`N_g(y)` be the outcomes in group :math:`g`, :math:`n_y` their sums over the groups and
:math:`n=\sum n_y`. For a set :math:`B` of :math:`j` outcomes,

.. math:: \mathrm{KT}_B(N) = \frac{\Gamma(j/2)}{\Gamma(\sum_y N_y+j/2)} \prod_{y\in B}\frac{\Gamma(N_y+1/2)}{\Gamma(1/2)}

is the probability of a sequence with counts :math:`N` under the Krichevsky-Trofimov mixture on :math:`B` (0 if it leaves
:math:`B`). The set must not be chosen after the data. So take all of them, with weights fixed beforehand:

.. math:: Q = \sum_{\emptyset\ne B\subseteq\{1,\dots,k\}} w_B \prod_g \mathrm{KT}_B(N_g),\qquad
          w_B = \frac{2^{-|B|}}{\binom{k}{|B|}},\qquad \sum_B w_B = \sum_{j=1}^k 2^{-j} < 1 .

Whatever rule has chosen the groups, looking at the past only, each product is the probability of the outcomes given the
groups, of a process in which every group has a law of its own. Hence :math:`M = Q/\prod_y p_y^{n_y}` is a nonnegative
supermartingale, started below 1, for the true :math:`p`: when a visit of group :math:`g` comes, the expected factor of each
term is :math:`\sum_y p_y\,q_B(y)/p_y\le 1`. Keeping one term of the sum, that of the set of outcomes *seen* in the row, and
putting the largest likelihood in the place of the true one, makes it smaller:

.. math:: \log E = \log w_j + \sum_g\log\mathrm{KT}_j(N_g) - \sum_y n_y\log\frac{n_y}{n} \;\le\; \log M .

So the seen outcomes may serve as the alphabet of every group at the price :math:`\log\binom kj + j\log 2`, paid once for the
row. Only counts enter, not their order, and only how many names the outcomes have, not what they are called.

**All rows.** A visit moves one row's :math:`M` and leaves the others; so the mean over :math:`P` rows, a number fixed before
any data, is a supermartingale as well, and by Ville's inequality

.. math:: \Pr\Big(\exists t:\ \tfrac1P\sum_{\text{rows}}E_{\text{row}} \ge 1/\delta_t\Big)\le\delta_t ,

however often and whenever one looks. A row that was never visited has :math:`E=1`.
"""

import math
from collections import Counter, defaultdict
from functools import partial
from typing import NamedTuple

import numpy as np

_Outcome = tuple[int, float]  # next state, reward
_LOG_GAMMA_HALF = 0.5 * math.log(math.pi)


class Tally(NamedTuple):
    """Visits by row, group and outcome: ``times[i]`` of them went to ``successors[i]`` and paid ``rewards[i]``."""

    rows: np.ndarray
    groups: np.ndarray
    successors: np.ndarray
    times: np.ndarray
    rewards: np.ndarray


def log_price(seen: int, possible: int) -> float:
    """Minus the logarithm of the weight of one set of ``seen`` outcomes out of ``possible``."""
    ways = math.lgamma(possible + 1) - math.lgamma(seen + 1) - math.lgamma(possible - seen + 1)
    return ways + seen * math.log(2.0)


def log_kt(times: list[int], alphabet: int) -> float:
    """Logarithm of the mixture's probability of one sequence with these counts; outcomes not listed have none."""
    rising = math.fsum(math.lgamma(n + 0.5) - _LOG_GAMMA_HALF for n in times)
    return math.lgamma(alphabet / 2) - math.lgamma(sum(times) + alphabet / 2) + rising


def _log_likelihood(outcomes: Counter[_Outcome], law: Counter[_Outcome]) -> float:
    """Of these outcomes under the frequencies of ``law``."""
    total = law.total()
    return math.fsum(n * math.log(law[outcome] / total) for outcome, n in outcomes.items())


def carriers(evidence: dict[int, float], most: int) -> dict[int, float]:
    """The rows with the most evidence, and their shares of it; a row with less than a tenth of the largest is left out."""
    rows = sorted(evidence, key=evidence.__getitem__, reverse=True)[:most]
    total = math.fsum(evidence.values())
    return {row: evidence[row] / total for row in rows if evidence[row] >= 0.1 * evidence[rows[0]]}


class HomogeneityTest:
    """The test for one set of rows.

    Parameters
    ----------
    possible : int array
        How many outcomes each row may have.
    rows : int
        P, how many rows can be visited.
    most_groups : int, optional
        Visits of further groups are left out. Whether a group is new is known before its outcome, so this costs power
        and not validity.
    """

    def __init__(self, possible: np.ndarray, rows: int, most_groups: int | None = None) -> None:
        self.possible, self.rows, self.most_groups = possible, rows, most_groups
        self.n_groups = 0
        # By row: the outcomes in each group and in all of them, and the mixtures of groups that have not changed since.
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
            mixtures.clear()  # they are of a smaller alphabet
        outcomes[outcome] += times
        groups[group][outcome] += times
        mixtures.pop(group, None)
        self.stale.add(row)

    def _log_e_of(self, row: int) -> float:
        """log E of a row; sums are exact, so that it does not depend on the order in which visits were added."""
        outcomes, mixtures, possible = self.outcomes[row], self.mixtures[row], int(self.possible[row])
        alphabet = len(outcomes)
        if alphabet == 1:
            return -log_price(1, possible)
        for group in self.groups[row].keys() - mixtures.keys():
            mixtures[group] = log_kt(list(self.groups[row][group].values()), alphabet)
        return math.fsum(mixtures.values()) - _log_likelihood(outcomes, outcomes) - log_price(alphabet, possible)

    def log_e(self) -> float:
        """Logarithm of the mean over the rows; those touched since the last time are computed anew."""
        for row in self.stale:
            self.log_es[row] = self._log_e_of(row)
        self.stale.clear()
        largest = max(self.log_es.values(), default=0.0)
        unvisited = float(self.rows - len(self.log_es))
        # Where all rows were visited their e-values may all be so small that only quotients are doubles.
        scale = max(largest, 0.0) if unvisited else largest
        unvisited *= math.exp(-scale) if unvisited else 0.0
        return scale + math.log((unvisited + math.fsum(math.exp(e - scale) for e in self.log_es.values())) / self.rows)

    def suspects(self, most: int) -> list[tuple[int, float, int]]:
        """The rows that carry the evidence, their shares of it, and of each the group that is most unlike the others."""

        def unlike(row: int, group: int) -> float:
            """n_g KL(group, row)."""
            seen = self.groups[row][group]
            return _log_likelihood(seen, seen) - _log_likelihood(seen, self.outcomes[row])

        largest = max(self.log_es.values())
        shares = carriers({row: math.exp(log_e - largest) for row, log_e in self.log_es.items()}, most)
        return [(row, share, max(self.groups[row], key=partial(unlike, row))) for row, share in shares.items()]

    def tally(self) -> Tally:
        """All visits, in the order in which groups were first seen: added to a new test, they make the same one."""
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
