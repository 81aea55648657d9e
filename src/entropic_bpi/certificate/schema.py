"""What must hold between the arrays of any certificate, so that what reaches compiled code is always valid.

The verifier has checks of its own, which share no code with these.
"""

import math

import numpy as np

from entropic_bpi.certificate.codec import require
from entropic_bpi.model.parts.mechanics import Partitioned
from entropic_bpi.problem.declarations import ENTRIES
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.reward_counts import CELLS, cell_edges
from entropic_bpi.problem.risk import AnyReward, Entropic, EVaR
from entropic_bpi.problem.sentences import END_REWARDS, STAY_REWARDS
from entropic_bpi.tools.checks import LARGEST_COUNT
from entropic_bpi.types import BOXES, EMPTY, RATIO, Cell, Cut, Transitions


def check_problem(problem: Problem) -> None:
    """Refuse slots that are not there or are not those of the declarations."""
    n, slots, learned = problem.n_states, problem.slots, problem.black_box_rewards
    rows = n * problem.n_actions * (1 if problem.stationary else problem.horizon) + problem.artificial
    available = len(slots.successor)
    _check_indices("slots.successor", slots.successor, available, 0, n)
    _check_indices("slots.begin", slots.begin, rows, 0, available)
    _check_indices("slots.used", slots.used, rows, 1, available)
    _check_indices("slots.possible", slots.possible, rows, 1, max(available, n + END_REWARDS + STAY_REWARDS))
    within = (slots.begin + slots.used <= available).all()
    require(within, f"slots.begin and slots.used lead beyond the {available} slots")
    steps = (1, problem.horizon)
    require(problem.rewards is None or len(problem.rewards) in steps, f"rewards must have 1 or {steps[1]} steps")
    shapes = [(step, available) for step in steps] if problem.rewards is None else [(0, available)]
    fits = slots.low.shape == slots.high.shape and slots.low.shape in shapes
    require(fits, f"slots.low and slots.high must have one of the shapes {shapes}", (slots.low.shape, slots.high.shape))
    if isinstance(problem.start, list):
        ascends = (
            sorted(set(problem.start)) == problem.start and 0 <= problem.start[0] <= problem.start[-1] < n - learned
        )
        require(ascends, "start must list different states in order", problem.start)
    if problem.allowed is not None:
        _check_masks(problem)
    problem.check()
    with_noise = problem.noise is not None
    require(
        with_noise == (problem.successors == "noise"),
        "successors are those of the noise where that is declared, and nowhere else",
    )
    if with_noise:
        _check_mechanics(problem)
    returns, states = problem.return_range, problem.max_states
    is_range = returns is None or (learned and returns[0] <= returns[1])
    require(is_range, "return_range must be a range, and of an environment", returns)
    require(
        states is None or (learned and states == n - 1),
        f"max_states must be null, or {n - 1} of an environment",
        states,
    )
    sound = _is_black_box(problem) if learned else _lists_successors(problem) and not problem.random_rewards
    require(sound, "slots do not list the successors and rewards that are declared")


def _check_masks(problem: Problem) -> None:
    assert problem.allowed is not None
    table, offered = problem.allowed
    shapes = [(steps, problem.n_states, problem.n_actions) for steps in (1, problem.horizon)]
    flags = table.shape in shapes and table.dtype == np.int64 and np.isin(table, (0, 1)).all()
    require(
        flags and table.any(axis=2).all() and (problem.black_box_rewards or not offered),
        "allowed must have flags for 1 or all steps, and at least one action for each state",
    )


def _check_mechanics(problem: Problem) -> None:
    """Refuse labels of a pair that lead to none of its slots, and slots without a label."""
    assert problem.noise is not None
    labels, law, classes, observed = problem.noise
    pairs, used = problem.n_states * problem.n_actions, problem.slots.used
    fits = labels and all(labels) and problem.stationary and not problem.random_rewards
    require(fits, "noise needs labels, stationary transitions and fixed rewards")
    require(problem.black_box_rewards or not observed, "noise.observed is for environments")
    _check_indices("noise.law", law, pairs, 0, len(labels) - 1)
    sizes = np.array([len(names) for names in labels])[law]
    _check_indices("noise.classes", classes, int(sizes.sum()), 0, int(used.max()))
    owner = np.repeat(np.arange(pairs), sizes)
    found = np.unique(owner * (int(used.max()) + 1) + classes)
    complete = (classes < used[owner]).all() and len(found) == used[:pairs].sum()
    require(complete, "noise.classes must name every slot of each state and action, and no other")


