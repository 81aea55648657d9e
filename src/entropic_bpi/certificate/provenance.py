"""How the episodes behind a claim came about, and what the claim rests on, in words."""

from typing import NamedTuple

from entropic_bpi.problem.declarations import ENTRIES
from entropic_bpi.problem.problem import Problem
from entropic_bpi.sources.assumption_tests import LEVEL, REJECTED_FROM
from entropic_bpi.types import Evidence, Transitions

_PRINTED = (
    "the bonus is the one that the paper prints, the caps and the stopping rule are corrected; the guarantee rests on the "
    "proof on paper, for at most 12 steps or S <= 16H/(H - 12)"
)


class LogSummary(NamedTuple):
    """What the claim depends on besides its counts, if they come from a log.

    Attributes
    ----------
    longest : int
        Steps of the longest episode.
    unused : int
        Lines of the last step that are not used, because the log does not have the next state of all of them.
    excluded : str or None
        A description of what was left out on request.
    seen : bool
        Whether the user declared that the states of the log are all there are.
    """

    longest: int
    unused: int
    excluded: str | None
    seen: bool = False


class Provenance(NamedTuple):
    """How the episodes behind a claim came about, as far as the claim depends on it.

    Attributes
    ----------
    batches : bool
        Whether plans and tests came in batches, not after every episode.
    ignored : tuple of str
        Declarations that were given and that the method does not use: ``"stationary"``, ``"successors"``.
    errors : int
        How often the environment raised an error and the run was resumed; the episodes in progress are lost.
    preregistration : str or None
        Digest of the commitment that was published before the first episode.
    tests : Evidence or None
        The evidence of an environment's episodes against the assumptions.
    log : LogSummary or None
        A summary of the log, if all counts or the first ones come from a log.
    accepted : tuple of str
        Declarations of a problem file that the user accepted all at once instead of confirming each.
    rewards : str or None
        A name for the rewards of the claim, if the episodes were collected for other rewards.
    """

    batches: bool = True
    ignored: tuple[str, ...] = ()
    errors: int = 0
    preregistration: str | None = None
    tests: Evidence | None = None
    log: LogSummary | None = None
    accepted: tuple[str, ...] = ()
    rewards: str | None = None


def assumptions_of(
    problem: Problem, transitions: Transitions, provenance: Provenance, constants: str | None
) -> tuple[str, ...]:
    """Return what a claim rests on, in words: where the episodes come from, what is declared, and how it was tested."""
    entries = (entry for name, entry in ENTRIES.items() if entry.always_said or getattr(problem, name) is not None)
    said = (entry.sentence(problem, transitions) for entry in entries if entry.sentence is not None)
    notes = [*_origin_of(problem, provenance), *filter(None, said)]
    if provenance.ignored:
        notes.append(f"constants={constants!r} ignores {' and '.join(provenance.ignored)}")
    # How a run with the machine-checked constants differs from the statement that is machine-checked.
    low, high = problem.possible_rewards
    differs = {
        "plans and tests in batches": provenance.batches,
        "rewards are rescaled to [0, 1]": low < 0 or high > 1,
        "the start is random": problem.artificial,
    }
    if constants == "verified" and any(differs.values()):
        parts = ", ".join(words for words, holds in differs.items() if holds)
        notes.append(
            f"the machine-checked theorem is about the run without: {parts}; here the guarantee rests on the proof on paper"
        )
    if constants == "printed":
        notes.append(_PRINTED)
    if provenance.accepted:
        names = ", ".join(provenance.accepted)
        notes.append(f"declarations accepted all at once, not confirmed one by one: {names}")
    if provenance.rewards is not None:
        notes.append(f"the rewards are {provenance.rewards}; the episodes were collected for other rewards")
    if provenance.errors:
        often = "once" if provenance.errors == 1 else f"{provenance.errors} times"
        notes.append(
            f"the environment raised an error {often} and the run went on: episodes may have been lost, but not because of "
            "what happened in them"
        )
    if provenance.tests is not None:
        notes.append(_outcome_of(provenance.tests, problem.noise is not None))
    return tuple(notes)


def _origin_of(problem: Problem, provenance: Provenance) -> list[str]:
    """Return where the episodes come from."""
    log = provenance.log
    if log is None:
        lost = "no other was discarded" if provenance.errors else "none was discarded"
        return [f"episodes are independent runs of one finite Markov decision process, and {lost}"]
    origin = [
        "episodes are a log of one finite Markov decision process: every decision depended on the past alone, and nothing "
        "is missing because of what it led to",
        f"there are no other {'' if problem.max_states or log.seen else 'states and '}actions than those that are named",
    ]
    if log.seen:
        origin.append("the user declares that the states of the log are all there are")
    if log.unused:
        origin.append(
            f"episodes that did not end were cut after {log.longest} steps, whatever happened; that step is not used, "
            "because the log does not tell where it led"
        )
    if log.excluded is not None:
        origin.append(f"left out on request, and not because of what happened in them: {log.excluded}")
    return origin


def tested(evidence: Evidence, *, noise: bool) -> list[tuple[str, float]]:
    """Return the assumptions that were tested, in words, and the logarithms of the e-values against them."""
    e_values = {
        f"transitions are the same at every step{' and have the declared laws' * noise}": evidence.stationary,
        "transitions do not depend on the previous state": evidence.memoryless,
        "nothing changes over the episodes": evidence.unchanging,
    }
    return [(what, value) for what, value in e_values.items() if value is not None]


def _outcome_of(evidence: Evidence, noise: bool) -> str:
    """Return the results of the tests of the assumptions."""
    tests = [f"that {what} (log e-value {value:.3g})" for what, value in tested(evidence, noise=noise)]
    shown = "" if evidence.returns is None else f". Their returns alone show a value of at least {evidence.returns:.3g}"
    return (
        f"the episodes were used to test {', '.join(tests)}: no sign of a violation; each test has a false-alarm rate of "
        f"at most {100 * LEVEL:g} % (alarm at {REJECTED_FROM:.3g}){shown}"
    )
