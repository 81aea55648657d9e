"""The plan of the KL method on a GPU: the same functions, compiled for the device, one thread for each state or action.

The kernels call the functions of :mod:`entropic_bpi.methods.kl.states`, which plan one action or one state; only the loops
around them are written here. A pass over all steps is one cooperative kernel: steps are separated by a barrier of the whole
grid, not by launches. Work that takes long and is not needed everywhere is collected in a queue first, so that few threads
wait for others.

Only the arrays of counts that may have changed are copied to the device, and policies are copied back as the smallest
integers that hold an action.

Rows may have at most 32 possible successors, because each thread keeps its row in its own memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import float64, int64, prange

from entropic_bpi.compile.decorators import parallel
from entropic_bpi.compile.gpu import THREADS, check_gpu, check_room, config, cuda, resident_blocks
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.methods.kl import states as kl
from entropic_bpi.methods.kl.plan import _claim_of, _first_kind_of
from entropic_bpi.methods.kl.records import MAX_SHARED, Candidate, Inputs, Optimism, PlanConstants, Scratch, Trial
from entropic_bpi.problem.counts import CountArrays
from entropic_bpi.problem.rows import Frame, actions_at

WIDEST = 32
REGISTERS = 80
# What changes from plan to plan while no row gets slots of its own.
_ALWAYS_COPIED = ("visits", "tally", "low", "high")


class _Buffers(NamedTuple):
    """Working memory: by state and action the pessimistic ``values`` and the ``bounds`` of the gap; the states, and the
    ``pairs`` of state and action, that are queued at the present step; and how many there are, by queue and step: states
    with rivals, rivals, states that are contested, those where the greedy action deviates, and other deviations."""

    values: Any
    bounds: Any
    queue: Any
    pairs: Any
    queued: Any


class _ActionTable(NamedTuple):
    """A table of actions that is copied back, as the smallest integers that hold an action.

    The event ``arrived`` is recorded when the copy in ``pinned`` memory is complete.
    """

    narrow: Any
    pinned: Any
    arrived: Any

    @classmethod
    def of(cls, n_actions: int, shape: tuple[int, ...]) -> _ActionTable:
        smallest = np.min_scalar_type(-n_actions)
        return cls(cuda.device_array(shape, smallest), cuda.pinned_array(shape, smallest), cuda.event())


def _received(table: _ActionTable) -> np.ndarray:
    """Wait for a table that was sent, and return its actions as a new array."""
    table.arrived.synchronize()
    wide = np.empty(table.pinned.shape, dtype=np.int64)
    _widen(table.pinned, wide)
    return wide


@parallel
def _widen(narrow: np.ndarray, wide: np.ndarray) -> None:
    """Copy actions of one byte to 64-bit integers, on all cores: most of the time is spent on new pages of memory."""
    for h in prange(len(wide)):
        wide[h] = narrow[h]


@cache
def _kernels(width: int) -> tuple[Any, ...]:
    """Return the kernels ``refresh``, ``optimistic``, ``candidate`` and ``narrow`` for rows of at most ``width`` successors.

    The size of a thread's own memory is part of their code.
    """
    # The simulator has neither registers nor compiled code on disk.
    options = {} if config.ENABLE_CUDASIM else {"max_registers": REGISTERS, "cache": True}
    jit: Callable[[Callable[..., None]], Any] = cuda.jit(**options)

    @jit
    def refresh(rules: PlanConstants, arrays: CountArrays) -> None:
        for row in range(cuda.grid(1), arrays.visits.size, cuda.gridsize(1)):
            kl.refresh_radius(rules, arrays, row)

    @jit
    def optimistic(
        frame: Frame, rules: PlanConstants, arrays: CountArrays, optimism: Optimism, values: np.ndarray
    ) -> None:
        grid, thread, threads = cuda.cg.this_grid(), cuda.grid(1), cuda.gridsize(1)
        work = cuda.local.array((10, width), float64)
        shared, scores = cuda.local.array(MAX_SHARED, int64), cuda.local.array(MAX_SHARED, float64)
        inputs = Inputs(frame, rules, arrays, Scratch(work, values[0], values[0], shared, scores))
        for h in range(frame.steps - 1, -1, -1):
            begin, count = frame.first_state[h], frame.first_state[h + 1] - frame.first_state[h]
            actions = actions_at(frame, h)
            for i in range(thread, count * actions, threads):
                s, a = frame.states[begin + i // actions], i % actions
                optimism.u[h, s, a] = kl.optimistic_action(inputs, optimism, h, s, a)
            grid.sync()
            for i in range(thread, count, threads):
                kl.choose_greedy(frame, rules, arrays, optimism, h, frame.states[begin + i])
            grid.sync()

    @jit
    def candidate(frame: Frame, rules: PlanConstants, arrays: CountArrays, trial: Trial, buffers: _Buffers) -> None:
        optimism, plan, _, kind, _ = trial
        values, bounds, queue, pairs, queued = buffers
        grid, thread, threads, sign = cuda.cg.this_grid(), cuda.grid(1), cuda.gridsize(1), rules.sign
        work = cuda.local.array((10, width), float64)
        shared, scores = cuda.local.array(MAX_SHARED, int64), cuda.local.array(MAX_SHARED, float64)
        for h in range(frame.steps - 1, -1, -1):
            begin, count = frame.first_state[h], frame.first_state[h + 1] - frame.first_state[h]
            actions, after = actions_at(frame, h), plan.z[h + 1]
            for i in range(thread, count, threads):
                s = frame.states[begin + i]
                inputs = Inputs(frame, rules, arrays, Scratch(work, values[s], bounds[s], shared, scores))
                a = optimism.policy[h, s]
                values[s, a] = kl.backup(inputs, h, s, a, after, -sign)
            grid.sync()
            for i in range(thread, count * actions, threads):
                s, a = frame.states[begin + i // actions], i % actions
                greedy, value = optimism.policy[h, s], optimism.u[h, s, a]
                if a != greedy:
                    if sign * value >= sign * values[s, greedy] or a == kl.given_action(frame, trial, h, s):
                        inputs = Inputs(frame, rules, arrays, Scratch(work, values[s], bounds[s], shared, scores))
                        value = kl.backup(inputs, h, s, a, after, -sign)
                    values[s, a] = value
            grid.sync()
            for i in range(thread, count, threads):
                s = frame.states[begin + i]
                inputs = Inputs(frame, rules, arrays, Scratch(work, values[s], bounds[s], shared, scores))
                chosen = kl.given_action(frame, trial, h, s)
                if chosen < 0:
                    chosen = kl.choose_pessimistic_best(inputs, h, s)
                if kind == kl.SMALLEST_GAP and kl.have_rivals(inputs, optimism, h, s, chosen):
                    queue[cuda.atomic.add(queued, (0, h), 1)] = s
                plan.policy[h, s] = chosen
            grid.sync()
            for i in range(thread, queued[0, h], threads):
                s = queue[i]
                inputs = Inputs(frame, rules, arrays, Scratch(work, values[s], bounds[s], shared, scores))
                leader = plan.policy[h, s]
                bounds[s, leader] = kl.bound_if_chosen(inputs, trial, h, s, leader)
                for a in range(actions):
                    if a != leader and kl.is_rival(inputs, optimism, h, s, leader, a):
                        # One that is worse than the leader by this alone is not chosen, whatever its bound is.
                        bounds[s, a] = kl.bound_by_others(inputs, optimism, h, s, a)
                        if not bounds[s, a] > bounds[s, leader]:
                            pairs[cuda.atomic.add(queued, (1, h), 1)] = s * actions + a
            grid.sync()
            for i in range(thread, queued[1, h], threads):
                s, a = pairs[i] // actions, pairs[i] % actions
                inputs = Inputs(frame, rules, arrays, Scratch(work, values[s], bounds[s], shared, scores))
                bounds[s, a] = kl.bound_if_chosen(inputs, trial, h, s, a)
            grid.sync()
            for i in range(thread, queued[0, h], threads):
                s = queue[i]
                inputs = Inputs(frame, rules, arrays, Scratch(work, values[s], bounds[s], shared, scores))
                plan.policy[h, s] = kl.choose_smallest_gap(inputs, trial, h, s, plan.policy[h, s])
            grid.sync()
            for i in range(thread, count, threads):
                s = frame.states[begin + i]
                inputs = Inputs(frame, rules, arrays, Scratch(work, values[s], bounds[s], shared, scores))
                if kl.settle(inputs, trial, h, s):
                    queue[cuda.atomic.add(queued, (2, h), 1)] = s
                    if kl.may_deviate(rules, trial, h, s, optimism.policy[h, s]):
                        pairs[cuda.atomic.add(queued, (3, h), 1)] = s
            grid.sync()
            for i in range(thread, queued[3, h], threads):
                s = pairs[i]
                inputs = Inputs(frame, rules, arrays, Scratch(work, values[s], bounds[s], shared, scores))
                a = optimism.policy[h, s]
                kl.keep_worse(plan, h, s, a, kl.deviate(inputs, trial, h, s, a))
            grid.sync()
            for i in range(thread, queued[2, h], threads):
                s = queue[i]
                inputs = Inputs(frame, rules, arrays, Scratch(work, values[s], bounds[s], shared, scores))
                a = optimism.policy[h, s]
                kl.keep_worse(plan, h, s, -1, kl.stay(inputs, trial, h, s))
                for b in range(actions):
                    values[s, b] = 1.0
                    if b != a and kl.may_deviate(rules, trial, h, s, b):
                        pairs[cuda.atomic.add(queued, (4, h), 1)] = s * actions + b
            grid.sync()
            for i in range(thread, queued[4, h], threads):
                s, a = pairs[i] // actions, pairs[i] % actions
                inputs = Inputs(frame, rules, arrays, Scratch(work, values[s], bounds[s], shared, scores))
                values[s, a] = kl.deviate(inputs, trial, h, s, a)
            grid.sync()
            for i in range(thread, queued[2, h], threads):
                s = queue[i]
                for a in range(actions):
                    kl.keep_worse(plan, h, s, a, values[s, a])
                kl.conclude(rules, trial, h, s)
            grid.sync()

    @jit
    def narrow(wide: np.ndarray, small: np.ndarray) -> None:
        states = wide.shape[1]
        for i in range(cuda.grid(1), wide.size, cuda.gridsize(1)):
            small[i // states, i % states] = wide[i // states, i % states]

    return refresh, optimistic, candidate, narrow


class Planner:
    """Plans on the device, from copies of the records that the CPU's plan works on."""

    def __init__(
        self, frame: Frame, rules: PlanConstants, arrays: CountArrays, optimism: Optimism, plan: Candidate
    ) -> None:
        if rules.widest > WIDEST:
            raise InvalidProblemError(
                f"device='gpu' is for rows of at most {WIDEST} possible successors, and here there may be {rules.widest}: "
                "declare successors=, or use device='cpu'"
            )
        check_gpu()
        kernels = _kernels(1 << (rules.widest - 1).bit_length())
        self.refresh, self.plan_optimistically, self.plan_candidate, self.narrow = kernels
        records: tuple[Any, ...] = frame, rules, arrays, optimism, plan, plan
        size = sum(part.nbytes for record in records for part in record if isinstance(part, np.ndarray))
        check_room("this problem", size, "use device='cpu'")
        self.frame, self.rules, self.arrays, self.optimism = map(self._copy, (frame, rules, arrays, optimism))
        self.plans = self._copy(plan), self._copy(plan)
        self.values, self.bounds = (cuda.device_array((frame.n_states, frame.n_actions)) for _ in range(2))
        self.queue = cuda.device_array(frame.n_states, np.int64)
        self.pairs = cuda.device_array(frame.n_states * frame.n_actions, np.int64)
        self.blocks: dict[Any, int] = {}
        self.stream = cuda.stream()
        self.tables = [_ActionTable.of(frame.n_actions, plan.policy.shape) for _ in range(3)]
        self.end = -1  # of the pool of slots, when all counts were copied

    def _copy(self, record: Any) -> Any:
        return type(record)(*(cuda.to_device(part) if isinstance(part, np.ndarray) else part for part in record))

    def forget(self) -> None:
        """Copy all counts at the next plan: they are unrelated to the last ones."""
        self.rules.planned.copy_to_device(np.full(self.rules.planned.shape, -1))
        self.end = -1

    def plan(
        self, rules: PlanConstants, arrays: CountArrays, optimism: Optimism, plans: tuple[Candidate, ...], round: int
    ) -> tuple[tuple[float, float, float, int, int], Optimism, tuple[Candidate, ...]]:
        """Plan as ``_plan_all`` does; return the claim, and records with new policies and the values at the start."""
        self._update(arrays)
        own = rules._replace(**{name: there for name, there in self.rules._asdict().items() if hasattr(there, "shape")})
        self._launch(self.refresh, own, self.arrays)
        self._launch(self.plan_optimistically, self.frame, own, self.arrays, self.optimism, self.values)
        greedy, *chosen = self.tables
        self._send(self.optimism.policy, greedy)
        found = list(plans)
        kind = claimed = _first_kind_of(round)
        best = -np.inf, np.inf, np.inf
        for second in (False, True):
            plan, mine, twin = plans[kind % 2], self.plans[kind % 2], self.plans[1 - kind % 2]
            if kind == kl.GIVEN:
                mine.policy.copy_to_device(plan.policy, stream=self.stream)
            queued = cuda.to_device(np.zeros((5, self.frame.steps), dtype=np.int64), stream=self.stream)
            buffers = _Buffers(self.values, self.bounds, self.queue, self.pairs, queued)
            trial = Trial(self.optimism, mine, twin, kind, second)
            self._launch(self.plan_candidate, self.frame, own, self.arrays, trial, buffers)
            # While the device is busy, the tables that it sent before are converted here.
            if second:
                found[1 - kind % 2] = self._with_actions(plans[1 - kind % 2], chosen)
            else:
                optimism = optimism._replace(policy=_received(greedy))
            for table, copied in ((optimism.z, self.optimism.z), (plan.z, mine.z), (plan.rho, mine.rho)):
                copied[:1].copy_to_host(table[:1], stream=self.stream)
            self.stream.synchronize()
            self._send(mine.policy, chosen[0])
            self._send(mine.switch_action, chosen[1])
            claim = _claim_of(self.frame, rules, optimism, plan, float(plan.rho[0, self.frame.start]))
            if claim[2] < best[2]:
                claimed, best = kind, claim
            if second or best[2] <= rules.eps or kind == kl.GIVEN:
                break
            kind = 1 - kind
        found[kind % 2] = self._with_actions(plans[kind % 2], chosen)
        return (*best, claimed, kind), optimism, tuple(found)

    def fetch(self, optimism: Optimism, plans: tuple[Candidate, ...]) -> None:
        """Copy the tables of values to the CPU's records, which have the policies already."""
        records: tuple[Any, ...] = optimism, *plans
        for here, there in zip(records, (self.optimism, *self.plans), strict=True):
            for name in here._fields:
                if name not in {"policy", "switch_action"}:
                    getattr(there, name).copy_to_host(getattr(here, name))

    def _update(self, arrays: CountArrays) -> None:
        """Copy the counts to the device: all arrays if rows were moved to other slots or ``max_outcomes`` is used."""
        same = self.end == arrays.end[0] and not arrays.max_outcomes.any()
        for name in _ALWAYS_COPIED if same else CountArrays._fields:
            there, here = getattr(self.arrays, name), getattr(arrays, name)
            if there.shape != here.shape:
                self.arrays = self.arrays._replace(**{name: cuda.to_device(here)})
            else:
                there.copy_to_device(here)
        self.end = int(arrays.end[0])

    def _send(self, actions: Any, table: _ActionTable) -> None:
        """Begin to copy a table of actions from the device."""
        self._launch(self.narrow, actions, table.narrow)
        table.narrow.copy_to_host(table.pinned, stream=self.stream)
        table.arrived.record(self.stream)

    @staticmethod
    def _with_actions(plan: Candidate, tables: Sequence[_ActionTable]) -> Candidate:
        policy, switch_action = map(_received, tables)
        return plan._replace(policy=policy, switch_action=switch_action)

    def _launch(self, kernel: Any, *args: Any) -> None:
        """Launch a kernel with as many blocks as the device runs at once, which a barrier of the grid needs."""
        key = id(kernel)
        if key not in self.blocks:
            self.blocks[key] = resident_blocks(kernel, args)
        kernel[self.blocks[key], THREADS, self.stream](*args)
