"""The referee: watches an identification and, knowing the true model, says whether what it rests on and claims is true."""

from __future__ import annotations

import numpy as np

from entropic_bpi.certificate import Certificate
from entropic_bpi.events import BernsteinEvent, BettingEvent, CountEvent, Event, KLEvent, MixtureEvent, expected_visits
from entropic_bpi.identify import Loop
from entropic_bpi.mdp import FiniteMDP
from entropic_bpi.methods.plan import Plan
from entropic_bpi.planning import evaluate, solve

__all__ = ["EVENTS", "PROOFS", "Referee"]

EVENTS: dict[str, dict[str, type[Event]]] = {
    "bernstein": {"E_KL": KLEvent, "E_Z": BernsteinEvent, "E_cnt": CountEvent},
    "kl": {"E_cat": MixtureEvent, "E_bet": BettingEvent},
}
"""The events that are watched for each method: those of its proof and, for ``"kl"``, the one without S beside it."""

PROOFS = {"bernstein": {"E_KL", "E_Z"}, "kl": {"E_cat"}}
"""The events on which every claim of a method is true: if they held and a claim is false, the proof or the code is wrong."""

# Rounding of the judge's own values.
_ROUNDING = 1e-9


class Referee:
    """Give :meth:`watch` to the loop; ``failed`` then names the events that failed at one of the plans."""

    def __init__(self, mdp: FiniteMDP, loop: Loop) -> None:
        assert loop.options["replan"] > 0, "after every episode, not every plan would be seen"
        self.mdp, self.loop = mdp, loop
        self.events = dict(EVENTS[loop.options["method"]])
        if loop.problem.stationary:
            self.events.pop("E_cnt", None)  # there is none for pooled counts
        self.failed: set[str] = set()
        self._expected = np.zeros(loop.problem.n_rows)
        self._playing: tuple[int, np.ndarray, np.ndarray] | None = None

    def watch(self, plan: Plan) -> None:
        """Check the events for the counts behind ``plan``."""
        counts = self.loop.counts
        if "E_cnt" in self.events:
            self._expect(plan)
        for name in self.events.keys() - self.failed:
            kind = self.events[name]
            event = CountEvent(self._expected) if kind is CountEvent else kind()
            if not event.holds(self.mdp, counts):
                self.failed.add(name)

    def _expect(self, plan: Plan) -> None:
        """Add the expected visits of the episodes since the last plan, all under its one policy."""
        problem, episodes = self.loop.problem, self.loop.counts.episodes
        if self._playing is not None:
            before, _, visits = self._playing
            self._expected += (episodes - before) * visits
        policy = plan.behaviour.greedy[int(problem.artificial) :]
        if self._playing is None or not np.array_equal(policy, self._playing[1]):
            visits = np.append(expected_visits(self.mdp, policy), [1.0] * problem.artificial)
        self._playing = (episodes, policy, visits)

    def confirms(self, claim: Certificate) -> bool:
        """Whether every part of the claim is true."""
        best = solve(self.mdp, claim.beta).value
        mine = evaluate(self.mdp, claim.policy, claim.beta).value
        room = _ROUNDING * (1 + abs(best))
        return bool(claim.lower <= mine + room and best <= claim.upper + room and best - mine <= claim.gap + room)
