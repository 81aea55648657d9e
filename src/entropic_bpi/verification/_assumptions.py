"""The assumptions of a claim in words: those in the file must be exactly those that its content implies."""

from entropic_bpi.verification._claim import REJECTED_FROM, TEST_LEVEL, Claim
from entropic_bpi.verification._file import Rejected
from entropic_bpi.verification._slots import END_REWARDS, SAME_REWARD, STAY_REWARDS

_SUCCESSORS = {
    "unknown": ["any state may follow any state and action"],
    "model": ["the possible next states are those of the model (their probabilities are not used)"],
    "mask": ["the possible next states are those of the declared mask"],
    "noise": [],
}


def check_assumptions(claim: Claim) -> None:
    """Reject a file whose assumptions are not those that its content implies."""
    transitions = f"transitions {'are the same at every' if claim.stationary else 'may differ from step to'} step"
    expected = [*_of_origin(claim), transitions, *_SUCCESSORS[claim.successors], *_of_limits(claim), _of_rewards(claim)]
    expected += [*_of_model(claim), *_of_run(claim), *_of_tests(claim)]
    if claim.assumptions != expected:
        raise Rejected(f"the assumptions are not those of such a claim, which are: {expected!r}")


def _of_origin(claim: Claim) -> list[str]:
    """Return where the episodes come from."""
    log = claim.provenance.log
    if log is None:
        others = "no other was discarded" if claim.provenance.errors else "none was discarded"
        return ["episodes are independent runs of one finite Markov decision process, and " + others]
    closed = claim.max_states is not None or log.seen  # by another sentence
    said = [
        "episodes are a log of one finite Markov decision process: every decision depended on the past alone, and nothing "
        "is missing because of what it led to",
        f"there are no other {'actions' if closed else 'states and actions'} than those that are named",
    ]
    if log.seen:
        said.append("the user declares that the states of the log are all there are")
    if log.unused:
        cut = f"episodes that did not end were cut after {log.longest} steps, whatever happened"
        said.append(f"{cut}; that step is not used, because the log does not tell where it led")
    if log.excluded is not None:
        said.append(f"left out on request, and not because of what happened in them: {log.excluded}")
    return said


def _of_limits(claim: Claim) -> list[str]:
    said = []
    if claim.max_states is not None:
        bound = f"there are at most {claim.max_states} different observations"
        said.append(f"{bound}; a state is one of them, numbered as it was first seen")
    if claim.max_successors is not None:
        outcomes = "outcomes (next state and reward)" if claim.rewards_tell_outcomes else "next states"
        said.append(f"every action in every state has at most {claim.max_successors} different {outcomes}")
    if claim.return_range is not None:
        least, most = claim.return_range
        said.append(f"the return of every episode lies in [{least:g}, {most:g}], whatever is played")
    return said


def _of_rewards(claim: Claim) -> str:
    known = "state, action and next state" if claim.rewards is None else "state and action"
    if claim.explored is not None:
        (first, last), (least, most) = claim.explored
        said = f"the claim is for every reward in [{least:g}, {most:g}] that is a function of step, {known}"
        return f"{said}, and for every beta from {first:g} to {last:g}"
    if not claim.black_box:
        return f"rewards are known, a function of {known}"
    (low, high), anywhere = claim.declared_range, claim.successors == "unknown"
    said = f"rewards lie in [{low:g}, {high:g}] and are "
    if claim.known_reward:
        ends = f"up to {END_REWARDS} different" if anywhere else "as many as are declared for it"
        said += "a known function of state, action and the next observation; "
        return f"{said}the end of an episode may have several, {ends}"
    if claim.random_rewards:
        given = known if claim.reward_law == "random" else "state and action, whatever the next state"
        alone = "this beta alone" if not claim.lams else f"{len(claim.lams)} values of lambda declared beforehand"
        return f"{said}random, independent from visit to visit, with one law for each {given}; the claim is for {alone}"
    several = f"for up to {END_REWARDS} different rewards at the end of an episode and up to {STAY_REWARDS} when the "
    several += "state does not change"
    said += "determined by state, action and next state, except "
    said += several if anywhere else "that a next state which is declared several times may have as many"
    if claim.has_rounded_rewards:
        said += f"; those that differ by at most {SAME_REWARD:g} of that range are one, between them"
    return said


