"""Checks for code on a GPU: whether there is one, whether its memory suffices, and how many blocks run at once."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numba
import numba.cuda

from entropic_bpi.errors import InvalidProblemError

# Numba's annotations do not declare all of their attributes.
cuda: Any = numba.cuda
config: Any = numba.config

# Threads per block.
THREADS = 128
# The largest share of the device's free memory that is used.
_MEMORY_SHARE = 0.9


def check_gpu() -> None:
    """Raise an error that says what is missing if no GPU can be used."""
    if config.ENABLE_CUDASIM:
        return
    if find_spec("numba_cuda") is None:
        raise InvalidProblemError("plans on a GPU need numba-cuda: pip install 'entropic-bpi[gpu]'; or plan on the CPU")
    if not cuda.is_available():
        raise InvalidProblemError(
            "plans on a GPU need an NVIDIA GPU with its driver, and numba-cuda finds none here; plan on the CPU"
        )


def check_room(what: str, needed: int, remedy: str) -> None:
    """Raise an error if the device has fewer than ``needed`` bytes free. Nothing is allocated."""
    if config.ENABLE_CUDASIM:
        return
    free = cuda.current_context().get_memory_info()[0]
    if needed > _MEMORY_SHARE * free:
        raise InvalidProblemError(
            f"{what} needs {needed / 2**30:.3g} GiB on the GPU, which has {free / 2**30:.3g} GiB free: {remedy}"
        )


def resident_blocks(kernel: Any, args: tuple[Any, ...]) -> int:
    """Return how many blocks of a kernel the device can run at once: the largest grid that can have a barrier."""
    if config.ENABLE_CUDASIM:  # the simulator has barriers only in grids of one block
        return 1
    types = tuple(kernel.typeof_pyval(arg) for arg in args)
    kernel.compile(types)
    return int(kernel.overloads[types].max_cooperative_grid_blocks(THREADS))
