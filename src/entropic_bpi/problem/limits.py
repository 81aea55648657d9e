"""How many different rewards an environment may pay, and which of them count as one."""

from __future__ import annotations

__all__ = ["END_REWARDS", "SAME_REWARD", "STAY_REWARDS"]

# How many different rewards an ending, or a step back to the same state, may have in a black box; otherwise it is one.
END_REWARDS, STAY_REWARDS = 8, 2
# Fixed rewards that differ by no more than this share of their range are one, known up to rounding.
SAME_REWARD = 1e-9
