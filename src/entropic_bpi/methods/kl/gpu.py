"""The plan of the KL method on a GPU: the same functions, compiled for the device, one thread for each state or action.

Nothing of the method is written twice. The functions of :mod:`entropic_bpi.methods.kl.states`, which plan one action or
one state, are called from kernels, and only the loops around them are here. A pass over all steps is one cooperative
kernel: steps are separated by a barrier of the whole grid, not by launches. What takes long and is not needed everywhere
is collected in a queue first, so that few threads wait for their neighbours.

Rows may have at most 32 possible successors, for each thread keeps its row in memory of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import float64, int64

from entropic_bpi.compile.gpu import THREADS, check_gpu, check_room, config, cuda, resident_blocks
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.methods.kl import states as kl
from entropic_bpi.methods.kl.records import MAX_SHARED, Candidate, Optimism, Place, PlanConstants, Scratch, Trial
from entropic_bpi.problem.counts import CountArrays
from entropic_bpi.problem.rows import Frame, actions_at

WIDEST = 32
REGISTERS = 96


class _Buffers(NamedTuple):
    """Working memory: by state and action the pessimistic ``values`` and the ``bounds`` of the gap; the states, and the
    deviations, that are queued at the present step; and how many there are, by queue and step."""

    values: Any
    bounds: Any
    queue: Any
    deviations: Any
    queued: Any


class _Kernels(NamedTuple):
    refresh: Any
    optimistic: Any
    candidate: Any


@cache
def _kernels(width: int) -> _Kernels:
    """The kernels for rows of at most ``width`` successors: the size of a thread's own memory is part of the code."""
    # The simulator does not know of registers.
    jit: Callable[[Callable[..., None]], Any] = cuda.jit if config.ENABLE_CUDASIM else cuda.jit(max_registers=REGISTERS)

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
        scratch = Scratch(work, values[0], values[0], shared, scores)
        for h in range(frame.steps - 1, -1, -1):
            begin, count = frame.first_state[h], frame.first_state[h + 1] - frame.first_state[h]
            actions = actions_at(frame, h)
            for i in range(thread, count * actions, threads):
                place, a = Place(h, frame.states[begin + i // actions]), i % actions
                u = kl.optimistic_action(frame, rules, arrays, optimism, place, a, scratch)
                optimism.u[h, place.s, a] = u
            grid.sync()
            for i in range(thread, count, threads):
                kl.choose_greedy(frame, rules, arrays, optimism, Place(h, frame.states[begin + i]))
            grid.sync()

    @jit
    def candidate(
        frame: Frame,
        rules: PlanConstants,
        arrays: CountArrays,
        optimism: Optimism,
        plan: Candidate,
        twin: Candidate,
        kind: int,
        second: bool,
        buffers: _Buffers,
    ) -> None:
        values, bounds, queue, deviations, queued = buffers
        grid, thread, threads = cuda.cg.this_grid(), cuda.grid(1), cuda.gridsize(1)
        work = cuda.local.array((10, width), float64)
        shared, scores = cuda.local.array(MAX_SHARED, int64), cuda.local.array(MAX_SHARED, float64)
        trial, sign = Trial(plan, twin, kind, second), rules.sign
        for h in range(frame.steps - 1, -1, -1):
            begin, count = frame.first_state[h], frame.first_state[h + 1] - frame.first_state[h]
            actions, after = actions_at(frame, h), plan.z[h + 1]
            for i in range(thread, count, threads):
                place = Place(h, frame.states[begin + i])
                scratch = Scratch(work, values[place.s], bounds[place.s], shared, scores)
                a = optimism.policy[h, place.s]
                values[place.s, a] = kl.backup(frame, rules, arrays, place, a, after, -sign, scratch)
            grid.sync()
            for i in range(thread, count * actions, threads):
                place, a = Place(h, frame.states[begin + i // actions]), i % actions
                greedy = optimism.policy[h, place.s]
                if a != greedy:
                    value = optimism.u[h, place.s, a]
                    if sign * value >= sign * values[place.s, greedy] or a == kl.given_action(frame, trial, place):
                        scratch = Scratch(work, values[place.s], bounds[place.s], shared, scores)
                        value = kl.backup(frame, rules, arrays, place, a, after, -sign, scratch)
                    values[place.s, a] = value
            grid.sync()
            for i in range(thread, count, threads):
                place = Place(h, frame.states[begin + i])
                scratch = Scratch(work, values[place.s], bounds[place.s], shared, scores)
                chosen = kl.given_action(frame, trial, place)
                if chosen < 0:
                    chosen = kl.choose_pessimistic_best(frame, rules, place, scratch)
                if kind == kl.SMALLEST_GAP and kl.have_rivals(frame, rules, optimism, place, chosen, scratch):
                    queue[cuda.atomic.add(queued, (0, h), 1)] = place.s
                plan.policy[h, place.s] = chosen
            grid.sync()
            for i in range(thread, queued[0, h] * actions, threads):
                place, a = Place(h, queue[i // actions]), i % actions
                scratch = Scratch(work, values[place.s], bounds[place.s], shared, scores)
                if kl.is_rival(rules, optimism, place, plan.policy[h, place.s], a, scratch):
                    scratch.bounds[a] = kl.bound_if_chosen(frame, rules, arrays, optimism, plan, place, a, scratch)
            grid.sync()
            for i in range(thread, queued[0, h], threads):
                place = Place(h, queue[i])
                scratch = Scratch(work, values[place.s], bounds[place.s], shared, scores)
                leader = plan.policy[h, place.s]
                plan.policy[h, place.s] = kl.choose_smallest_gap(
                    frame, rules, arrays, optimism, plan, place, leader, scratch
                )
            grid.sync()
            for i in range(thread, count, threads):
                place = Place(h, frame.states[begin + i])
                scratch = Scratch(work, values[place.s], bounds[place.s], shared, scores)
                if kl.settle(frame, rules, arrays, optimism, trial, place, scratch):
                    queue[cuda.atomic.add(queued, (1, h), 1)] = place.s
            grid.sync()
            for i in range(thread, queued[1, h], threads):
                place = Place(h, queue[i])
                scratch = Scratch(work, values[place.s], bounds[place.s], shared, scores)
                a = optimism.policy[h, place.s]
                ratio = kl.deviate(frame, rules, arrays, optimism, plan, place, a, scratch)
                kl.keep_worse(plan, place, a, ratio)
                kl.keep_worse(plan, place, -1, kl.stay(frame, rules, arrays, optimism, plan, place, scratch))
                for b in range(actions):
                    values[place.s, b] = 1.0
                    if b != a and kl.may_deviate(rules, optimism, plan, place, b):
                        deviations[cuda.atomic.add(queued, (2, h), 1)] = place.s * actions + b
            grid.sync()
            for i in range(thread, queued[2, h], threads):
                place, a = Place(h, deviations[i] // actions), deviations[i] % actions
                scratch = Scratch(work, values[place.s], bounds[place.s], shared, scores)
                values[place.s, a] = kl.deviate(frame, rules, arrays, optimism, plan, place, a, scratch)
            grid.sync()
            for i in range(thread, queued[1, h], threads):
                place = Place(h, queue[i])
                for a in range(actions):
                    kl.keep_worse(plan, place, a, values[place.s, a])
                kl.conclude(rules, optimism, plan, place)
            grid.sync()

    return _Kernels(refresh, optimistic, candidate)


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
        self.kernels = _kernels(1 << (rules.widest - 1).bit_length())
        records: tuple[Any, ...] = frame, rules, arrays, optimism, plan, plan
        size = sum(part.nbytes for record in records for part in record if isinstance(part, np.ndarray))
        check_room("this problem", size, "use device='cpu'")
        self.frame, self.rules, self.arrays, self.optimism = map(self._copy, (frame, rules, arrays, optimism))
        self.plans = self._copy(plan), self._copy(plan)
        self.values = cuda.device_array((frame.n_states, frame.n_actions))
        self.bounds = cuda.device_array((frame.n_states, frame.n_actions))
        self.queue = cuda.device_array(frame.n_states, np.int64)
        self.deviations = cuda.device_array(frame.n_states * frame.n_actions, np.int64)
        self.blocks: dict[Any, int] = {}

    def _copy(self, record: Any) -> Any:
        return type(record)(*(cuda.to_device(part) if isinstance(part, np.ndarray) else part for part in record))

    def forget(self) -> None:
        """The next counts have nothing to do with the last ones."""
        self.rules.planned.copy_to_device(np.full(self.rules.planned.shape, -1))

    def plan_optimistically(self, rules: PlanConstants, arrays: CountArrays) -> None:
        self._upload(arrays)
        self._launch(self.kernels.refresh, self._with_scalars(rules), self.arrays)
        self._launch(
            self.kernels.optimistic, self.frame, self._with_scalars(rules), self.arrays, self.optimism, self.values
        )

    def plan_candidate(
        self, rules: PlanConstants, kind: int, second: bool, optimism: Optimism, plan: Candidate
    ) -> float:
        """Plan a candidate; its policy and values at the start are written to the CPU's records, and ρ is returned."""
        mine, twin = self.plans[kind % 2], self.plans[1 - kind % 2]
        if kind == kl.GIVEN:
            mine.policy.copy_to_device(plan.policy)
        queued = cuda.to_device(np.zeros((3, self.frame.steps), dtype=np.int64))
        buffers = _Buffers(self.values, self.bounds, self.queue, self.deviations, queued)
        records = self.frame, self._with_scalars(rules), self.arrays, self.optimism, mine, twin
        self._launch(self.kernels.candidate, *records, kind, second, buffers)
        for here, there in ((optimism.z, self.optimism.z), (plan.z, mine.z), (plan.rho, mine.rho)):
            there[:1].copy_to_host(here[:1])
        return float(plan.rho[0, self.frame.start])

    def fetch(self, optimism: Optimism, plans: tuple[Candidate, ...], names: set[str] | None = None) -> None:
        """Copy the fields called ``names``, or all, to the CPU's records."""
        records: tuple[Any, ...] = optimism, *plans
        for here, there in zip(records, (self.optimism, *self.plans), strict=True):
            for name in here._fields:
                if names is None or name in names:
                    getattr(there, name).copy_to_host(getattr(here, name))

    def _with_scalars(self, rules: PlanConstants) -> Any:
        """The rules with these numbers and the device's arrays."""
        merged: list[Any] = [
            old if isinstance(new, np.ndarray) else new for old, new in zip(self.rules, rules, strict=True)
        ]
        return PlanConstants(*merged)

    def _upload(self, arrays: CountArrays) -> None:
        for name, there, here in zip(CountArrays._fields, self.arrays, arrays, strict=True):
            if there.shape != here.shape:
                self.arrays = self.arrays._replace(**{name: cuda.to_device(here)})
            else:
                there.copy_to_device(here)

    def _launch(self, kernel: Any, *args: Any) -> None:
        """With as many blocks as can be on the device at once, which is what a barrier of the grid needs."""
        key = id(kernel)
        if key not in self.blocks:
            self.blocks[key] = resident_blocks(kernel, args)
        kernel[self.blocks[key], THREADS](*args)
