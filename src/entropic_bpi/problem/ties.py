"""Ties between actions, broken by hashes rather than a stream: each has its value before anyone asks for it."""

from __future__ import annotations

import numpy as np

from entropic_bpi.compile.decorators import compiled, helper, inlined


@inlined
def _mixed(key: np.uint64, counter: int) -> np.uint64:
    """SplitMix64: the well-mixed 64-bit number at place ``counter`` of the sequence of ``key``."""
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
    """For a method: whether action ``a`` is taken rather than the ``other``, which is as good; the lower one for seed 0.

    Priorities are drawn once per run and place, not anew for every plan: while bounds are clipped, actions that are
    equally good tie for ever, and playing now one and now the other would only halve what is known of each.
    """
    if seed == 0:
        return a < other
    return bool(_priority(seed, h, s, a) > _priority(seed, h, s, other))


@helper
def tie_draw(key: np.uint64, counter: int, size: int) -> int:
    """For a learner, whose every episode draws anew: uniform on ``0 .. size - 1``."""
    return int(((_mixed(key, counter) >> np.uint64(32)) * np.uint64(size)) >> np.uint64(32))
