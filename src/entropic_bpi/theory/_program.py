"""Linear programs put together from blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import optimize, sparse

from entropic_bpi.errors import EntropicBPIError


class LinearProgram:
    """A linear program put together from blocks of variables and of constraints."""

    def __init__(self) -> None:
        self.size = 0
        self.bounds: list[tuple[float, float | None]] = []
        self.rows: dict[str, list[tuple[list[tuple[slice, Any]], np.ndarray]]] = {"equal": [], "at_most": []}

    def add(self, count: int, upper: float | None = None) -> slice:
        block = slice(self.size, self.size + count)
        self.size += count
        self.bounds += [(0.0, upper)] * count
        return block

    def equal(self, terms: list[tuple[slice, Any]], right: np.ndarray) -> None:
        self.rows["equal"].append((terms, right))

    def at_most(self, terms: list[tuple[slice, Any]], right: np.ndarray) -> int:
        """Add constraints; the number of the first one."""
        first = sum(len(before) for _, before in self.rows["at_most"])
        self.rows["at_most"].append((terms, right))
        return first

    def minimise(self, variable: int) -> tuple[np.ndarray, np.ndarray]:
        """The solution, and the multipliers of the constraints made by :meth:`at_most`."""
        objective = np.zeros(self.size)
        objective[variable] = 1.0
        a_eq, b_eq = self._matrix("equal")
        a_ub, b_ub = self._matrix("at_most")
        outcome = optimize.linprog(objective, a_ub, b_ub, a_eq, b_eq, self.bounds, method="highs")
        if outcome.status != 0:
            raise EntropicBPIError(f"the linear program of the characteristic time was not solved: {outcome.message}")
        return np.asarray(outcome.x), np.maximum(-outcome.ineqlin.marginals, 0.0)

    def _matrix(self, kind: str) -> tuple[Any, np.ndarray]:
        rows, columns, data, offset = [], [], [], 0
        for terms, right in self.rows[kind]:
            for block, matrix in terms:
                entries = sparse.coo_array(matrix)
                rows.append(entries.row + offset)
                columns.append(entries.col + block.start)
                data.append(entries.data)
            offset += len(right)
        position = (np.concatenate(rows), np.concatenate(columns))
        matrix = sparse.csr_array((np.concatenate(data), position), shape=(offset, self.size))
        return matrix, np.concatenate([right for _, right in self.rows[kind]])
