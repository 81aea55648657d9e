r"""Group-sequential permutation tests that find differences between learners with few runs, after AdaStop.

A fixed number of seeds may be too small for learners with similar scores, and too large for others. Here every learner
gets a batch of runs, all pairs are tested, and only learners of a pair that is still open get another batch, up to a
largest number. The test corrects for repeated looks at the results and for many pairs.

*One pair.* Let the two learners have :math:`N` scores each in every one of at most :math:`K` batches. If the scores have
the same distribution, those of a batch may be dealt again. Each dealing :math:`g` of all batches so far has a statistic

.. math:: T_k(g) = \Big|\sum_{i\le k}\big(\text{sum of the first hand of batch } i - \text{sum of the second}\big)\Big|,

and what was observed is one of :math:`n` dealings, the others drawn at random once and kept from batch to batch. For a
number :math:`c`, call a dealing *out* at batch :math:`k` if it was out before, or if at most :math:`c` of those that
were not, itself included, have a statistic at least as large. So at most :math:`cK` are out in the end; dealings are
exchangeable, and what was observed is out with probability at most :math:`cK/n`. The p-value is :math:`cK/n` for the
smallest :math:`c` at which what was observed is out. Whoever is out at :math:`c` is so at every larger number and at all
later batches, hence the p-value only falls, and :math:`P(p\le a)\le a` holds for its last value, whenever one stops.

*All pairs.* Holm's step-down rule over the p-values of the pairs, which needs nothing about how they depend on each
other.

**Guarantee.** With probability at least 1 - ``level`` no difference is reported between two learners whose scores have the
same distribution, in all batches and pairs together, for any number of scores: no normality, no large samples. The scores
of all runs must be independent, so no two runs may share a seed. A verdict says that the distributions differ. That the
learner it names has the lower mean is an observation; nothing is guaranteed for distributions that differ but have equal
means. Without a reported difference the learners need not be equal.

Statistic, dealing within batches and stopping pair by pair are those of T. Mathieu, R. Della Vecchia, A. Shilova, M.
Medeiros Centa, H. Kohler, O.-A. Maillard and P. Preux, *AdaStop: adaptive statistical testing for sound comparisons of
Deep RL agents*, `arXiv 2306.10882 <https://arxiv.org/abs/2306.10882>`_ (2023). AdaStop tests the largest statistic of
all pairs, dealt jointly, and can also stop a pair early as equal; we test pair by pair and leave many pairs to Holm.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.tools.checks import check_integer, check_list, check_memory, check_probability
from entropic_bpi.tools.text import shown

_LEAST_DEALINGS = 10_000
# Statistics that differ by less, as a share of the largest possible one, are equal: sums in another order are not.
_DIGITS = 9


@dataclass(frozen=True)
class Verdict:
    """The result of the test for two learners.

    Attributes
    ----------
    pair : tuple of str
        The two learners.
    runs : int
        Number of runs of each that the p-value is about.
    p_value : float
        Of this pair alone; Holm's rule for all pairs decides.
    lower : str or None
        The learner with the lower mean score; None while there is no significant difference.
    """

    pair: tuple[str, str]
    runs: int = 0
    p_value: float = 1.0
    lower: str | None = None


class SequentialTest:
    """Test batch by batch which of several learners differ; see the module for the guarantee.

    Parameters
    ----------
    names : list of str
        The learners, or whatever has scores.
    level : float
        Probability of reporting any difference that does not exist.
    batch : int
        Scores of each learner between two tests.
    batches : int
        Largest number of batches.
    seed : int
        Seed of the random dealings.

    Attributes
    ----------
    verdicts : list of Verdict
        One for each pair.
    wanted : list of str
        The learners that need another batch, those of open pairs; none when the test is over.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> test = SequentialTest(["slow", "fast", "quick"])
    >>> while test.wanted:
    ...     test.add({name: rng.normal(5 if name == "slow" else 3, 1, test.batch) for name in test.wanted})
    >>> for verdict in test.verdicts:
    ...     print(*verdict.pair, verdict.runs, verdict.lower)
    slow fast 6 fast
    slow quick 6 quick
    fast quick 30 None
    """

    def __init__(
        self, names: Sequence[str], *, level: float = 0.05, batch: int = 6, batches: int = 5, seed: int = 0
    ) -> None:
        self.names = list(dict.fromkeys(check_list("names", names)))
        self.level = check_probability("level", level)
        self.batch, self.batches = check_integer("batch", batch), check_integer("batches", batches)
        if len(self.names) < 2:
            raise InvalidProblemError(f"names must be two or more, got {shown(names)}")
        self.verdicts = [Verdict(pair) for pair in combinations(self.names, 2)]
        self.scores: dict[str, list[float]] = {name: [] for name in self.names}
        self._check_power()
        self._rng = np.random.default_rng(seed)
        self._statistics: dict[tuple[str, str], list[np.ndarray]] = {verdict.pair: [] for verdict in self.verdicts}
        self._sums = {verdict.pair: np.zeros(self._dealings) for verdict in self.verdicts}

    def _check_power(self) -> None:
        """Refuse a test that cannot find any difference, and choose the number of dealings."""
        demanded = self.level / len(self.verdicts) / self.batches  # of the share of dealings like the observed one
        log_dealings = self.batches * (math.lgamma(2 * self.batch + 1) - 2 * math.lgamma(self.batch + 1))
        if math.log(2) - log_dealings > math.log(demanded):
            raise InvalidProblemError(
                f"{self.batches} batches of {self.batch} runs cannot tell {len(self.names)} learners apart at level "
                f"{self.level:g}: take a larger batch or more of them"
            )
        self._dealings = max(_LEAST_DEALINGS, math.ceil(4 / demanded))
        numbers = 2 * self.batch + (self.batches + 1) * len(self.verdicts)
        check_memory(f"a test of {self.batches} batches of {self.batch} runs", self._dealings * numbers)

    @property
    def wanted(self) -> list[str]:
        open_pairs = [verdict.pair for verdict in self._open]
        return [name for name in self.names if any(name in pair for pair in open_pairs)]

    @property
    def _open(self) -> list[Verdict]:
        most = self.batch * self.batches
        return [verdict for verdict in self.verdicts if verdict.lower is None and verdict.runs < most]

    def add(self, scores: Mapping[str, Any]) -> None:
        """Add the next ``batch`` scores of every learner that is ``wanted``, and test.

        Parameters
        ----------
        scores : dict of list of float
            The scores of each learner; lower is better.
        """
        fresh = {name: self._check_scores(name, scores) for name in self.wanted}
        signs = _deal(self._rng, self._dealings, self.batch)
        for name, values in fresh.items():
            self.scores[name] += values.tolist()
        for place, verdict in enumerate(self.verdicts):
            if verdict in self._open:
                self.verdicts[place] = self._observed(verdict, signs, np.concatenate([fresh[n] for n in verdict.pair]))
        self._decide()

    def _check_scores(self, name: str, scores: Mapping[str, Any]) -> np.ndarray:
        if name not in scores:
            raise InvalidProblemError(f"scores of {name!r} are wanted, got those of {', '.join(map(str, scores))}")
        try:
            values = np.asarray(scores[name], dtype=float)
        except (TypeError, ValueError):
            values = np.empty(0)
        if values.shape != (self.batch,) or not np.isfinite(values).all():
            raise InvalidProblemError(
                f"scores of {name!r} must be {self.batch} finite numbers, got {shown(scores[name])}"
            )
        return values

    def _observed(self, verdict: Verdict, signs: np.ndarray, pooled: np.ndarray) -> Verdict:
        statistics, sums = self._statistics[verdict.pair], self._sums[verdict.pair]
        sums += signs @ (pooled - pooled.mean())
        scale = np.abs(sums).max()
        statistics.append(np.round(np.abs(sums) / (scale or 1.0), _DIGITS))
        return replace(verdict, runs=verdict.runs + self.batch, p_value=p_value(statistics, self.batches))

    def _decide(self) -> None:
        """Apply Holm's rule: compare the smallest p-value with the level over the number of open pairs."""
        for verdict in sorted(self.verdicts, key=lambda verdict: verdict.p_value):
            together = [other for other in self.verdicts if other.lower is None]
            if verdict.lower is None:
                if not verdict.p_value <= self.level / len(together):
                    return
                first, second = (np.mean(self.scores[name][: verdict.runs]) for name in verdict.pair)
                lower = verdict.pair[0] if first < second else verdict.pair[1]
                self.verdicts[self.verdicts.index(verdict)] = replace(verdict, lower=lower)


