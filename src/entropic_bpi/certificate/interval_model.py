"""Intervals of transition probabilities, the set of learned models in a form for other tools.

Over the ball of a row, the probability of a set of outcomes takes all values of an interval, which the binary KL divergence
gives. So these intervals are the smallest ones that contain the ball. A robust value over the intervals is at most as good
as one over the balls.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.methods.kl.rates import mixture_radius
from entropic_bpi.methods.reward_free import upper_end
from entropic_bpi.tools.checks import check_memory

if TYPE_CHECKING:
    from entropic_bpi.certificate.certificate import Certificate


def intervals_of(certificate: Certificate) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Return lower and upper bounds on the probabilities, by row and next state; see :meth:`Certificate.interval_model`."""
    problem, arrays = certificate.problem, certificate.counts.arrays
    if problem.noise is not None:
        raise InvalidProblemError("interval_model does not support noise=: rows that share a law are not independent")
    n, open_rows = problem.n_states, arrays.successor[arrays.begin] == problem.n_states
    check_memory("the interval model", 40 * (int(arrays.used.sum()) + n * int(open_rows.sum())))
    log_union = math.log(max(problem.rows_at_risk, 1) / problem.delta_of_transitions)
    entries = []
    for row in range(problem.n_rows):
        own = slice(arrays.begin[row], arrays.begin[row] + arrays.used[row])
        to, tally, visits = arrays.successor[own], arrays.tally[own], int(arrays.visits[row])
        # Outcomes that differ only in their reward are one next state; where any state may follow, all are listed.
        successors = np.arange(n) if open_rows[row] else np.unique(to)
        times = np.bincount(to, tally, n + 1)[successors]
        radius = math.inf if problem.uncertain[row] else 0.0
        if visits and problem.uncertain[row]:
            spread = mixture_radius(tally, int(problem.slots.possible[row]), int(arrays.max_outcomes[row]))
            radius = (log_union + spread) / visits
        certain = len(successors) == 1 or (visits and not problem.uncertain[row])
        for successor, seen in zip(successors.tolist(), times.tolist(), strict=True):
            share = seen / visits if visits else float(len(successors) == 1)
            ends = (share, share) if certain else (0.0, 1.0)
            if not certain and visits:
                ends = max(0.0, 1.0 - upper_end((visits - seen) / visits, radius)), upper_end(share, radius)
            entries.append((row, successor, *ends))
    rows, columns, *sides = map(list, zip(*entries, strict=True))
    lower, upper = (sparse.csr_array((ends, (rows, columns)), shape=(problem.n_rows, n)) for ends in sides)
    return lower, upper
