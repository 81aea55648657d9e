"""What all code for a GPU asks first: is there one, does its memory suffice, and how many threads does it hold at once."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numba
import numba.cuda

from entropic_bpi.errors import InvalidProblemError

# Numba's types say less of them than there is.
cuda: Any = numba.cuda
config: Any = numba.config

# Threads of a block.
THREADS = 128
# Of the device's memory, this share is taken at most.
_MEMORY_SHARE = 0.9


def check_gpu() -> None:
    """Say what is missing, if there is no GPU to plan on."""
    if config.ENABLE_CUDASIM:
        return
    if find_spec("numba_cuda") is None:
        raise InvalidProblemError("plans on a GPU need numba-cuda: pip install 'entropic-bpi[gpu]'; or plan on the CPU")
    if not cuda.is_available():
        raise InvalidProblemError(
            "plans on a GPU need an NVIDIA GPU with its driver, and numba-cuda finds none here; plan on the CPU"
        )


def check_room(what: str, needed: int, remedy: str) -> None:
    """Refuse what takes so many bytes if the device has fewer left, before any is taken."""
    if config.ENABLE_CUDASIM:
        return
    free = cuda.current_context().get_memory_info()[0]
    if needed > _MEMORY_SHARE * free:
        raise InvalidProblemError(
            f"{what} needs {needed / 2**30:.3g} GiB on the GPU, which has {free / 2**30:.3g} GiB free: {remedy}"
        )


def resident_blocks(kernel: Any, args: tuple[Any, ...]) -> int:
    """How many blocks of a kernel can be on the device at once, which is what a barrier of the whole grid needs."""
    if config.ENABLE_CUDASIM:  # its grids with a barrier have one block
        return 1
    types = tuple(kernel.typeof_pyval(arg) for arg in args)
    kernel.compile(types)
    return int(kernel.overloads[types].max_cooperative_grid_blocks(THREADS))
