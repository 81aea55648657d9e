"""Tests of the assumptions about an environment, on the episodes of the run itself.

Each test has the level ``LEVEL``: if the assumptions are true, the probability that it ever rejects is at most that, however
often it is evaluated. A test that does not reject proves nothing, but a violation that makes a certificate wrong tends to
make a test reject.
"""

import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.methods.kl.ball import kl_extreme
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.risk import AnyReward, EVaR
from entropic_bpi.sources.assumption_tests import BEFORE_THE_FIRST, LEVEL, REJECTED_FROM, AssumptionTests
from entropic_bpi.sources.drift import DriftTest
from entropic_bpi.sources.homogeneity import HomogeneityTest
from entropic_bpi.tools.checks import LARGEST_REACH
from entropic_bpi.types import Evidence

# What each test says when it rejects: what is violated, where to look, how unlikely that is by chance, and a remedy.
_MEMORY = (
    "what follows a state and action depends on what came before: look at {}. {}. There is a hidden state, and the "
    "observation is not a Markov state: add what is missing to the observation"
)
_DRIFT = (
    "the environment changes over the episodes: look at {}. {}. A certificate is about a law that stays the same: add what "
    "changes to the observation, or use only episodes from a period without changes (those of a log are taken in the order "
    "of their first lines)"
)
_NOISE = (
    "the noise does not have the declared law everywhere, or not at every step: look at {}. {}. Declare a separate law "
    "for these states and actions (law=), or leave out noise="
)
_STEPS = (
    "transitions are not the same at every step: look at {}. {}. Start a run with stationary=False (--no-stationary), which "
    "counts step by step"
)
_IMPOSSIBLE = (
    "the episodes earned more than is possible: their returns show a value of at least {:g}, but the counts imply at most "
    "{:g}. Some assumption about the environment is false: there may be a hidden state, which the observation does not show"
)
_MOST_SUSPECTS = 3
_SMALLEST_EXPONENT = 1e-5
_SOLVED = 1e-9
_ROUNDING = 1e-9


def check_assumptions(tests: AssumptionTests, upper: float) -> Evidence:
    """Return the evidence so far, or raise an error; ``upper`` is the upper bound of V* by the counts.

    Raises
    ------
    InvalidProblemError
        If a test rejects. The message says where to look.
    """
    problem, by_step, by_pair, value = tests.problem, tests.by_step, tests.by_pair, value_lower_bound(tests)
    steps = None if by_step is None else log_e_of_steps(by_step, by_pair)
    returns = None if isinstance(problem.risk, AnyReward) else value  # an exploration ignores rewards
    evidence = Evidence(steps, tests.by_previous.log_e(), tests.over_time.log_e(), returns)
    # The test of the steps comes last: violations of the other assumptions make it reject, too, and need other remedies.
    of_steps = not (steps or 0.0) < REJECTED_FROM
    if not evidence.memoryless < REJECTED_FROM:
        words = f"{_MEMORY}, which may be the step" if of_steps else _MEMORY
        raise _rejection(words, _groups(problem, tests.by_previous, _arrival), tests.by_previous)
    if not (evidence.unchanging or 0.0) < REJECTED_FROM:
        raise _rejection(_DRIFT, _changes(problem, tests.over_time), tests.over_time)
    if by_pair is not None and of_steps:
        pairs = dict.fromkeys(problem.describe(pair) for _, _, pair in by_pair.suspects(_MOST_SUSPECTS))
        raise _rejection(_NOISE, pairs, by_pair)
    if by_step is not None and of_steps:
        raise _rejection(_STEPS, _groups(problem, by_step, lambda _, step: f"at step {step}"), by_step)
    if value > upper:
        raise InvalidProblemError(_IMPOSSIBLE.format(value, upper))
    return evidence


