"""Whole runs of the KL method on a GPU, one thread each: thousands of small runs at once.

Nothing of the method is written twice: the threads call the functions that plan on the CPU, and only what
``KL`` and the loop of a run do in Python is here once more. Every run has a stream of random
numbers of its own. Records of all runs have the run as their first axis; on the device it is the one whose neighbours are
neighbours in memory, so that threads that do the same read together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from entropic_bpi.compile.decorators import inner, serial
from entropic_bpi.compile.gpu import check_gpu, check_room, config, cuda
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.methods.kl import method as kl
from entropic_bpi.methods.kl import pairs
from entropic_bpi.methods.kl.records import (
    Candidate,
    Optimism,
    PairBuffers,
    PairRows,
    PairScratch,
    PlanConstants,
    Relations,
    Scratch,
    StepStates,
    new_scratch,
    new_sheets,
)
from entropic_bpi.methods.kl.states import GIVEN
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.problem.counts import CountArrays, Counts, record
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.risk import EVaR
from entropic_bpi.problem.rows import Frame, row_of
from entropic_bpi.sources.philox import STREAM_SIZE, open_stream, uniform
from entropic_bpi.sources.simulator import Kernel, Simulator, choose_action, kernel_row, next_state
from entropic_bpi.types import Behaviour

__all__ = ["Results", "launch", "why_not"]

THREADS = 64


class TrueRows(NamedTuple):
    """What only the judge knows: by row of the counts, the row of the ``kernel``, and whether the event is about it."""

    source: np.ndarray
    concerned: np.ndarray


class RunConfig(NamedTuple):
    """How to run: batches grow by ``replan``; at most ``budget`` episodes; keys of the streams; rows at first."""

    replan: float
    budget: int
    key: int
    fresh: CountArrays
    radius: np.ndarray


class PairSheets(NamedTuple):
    """Working memory of the pair certificate."""

    sheets: PairBuffers
    occupied: np.ndarray
    turn: np.ndarray


class RunMemory(NamedTuple):
    """What a run remembers: of the last pair certificate (see ``KL.memory``), and the challenger that it proposes."""

    memory: np.ndarray
    policy: np.ndarray
    turn: np.ndarray


class RunResult(NamedTuple):
    """What became of a run: ``claim`` has lower, upper and the gap by the gap and by the pair certificate."""

    episodes: np.ndarray
    stopped: np.ndarray
    event: np.ndarray
    claim: np.ndarray


_plan = serial(kl._plan_all)


# -- one run -----------------------------------------------------------------------------------------------------


@inner
def _clear(
    rules: PlanConstants, ledger: CountArrays, optimism: Optimism, plans: tuple[Candidate, Candidate], orders: RunConfig
) -> None:
    """Records as they are before the first episode."""
    fresh = orders.fresh
    for row in range(ledger.visits.size):
        ledger.visits[row], ledger.capacity[row] = 0, 0
        ledger.begin[row], ledger.used[row] = fresh.begin[row], fresh.used[row]
        rules.planned[row], rules.radius[row] = -1, orders.radius[row]
    for j in range(ledger.tally.size):
        ledger.successor[j], ledger.tally[j] = fresh.successor[j], 0
        for t in range(ledger.low.shape[0]):
            ledger.low[t, j], ledger.high[t, j] = fresh.low[t, j], fresh.high[t, j]
    ledger.end[0] = fresh.end[0]
    for h in range(optimism.policy.shape[0]):
        for s in range(optimism.policy.shape[1]):
            optimism.policy[h, s] = 0
            for i in range(2):
                plans[i].policy[h, s], plans[i].turn[h, s] = 0, 0
    for h in range(optimism.z.shape[0]):
        for s in range(optimism.z.shape[1]):
            optimism.z[h, s] = 1.0
            for i in range(2):
                plans[i].z[h, s], plans[i].high[h, s], plans[i].rho[h, s] = 1.0, 1.0, 1.0


@inner
def _play(kernel: Kernel, frame: Frame, behaviour: Behaviour, ledger: CountArrays, stream: np.ndarray) -> None:
    s, leading = frame.start, behaviour.leading
    for h in range(frame.steps):
        a, leading = choose_action(behaviour, leading, h, s)
        successor = next_state(kernel, kernel_row(kernel, frame, h, s, a), uniform(stream))
        # There is always room, and what is declared was read from the model: nothing can be refused.
        record(ledger, frame.n_states, row_of(frame, h, s, a), successor, 1)
        s = successor


@inner
def _event_holds(rules: PlanConstants, ledger: CountArrays, kernel: Kernel, truth: TrueRows) -> bool:
    """Whether every row of the true kernel that matters lies in its ball; ``MixtureEvent`` on the CPU."""
    for row in range(ledger.visits.size):
        n, divergence = ledger.visits[row], 0.0
        if n == 0 or not truth.concerned[row]:
            continue
        for j in range(ledger.begin[row], ledger.begin[row] + ledger.used[row]):
            if ledger.tally[j] > 0:
                p = 0.0
                for i in range(kernel.indptr[truth.source[row]], kernel.indptr[truth.source[row] + 1]):
                    if kernel.indices[i] == ledger.successor[j]:
                        p = kernel.probabilities[i]
                if p == 0.0:
                    return False
                divergence += ledger.tally[j] * (math.log(ledger.tally[j] / n) - math.log(p))
        if not divergence <= n * rules.radius[row]:
            return False
    return True


@inner
def _rules_of(
    rules: PlanConstants, radius: np.ndarray, planned: np.ndarray, seed: int, tolerance: float, same_tolerance: float
) -> PlanConstants:
    return PlanConstants(
        rules.beta, rules.sign, rules.shift, rules.log_union, rules.gain, rules.factor, rules.possible, rules.top,
        rules.bottom, radius, planned, rules.widest, rules.exponent_rounding, tolerance, same_tolerance, seed,
        rules.eps, rules.challenge,
    )  # fmt: skip


@inner
def _converged(rules: PlanConstants) -> PlanConstants:
    return _rules_of(rules, rules.radius, rules.planned, rules.seed, kl.CONVERGED, kl.SAME_CONVERGED)


@inner
def _with_tolerance(rows: PairRows, tolerance: float) -> PairRows:
    return PairRows(
        rows.sign, tolerance, rows.used, rows.visits, rows.radius, rows.tally, rows.low, rows.high, rows.number,
        rows.different, rows.place, rows.seen,
    )  # fmt: skip


@inner
def _pair_ratio(
    frame: Frame,
    rules: PlanConstants,
    ledger: CountArrays,
    optimism: Optimism,
    plan: Candidate,
    scratch: Scratch,
    sheets: PairSheets,
) -> float:
    """``pairs.pair_ratio``, into ``sheets``; infinite if there are too many pairs."""
    own, occupied = sheets.sheets, sheets.occupied
    for h in range(frame.steps):
        for s in range(frame.n_states + 1):
            occupied[h, s] = False
    if pairs._occupy(frame, rules, ledger, optimism, plan, occupied, pairs.MOST_PAIRS) > pairs.MOST_PAIRS:
        return np.inf
    next = own.next
    for x in range(frame.n_states + 1):
        next.position[x], next.rho[x], own.desk.known[x] = 0, 1.0, -1
        for y in range(frame.n_states + 1):
            next.d[x, y], next.r[x, y] = 1.0, 1.0
    own = PairBuffers(own.now, next, own.crowd, _with_tolerance(own.rows, rules.tolerance), own.desk)
    return pairs.relate(frame, rules, ledger, optimism, plan, occupied, own, scratch, sheets.turn)


@inner
def _differ(plans: tuple[Candidate, Candidate], occupied: np.ndarray) -> bool:
    """Whether two policies differ where the last pair certificate can be."""
    for h in range(occupied.shape[0]):
        for s in range(occupied.shape[1] - 1):
            if occupied[h, s] and plans[0].policy[h, s] != plans[1].policy[h, s]:
                return True
    return False


@inner
def _ask_pairs(
    frame: Frame,
    rules: PlanConstants,
    ledger: CountArrays,
    optimism: Optimism,
    plans: tuple[Candidate, Candidate],
    scratch: Scratch,
    sheets: PairSheets,
    mind: RunMemory,
    gap: float,
    kind: int,
    last: int,
    concluding: bool,
) -> tuple[float, float, int]:
    """The smallest gap of the pair certificate; and the gap and its candidate, by whichever test is the sharper.

    What ``KL._with_pairs`` does or, about a given policy when ``concluding``, ``KL.bounds_of``.
    """
    smallest, best, chosen = np.inf, gap, kind
    room = 0.0 if concluding else kl.PAIRS_ROOM
    for turn in range(1 if concluding else 2):
        tried = kind % 2 if turn == 0 else 1 - kind
        if turn == 1 and (best <= rules.eps or not _differ(plans, sheets.occupied)):
            break
        ratio = _pair_ratio(frame, rules, ledger, optimism, plans[tried], scratch, sheets)
        apart = kl._claim(frame, rules, optimism, plans[tried], ratio)[2] * (1.0 + room)
        if turn == 0 or tried == last:
            _copy(mind.policy, plans[tried].policy)
            _copy(mind.turn, sheets.turn)
        smallest = min(smallest, apart)
        if apart < best:
            best, chosen = apart, tried
    return smallest, best, chosen


@inner
def _copy(into: np.ndarray, source: np.ndarray) -> None:
    for h in range(into.shape[0]):
        for s in range(into.shape[1]):
            into[h, s] = source[h, s]


@inner
def _one_run(
    kernel: Kernel,
    frame: Frame,
    rules: PlanConstants,
    ledger: CountArrays,
    optimism: Optimism,
    plans: tuple[Candidate, Candidate],
    layers: Scratch,
    sheets: PairSheets,
    mind: RunMemory,
    stream: np.ndarray,
    truth: TrueRows,
    orders: RunConfig,
    claim: np.ndarray,
) -> tuple[int, bool, bool]:
    """Run until the test passes; the episodes, whether it did, and whether the event held at every plan.

    At the end ``claim`` and the first of the ``plans`` say what is certified of which policy, with all solvers converged.
    """
    scratch = Scratch(layers.work[0], layers.pessimistic[0], layers.bounds[0], layers.shared[0], layers.scores[0])
    _clear(rules, ledger, optimism, plans, orders)
    memory = mind.memory
    memory[0], memory[1], memory[2] = -1.0, np.inf, np.inf
    episodes, round, held, stopped, concluding = 0, 0, True, False, False
    while True:
        lower, upper, gap, kind, last = _plan(frame, rules, ledger, optimism, plans, layers, round)
        best = gap
        if concluding or kl._due(memory, episodes, gap, rules.eps):
            smallest, best, kind = _ask_pairs(
                frame, rules, ledger, optimism, plans, scratch, sheets, mind, gap, kind, last, concluding
            )
            memory[0], memory[1], memory[2] = episodes, smallest, gap
        if concluding:
            claim[0], claim[1], claim[2], claim[3] = lower, upper, gap, memory[1]
            return episodes, stopped, held
        held = held and _event_holds(rules, ledger, kernel, truth)
        stopped = best <= rules.eps
        if stopped or episodes >= orders.budget:
            # The last plan is about the policy that is claimed: one place in the code that plans compiles once.
            _copy(plans[GIVEN % 2].policy, plans[kind].policy)
            concluding, round, rules = True, kl.FINAL_ROUND, _converged(rules)
            continue
        remembered = memory[1] < kl.PAIRS_LEAD * memory[2]
        lead, turn = (mind.policy, mind.turn) if remembered else (plans[last].policy, plans[last].turn)
        behaviour = Behaviour(optimism.policy, lead, turn, rules.challenge and round % 2 == 1)
        batch = min(max(1, math.ceil(orders.replan * episodes)), orders.budget - episodes)
        for _ in range(batch):
            _play(kernel, frame, behaviour, ledger, stream)
        episodes += batch
        round += 1


# -- all runs ----------------------------------------------------------------------------------------------------


class Records(NamedTuple):
    """The records of all runs, which have the run as their first axis."""

    ledger: CountArrays
    optimism: Optimism
    plans: tuple[Candidate, Candidate]
    layers: Scratch
    sheets: PairSheets
    mind: RunMemory
    radius: np.ndarray
    planned: np.ndarray
    stream: np.ndarray
    verdict: RunResult


@inner
def _candidate(plan: Candidate, i: int) -> Candidate:
    return Candidate(plan.z[i], plan.high[i], plan.rho[i], plan.policy[i], plan.turn[i])


@inner
def _relations(table: Relations, i: int) -> Relations:
    return Relations(table.position[i], table.d[i], table.r[i], table.rho[i], table.turn[i])


@inner
def _pair_sheets(all_sheets: PairSheets, i: int) -> PairSheets:
    sheets = all_sheets.sheets
    crowd, rows, desk = sheets.crowd, sheets.rows, sheets.desk
    own = PairBuffers(
        _relations(sheets.now, i),
        _relations(sheets.next, i),
        StepStates(crowd.action[i], crowd.best[i], crowd.worst[i], crowd.top[i], crowd.backup[i], crowd.gain[i]),
        PairRows(
            rows.sign, rows.tolerance, rows.used[i], rows.visits[i], rows.radius[i], rows.tally[i], rows.low[i],
            rows.high[i], rows.number[i], rows.different[i], rows.place[i], rows.seen[i],
        ),
        PairScratch(
            desk.box[i], desk.known[i], desk.low[i], desk.high[i], desk.rank[i], desk.chosen[i], desk.scores[i],
            desk.left[i], desk.mass[i], desk.moved[i], desk.f[i], desk.work[i],
        ),
    )  # fmt: skip
    return PairSheets(own, all_sheets.occupied[i], all_sheets.turn[i])


@cache
def _kernel() -> Any:
    # The simulator compiles nothing; a device, for minutes. Line information is a must: what the compilers (NVVM of CUDA 13)
    # make of the kernel without it reads a misaligned address where a row has three successors. With it every run is as on
    # the CPU, and compute-sanitizer has nothing to say.
    options = {} if config.ENABLE_CUDASIM else {"cache": True, "lineinfo": True}
    jit: Callable[[Callable[..., None]], Any] = cuda.jit(**options)

    @jit
    def run_all(
        kernel: Kernel,
        frame: Frame,
        rules: PlanConstants,
        truth: TrueRows,
        orders: RunConfig,
        records: Records,
        runs: int,
    ) -> None:
        i = cuda.grid(1)
        if i >= runs:
            return
        book, thoughts, layers, stream = records.ledger, records.optimism, records.layers, records.stream[i]
        open_stream(stream, orders.key, i)
        seed = int(uniform(stream) * 4611686018427387904.0) + 1  # 0 would prefer the lowest action
        verdict, mind, rewards = records.verdict, records.mind, orders.fresh.low.shape[0]
        episodes, stopped, held = _one_run(
            kernel,
            frame,
            _rules_of(
                rules, records.radius[i], records.planned[i], seed, rules.tolerance, rules.same_tolerance
            ),
            CountArrays(
                book.visits[i], book.begin[i], book.used[i], book.capacity[i], orders.fresh.most, book.successor[i],
                book.tally[i], book.low[i, :rewards], book.high[i, :rewards], book.end[i],
            ),
            Optimism(thoughts.z[i], thoughts.u[i], thoughts.policy[i]),
            (_candidate(records.plans[0], i), _candidate(records.plans[1], i)),
            Scratch(layers.work[i], layers.pessimistic[i], layers.bounds[i], layers.shared[i], layers.scores[i]),
            _pair_sheets(records.sheets, i),
            RunMemory(mind.memory[i], mind.policy[i], mind.turn[i]),
            stream,
            truth,
            orders,
            verdict.claim[i],
        )  # fmt: skip
        verdict.episodes[i], verdict.stopped[i], verdict.event[i] = episodes, stopped, held

    return run_all


class Results(NamedTuple):
    """What became of many runs: what each one claims of its policy ``(H, S)``, in the reward's own units.

    ``event`` says whether E_cat held at every plan.
    """

    episodes: np.ndarray
    stopped: np.ndarray
    event: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    gap: np.ndarray
    policy: np.ndarray


def launch(
    mdp: FiniteMDP, problem: Problem, runs: int, *, seed: int, replan: float, budget: int = 2**40
) -> Callable[[], Results]:
    """Begin to identify ``runs`` times on the GPU; what is returned waits for them and says what became of them.

    Run ``i`` of a ``seed`` is the same however many there are. ``replan`` is the growth of the batches. What was launched
    before goes on beside it: small problems do not fill the device.
    """
    reason = why_not(problem)
    if reason:
        raise InvalidProblemError(reason)
    check_gpu()
    method, fresh = kl.KL(problem), _fresh_ledger(problem)
    kernel = Simulator(mdp, problem, np.random.default_rng()).kernel
    orders = RunConfig(replan, budget, seed, fresh, method.rules.radius)
    known = [_map(part, cuda.to_device) for part in (kernel, method.frame, method.rules, _truth(mdp, problem), orders)]
    records = _records_of_all(problem, method, fresh, runs)
    stream = cuda.stream()
    _kernel()[-(-runs // THREADS), THREADS, stream](*known, records, runs)

    def result() -> Results:
        stream.synchronize()
        known.clear()  # until now it must not be given back
        verdict, policy = _map((records.verdict, records.plans[GIVEN % 2].policy), lambda part: part.copy_to_host())
        return _runs_of(method, verdict, policy)

    return result


def why_not(problem: Problem) -> str | None:
    """Why whole runs of a problem cannot be on a GPU, if they cannot."""
    if (
        problem.open_ended
        or problem.random_rewards
        or problem.return_range is not None
        or isinstance(problem.risk, EVaR)
    ):
        return (
            "runs on a GPU need a known model and a beta: no unknown states, random rewards, ranges of returns or EVaR"
        )
    return None


def _records_of_all(problem: Problem, method: kl.KL, ledger: CountArrays, runs: int) -> Records:
    """Memory for all runs, with the run as the fastest index."""
    one = _one_of_each(problem, method, ledger)
    _check_room(one, runs)
    # An array without entries has no order of its own, and would be another type to compile: one row more, which is cut.
    rewards = np.empty((max(len(ledger.low), 1), ledger.low.shape[1]))
    one = one._replace(ledger=ledger._replace(low=rewards, high=rewards))
    records: Records = _map(one, lambda part: cuda.device_array((runs, *part.shape), part.dtype, order="F"))
    return records


def _check_room(one: Records, runs: int) -> None:
    """Say how much memory is needed, if there is not enough."""
    size = 0

    def weigh(part: np.ndarray) -> np.ndarray:
        nonlocal size
        size += runs * part.nbytes
        return part

    _map(one, weigh)
    check_room(f"a study of {runs} runs", size, "ask for fewer runs")


def _fresh_ledger(problem: Problem) -> CountArrays:
    """The counts before the first episode, with room for slots of its own in every row."""
    counts, used = Counts(problem), int(problem.slots.used.sum())
    counts.reserve(used)
    ledger, pool = counts.ledger, len(problem.slots.successor) + used
    return ledger._replace(
        successor=ledger.successor[:pool].copy(),
        tally=ledger.tally[:pool].copy(),
        low=ledger.low[:, :pool].copy(),
        high=ledger.high[:, :pool].copy(),
    )


def _truth(mdp: FiniteMDP, problem: Problem) -> TrueRows:
    """A model that is stationary has its rows once, however many times the counts have them."""
    pairs_of_model = problem.n_states * problem.n_actions * (1 if mdp.stationary else problem.horizon)
    source = np.arange(problem.n_rows) % pairs_of_model
    if problem.artificial:
        source[-1] = pairs_of_model
    return TrueRows(source, problem.at_risk)


def _runs_of(method: kl.KL, verdict: RunResult, policy: np.ndarray) -> Results:
    """The claims as ``KL.bounds_of`` rounds them."""
    claims = np.ascontiguousarray(verdict.claim).T
    gap = np.where(claims[3] < claims[2] * (1.0 - kl.WORTH_PAIRS), claims[3], claims[2])
    bounds, room = method.in_reward_units(claims[0], claims[1], gap), kl.CLAIM_ROUNDING * method.problem.return_spread
    return Results(
        verdict.episodes,
        verdict.stopped,
        verdict.event,
        bounds.lower - room,
        bounds.upper + room,
        bounds.gap * (1.0 + kl.GAP_ROUNDING) + room,
        policy[:, method.problem.artificial :],
    )


def _map(record: Any, change: Callable[[Any], Any]) -> Any:
    """The same record with other arrays."""
    if isinstance(record, tuple):
        parts = [_map(part, change) for part in record]
        return type(record)(*parts) if hasattr(record, "_fields") else tuple(parts)
    return record if isinstance(record, (int, float, np.generic)) else change(record)


def _one_of_each(problem: Problem, method: kl.KL, ledger: CountArrays) -> Records:
    """The records of one run."""
    rules, n_states, n_actions = method.rules, problem.n_states, problem.n_actions
    choices, number = np.zeros((problem.steps, n_states), dtype=np.int64), np.zeros((), dtype=np.int64)
    sheets = PairSheets(
        sheets=new_sheets(rules, n_states, n_actions, n_states),
        occupied=np.zeros((problem.steps, n_states + 1), dtype=np.bool_),
        turn=choices,
    )
    return Records(
        ledger=ledger,
        optimism=method.optimism,
        plans=method.plans,
        layers=new_scratch(rules, n_actions, 1),
        sheets=sheets,
        mind=RunMemory(np.zeros(3), choices, choices),
        radius=rules.radius,
        planned=rules.planned,
        stream=np.zeros(STREAM_SIZE, dtype=np.uint64),
        verdict=RunResult(number, number.astype(bool), number.astype(bool), np.zeros(4)),
    )
