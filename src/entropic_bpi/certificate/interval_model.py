"""The learned set of models for other tools: how small and how large the probability of every transition may be.

Over the ball of a row, the probability of a set of outcomes fills the interval of the binary divergence, so these intervals
are the smallest that contain the ball. A robust value over them is no better than one over the balls.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.methods.kl.rates import mixture_radius
from entropic_bpi.methods.reward_free import upper_end
from entropic_bpi.model.formats.entries import word
from entropic_bpi.tools.checks import check_finite, check_memory
from entropic_bpi.tools.files import write_text_atomically

if TYPE_CHECKING:
    from scipy import sparse

    from entropic_bpi.certificate.certificate import Certificate


def intervals_of(certificate: Certificate) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Return the smallest and the largest probabilities, by row and next state."""
    from scipy import sparse

    problem, arrays = certificate.problem, certificate.counts.arrays
    if problem.noise is not None:
        raise InvalidProblemError("the transitions of a model with declared noise are not independent of each other")
    n, open_rows = problem.n_states, arrays.successor[arrays.begin] == problem.n_states
    check_memory("the interval model", 40 * (int(arrays.used.sum()) + n * int(open_rows.sum())))
    log_union = math.log(max(problem.rows_at_risk, 1) / problem.delta_of_transitions)
    entries = []
    for row in range(problem.n_rows):
        own = slice(arrays.begin[row], arrays.begin[row] + arrays.used[row])
        to, tally, visits = arrays.successor[own], arrays.tally[own], int(arrays.visits[row])
        # Outcomes that differ by their reward lead to one state; where any may follow, all do.
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


def write_intervals(certificate: Certificate, path: Path, smallest: float) -> None:
    """Write the interval MDP, unrolled over the steps, in the format that the suffix names."""
    problem = certificate.problem
    if problem.rewards is None:
        raise InvalidProblemError(
            "interval models have rewards of state and action: give such ones, certify(…, rewards=…)"
        )
    if path.suffix not in (".drn", ".tra"):
        raise InvalidProblemError(f"cannot save an interval model to {path}: the name must end in .drn or .tra")
    lines = list(_transitions(certificate, check_finite("smallest", smallest)))
    if path.suffix == ".drn":
        write_text_atomically(path, "\n".join(_drn(certificate, lines)) + "\n")
        return
    for suffix, text in _prism(certificate, lines).items():
        write_text_atomically(path.with_suffix(suffix), text + "\n")


_Choice = tuple[int, int, float, list[tuple[int, float, float]]]
"""State, action, reward, and the next states with their smallest and largest probabilities."""


def _transitions(certificate: Certificate, smallest: float) -> Iterator[_Choice]:
    """Yield the choices of the unrolled model: state ``h * S + s`` is state s before planned step h; the end is the last."""
    problem, frame = certificate.problem, certificate.problem.frame
    lower, upper = intervals_of(certificate)
    assert problem.rewards is not None
    n, end = problem.n_states, problem.steps * problem.n_states
    for h in range(problem.steps):
        reached = set(frame.states[frame.first_state[h] : frame.first_state[h + 1]].tolist())
        rewards = problem.rewards[0 if len(problem.rewards) == 1 else h - problem.artificial]
        for s in range(n):
            if s not in reached:  # nobody is ever there
                yield h * n + s, 0, 0.0, [(end, 1.0, 1.0)]
                continue
            starting = problem.artificial and h == 0
            for a, row in enumerate(problem.rows_at(h, np.array([s])).tolist()):
                if not (starting or problem.allowed is None or problem.allowed.at(h - problem.artificial)[s, a]):
                    continue
                own = slice(upper.indptr[row], upper.indptr[row + 1])  # both have the same structure
                entries = zip(*(part[own].tolist() for part in (upper.indices, lower.data, upper.data)), strict=True)
                following = [(y + (h + 1) * n, min(max(p, smallest), q), q) for y, p, q in entries]
                if h == problem.steps - 1:
                    following = [(end, 1.0, 1.0)]
                yield h * n + s, a, 0.0 if starting else float(rewards[s, a]), following
    yield end, 0, 0.0, [(end, 1.0, 1.0)]


def _drn(certificate: Certificate, choices: list[_Choice]) -> Iterator[str]:
    names, size = certificate.problem.action_names, choices[-1][0] + 1
    yield from ("@type: MDP", "@value_type: double-interval", "@parameters", "", "@reward_models", "reward")
    yield from ("@nr_states", str(size), "@nr_choices", str(len(choices)), "@model")
    labels = {certificate.problem.first_state: " init", size - 1: " end"}
    for state, of_state in groupby(choices, key=itemgetter(0)):
        yield f"state {state} [0]{labels.get(state, '')}"
        for _, action, reward, following in of_state:
            yield f"\taction {word(names[action])} [{reward!r}]"
            yield from (f"\t\t{successor} : [{low!r}, {high!r}]" for successor, low, high in following)


def _prism(certificate: Certificate, choices: list[_Choice]) -> dict[str, str]:
    names, size = certificate.problem.action_names, choices[-1][0] + 1
    entries = sum(len(following) for *_, following in choices)
    transitions = [f"{size} {len(choices)} {entries}"]
    rewards = list(transitions)
    for state, of_state in groupby(choices, key=itemgetter(0)):
        for number, (_, action, reward, following) in enumerate(of_state):
            for successor, low, high in following:
                transitions.append(f"{state} {number} {successor} [{low!r},{high!r}] {word(names[action])}")
                rewards.append(f"{state} {number} {successor} {reward!r}")
    labels = ['0="init" 1="deadlock" 2="end"', f"{certificate.problem.first_state}: 0", f"{size - 1}: 2"]
    texts = {".tra": transitions, ".trew": rewards, ".lab": labels, ".srew": [f"{size} 0"]}
    return {suffix: "\n".join(lines) for suffix, lines in texts.items()}
