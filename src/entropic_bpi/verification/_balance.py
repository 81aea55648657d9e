"""Check that the counts can be those of the stated number of episodes."""

from functools import cached_property

import numpy as np

from entropic_bpi.verification._claim import Claim, sums_of

_EXACT = 2**62  # integers below this, and their differences, are exact in 64 bits


def unbalanced(claim: Claim) -> list[str]:
    """Return why the counts cannot be those of the stated number of episodes.

    For counts per step the check is complete: counts that leave each state as often as they enter it are a flow from step to
    step, and a flow is a sum of episodes. For counts pooled over steps, necessary conditions are checked; see
    :class:`_Pooled`.

    The episodes of a log may stop anywhere, and pooled ones may be longer than the horizon: then a state may be entered
    more often than it is left, and the horizon is replaced by the length of the longest episode.
    """
    n, first = claim.n_states, claim.seen.between(claim.n_rows - 1, claim.n_rows)
    starts = np.where(np.arange(n) == claim.first_state, claim.episodes, 0)
    if claim.random_start:
        starts = sums_of(n, first.successors, first.times)
    problems, into, begun = [], starts, int(starts.sum())
    may_stop = claim.stationary or claim.log is not None
    for h, layer in enumerate(claim.layers[:-1] if claim.random_start else claim.layers):
        seen = claim.seen.between(layer.start, layer.stop)
        moves = claim.state_of(seen.rows), seen.successors, seen.times
        departures, arrivals = (sums_of(n, states, seen.times) for states in moves[:2])
        if claim.stationary:
            into = starts + arrivals
        elif h == 0 and not claim.random_start:
            begun = int(departures.sum())
        wrong = (departures > into) | ((departures < into) & (not may_stop))
        for s in np.flatnonzero(wrong[: n - claim.black_box]).tolist():  # the end is never left
            where = f"state {s}" if claim.stationary else f"state {s} at step {h}"
            problems.append(f"counts do not balance: {into[s]} visits into {where}, {departures[s]} out of it")
        into = arrivals
    if begun != claim.episodes:
        problems.insert(0, f"counts do not balance: {begun} episodes began, but {claim.episodes} are claimed")
    return _Pooled(claim, starts, moves).problems() if claim.stationary and not problems else problems


