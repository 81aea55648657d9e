r"""Common parts of the compiled learners: episodes, the greedy policy with its ties, and the oracle for the regret.

**Scores.** Learners rank actions by a score that grows with the value for both signs of :math:`\beta`,

.. math:: q_h(s,a) = \frac{e^{\beta Q_h(s,a)} - 1}{e^{\beta k_h} - 1} \in [0, 1], \qquad k_h = H - h + 1,

in which the exponential Bellman equation is affine and free of overflow for any :math:`\beta`, 0 included:

.. math:: q_h(s,a) = \mathrm{base}_h(s,a) + \mathrm{slope}_h(s,a) \sum_{s'} p_h(s'\mid s,a) \max_{a'} q_{h+1}(s',a'),

.. math:: \mathrm{base} = \frac{e^{\beta r} - 1}{e^{\beta k_h} - 1}, \qquad
          \mathrm{slope} = e^{\beta r}\,\frac{e^{\beta (k_h - 1)} - 1}{e^{\beta k_h} - 1}.

Clipping :math:`e^{\beta Q}` at :math:`e^{\beta k_h}` is clipping the score at 1, whichever the sign.

**Ties.** The policy of an episode breaks each tie by its own uniform draw, one per step, state and episode. The draw
is a hash of (key of the run, episode, step, state) and not the next number of a stream. So it does not depend on the order
of evaluation: the learner computes it only in visited states, the oracle only in reachable states, and both use the same
policy. Drawing the whole policy in every episode has the same distribution and is much slower.

**The oracle.** The value of the policy of every episode is exact. Actions at states that the policy cannot reach do
not matter, so the oracle walks forward through the reachable states, stops there if no action differs from the last
policy it evaluated, and evaluates backward over these states otherwise. It does not walk if no set of
maximisers changed and no tie was reachable.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from entropic_bpi.compile.decorators import compiled, helper, inlined
from entropic_bpi.model.backups import LARGEST_EXPONENT, lottery_risk
from entropic_bpi.problem.ties import tie_draw


class Model(NamedTuple):
    """The true model in rescaled units: sampled by learners, read by the oracle. Row ``(h * S + s) * A + a``."""

    indptr: np.ndarray  # (rows + 1,) entries of each row
    next_state: np.ndarray  # (entries,)
    probability: np.ndarray  # (entries,)
    cumulative: np.ndarray  # (entries,) along the row, exactly 1 at its end
    row_of_entry: np.ndarray  # (entries,)
    state_of_row: np.ndarray  # (rows,)
    into_ptr: np.ndarray  # (H * S + 1,) for each (h, s'), the entries of step h that lead to s'
    into_entry: np.ndarray  # (entries,)
    reward: np.ndarray  # (H, S, A)
    growth: np.ndarray  # (H, S, A) e^{βr}
    gain: np.ndarray  # (H, S, A) (e^{βr} - 1) / β
    beta: float
    start: int


class Greedy(NamedTuple):
    """A table of scores and, for each step and state, the best score and the set of actions that attain it."""

    score: np.ndarray  # (H, S, A)
    best: np.ndarray  # (H + 1, S), 0 after the last step
    size: np.ndarray  # (H, S) number of maximisers
    members: np.ndarray  # (H, S, A) the maximisers, increasing
    changed: np.ndarray  # (1,) whether a set of maximisers changed since the oracle last looked
    tie_key: np.uint64  # key of the tie draws; 0 sends ties to the lowest index


class RegretOracle(NamedTuple):
    """Exact evaluation of the policy of each episode, and the regret so far."""

    policy: np.ndarray  # (H, S) actions of the last evaluated policy in reachable states
    mark: np.ndarray  # (H + 1, S) last walk that reached the state
    reached: np.ndarray  # (H + 1, S) list of reached states
    n_reached: np.ndarray  # (H + 1,)
    z: np.ndarray  # (H + 1, S) e^{βV}
    v: np.ndarray  # (H + 1, S) (e^{βV} - 1) / β, or V itself past the range of doubles
    successors: np.ndarray  # (S,) scratch
    optimum: float
    value: np.ndarray  # (1,) of the last evaluated policy
    tied: np.ndarray  # (1,) whether that policy reaches a tie
    changes: np.ndarray  # (1,) episodes whose policy differs from the one before in a reachable state
    grid: np.ndarray  # episodes at which the regret is recorded
    regret: np.ndarray  # same length
    cursor: np.ndarray  # (1,) next grid point
    total: np.ndarray  # (1,) regret so far


class Path(NamedTuple):
    """The trajectory of an episode."""

    row: np.ndarray  # (H,) rows visited
    entry: np.ndarray  # (H,) the entry of each row that was drawn


class ReplanScratch(NamedTuple):
    """Working memory of learners that replan after every episode."""

    path: Path
    mark: np.ndarray  # (rows,) last episode that listed the row
    rows: np.ndarray  # (S * A,) rows to update
    moved: np.ndarray  # (S,) states whose best score moved
    order: np.ndarray  # (S,) successors from the best, while a row is being computed
    shares: np.ndarray  # (S,) and their probabilities
    tally: np.ndarray  # (S + 1,) successors seen, and 0 for any other state
    values: np.ndarray  # (S + 1,) their best scores
    work: np.ndarray  # (2, S + 1)


@inlined
def row_of(model: Model, h: int, s: int, a: int) -> int:
    """Return the row of action ``a`` in state ``s`` at step ``h``."""
    _, states, actions = model.reward.shape
    return (h * states + s) * actions + a


# -- the greedy policy -------------------------------------------------------------------------------------


@helper
def action(greedy: Greedy, episode: int, h: int, s: int) -> int:
    """Return the action of this episode's policy."""
    size = greedy.size[h, s]
    if size == 1 or greedy.tie_key == np.uint64(0):
        return greedy.members[h, s, 0]
    steps, states = greedy.size.shape
    return greedy.members[h, s, tie_draw(greedy.tie_key, (episode * steps + h) * states + s, size)]


