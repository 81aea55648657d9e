r"""Episodes of a simulated :class:`~entropic_bpi.model.mdp.FiniteMDP`, one at a time or many at once.

Episodes follow a ``Behaviour``: ``lead`` until the first step and state at which ``switch_action``
is not -1, then that action, then ``greedy``; or ``greedy`` from the start. Its only memory is whether the lead continues.

**Many at once.** The episodes that are in the same state at a step go to their next states independently, so the numbers of
episodes in each next state are multinomial. Drawing these numbers step by step therefore draws the counts of :math:`m`
independent episodes *exactly in law*, at a cost that hardly depends on :math:`m`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from entropic_bpi.compile.decorators import by_pointer, compiled, helper, inlined
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.problem.counts import CountArrays, Counts, record
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.rows import Frame, row_of
from entropic_bpi.types import Behaviour, Transitions


@by_pointer
class Kernel(NamedTuple):
    """The true transitions, in the form that compiled samplers take; the last row is the start distribution.

    ``shares`` are the probabilities of each successor given that the next state is none of those before it in the row.
    """

    indptr: np.ndarray
    indices: np.ndarray
    probabilities: np.ndarray
    shares: np.ndarray
    per_step: int


@inlined
def choose_action(behaviour: Behaviour, leading: bool, h: int, s: int) -> tuple[int, bool]:
    """Return the action at step ``h`` in state ``s``, and whether the lead continues."""
    if not leading:
        return behaviour.greedy[h, s], False
    if behaviour.switch_action[h, s] >= 0:
        return behaviour.switch_action[h, s], False
    return behaviour.lead[h, s], True


@inlined
def kernel_row(kernel: Kernel, frame: Frame, h: int, s: int, a: int) -> int:
    if frame.artificial and h == 0:
        return kernel.indptr.size - 2
    step = h - frame.artificial if kernel.per_step else 0
    return (step * frame.n_states + s) * frame.n_actions + a


@inlined
def next_state(kernel: Kernel, source: int, left: float) -> int:
    """Return the next state of a row of the kernel, given a number ``left`` that is uniform on [0, 1)."""
    j, last = kernel.indptr[source], kernel.indptr[source + 1] - 1
    while j < last:
        left -= kernel.probabilities[j]
        if left < 0:
            break
        j += 1
    return kernel.indices[j]


@helper
def play_episode(
    kernel: Kernel, frame: Frame, behaviour: Behaviour, arrays: CountArrays, rng: np.random.Generator
) -> tuple[int, int]:
    """Play one episode into the arrays; return (-1, -1), or a row and a successor that was declared impossible.

    The pool must have room for one episode.
    """
    s, leading = frame.start, behaviour.leading
    for h in range(frame.steps):
        a, leading = choose_action(behaviour, leading, h, s)
        row, source = row_of(frame, h, s, a), kernel_row(kernel, frame, h, s, a)
        s = next_state(kernel, source, rng.random())
        if record(arrays, frame.n_states, row, s, 1) < 0:
            return row, s
    return -1, -1


@compiled
def _split_episodes(
    kernel: Kernel,
    frame: Frame,
    behaviour: Behaviour,
    episodes: int,
    rng: np.random.Generator,
    visitors: np.ndarray,
    flows: np.ndarray,
) -> int:
    """Draw the transitions of ``episodes`` episodes by multinomial splitting; return their number.

    Rows, successors and times are written to ``flows``. ``visitors`` is a zero-filled work array ``(2, 2, S)``: the number
    of episodes by mode (leading or not) and state, at this step and at the next.
    """
    size = 0
    visitors[0, int(behaviour.leading), frame.start] = episodes
    for h in range(frame.steps):
        here, there = h % 2, (h + 1) % 2
        for mode in range(2):
            for s in range(frame.n_states):
                left, visitors[here, mode, s] = visitors[here, mode, s], 0
                if left == 0:
                    continue
                a, leading = choose_action(behaviour, mode == 1, h, s)
                row = row_of(frame, h, s, a)
                source = kernel_row(kernel, frame, h, s, a)
                for j in range(kernel.indptr[source], kernel.indptr[source + 1]):
                    if left == 0:
                        break
                    moved = left if kernel.shares[j] == 1.0 else rng.binomial(left, kernel.shares[j])
                    if moved == 0:
                        continue
                    left -= moved
                    visitors[there, int(leading), kernel.indices[j]] += moved
                    flows[0, size] = row
                    flows[1, size] = kernel.indices[j]
                    flows[2, size] = moved
                    size += 1
    return size


def _shares(indptr: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    rest, lengths = probabilities.copy(), np.diff(indptr)
    longer = np.flatnonzero(lengths > 1)
    for back in range(2, int(lengths.max()) + 1):  # sums of the probabilities from each successor to the last one
        at = indptr[longer + 1] - back
        rest[at] += rest[at + 1]
        longer = longer[lengths[longer] > back]
    return probabilities / rest


class Simulator:
    """Draws transitions of ``mdp`` with ``rng``; the only part of a run that has access to the probabilities."""

    def __init__(self, mdp: FiniteMDP, problem: Problem, rng: np.random.Generator) -> None:
        self.rng = rng
        rows, start = mdp.rows, mdp.start_distribution
        support = np.flatnonzero(start > 0)
        indptr = np.append(rows.indptr, rows.indptr[-1] + len(support))
        probabilities = np.concatenate([rows.probabilities, start[support]])
        self.kernel = Kernel(
            indptr,
            np.concatenate([rows.indices.astype(np.int64), support]),
            probabilities,
            _shares(indptr, probabilities),
            int(not mdp.stationary),
        )
        self.frame, self._widest = problem.frame, int(np.diff(indptr).max())

    def play(self, behaviour: Behaviour, episodes: int, into: Counts, round: int = 0) -> None:
        """Play ``episodes`` episodes of one behaviour and add them to the counts; ``round`` is not used."""
        # At each step, every transition has at least one episode, and its own mode, state and successor.
        most = self.frame.steps * min(episodes, 2 * self.frame.n_states * self._widest)
        flows, visitors = np.empty((3, most), dtype=np.int64), np.zeros((2, 2, self.frame.n_states), dtype=np.int64)
        size = _split_episodes(self.kernel, self.frame, behaviour, episodes, self.rng, visitors, flows)
        into.add(Transitions(*flows[:, :size]), episodes)
