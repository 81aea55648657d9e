"""Logs written step by step, and what they say, in plain Python."""

import math
from collections import Counter

import mpmath
import numpy as np

ROLES = {
    name: name for name in ("episode", "step", "state", "action", "reward", "next_state", "terminated", "truncated")
}


def play(mdp, episodes, rng, choose=None, ends=(), cut=0.0, seen=None):
    """Lines of episodes of ``mdp``: they terminate on reaching a state of ``ends``, and are cut with probability ``cut``.

    ``choose(h, s, seen)`` is the behaviour, uniformly random by default; ``seen`` counts all that has happened before.
    """
    seen = Counter() if seen is None else seen
    kernel, rewards = mdp.transitions, mdp.rewards
    start = np.cumsum(mdp.start_distribution)
    cumulative = np.cumsum(kernel, axis=-1)
    lines = []
    for episode in range(episodes):
        s = int(np.searchsorted(start, rng.random() * start[-1]))
        for h in range(mdp.horizon):
            a = int(rng.integers(mdp.n_actions)) if choose is None else int(choose(h, s, seen))
            row = cumulative[s, a] if kernel.ndim == 3 else cumulative[h, s, a]
            y = int(np.searchsorted(row, rng.random() * row[-1]))
            r = float(rewards[s, a, y] if rewards.ndim == 3 else rewards[s, a])
            seen[s, a, y] += 1
            over, stopped = y in ends, bool(rng.random() < cut)
            lines.append((episode, h, s, a, r, y, over, stopped and not over))
            if over or stopped:
                break
            s = y
    return lines


def table(lines):
    """The lines as columns, such as ``Log.read`` takes them with the roles of ``ROLES``."""
    return {name: np.array(column) for name, column in zip(ROLES, zip(*lines, strict=True), strict=True)}


def counted(lines, horizon, n_states, next_states=True):
    """How often each ``(step, state, action, successor, reward)`` was seen at the steps before ``horizon``.

    ``n_states`` is the end. Without next states, the next line of the episode has them, and the last step of the longest
    episodes is used only if it is the horizon's last one, where all of them count as ends.
    """
    following = {(line[0], line[1]): line[2] for line in lines}
    last = max(line[1] for line in lines)
    seen = Counter()
    for episode, h, s, a, r, y, over, _ in lines:
        if over:
            y = n_states
        elif not next_states:
            y = following.get((episode, h + 1))
        if not next_states and h == last:
            y = n_states if h == horizon - 1 else None
        if h < horizon and y is not None:
            seen[h, s, a, y, r] += 1
    return seen


def behaviour_value(lines, beta, horizon):
    """The entropic value of the returns of the whole episodes."""
    returns, whole = Counter(), set()
    for episode, h, _, _, r, _, over, _ in lines:
        returns[episode] += r if h < horizon else 0.0
        if over or h + 1 >= horizon:
            whole.add(episode)
    values = [returns[episode] for episode in whole]
    if beta == 0:
        return math.fsum(values) / len(values)
    with mpmath.workdps(50):
        return float(
            mpmath.log(mpmath.fsum(mpmath.exp(mpmath.mpf(beta) * value) for value in values) / len(values)) / beta
        )