@helper
def refresh(greedy: Greedy, h: int, s: int) -> bool:
    """Recompute the best score and the maximisers of a state; return whether the best score moved."""
    score = greedy.score[h, s]
    best = score[0]
    for a in range(1, score.size):
        best = max(best, score[a])
    size = 0
    for a in range(score.size):
        if score[a] == best:
            if greedy.members[h, s, size] != a:
                greedy.members[h, s, size] = a
                greedy.changed[0] = True
            size += 1
    if size != greedy.size[h, s]:
        greedy.size[h, s] = size
        greedy.changed[0] = True
    moved = best != greedy.best[h, s]
    greedy.best[h, s] = best
    return moved


def new_greedy(shape: tuple[int, ...], tie_key: np.uint64) -> Greedy:
    """Return a table of scores that are all 1, the largest, so that every action ties."""
    horizon, n_states, n_actions = shape
    best = np.ones((horizon + 1, n_states))
    best[horizon] = 0.0
    return Greedy(
        score=np.ones(shape),
        best=best,
        size=np.full((horizon, n_states), n_actions),
        members=np.broadcast_to(np.arange(n_actions), shape).copy(),
        changed=np.array([True]),
        tie_key=tie_key,
    )


# -- playing -------------------------------------------------------------------------------------------------


@helper
def draw(model: Model, rng: np.random.Generator, row: int) -> int:
    """Sample an entry of a row; its ``model.next_state`` is the next state."""
    u = rng.random()
    low, high = model.indptr[row], model.indptr[row + 1] - 1
    while high - low > 16:
        middle = (low + high) // 2
        if u < model.cumulative[middle]:
            high = middle
        else:
            low = middle + 1
    while u >= model.cumulative[low]:
        low += 1
    return low


def new_path(horizon: int) -> Path:
    return Path(np.zeros(horizon, dtype=np.int64), np.zeros(horizon, dtype=np.int64))


@inlined
def play(
    model: Model, greedy: Greedy, oracle: RegretOracle, rng: np.random.Generator, episode: int, path: Path
) -> None:
    """Add the regret of this episode's policy and play it.

    Updating the scores of the path afterwards, in its order, gives the same result as updating them during the episode,
    because the score of a step does not influence later steps.
    """
    watch(model, greedy, oracle, episode)
    s = model.start
    for h in range(path.row.size):
        row = row_of(model, h, s, action(greedy, episode, h, s))
        entry = draw(model, rng, row)
        path.row[h], path.entry[h] = row, entry
        s = model.next_state[entry]


