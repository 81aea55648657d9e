"""Exact planning on a GPU: the backups of the CPU, called from one kernel that loops over all steps.

A thread computes one state and one β at a time. The β are neighbours in memory, so that neighbouring threads read the same
transitions and neighbouring terms: the model is read once for all of them. A step has three parts, between which the grid is
synchronised: the range of the values, the terms that rows share, and the best action of every state.
"""

import math
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import float64

from entropic_bpi.compile.gpu import THREADS, check_gpu, check_room, config, cuda, resident_blocks
from entropic_bpi.model import backups as _entropic
from entropic_bpi.model.backups import LINEAR_EXPONENT, Lotteries, Scale
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.model.planning import TOGETHER, Plan, Solution, solve_by
from entropic_bpi.model.steps import payoffs

# Few enough that a multiprocessor holds half of its largest number of threads, which mostly wait for memory.
_REGISTERS = 64
# Results are copied in pieces of this many numbers, by this many threads: allocating pages is slower than the bus.
_PIECE, _COPIERS = 1 << 20, 8
# Below this exponent no row can need a scale of its own, see ``_entropic.SMALLEST_SUM``.
_SAFE_EXPONENT = 600.0


class _Model(NamedTuple):
    """The rows of one step, or of all; rewards ``(1 or H, S, A)``, and ``paid`` ``(1 or H, entries)``, empty without any."""

    indptr: Any
    indices: Any
    probabilities: Any
    rewards: Any
    paid: Any


class _Tables(NamedTuple):
    """What is computed for all β."""

    beta: Any  # (β,)
    extremes: Any  # (H, β, 2): the range of the values after a step
    terms: Any  # (2, S, β): near and far
    outcomes: Any  # (β, entries of a step): scratch; without columns if no row needs its own scale
    values: Any  # (β, H + 1, S)
    policy: Any  # (β, H, S)