def check_cells(problem: Problem, cells: tuple[Cell, ...] | None) -> None:
    """Refuse cells of an entropic value at risk that are not in order, or whose λ was not declared where that is needed."""
    require(
        isinstance(problem.risk, Entropic) == (cells is None),
        "claim.cells belong to the entropic value at risk and to explorations, which need them",
    )
    declared = problem.declared_lams if isinstance(problem.risk, EVaR) and problem.random_rewards else None
    require(problem.lams == declared, "lams belong to the entropic value at risk of random rewards, which fix them")
    if cells is None:
        return
    begin = 0.0
    for cell in cells:
        inside = 0 < cell.lam < math.inf and begin <= cell.lam <= cell.until
        require(inside, "claim.cells must be in order, each with its lam inside", cell)
        require(declared is None or cell.lam in declared, f"claim.cells: lam = {cell.lam} was not declared")
        begin = cell.until
    require(
        isinstance(problem.risk, AnyReward) == (begin < math.inf),
        "the last of claim.cells must be without an end, except for explorations",
    )


def check_cuts(problem: Problem, test: str | None, cuts: tuple[Cut | str, ...] | None) -> None:
    """Refuse cuts that are not one binary tree of rows that exist; what they prove, ``verify`` knows."""
    require((test == BOXES) == (cuts is not None), "claim.cuts belong to the test 'boxes', and it needs them")
    open_ends = 0 if cuts is None else 1
    for cut in cuts or ():
        fits = cut.law < problem.n_rows and 0 < cut.at < 1 if isinstance(cut, Cut) else cut in (RATIO, EMPTY)
        require(open_ends and fits, "claim.cuts must be one tree of cuts at probabilities", cut)
        open_ends += 1 if isinstance(cut, Cut) else -1
    require(not open_ends, f"claim.cuts lack {open_ends} leaves")


def check_transitions(problem: Problem, transitions: Transitions, episodes: int, longest: int | None = None) -> None:
    """Refuse counts of rows and states that do not exist. Whether they can be those of episodes, ``verify`` knows.

    ``longest``: the steps of the longest episode, where they come from a log.
    """
    rows, successors, times, rewards, upper, labels = transitions
    entries, learned, slots = len(rows), problem.black_box_rewards, problem.slots
    _check_indices("counts.rows", rows, entries, 0, problem.n_rows - 1)
    _check_indices("counts.successors", successors, entries, 0, problem.n_states - 1)
    _check_indices("counts.times", times, entries, 1, LARGEST_COUNT)
    _check_indices("counts.labels", labels, problem.n_observed_labels, 0, LARGEST_COUNT)
    few = episodes >= 0 and times.sum(dtype=float) <= LARGEST_COUNT
    require(few, f"counts must be of 0 to {LARGEST_COUNT} episodes and steps")
    for name, column in (("rewards", rewards), ("upper", upper)):
        wanted, how = (entries, "learned") if learned else (0, "known")
        require(len(column) == wanted, f"counts.{name} must have {wanted} numbers, as rewards are {how}", len(column))
    if learned:
        slot = slots.begin[rows]
        listed = problem.reward is not None and problem.successors != "unknown"
        if problem.noise is not None or listed:  # of which each outcome has a reward or range of its own
            slot = np.where((slot == 1) | (rows == problem.n_rows - 1), slot, 0)
        inside = (slots.low[0, slot] <= rewards) & (rewards <= upper) & (upper <= slots.high[0, slot])
        paid_before_the_end = inside.all() and not (slot == 1).any()  # the slot of the end
        require(paid_before_the_end, "counts must pay rewards in their range, and there are none after the end")
        _check_widths(problem, rewards, upper)
    if problem.return_range is not None:
        low, high = problem.return_range
        wide = episodes or high - low > problem.return_room
        require(wide, f"return_range = {low, high} has no width, and no episode could contradict it")
        possible = not episodes or _can_earn(problem, transitions, episodes, longest)
        require(possible, f"counts pay what no episodes with returns in return_range = {low, high} do")


def _check_widths(problem: Problem, rewards: np.ndarray, upper: np.ndarray) -> None:
    """Refuse rewards that are known less well than their law allows: up to rounding, or up to a cell of the range."""
    if problem.random_rewards:
        edges = cell_edges(*problem.declared_range)
        cell = np.minimum(np.searchsorted(edges, rewards, side="right"), CELLS)
        sound = (upper == rewards) | ((rewards == edges[cell - 1]) & (upper == edges[cell]))
    else:
        sound = upper - rewards <= problem.same_reward
    require(sound.all(), "counts.upper must be counts.rewards, or differ by rounding or by a cell of the range")


def _can_earn(problem: Problem, transitions: Transitions, episodes: int, longest: int | None) -> bool:
    """Whether episodes with returns in the declared range can have paid what was seen.

    The episodes of a log may be cut, so that a part of the return is missing; and those that are longer than the horizon,
    as pooled ones may be, have also paid what is no part of it.
    """
    (low, high), (least, most) = problem.possible_rewards, problem.return_limits
    played, others = transitions.rows < problem.n_rows - 1, problem.horizon - 1
    times, rewards, upper = (array[played] for array in (transitions.times, transitions.rewards, transitions.upper))
    later, missing = 0, 0
    if longest is not None:
        ended = times[transitions.successors[played] == problem.n_states - 1].sum()
        later, missing = max(0, longest - problem.horizon), max(0, episodes - int(ended)) * problem.horizon
    alone = later > 0 or bool((rewards + others * low <= most).all() and (upper + others * high >= least).all())
    return (
        alone
        and math.fsum(times * rewards) <= episodes * (most + later * high) - missing * low
        and math.fsum(times * upper) >= episodes * (least + later * low) - missing * high
    )