@compiled
def cumulate(indptr: np.ndarray, probability: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Compute running sums along each row; the last is exactly 1, so that every uniform number falls inside."""
    for row in range(indptr.size - 1):
        total = 0.0
        for j in range(indptr[row], indptr[row + 1]):
            total += probability[j]
            out[j] = total
        out[indptr[row + 1] - 1] = 1.0
    return out


@inlined
def rows_to_update(
    model: Model, transitions: np.ndarray, scratch: ReplanScratch, episode: int, h: int, n_moved: int
) -> int:
    """List the rows of step ``h`` whose score can differ after an episode, each once; return how many.

    A score is a function of the visits of its row and of the best scores of the observed successors. So these are the
    visited row and the rows with an observed successor whose best score moved: the first ``n_moved`` of ``scratch.moved``.
    The list is in ``scratch.rows``.
    """
    rows, mark, moved = scratch.rows, scratch.mark, scratch.moved
    stamp = episode + 1
    visited = scratch.path.row[h]
    rows[0] = visited
    mark[visited] = stamp
    n_rows = 1
    states = moved.size
    for i in range(n_moved):
        target = h * states + moved[i]
        for j in range(model.into_ptr[target], model.into_ptr[target + 1]):
            entry = model.into_entry[j]
            row = model.row_of_entry[entry]
            if transitions[entry] > 0 and mark[row] != stamp:
                mark[row] = stamp
                rows[n_rows] = row
                n_rows += 1
    return n_rows


# -- the oracle -------------------------------------------------------------------------------------------------


@compiled
def walk(model: Model, greedy: Greedy, oracle: RegretOracle, episode: int) -> bool:
    """Find the states that the episode's policy can reach; return whether its actions there have changed."""
    differs = oracle.mark[0, model.start] == 0
    oracle.tied[0] = False
    stamp = episode + 1
    oracle.reached[0, 0] = model.start
    oracle.mark[0, model.start] = stamp
    oracle.n_reached[0] = 1
    for h in range(len(greedy.score)):
        found = 0
        for i in range(oracle.n_reached[h]):
            s = oracle.reached[h, i]
            a = action(greedy, episode, h, s)
            if greedy.size[h, s] > 1:
                oracle.tied[0] = True
            if oracle.policy[h, s] != a:
                oracle.policy[h, s] = a
                differs = True
            row = row_of(model, h, s, a)
            for j in range(model.indptr[row], model.indptr[row + 1]):
                following = model.next_state[j]
                if oracle.mark[h + 1, following] != stamp:
                    oracle.mark[h + 1, following] = stamp
                    oracle.reached[h + 1, found] = following
                    found += 1
        oracle.n_reached[h + 1] = found
    return differs


@compiled
def evaluate(model: Model, oracle: RegretOracle) -> float:
    """Compute the value of the policy just walked, over the states that it reaches.

    Both :math:`e^{βV}` and :math:`(e^{βV} - 1)/β` are carried: the first is accurate for large :math:`|β|V`, the
    second for small, and neither has a subtraction.
    """
    steps = len(model.reward)
    in_range = abs(model.beta) * steps <= LARGEST_EXPONENT
    for h in range(steps - 1, -1, -1):
        for i in range(oracle.n_reached[h]):
            s = oracle.reached[h, i]
            a = oracle.policy[h, s]
            row = row_of(model, h, s, a)
            begin, end = model.indptr[row], model.indptr[row + 1]
            if in_range:
                z, v = 0.0, 0.0
                for j in range(begin, end):
                    z += model.probability[j] * oracle.z[h + 1, model.next_state[j]]
                    v += model.probability[j] * oracle.v[h + 1, model.next_state[j]]
                oracle.z[h, s] = model.growth[h, s, a] * z
                oracle.v[h, s] = model.gain[h, s, a] + model.growth[h, s, a] * v
            else:
                for j in range(begin, end):
                    oracle.successors[j - begin] = oracle.v[h + 1, model.next_state[j]]
                risk = lottery_risk(model.probability[begin:end], oracle.successors[: end - begin], model.beta)
                oracle.v[h, s] = model.reward[h, s, a] + risk
    z, v = oracle.z[0, model.start], oracle.v[0, model.start]
    if model.beta == 0.0 or not in_range:
        return v
    if model.beta * v > -0.5:
        return math.log1p(model.beta * v) / model.beta
    return math.log(z) / model.beta


@compiled
def watch(model: Model, greedy: Greedy, oracle: RegretOracle, episode: int) -> None:
    """Add the regret of the policy that this episode is about to play."""
    if greedy.changed[0] or oracle.tied[0]:
        greedy.changed[0] = False
        if walk(model, greedy, oracle, episode):
            oracle.value[0] = evaluate(model, oracle)
            oracle.changes[0] += 1
    oracle.total[0] += oracle.optimum - oracle.value[0]
    if oracle.grid[oracle.cursor[0]] == episode + 1:
        oracle.regret[oracle.cursor[0]] = oracle.total[0]
        oracle.cursor[0] += 1
