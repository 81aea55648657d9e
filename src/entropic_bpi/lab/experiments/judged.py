"""The runs of one cell of a study, as a judge who knows the true model saw them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Judged", "all_of"]


class Judged(NamedTuple):
    """One entry per run in every array; ``failed`` says of each event that was watched whether it failed at some plan.

    ``risk`` is β, or how a level of the entropic value at risk is written.
    """

    rule: str
    case: str
    risk: Any
    eps: np.ndarray
    stopped: np.ndarray
    claim_holds: np.ndarray
    failed: dict[str, np.ndarray]
    gap: np.ndarray
    true_gap: np.ndarray
    episodes: np.ndarray


def all_of(cells: Sequence[Judged]) -> Judged:
    """The runs of all cells of one rule."""
    arrays = ("eps", "stopped", "claim_holds", "gap", "true_gap", "episodes")
    joined: dict[str, Any] = {name: np.concatenate([getattr(cell, name) for cell in cells]) for name in arrays}
    failed = {name: np.concatenate([cell.failed[name] for cell in cells]) for name in cells[0].failed}
    return cells[0]._replace(failed=failed, **joined)
