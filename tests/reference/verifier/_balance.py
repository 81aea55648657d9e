"""Can these counts be those of so many episodes?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from reference.verifier._claim import Claim

Moves = dict[tuple[int, int], int]  # how often each state was followed by each


def unbalanced(claim: Claim) -> list[str]:
    """Why the counts cannot be those of so many episodes.

    Per step the answer is complete: counts that leave each state as often as they enter it are a flow from step to step,
    and a flow falls apart into episodes. Of counts that are pooled over steps, conditions are checked that all episodes of
    so many steps satisfy; see :class:`_Pooled`.

    The episodes of a log may stop anywhere, and pooled ones may be longer than the horizon: then a state may be entered
    more often than it is left, and time is that of the longest episode.
    """
    n, starts, moves = claim.n_states, _starts(claim), _moves(claim)
    problems, into, begun = [], starts, sum(starts)
    for h, layer in enumerate(moves):
        arrivals, departures = [0] * n, [0] * n
        for (s, y), count in layer.items():
            departures[s] += count
            arrivals[y] += count
        if claim.stationary:
            into = [a + b for a, b in zip(starts, arrivals, strict=True)]
        elif h == 0 and not claim.random_start:
            begun = sum(departures)
        for s in range(n - claim.black_box):  # the end is never left
            may_stop = claim.stationary or claim.log is not None
            if departures[s] > into[s] or (departures[s] < into[s] and not may_stop):
                where = f"state {s}" if claim.stationary else f"state {s} at step {h}"
                problems.append(f"counts do not balance: {into[s]} visits into {where}, {departures[s]} out of it")
        into = arrivals
    if begun != claim.episodes:
        problems.insert(0, f"counts do not balance: {begun} episodes began, but {claim.episodes} are claimed")
    if claim.stationary and not problems:
        problems = _Pooled(claim, starts, moves[0]).problems()
    return problems


def _starts(claim: Claim) -> list[int]:
    """How often episodes began in each state."""
    starts = [0] * claim.n_states
    if claim.random_start:
        for (y, _), count in claim.seen.get(claim.n_rows - 1, {}).items():
            starts[y] += count
    else:
        starts[claim.first_state] = claim.episodes
    return starts


def _moves(claim: Claim) -> list[Moves]:
    """The moves of each step, or of all steps together where counts are pooled."""
    moves: list[Moves] = [{} for _ in range(1 if claim.stationary else claim.horizon)]
    for row, outcomes in claim.seen.items():
        if not claim.is_start(row):
            layer, s = moves[row // (claim.n_states * claim.n_actions)], claim.state_of(row)
            for (y, _), count in outcomes.items():
                layer[s, y] = layer.get((s, y), 0) + count
    return moves


class _Pooled:
    """Counts pooled over steps, as moves between states. With H the horizon, and distances in moves that were seen:

    - Whoever enters a set of states from a state at distance d from the starts moves at most H - d - 1 times in it before
      leaving it, and whoever starts there H times. So visits that nothing leads to, too far away, or too many for those who
      come, show. Asked of every state, of all states at least d away, for each d, and of every group of connected states,
      which no episode leaves.
    - An episode that does not end moves H times, and one that ends in a state at distance d at least d + 1 times. So
      episodes that were cut short show. Asked of every group.
    """

    def __init__(self, claim: Claim, starts: list[int], moves: Moves) -> None:
        end = claim.n_states - 1 if claim.black_box else claim.n_states
        self.starts, self.horizon = starts[:end], claim.horizon if claim.log is None else claim.log.longest
        self.may_stop = claim.log is not None
        self.moves = {move: count for move, count in moves.items() if move[1] != end}
        self.endings = {move[0]: count for move, count in moves.items() if move[1] == end}
        self.departures = [self.endings.get(s, 0) for s in range(end)]
        for (s, _), count in self.moves.items():
            self.departures[s] += count

    def problems(self) -> list[str]:
        farther = ([d >= least for d in self.distances] for least in sorted(set(self.distances)))
        families = [range(len(self.starts)), self.groups, *farther]
        crowded = [problem for family in families for problem in self._crowded(family)]
        return crowded if self.may_stop else crowded + self._cut_short()

    @cached_property
    def distances(self) -> list[int]:
        """The fewest moves from a start to each state; the horizon where there are not so few."""
        after: dict[int, list[int]] = {}
        for s, y in self.moves:
            after.setdefault(s, []).append(y)
        distances = [0 if count else self.horizon for count in self.starts]
        reached = [s for s, count in enumerate(self.starts) if count]
        for s in reached:
            for y in after.get(s, ()):
                if distances[s] + 1 < distances[y]:
                    distances[y] = distances[s] + 1
                    reached.append(y)
        return distances

    @cached_property
    def groups(self) -> list[int]:
        """A number for each state, the same for states that moves connect."""
        above = list(range(len(self.starts)))

        def top(s: int) -> int:
            while above[s] != s:
                above[s] = s = above[above[s]]
            return s

        for s, y in self.moves:
            above[top(s)] = top(y)
        return [top(s) for s in above]

    def _crowded(self, family: Sequence[int]) -> list[str]:
        """The sets (states with the same number in ``family``) that were left too often for those who came."""
        members: dict[int, list[int]] = {}
        for s, name in enumerate(family):
            members.setdefault(name, []).append(s)
        entries = {name: sum(self.starts[s] for s in states) for name, states in members.items()}
        most = {name: count * self.horizon for name, count in entries.items()}
        for (s, y), count in self.moves.items():
            if family[s] != family[y]:
                entries[family[y]] += count
                most[family[y]] += count * max(0, self.horizon - self.distances[s] - 1)
        problems = []
        for name, states in members.items():
            departures = sum(self.departures[s] for s in states)
            if departures > most[name]:
                problems.append(
                    f"counts do not balance: {departures} moves in {_some(states)}, but {entries[name]} visits from the "
                    f"start or from elsewhere leave time for {most[name]} within {self.horizon} steps"
                )
        return problems

    def _cut_short(self) -> list[str]:
        """The groups whose episodes moved too seldom."""
        least: dict[int, int] = {}
        for s, count in enumerate(self.starts):
            ended = self.endings.get(s, 0)
            moves = (count - ended) * self.horizon + ended * (self.distances[s] + 1) - self.departures[s]
            least[self.groups[s]] = least.get(self.groups[s], 0) + moves
        return [
            f"counts do not balance: {missing} moves are missing among the states connected to state {group}, for "
            f"episodes of {self.horizon} steps"
            for group, missing in least.items()
            if missing > 0
        ]


def _some(states: list[int]) -> str:
    return f"state {states[0]}" if len(states) == 1 else f"the {len(states)} states from {states[0]} to {states[-1]}"
