r"""The cost of each factor of the bounds: the stopping time of a run without it.

Such a run **certifies nothing**: without the factor, or with knowledge of the true model in its place, the guarantee has no
proof. Only its stopping time and the true gap of its policy are recorded.

For ``method="bernstein"``, with the symbols of :mod:`entropic_bpi.methods.bernstein`:

- ``union``: one row instead of all, :math:`L=\log(3/\delta)`;
- ``states``: :math:`\alpha(n)=L+\log(8e(n+1))`, without the factor :math:`S`;
- ``horizon``: :math:`5+4H` becomes 5 (sharp: :math:`2H+3` becomes 3 and :math:`H/2+2` becomes 2);
- ``recursion``: the terms in :math:`1/H`, which make bounds larger by up to :math:`e^3` (sharp: :math:`e^2`) over all steps;
- ``range``: the true span of :math:`Z^\star_{h+1}` over the possible successors in place of the range that is known.

For ``method="kl"``:

- ``union``: the radius with :math:`\log(1/\delta)` instead of :math:`\log(P/\delta)`;
- ``mixture``: the radius without :math:`R_{mix}`, which makes it valid for all sample sizes and all directions at once.

``all`` is all of them together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from entropic_bpi.methods.bernstein import Bernstein, Tables
from entropic_bpi.methods.kl.method import KL
from entropic_bpi.methods.kl.states import refresh_radii
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.model.planning import solve
from entropic_bpi.problem.counts import Counts
from entropic_bpi.runs.loop import Loop
from entropic_bpi.runs.settings import EVERY
from entropic_bpi.tools.checks import check_choice
from entropic_bpi.types import Plan

FACTORS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"bernstein": ("union", "states", "horizon", "recursion", "range"), "kl": ("union", "mixture")}
)


def without_factor(loop: Loop, mdp: FiniteMDP, without: str) -> None:
    """Remove a factor from the bounds of a loop, which certifies nothing from then on."""
    assert loop.settings.replan != EVERY, "the compiled loop of replan='every' has the full bounds"
    known = FACTORS[check_choice("method", loop.settings.method, FACTORS)]
    check_choice("without", without, (*known, "all"))
    factors = known if without == "all" else (without,)
    if isinstance(loop.method, KL):
        loop.method = _WeakKL(loop.method, factors)
    else:
        for factor in factors:
            loop.method.tables = _without(loop.method, mdp, factor)


def _without(method: Bernstein, mdp: FiniteMDP, factor: str) -> Tables:
    alone = math.log(3 / method.problem.delta)
    replaced: dict[str, dict[str, Any]] = {
        "union": {"log_kl": alone, "log_bernstein": alone},
        "states": {"dimension": 1},
        "horizon": {"linear_star": 3.0, "extra": 2.0} if method.tables.sharp else {"linear": 5.0, "linear_star": 0.0},
        "recursion": {"slack": 0.0},
        "range": {"span": _true_spans(method, mdp)},
    }
    return method.tables._replace(**replaced[factor])


def _true_spans(method: Bernstein, mdp: FiniteMDP) -> np.ndarray:
    """Compute max - min of Z*_{h+1} over the true successors of each step, state and action, in units of the method."""
    problem = method.problem
    spans = np.zeros_like(method.tables.span)
    values = solve(mdp, problem.beta).values
    for h in range(mdp.horizon):
        remaining = mdp.horizon - h - 1
        z = method.transform((values[h + 1] - remaining * method.shift) / method.scale)
        rows = mdp.step_rows(h)
        of_row = [combine.reduceat(z[rows.indices], rows.indptr[:-1]) for combine in (np.maximum, np.minimum)]
        spans[h + problem.artificial] = (of_row[0] - of_row[1]).reshape(spans.shape[1:])
    if problem.artificial:
        z = method.transform((values[0] - mdp.horizon * method.shift) / method.scale)
        spans[0] = np.ptp(z[mdp.start_distribution > 0])
    return spans


class _WeakKL(KL):
    """The KL method with balls that are too small."""

    def __init__(self, method: KL, factors: tuple[str, ...]) -> None:
        self.__dict__.update(method.__dict__)
        self.factors = factors

    def plan(self, counts: Counts, round: int) -> Plan:
        rules, arrays = self.rules, counts.arrays
        self.counts = counts  # so that the radii are not computed again in the plan
        rules.planned[:] = -1
        refresh_radii(rules, arrays)
        n = np.maximum(arrays.visits, 1)
        union = -math.log(self.problem.delta) if "union" in self.factors else rules.log_union
        mixture = 0.0 if "mixture" in self.factors else rules.radius * n - rules.log_union
        drawn = self.problem.uncertain & (arrays.visits > 0)
        rules.radius[drawn] = ((union + mixture) / n)[drawn]
        return super().plan(counts, round)
