"""The sentence of a certificate about each declaration.

Each function takes the problem and the transitions that were seen. It is called if something is declared; the functions for
the start and the rewards are called for every problem. The verifier has its own sentences, which are compared with these.
"""

from __future__ import annotations

from typing import Any

from entropic_bpi.problem.risk import AnyReward

# The largest number of different rewards in a black box at the end of an episode, and when the state does not change.
END_REWARDS, STAY_REWARDS = 8, 2
# Fixed rewards that differ by at most this fraction of their range are equal up to rounding.
SAME_REWARD = 1e-9


def stationary(problem: Any, seen: Any) -> str:
    return f"transitions {'are the same at every' if problem.stationary else 'may differ from step to'} step"


def successors(problem: Any, seen: Any) -> str | None:
    if problem.noise is not None:
        return None
    return {
        "unknown": "any state may follow any state and action",
        "model": "the possible next states are those of the model (their probabilities are not used)",
        "mask": "the possible next states are those of the declared mask",
    }[problem.successors]


def max_states(problem: Any, seen: Any) -> str:
    bound = f"there are at most {problem.max_states} different observations"
    return f"{bound}; a state is one of them, numbered as it was first seen"


def max_successors(problem: Any, seen: Any) -> str:
    paid = problem.black_box_rewards and not problem.random_rewards
    outcome = "outcomes (next state and reward)" if paid else "next states"
    return f"every action in every state has at most {problem.max_successors} different {outcome}"


def return_range(problem: Any, seen: Any) -> str:
    least, most = problem.return_range
    return f"the return of every episode lies in [{least:g}, {most:g}], whatever is played"


def rewards(problem: Any, seen: Any) -> str:
    """Return the sentence about the range and the law of the rewards together."""
    known = "state, action and next state" if problem.next_state_rewards else "state and action"
    if isinstance(problem.risk, AnyReward):
        (first, last), (least, most) = problem.risk.betas, problem.risk.rewards
        return (
            f"the claim is for every reward in [{least:g}, {most:g}] that is a function of step, {known}, and for every "
            f"beta from {first:g} to {last:g}"
        )
    if not problem.black_box_rewards:
        return f"rewards are known, a function of {known}"
    low, high = problem.declared_range
    if problem.reward is not None:
        ends = f"up to {END_REWARDS} different" if problem.successors == "unknown" else "as many as are declared for it"
        return (
            f"rewards lie in [{low:g}, {high:g}] and are a known function of state, action and the next observation; the "
            f"end of an episode may have several, {ends}"
        )
    inside = f"rewards lie in [{low:g}, {high:g}] and are "
    if problem.random_rewards:
        pair = problem.reward_law == "random-pair"
        given = "state and action, whatever the next state" if pair else "state, action and next state"
        law = f"random, independent from visit to visit, with one law for each {given}"
        lams = problem.lams
        alone = "this beta alone" if lams is None else f"{len(lams)} values of lambda declared beforehand"
        return f"{inside}{law}; the claim is for {alone}"
    return f"{inside}determined by state, action and next state, except {_exceptions(problem, seen)}"


def _exceptions(problem: Any, seen: Any) -> str:
    exception = (
        f"for up to {END_REWARDS} different rewards at the end of an episode and up to {STAY_REWARDS} when the state does "
        "not change"
        if problem.successors == "unknown"
        else "that a next state which is declared several times may have as many"
    )
    if not (seen.upper > seen.rewards).any():
        return exception
    return f"{exception}; those that differ by at most {SAME_REWARD:g} of that range are one, between them"


def discount(problem: Any, seen: Any) -> str:
    return (
        f"the return never ends, and a reward counts {problem.discount!r} times as much with every step; "
        f"{problem.horizon} steps are planned, and what all later ones can add, whatever is done, is part of the bounds"
    )


def noise(problem: Any, seen: Any) -> str:
    sizes = [str(len(labels)) for labels in problem.noise.labels]
    laws = "one unknown law" if len(sizes) == 1 else f"one of {len(sizes)} unknown laws, declared for each of them,"
    seen_too = ", and is seen itself" if problem.noise.observed else ""
    return (
        "the outcome is a known function of state, action and a random label, which is drawn independently at every visit "
        f"from {laws} on {' or '.join(sizes)} labels{seen_too}"
    )


def start(problem: Any, seen: Any) -> str:
    if problem.start is None:
        return "the distribution of the first state is estimated from the episodes"
    if isinstance(problem.start, str):
        return "every episode starts in the same state"
    names = [problem.state_names[s] for s in ([problem.start] if isinstance(problem.start, int) else problem.start)]
    return f"every episode starts in {'state' if len(names) == 1 else 'one of the states'} {', '.join(names)}"


def allowed(problem: Any, seen: Any) -> str:
    table = problem.allowed.table[:, : problem.n_states - problem.black_box_rewards]
    what = "state and action" if len(table) == 1 else "step, state and action"
    forbidden = f"{table.size - int(table.sum()):,} of {table.size:,} combinations of {what}"
    if not problem.allowed.offered:
        return f"actions are restricted by known masks, which forbid {forbidden}"
    return (
        f"actions are restricted by masks that come with the observations, the same at every visit of a state; those seen "
        f"forbid {forbidden}, and where none was seen every action counts as allowed"
    )
