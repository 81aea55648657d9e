"""Tests of what a run assumes of an environment, free of charge: they look at the episodes that are played anyway.

Each has the level ``LEVEL``: an environment of which everything is true is accused by it, ever and however often one
looks, with at most that probability. A test that is silent proves nothing, but what makes a certificate wrong tends to make
it speak.
"""

from __future__ import annotations

import math

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.methods.kl.ball import kl_extreme
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.risk import AnyReward, EVaR
from entropic_bpi.sources.assumption_tests import BEFORE_THE_FIRST, LEVEL, REJECTED_FROM, AssumptionTests
from entropic_bpi.sources.drift import Change, DriftTest
from entropic_bpi.sources.homogeneity import HomogeneityTest
from entropic_bpi.tools.checks import LARGEST_REACH
from entropic_bpi.types import Evidence

_MOST_SUSPECTS = 3
_SMALLEST_EXPONENT = 1e-5
_SOLVED = 1e-9
_ROUNDING = 1e-9


def check_assumptions(tests: AssumptionTests, upper: float) -> Evidence:
    """The evidence so far, where ``upper`` is what the counts say that V* is at most.

    Raises
    ------
    InvalidProblemError
        If a test rejects, naming where to look.
    """
    by_step, by_previous, over_time, value = tests.by_step, tests.by_previous, tests.over_time, value_lower_bound(tests)
    steps = None if by_step is None else by_step.log_e()
    if tests.by_pair is not None and steps is not None:
        # The mean of two e-values is one: that a ball has one law at every step, and in every state-action pair.
        steps = float(np.logaddexp(steps, tests.by_pair.log_e())) - math.log(2.0)
    told = None if isinstance(tests.problem.risk, AnyReward) else value  # an exploration ignores what is paid
    evidence = Evidence(steps, by_previous.log_e(), over_time.log_e(), told)
    # The test of the steps is last, because it also rejects for the reasons of the others; its remedy is not theirs.
    of_steps = not (steps or 0.0) < REJECTED_FROM
    if not evidence.memoryless < REJECTED_FROM:
        raise InvalidProblemError(_not_memoryless(tests.problem, by_previous, of_steps))
    if not (evidence.unchanging or 0.0) < REJECTED_FROM:
        raise InvalidProblemError(_not_unchanging(tests.problem, over_time))
    if tests.by_pair is not None and of_steps:
        raise InvalidProblemError(_not_shared(tests.problem, tests.by_pair))
    if by_step is not None and of_steps:
        raise InvalidProblemError(_not_stationary(tests.problem, by_step))
    if value > upper:
        raise InvalidProblemError(_not_possible(value, upper))
    return evidence


def value_lower_bound(tests: AssumptionTests) -> float:
    """A lower bound of V* from the returns alone, true for all numbers of episodes at once with probability 1 - LEVEL.

    Of the entropic value at risk, the one that V* at a single λ gives, which is fixed before the first episode.
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


def _tail_beta(share: float, eps: float, spread: float) -> tuple[float, float]:
    """-λ and what it costs, log(1/α)/λ: between the range of the return, which costs all, and ε, which would be ideal."""
    if spread == 0:
        return -1.0, share
    lam = 2 * share / (spread * math.sqrt(min(max(eps / spread, _SMALLEST_EXPONENT), 1.0)))
    lam = min(lam, LARGEST_REACH / spread)
    return -lam, share / lam


def _not_stationary(problem: Problem, test: HomogeneityTest) -> str:
    suspects = [
        f"{problem.describe(row)} ({share:.0%} of the evidence, most of all at step {step})"
        for row, share, step in test.suspects(_MOST_SUSPECTS)
    ]
    return (
        f"transitions are not the same at every step: look at {'; '.join(suspects)}. {_odds(test)}. Give stationary=False "
        "(--no-stationary): the episodes of the checkpoint or the log are kept, and counted step by step"
    )


def _not_shared(problem: Problem, test: HomogeneityTest) -> str:
    suspects = dict.fromkeys(problem.describe(pair) for _, _, pair in test.suspects(_MOST_SUSPECTS))
    return (
        f"the noise does not have the declared law everywhere, or not at every step: look at {'; '.join(suspects)}. "
        f"{_odds(test)}. Declare a law of its own for such a state and action (law=), or leave out noise="
    )


def _not_memoryless(problem: Problem, test: HomogeneityTest, of_steps: bool) -> str:
    suspects = [
        f"{problem.describe(row)} ({share:.0%} of the evidence, {_arrival(problem, previous)})"
        for row, share, previous in test.suspects(_MOST_SUSPECTS)
    ]
    return (
        f"what follows a state and action depends on what came before: look at {'; '.join(suspects)}. {_odds(test)}. "
        "There is a hidden state, and the observation is not a Markov state: add what is missing to the observation"
        + (", which may be the step" if of_steps else "")
    )


def _not_unchanging(problem: Problem, test: DriftTest) -> str:
    suspects = [
        f"{problem.describe(change.row)} ({_course(problem, change)})" for change in test.suspects(_MOST_SUSPECTS)
    ]
    return (
        f"the environment changes over the episodes: look at {'; '.join(suspects)}. {_odds(test)}. A claim is about one law "
        "that stays the same: add what changes to the observation, or use episodes of a time in which nothing changes "
        "(those of a log are taken in the order of their first lines)"
    )


def _course(problem: Problem, change: Change) -> str:
    """The share of the evidence, and how often something happened before and after the change."""
    what = f"a reward below {change.limit:g}"
    if change.successor is not None:
        what = f"next state {problem.state_names[change.successor]!r}"
    (before, after), (early, late) = change.visits, change.times
    return (
        f"{change.share:.0%} of the evidence: {what} in {early / before:.0%} of the first {before} visits and in "
        f"{late / after:.0%} of the next {after}"
    )


def _arrival(problem: Problem, previous: int) -> str:
    if previous == BEFORE_THE_FIRST:
        return "most of all at the start"
    return f"most of all when reached from state {problem.state_names[previous]!r}"


def _odds(test: HomogeneityTest | DriftTest) -> str:
    return f"By chance such a difference comes up in at most 1 run of {math.exp(min(test.log_e(), 300)):.3g}"


def _not_possible(value: float, upper: float) -> str:
    return (
        f"the episodes earned more than is possible: their returns show a value of at least {value:g}, the counts of at "
        f"most {upper:g}. What is assumed of the environment is not true of it: there may be a hidden state, which the "
        "observation does not show"
    )