@cache
def _kernel() -> Any:
    def plan(model: _Model, tables: _Tables) -> None:
        grid, thread, threads = cuda.cg.this_grid(), cuda.grid(1), cuda.gridsize(1)
        shared = cuda.shared.array((2, THREADS), float64)
        extremes, terms, values, policy = tables.extremes, tables.terms, tables.values, tables.policy
        n_betas, steps, n_states = policy.shape
        n_actions = model.rewards.shape[2]
        for i in range(thread, n_betas * n_states, threads):
            values[i % n_betas, steps, i // n_betas] = 0.0
        grid.sync()
        for h in range(steps - 1, -1, -1):
            # The range of the values of each β; each block computes that of a part of the states.
            parts = max(1, cuda.gridDim.x // n_betas)
            for i in range(cuda.blockIdx.x, parts * n_betas, cuda.gridDim.x):
                b, me = i % n_betas, cuda.threadIdx.x
                low, high = np.inf, -np.inf
                for s in range(i // n_betas * THREADS + me, n_states, parts * THREADS):
                    low, high = min(low, values[b, h + 1, s]), max(high, values[b, h + 1, s])
                shared[0, me], shared[1, me] = low, high
                cuda.syncthreads()
                half = THREADS // 2
                while half > 0:
                    if me < half:
                        shared[0, me] = min(shared[0, me], shared[0, me + half])
                        shared[1, me] = max(shared[1, me], shared[1, me + half])
                    cuda.syncthreads()
                    half //= 2
                if me == 0:
                    cuda.atomic.min(extremes, (h, b, 0), shared[0, 0])
                    cuda.atomic.max(extremes, (h, b, 1), shared[1, 0])
                cuda.syncthreads()
            grid.sync()
            for i in range(thread, n_betas * n_states, threads):
                s, b = i // n_betas, i % n_betas
                beta = tables.beta[b]
                centre, top, reach, climb = _entropic.anchors(extremes[h, b, 0], extremes[h, b, 1], beta)
                near, far = _entropic.terms_of(values[b, h + 1, s], centre, top, reach, climb, beta)
                terms[0, s, b], terms[1, s, b] = near, far
            grid.sync()
            first = h * n_states * n_actions % (model.indptr.size - 1)
            rows = Lotteries(model.indptr[first:], model.indices, model.probabilities)
            rewards, paid = model.rewards[h % model.rewards.shape[0]], model.paid[h % model.paid.shape[0]]
            for i in range(thread, n_betas * n_states, threads):
                s, b = i // n_betas, i % n_betas
                beta, after = tables.beta[b], values[b, h + 1]
                outcomes = tables.outcomes[b, rows.indptr[s * n_actions] - rows.indptr[0] :]
                centre, top, reach, _ = _entropic.anchors(extremes[h, b, 0], extremes[h, b, 1], beta)
                strength = 0.0 if reach < LINEAR_EXPONENT and paid.size == 0 else beta
                scale = Scale(terms[0, :, b], terms[1, :, b], centre, top, strength)
                best, action = _entropic.best_action(rows, paid, rewards, after, scale, outcomes, s)
                values[b, h, s], policy[b, h, s] = best, action
            grid.sync()

    # The simulator has no registers.
    return cuda.jit(plan) if config.ENABLE_CUDASIM else cuda.jit(max_registers=_REGISTERS)(plan)


def solve_on_gpu(
    mdp: FiniteMDP, beta: Any, *, discount: float | None = None, horizon: int | None = None
) -> Solution | list[Solution]:
    """Compute what :func:`entropic_bpi.solve` computes on an NVIDIA GPU, which reads the model once for all β.

    It is for large sparse models and needs the extra ``gpu``. The values are those of the CPU except for their last digits.

    Parameters
    ----------
    mdp : FiniteMDP
        The model.
    beta : float or sequence of floats
        Risk parameter; positive is risk-seeking.
    discount : float, optional
        As for :func:`entropic_bpi.solve`.
    horizon : int, optional
        As for :func:`entropic_bpi.solve`.

    Returns
    -------
    Solution or list of Solution
        The policy and its values; a list if ``beta`` is a sequence.

    Raises
    ------
    InvalidProblemError
        If there is no GPU, or the model does not fit into its memory.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> eb.solve_on_gpu(eb.instances.garnet(100_000, 4, 3, horizon=50, seed=0), -0.5)  # doctest: +SKIP
    """
    check_gpu()
    return solve_by(_on_gpu, mdp, beta, discount, horizon)


def _on_gpu(mdp: FiniteMDP, betas: list[float]) -> Plan:
    return Planner(mdp, min(len(betas), TOGETHER), max(map(abs, betas), default=0.0)).plan


class Planner:
    """A model on the device, which plans it for several β at a time."""

    def __init__(self, mdp: FiniteMDP, betas: int, largest_beta: float) -> None:
        rows, low, high = mdp.rows, *mdp.reward_range
        model = _Model(rows.indptr, rows.indices, rows.probabilities, *payoffs(mdp))
        self.mdp, self.scratch = mdp, 0
        if mdp.next_state_rewards or largest_beta * mdp.horizon * (high - low) > _SAFE_EXPONENT:
            self.scratch = int(np.diff(rows.indptr[:: mdp.n_states * mdp.n_actions]).max())
        size = sum(part.nbytes for part in model)
        size += sum(math.prod(shape) * dtype.itemsize for shape, dtype in self._tables(betas))
        check_room(f"solving {mdp!r} for {betas} beta", size, "ask for fewer at a time, or use solve")
        self.model = _Model(*map(cuda.to_device, model))

    def _tables(self, betas: int) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
        """Return shapes and types of :class:`_Tables`; actions have the smallest type, so that copying them is fast."""
        steps, states = self.mdp.horizon, self.mdp.n_states
        shapes = (betas,), (steps, betas, 2), (2, states, betas), (betas, self.scratch), (betas, steps + 1, states)
        numbers = [(shape, np.dtype(float)) for shape in shapes]
        return [*numbers, ((betas, steps, states), np.min_scalar_type(self.mdp.n_actions - 1))]

    def plan(self, betas: list[float], values: np.ndarray, policies: np.ndarray) -> None:
        """Fill in ``values`` ``(β, H + 1, S)`` and ``policies`` ``(β, H, S)``."""
        tables = self.launch(betas)
        _copy(tables.values, values)
        _copy(tables.policy, policies)

    def launch(self, betas: list[float]) -> _Tables:
        """Plan, and return the complete tables on the device."""
        tables = _Tables(*(cuda.device_array(*table) for table in self._tables(len(betas))))
        tables.beta.copy_to_device(np.array(betas))
        tables.extremes.copy_to_device(np.broadcast_to([np.inf, -np.inf], tables.extremes.shape).copy())
        kernel, args = _kernel(), (self.model, tables)
        blocks = min(resident_blocks(kernel, args), -(-len(betas) * self.mdp.n_states // THREADS))
        kernel[blocks, THREADS](*args)
        cuda.synchronize()
        return tables


def _copy(there: Any, here: np.ndarray) -> None:
    """Copy an array from the device; its type on the host may be another one."""
    there, here = there.reshape(here.size), here.reshape(-1)
    copiers = min(_COPIERS, -(-here.size // _PIECE))

    def copy(which: int) -> None:
        stream, piece = cuda.stream(), cuda.pinned_array(min(_PIECE, here.size), there.dtype)
        for first in range(which * _PIECE, here.size, copiers * _PIECE):
            last = min(first + _PIECE, here.size)
            there[first:last].copy_to_host(piece[: last - first], stream=stream)
            stream.synchronize()
            here[first:last] = piece[: last - first]

    with ThreadPoolExecutor(copiers) as pool:
        list(pool.map(copy, range(copiers)))
