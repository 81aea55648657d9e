"""Counter-based random numbers: Philox-4x64-10, the generator of ``numpy.random.Philox``, on any device.

A stream is defined by its key, and its position is a counter, so that each thread can have its own stream with memory only
for the numbers of one block. (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.)
"""

from __future__ import annotations

import numpy as np

from entropic_bpi.compile.decorators import inlined, inner

# Positions in a stream of its key, its counter, the number of unused words of the last block, and that block.
_KEY, _COUNTER, _LEFT, _BLOCK = 0, 2, 3, 4
STREAM_SIZE = 8
_ROUNDS = 10


@inlined
def _high_product(a: np.uint64, b: np.uint64) -> np.uint64:
    """Return the upper half of a product of 128 bits, from products of 32-bit halves."""
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    low = (a & mask) * (b & mask)
    left, right = (a >> half) * (b & mask), (a & mask) * (b >> half)
    middle = (low >> half) + (left & mask) + (right & mask)
    return (a >> half) * (b >> half) + (left >> half) + (right >> half) + (middle >> half)


@inner
def _next_block(stream: np.ndarray) -> None:
    stream[_COUNTER] += np.uint64(1)
    x0, x1, x2, x3 = stream[_COUNTER], np.uint64(0), np.uint64(0), np.uint64(0)
    key0, key1 = stream[_KEY], stream[_KEY + 1]
    m0, m1 = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
    for _ in range(_ROUNDS):
        high0, high1 = _high_product(m0, x0), _high_product(m1, x2)
        x0, x1, x2, x3 = high1 ^ x1 ^ key0, m1 * x2, high0 ^ x3 ^ key1, m0 * x0
        key0 += np.uint64(0x9E3779B97F4A7C15)
        key1 += np.uint64(0xBB67AE8584CAA73B)
    stream[_BLOCK], stream[_BLOCK + 1], stream[_BLOCK + 2], stream[_BLOCK + 3] = x0, x1, x2, x3


@inner
def open_stream(stream: np.ndarray, key: int, other: int) -> None:
    """Start the stream of two keys in an array of ``STREAM_SIZE`` unsigned words."""
    stream[_KEY], stream[_KEY + 1] = np.uint64(key), np.uint64(other)
    stream[_COUNTER], stream[_LEFT] = np.uint64(0), np.uint64(0)


@inner
def uniform(stream: np.ndarray) -> float:
    """Return the next number of the stream, uniform on [0, 1)."""
    if stream[_LEFT] == np.uint64(0):
        _next_block(stream)
        stream[_LEFT] = np.uint64(4)
    word = stream[_BLOCK + 4 - np.int64(stream[_LEFT])]
    stream[_LEFT] -= np.uint64(1)
    return float(word >> np.uint64(11)) * (1.0 / 9007199254740992.0)