def _check_indices(name: str, values: np.ndarray, length: int, least: int, most: int) -> None:
    fits = values.dtype == np.int64 and values.shape == (length,)
    require(fits, f"{name} must be {length} integers", (values.dtype, values.shape))
    outside = values[(values < least) | (values > most)]
    require(not len(outside), f"{name} must lie between {least} and {most}", *outside[:1].tolist())


def _is_black_box(problem: Problem) -> bool:
    """Whether the slots are those of a black box: they follow from sizes, one range of rewards, and declared successors."""
    slots = problem.slots
    low, high = float(slots.low[0, 0]), float(slots.high[0, 0])
    declared = None if problem.successors == "unknown" else _listed_successors(problem)
    refused = problem.successors != "unknown" and declared is None
    if refused or isinstance(problem.start, int) or problem.n_states < 2 or not low <= high:
        return False
    if problem.reward is not None and not _knows_rewards(problem, declared):
        return False
    declarations = {name: getattr(problem, name) for name in ENTRIES}
    if problem.noise is not None and declared is not None:
        lows, highs = (ends[0, len(ends[0]) - len(declared[1]) :] for ends in (slots.low, slots.high))
        rewards = np.where(lows == highs, lows, np.nan)
        declarations["noise"], declared = Partitioned(problem.noise, declared, rewards), None
    wanted = Problem.black_box(
        problem.n_states - 1,
        problem.n_actions,
        risk=problem.risk,
        eps=problem.eps,
        delta=problem.delta,
        state_labels=problem.labels[0],
        source=problem.source_hash,
        **{
            **declarations,
            "reward_range": (low, high),
            "successors": declared,
            "state_names": None,
            "action_names": None,
        },
    )
    return wanted.successors == problem.successors and all(
        np.array_equal(mine, theirs) for mine, theirs in zip(slots, wanted.slots, strict=True)
    )


def _knows_rewards(problem: Problem, declared: tuple[np.ndarray, np.ndarray] | None) -> bool:
    """Whether known rewards are numbers, except for ends, and are all that may be paid."""
    assert problem.reward is not None
    _, low, high = problem.reward
    exact = np.zeros(len(low), dtype=bool) if declared is None else declared[1] < problem.n_states - 1
    pairs = (problem.n_states - 1) * problem.n_actions if declared is None else len(exact)
    return len(low) == pairs > 0 and bool((low <= high).all() and (low == high)[exact].all())


def _listed_successors(problem: Problem) -> tuple[np.ndarray, np.ndarray] | None:
    """What the slots declare to follow each pair (s, a), as compressed rows; None unless it is in order."""
    pairs = (problem.n_states - 1) * problem.n_actions
    indptr = np.concatenate([[0], np.cumsum(problem.slots.used[:pairs])])
    listed = problem.slots.successor[2 + problem.slots.used[-1] :]
    if len(listed) != indptr[-1] or (listed == problem.n_states).any():
        return None
    ascends = np.diff(listed) >= (1 if problem.random_rewards else 0)
    ascends[indptr[1:-1] - 1] = True  # from one pair to the next
    return (indptr, listed) if ascends.all() else None


def _lists_successors(problem: Problem) -> bool:
    """Whether each row lists different states, as many as are possible, or nothing but "elsewhere" where all are."""
    n, slots = problem.n_states, problem.slots
    last = slots.begin + slots.used - 1
    # Going back from each slot, the first one from where on no successor is listed twice.
    order = np.argsort(slots.successor, kind="stable")
    again = np.flatnonzero(np.diff(slots.successor[order]) == 0)
    fresh_from = np.zeros(len(order), dtype=np.int64)
    fresh_from[order[again + 1]] = order[again] + 1
    different = np.maximum.accumulate(fresh_from)[last] <= slots.begin
    elsewhere = slots.successor == n
    open_ended = elsewhere[slots.begin] & (slots.used == 1)
    behind = np.concatenate([[0], np.cumsum(elsewhere)])
    listed = different & (behind[last + 1] == behind[slots.begin])
    whole = slots.used == n
    if isinstance(problem.start, list):
        whole[-1] = np.array_equal(slots.successor[slots.begin[-1] : last[-1] + 1], problem.start)
        listed[-1] &= whole[-1]
    if problem.successors == "unknown":
        listed &= whole
        known = listed | (open_ended & (problem.rewards is not None))
    else:
        known = listed
    possible = np.where(open_ended, n, slots.used)
    # The artificial step of a random start pays nothing, which is written as the smallest reward.
    paid_at_start = slots.low[:, slots.begin[-1] : last[-1] + 1] if problem.artificial else slots.low[:0]
    return (
        bool(known.all())
        and np.array_equal(slots.possible, possible)
        and np.array_equal(slots.low, slots.high)
        and bool((paid_at_start == slots.low.min(initial=np.inf)).all())
    )
