"""Between actions that are equally good."""

from __future__ import annotations

import numpy as np

from entropic_bpi._compile import compiled

__all__ = ["tie_priority"]


@compiled()
def _mix(number):  # type: ignore[no-untyped-def]
    """SplitMix64: a well-mixed 64-bit number."""
    mixed = np.uint64(number) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


@compiled()
def tie_priority(seed, h, s, a):  # type: ignore[no-untyped-def]
    """Of two tied actions the one with the larger priority is taken; the lowest one for seed 0.

    Priorities are drawn once per run and place, not anew for every plan: while bounds are clipped, actions that are
    equally good tie for ever, and playing now one and now the other would only halve what is known of each.
    """
    if seed == 0:
        return ~np.uint64(a)
    return _mix(_mix(_mix(np.uint64(seed) ^ np.uint64(h)) ^ np.uint64(s)) ^ np.uint64(a))
