"""Ties between actions, broken by hashes, so that the result does not depend on the order in which ties occur."""

from __future__ import annotations

import numpy as np

from entropic_bpi.compile.decorators import compiled, helper, inlined


@inlined
def _mixed(key: np.uint64, counter: int) -> np.uint64:
    """Return number ``counter`` of the SplitMix64 sequence of ``key``: 64 pseudo-random bits."""
    x = np.uint64(key) + np.uint64(counter) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@inlined
def _priority(seed: int, h: int, s: int, a: int) -> np.uint64:
    key = _mixed(np.uint64(seed) ^ np.uint64(h), 1)
    return _mixed(_mixed(key ^ np.uint64(s), 1) ^ np.uint64(a), 1)


@compiled
def wins_tie(seed: int, h: int, s: int, a: int, other: int) -> bool:
    """Return whether a method takes action ``a`` rather than ``other``, which is equally good; seed 0 takes the lower one.

    Priorities are the same for all plans of a run. While bounds are clipped, equally good actions remain tied, and
    alternating between them would only halve the number of visits of each.
    """
    if seed == 0:
        return a < other
    return bool(_priority(seed, h, s, a) > _priority(seed, h, s, other))


@helper
def tie_draw(key: np.uint64, counter: int, size: int) -> int:
    """Return a number that is uniform on ``0 .. size - 1``, for a learner, which draws again in every episode."""
    return int(((_mixed(key, counter) >> np.uint64(32)) * np.uint64(size)) >> np.uint64(32))