def _of_model(claim: Claim) -> list[str]:
    """Return what is said of discount, start, noise and masks."""
    said = []
    if claim.discount is not None:
        gamma = f"the return never ends, and a reward counts {claim.discount!r} times as much with every step"
        later = "what all later ones can add, whatever is done, is part of the bounds"
        said.append(f"{gamma}; {claim.horizon} steps are planned, and {later}")
    states = [claim.start] if isinstance(claim.start, int) else claim.start
    if claim.start is None:
        said.append("the distribution of the first state is estimated from the episodes")
    elif claim.start == "fixed":
        said.append("every episode starts in the same state")
    else:
        names = ", ".join(claim.state_names[s] for s in states)
        said.append(f"every episode starts in {'state' if len(states) == 1 else 'one of the states'} {names}")
    if claim.noise is not None:
        sizes = claim.noise.sizes
        law = "one unknown law" if len(sizes) == 1 else f"one of {len(sizes)} unknown laws, declared for each of them,"
        said.append(
            "the outcome is a known function of state, action and a random label, which is drawn independently at every "
            f"visit from {law} on {' or '.join(map(str, sizes))} labels" + ", and is seen itself" * claim.noise.observed
        )
    if claim.allowed is not None:
        masks = claim.allowed[:, :-1] if claim.black_box else claim.allowed
        kind = "state and action" if len(masks) == 1 else "step, state and action"
        forbidden = f"forbid {int((~masks).sum()):,} of {masks.size:,} combinations of {kind}"
        offered = "masks that come with the observations, the same at every visit of a state; those seen "
        offered += f"{forbidden}, and where none was seen every action counts as allowed"
        said.append(f"actions are restricted by {offered if claim.offered else f'known masks, which {forbidden}'}")
    return said


def _of_run(claim: Claim) -> list[str]:
    origin, (low, high), said = claim.provenance, claim.reward_range, []
    if origin.ignored:
        said.append(f"constants='{claim.constants}' ignores {' and '.join(origin.ignored)}")
    on_paper = {
        "plans and tests in batches": origin.batches,
        "rewards are rescaled to [0, 1]": low < 0 or high > 1,
        "the start is random": claim.random_start,
    }
    parts = ", ".join(part for part, holds in on_paper.items() if holds)
    if claim.constants == "verified" and parts:
        paper = "here the guarantee rests on the proof on paper"
        said.append(f"the machine-checked theorem is about the run without: {parts}; {paper}")
    if claim.constants == "printed":
        said.append(
            "the bonus is the one that the paper prints, the caps and the stopping rule are corrected; the guarantee rests "
            "on the proof on paper, for at most 12 steps or S <= 16H/(H - 12)"
        )
    if origin.accepted:
        said.append(f"declarations accepted all at once, not confirmed one by one: {', '.join(origin.accepted)}")
    if origin.rewards is not None:
        said.append(f"the rewards are {origin.rewards}; the episodes were collected for other rewards")
    if origin.errors:
        often = "once" if origin.errors == 1 else f"{origin.errors} times"
        lost = "episodes may have been lost, but not because of what happened in them"
        said.append(f"the environment raised an error {often} and the run went on: {lost}")
    return said


def _of_tests(claim: Claim) -> list[str]:
    tests = claim.provenance.tests
    if tests is None:
        return []
    tested = {
        "that transitions are the same at every step"
        + " and have the declared laws" * bool(claim.noise): tests.stationary,
        "that transitions do not depend on the previous state": tests.memoryless,
        "that nothing changes over the episodes": tests.unchanging,
    }
    found = ", ".join(f"{what} (log e-value {value:.3g})" for what, value in tested.items() if value is not None)
    alarm = f"each test has a false-alarm rate of at most {100 * TEST_LEVEL:g} % (alarm at {REJECTED_FROM:.3g})"
    returns = "" if tests.returns is None else f". Their returns alone show a value of at least {tests.returns:.3g}"
    return [f"the episodes were used to test {found}: no sign of a violation; {alarm}{returns}"]
