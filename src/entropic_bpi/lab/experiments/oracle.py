"""The oracle knows the true model, and checks the events and the claims of identifications."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from entropic_bpi import methods
from entropic_bpi.certificate.certificate import Certificate
from entropic_bpi.lab.events import EVENTS, CountEvent, RewardEvent, expected_visits
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.model.planning import evaluate, solve
from entropic_bpi.model.return_law import ReturnLaw, return_law
from entropic_bpi.model.tails import solve_evar
from entropic_bpi.problem.risk import EVaR
from entropic_bpi.runs.loop import Loop
from entropic_bpi.runs.settings import EVERY
from entropic_bpi.types import Plan

# Rounding of the oracle's own values.
ROUNDING = 1e-9


@lru_cache(maxsize=8)
def _best_evar(mdp: FiniteMDP, alpha: float) -> float:
    return solve_evar(mdp, alpha, tol=1e-8).lower


def true_values(mdp: FiniteMDP, policy: np.ndarray, beta: float, alpha: float | None) -> tuple[float, float]:
    """Return the best value and that of ``policy``: at ``beta``, or the EVaR of the level ``alpha``."""
    if alpha is None:
        return solve(mdp, beta).value, evaluate(mdp, policy, beta).value
    law = return_law(mdp, policy)
    assert isinstance(law, ReturnLaw)
    return _best_evar(mdp, alpha), law.evar(alpha)


def holds(claim: Any, best: float, mine: Any) -> Any:
    """Return whether a claim holds if the value of its policy is ``mine``; for arrays, one result for each entry."""
    room = ROUNDING * (1 + abs(best))
    return (claim.lower <= mine + room) & (best <= claim.upper + room) & (best - mine <= claim.gap + room)


class Oracle:
    """Check the events at every plan of a loop that calls :meth:`watch`; ``failed`` has the events that failed.

    For an environment with random rewards, ``mdp`` is the model with the same values; see
    :class:`~entropic_bpi.lab.events.RewardEvent`.
    """

    def __init__(self, mdp: FiniteMDP, loop: Loop) -> None:
        assert loop.settings.replan != EVERY, "with a plan after every episode, the oracle does not see all plans"
        self.mdp, self.loop = mdp, loop
        self.events = {name: EVENTS[name] for name in methods.find(loop.settings.method).events}
        if loop.state.problem.stationary:
            self.events.pop("E_cnt", None)  # not defined for pooled counts
        if isinstance(loop.state.problem.risk, EVaR):
            self.events.pop("E_bet", None)  # defined for one β
        if loop.state.problem.random_rewards:
            self.events.pop("E_bet", None)  # defined for known rewards
            self.events["E_rew"] = RewardEvent
        self.failed: set[str] = set()
        self._expected = np.zeros(loop.state.problem.n_rows)
        self._playing: tuple[int, np.ndarray, np.ndarray] | None = None

    def watch(self, plan: Plan) -> None:
        """Check the events for the counts behind ``plan``."""
        counts = self.loop.state.counts
        if "E_cnt" in self.events:
            self._expect(plan)
        for name in self.events.keys() - self.failed:
            kind = self.events[name]
            event = CountEvent(self._expected) if kind is CountEvent else kind()
            if not event.holds(self.mdp, counts):
                self.failed.add(name)

    def _expect(self, plan: Plan) -> None:
        """Add the expected visits of the episodes since the last plan, all under its one policy."""
        problem, episodes = self.loop.state.problem, self.loop.state.counts.episodes
        if self._playing is not None:
            before, _, visits = self._playing
            self._expected += (episodes - before) * visits
        policy = plan.behaviour.greedy[int(problem.artificial) :]
        if self._playing is None or not np.array_equal(policy, self._playing[1]):
            visits = np.append(expected_visits(self.mdp, policy), [1.0] * problem.artificial)
        self._playing = (episodes, policy, visits)

    def confirms(self, claim: Certificate) -> bool:
        """Return whether every part of the claim is true."""
        return bool(holds(claim, *true_values(self.mdp, claim.policy, claim.beta, claim.alpha)))


class CellResults(NamedTuple):
    """The runs of one cell of a study; every array has one entry per run.

    ``failed`` has for each event whether it failed at some plan. ``risk`` is β, or the level of the entropic value at risk
    as text.
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


def joined(cells: Sequence[CellResults]) -> CellResults:
    """Return the runs of all cells of one rule as one."""
    arrays = ("eps", "stopped", "claim_holds", "gap", "true_gap", "episodes")
    arrays_of_all: dict[str, Any] = {name: np.concatenate([getattr(cell, name) for cell in cells]) for name in arrays}
    failed = {name: np.concatenate([cell.failed[name] for cell in cells]) for name in cells[0].failed}
    return cells[0]._replace(failed=failed, **arrays_of_all)