def log_e_of_steps(by_step: HomogeneityTest, by_pair: HomogeneityTest | None) -> float:
    """Return the log e-value against equal steps or, with declared noise, also against one law for all pairs of a ball."""
    if by_pair is None:
        return by_step.log_e()
    # The mean of two e-values is an e-value.
    return float(np.logaddexp(by_step.log_e(), by_pair.log_e())) - math.log(2.0)


def _rejection(words: str, suspects: Iterable[str], test: HomogeneityTest | DriftTest) -> InvalidProblemError:
    odds = f"By chance such a difference comes up in at most 1 run of {math.exp(min(test.log_e(), 300)):.3g}"
    return InvalidProblemError(words.format("; ".join(suspects), odds))


def _groups(problem: Problem, test: HomogeneityTest, group: Callable[[Problem, int], str]) -> Iterator[str]:
    """Describe the rows with the most evidence, each with the group that differs most from the others."""
    for row, share, which in test.suspects(_MOST_SUSPECTS):
        yield f"{problem.describe(row)} ({share:.0%} of the evidence, most of all {group(problem, which)})"


def _changes(problem: Problem, test: DriftTest) -> Iterator[str]:
    """Describe the rows with the most evidence, each with frequencies before and after the change."""
    for row, share, successor, limit, (before, after), (early, late) in test.suspects(_MOST_SUSPECTS):
        what = f"a reward below {limit:g}" if successor is None else f"next state {problem.state_names[successor]!r}"
        yield (
            f"{problem.describe(row)} ({share:.0%} of the evidence: {what} in {early / before:.0%} of the first {before} "
            f"visits and in {late / after:.0%} of the next {after})"
        )


def _arrival(problem: Problem, previous: int) -> str:
    states = problem.state_names
    return "at the start" if previous == BEFORE_THE_FIRST else f"when reached from state {states[previous]!r}"


def value_lower_bound(tests: AssumptionTests) -> float:
    """Return a lower bound of V* from the returns alone; with probability 1 - LEVEL it holds after every episode.

    For the entropic value at risk, it is the bound by V* at a single λ, which is fixed before the first episode. It is one
    side of Proposition 6 on the page "The KL method".
    """
    problem, n = tests.problem, int(tests.returns.sum())
    low, high = tests.lowest, tests.highest
    beta, cost = problem.beta, 0.0
    if isinstance(problem.risk, AnyReward):  # rewards are ignored
        return low
    if isinstance(problem.risk, EVaR):
        beta, cost = _tail_beta(problem.risk.cost, problem.eps, high - low)
    if n == 0:
        return low + problem.tail[0]
    radius = (math.log(1 / LEVEL) + 0.5 * math.log(math.pi) + math.lgamma(n + 1) - math.lgamma(n + 0.5)) / n
    kept = np.flatnonzero(tests.returns)
    kept = kept if kept[0] == 0 else np.append(0, kept)  # what was not seen may have been the worst
    returns, times, scratch = tests.edges[kept], tests.returns[kept], np.empty((2, len(kept)))
    if abs(beta) * (high - low) < _SMALLEST_EXPONENT:
        mean = kl_extreme(times, returns, len(kept), n, radius, -1.0, _SOLVED, scratch)
        value = mean - abs(beta) * (high - low) ** 2 / 8
    else:
        reference = high if beta > 0 else low
        gains = np.exp(beta * (returns - reference))
        extreme = kl_extreme(times, gains, len(kept), n, radius, -math.copysign(1.0, beta), _SOLVED, scratch)
        value = reference + math.log(extreme) / beta if extreme > 0 else low
    return float(max(low, value - cost - _ROUNDING * (high - low))) + problem.tail[0]


def _tail_beta(c: float, eps: float, spread: float) -> tuple[float, float]:
    """Return -λ and c/λ, the cost of that λ, with c = log(1/α): about half the geometric mean of ε and the range."""
    if spread == 0:
        return -1.0, c
    lam = 2 * c / (spread * math.sqrt(min(max(eps / spread, _SMALLEST_EXPONENT), 1.0)))
    lam = min(lam, LARGEST_REACH / spread)
    return -lam, c / lam