def _deal(rng: np.random.Generator, dealings: int, batch: int) -> np.ndarray:
    """Return which scores of a pair go to the first hand (1) and which to the second (-1); row 0 is as observed."""
    observed = np.repeat([1.0, -1.0], batch)
    dealt = rng.permuted(np.tile(observed, (dealings, 1)), axis=1)
    dealt[0] = observed
    return dealt


def p_value(statistics: Sequence[np.ndarray], batches: int) -> float:
    """Compute the p-value of the first dealing from the statistics of all dealings after each batch so far."""
    dealings = len(statistics[0])
    within, beyond = 0, dealings  # the first dealing is not out at the one number, and out at the other
    while beyond - within > 1:
        middle = (within + beyond) // 2
        within, beyond = (within, middle) if _is_out(statistics, middle) else (middle, beyond)
    return min(1.0, batches * beyond / dealings)


def _is_out(statistics: Sequence[np.ndarray], most: int) -> bool:
    """Return whether the first dealing is out if at most ``most`` dealings may go out at each batch."""
    inside = np.ones(len(statistics[0]), dtype=bool)
    for values in statistics:
        remaining = values[inside]
        if len(remaining) <= most:
            return True
        inside &= values <= np.partition(remaining, -most - 1)[-most - 1]
        if not inside[0]:
            return True
    return False