class _Pooled:
    """Counts pooled over steps, as ``moves``: states, what followed them, and how often.

    With H the horizon, and distances in moves that were seen:

    - An episode that enters a set of states from a state at distance d from the starts makes at most H - d - 1 moves in the
      set before it leaves it, and one that starts in the set at most H. This limits the departures from a set by the entries
      into it. It is checked for every state, for all states at least d away and for those nearer, for each d, and for every
      group of connected states, which no episode leaves.
    - An episode that does not end makes H moves, and one that ends in a state at distance d at least d + 1. So episodes that
      were cut short are found. It is checked for every group.
    """

    def __init__(self, claim: Claim, starts: np.ndarray, moves: tuple[np.ndarray, ...]) -> None:
        self.n = claim.n_states - 1 if claim.black_box else claim.n_states
        self.horizon = claim.horizon if claim.log is None else claim.log.longest
        self.may_stop = claim.log is not None
        # Python's integers, which have no largest one, if products with the horizon may not fit into 64 bits.
        s, y, times = moves
        total = int(times.sum()) + claim.episodes
        exact = np.int64 if total * (self.horizon + 1) < _EXACT else object
        times, inside = times.astype(exact), y < self.n
        self.starts = starts[: self.n].astype(exact)
        self.moves = s[inside], y[inside], times[inside]
        self.endings = sums_of(self.n, s[~inside], times[~inside])
        self.departures = sums_of(self.n, s, times)

    def problems(self) -> list[str]:
        crowded = self._crowded(np.arange(self.n)) + self._crowded(self.groups) + self._crowded_far()
        return crowded if self.may_stop else crowded + self._cut_short()

    @cached_property
    def distances(self) -> np.ndarray:
        """The smallest number of moves from a start to each state, at most the horizon."""
        s, y, _ = self.moves  # sorted by s, as counts are by rows
        begin = np.searchsorted(s, np.arange(self.n + 1))
        distances = np.where(self.starts > 0, 0, self.horizon)
        reached, distance = np.flatnonzero(self.starts > 0), 0
        while reached.size and distance + 1 < self.horizon:
            distance += 1
            sizes = begin[reached + 1] - begin[reached]
            edges = np.repeat(begin[reached] - (np.cumsum(sizes) - sizes), sizes) + np.arange(sizes.sum())
            reached = np.unique(y[edges])
            reached = reached[distances[reached] > distance]
            distances[reached] = distance
        return distances

    @cached_property
    def groups(self) -> np.ndarray:
        """A number for each state, equal for states that moves connect: the smallest of these states."""
        group = np.arange(self.n)
        while True:
            one, other = group[self.moves[0]], group[self.moves[1]]
            if np.array_equal(one, other):
                return group
            # Each group joins the smallest one that it is connected to; then all follow such chains to their end.
            np.minimum.at(group, np.maximum(one, other), np.minimum(one, other))
            while not np.array_equal(group, following := group[group]):
                group = following

    def _crowded(self, family: np.ndarray) -> list[str]:
        """Return the sets (states with the same number in ``family``) with too many departures for their entries."""
        s, y, times = self.moves
        across = family[s] != family[y]
        time_left, into = np.maximum(0, self.horizon - self.distances[s[across]] - 1), family[y[across]]
        starts, departures = sums_of(self.n, family, self.starts), sums_of(self.n, family, self.departures)
        most = starts * self.horizon + sums_of(self.n, into, times[across] * time_left)
        entries = starts + sums_of(self.n, into, times[across])
        return [
            self._too_many(np.flatnonzero(family == name), departures[name], entries[name], most[name])
            for name in np.flatnonzero(departures > most).tolist()
        ]

    def _crowded_far(self) -> list[str]:
        """Return the sets of all states at least d away, and of those nearer, with too many departures, for each d."""
        s, y, times = self.moves
        time_left, problems = times * np.maximum(0, self.horizon - self.distances[s] - 1), []
        # One number for each level: what concerns all d up to it (the states far away) or beyond it (those nearer).
        levels, level = np.unique(self.distances, return_inverse=True)
        starts, departures = (sums_of(len(levels), level, part) for part in (self.starts, self.departures))
        for far in (True, False):
            # A move enters the far set of levels from s + 1 to y, or the near one of levels from y + 1 to s.
            first, last = (level[s], level[y]) if far else (level[y], level[s])
            into = first < last
            ends = np.concatenate([first[into] + 1, last[into] + 1])
            entries, most = (
                np.cumsum(sums_of(len(levels) + 1, ends, np.concatenate([part[into], -part[into]])))[:-1]
                for part in (times, time_left)
            )
            began, left = (
                (np.cumsum(part[::-1])[::-1] if far else np.cumsum(part) - part) for part in (starts, departures)
            )
            entries, most = entries + began, most + began * self.horizon
            for i in np.flatnonzero(left > most).tolist():
                problems.append(self._too_many(np.flatnonzero((level >= i) == far), left[i], entries[i], most[i]))
        return problems

    def _too_many(self, states: np.ndarray, departures: int, entries: int, most: int) -> str:
        several = f"the {len(states)} states from {states[0]} to {states[-1]}"
        some = several if len(states) > 1 else f"state {states[0]}"
        return (
            f"counts do not balance: {departures} moves in {some}, but {entries} visits from the start or from elsewhere "
            f"leave time for {most} within {self.horizon} steps"
        )

    def _cut_short(self) -> list[str]:
        """Return the groups whose episodes made too few moves."""
        moves = (self.starts - self.endings) * self.horizon + self.endings * (self.distances + 1) - self.departures
        least = sums_of(self.n, self.groups, moves)
        return [
            f"counts do not balance: {least[group]} moves are missing among the states connected to state {group}, for "
            f"episodes of {self.horizon} steps"
            for group in np.flatnonzero(least > 0).tolist()
        ]
