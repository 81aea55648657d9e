"""What a claim rests on, in words: the file must say what its content implies, and nothing less."""

from types import SimpleNamespace

from entropic_bpi.verification._claim import REJECTED_FROM, SAME_REWARD, TEST_LEVEL, Claim
from entropic_bpi.verification._file import Rejected
from entropic_bpi.verification._problem import END_REWARDS, STAY_REWARDS

_SUCCESSORS = {
    "unknown": "any state may follow any state and action",
    "model": "the possible next states are those of the model (their probabilities are not used)",
    "mask": "the possible next states are those of the declared mask",
    "noise": "",
}


def check_assumptions(claim: Claim) -> None:
    expected = [sentence for sentence in _sentences(claim) if sentence]
    if claim.assumptions != expected:
        raise Rejected(f"the assumptions are not those of such a claim, which are: {expected!r}")


def _sentences(claim: Claim) -> list[str]:
    """Return the sentences that every certificate of such a problem has; those that do not apply are empty."""
    origin = claim.provenance
    accepted = f"declarations accepted all at once, not confirmed one by one: {', '.join(origin.accepted)}"
    rewards = f"the rewards are {origin.rewards}; the episodes were collected for other rewards"
    errors = (
        f"the environment raised an error {'once' if origin.errors == 1 else f'{origin.errors} times'} and the run went on: "
        "episodes may have been lost, but not because of what happened in them"
    )
    return [
        *_of_origin(claim),
        f"transitions {'are the same at every' if claim.stationary else 'may differ from step to'} step",
        _SUCCESSORS[claim.successors],
        *_of_limits(claim),
        _of_rewards(claim),
        _of_discount(claim),
        _of_start(claim),
        _of_noise(claim),
        _of_masks(claim),
        f"constants='{claim.constants}' ignores {' and '.join(origin.ignored)}" if origin.ignored else "",
        _of_constants(claim),
        accepted if origin.accepted else "",
        rewards if origin.rewards is not None else "",
        errors if origin.errors else "",
        "" if origin.tests is None else _of_tests(origin.tests, claim.noise is not None),
    ]


def _of_origin(claim: Claim) -> list[str]:
    """Return where the episodes come from."""
    log = claim.provenance.log
    if log is None:
        others = "no other was discarded" if claim.provenance.errors else "none was discarded"
        return ["episodes are independent runs of one finite Markov decision process, and " + others]
    closed = claim.max_states is not None or log.seen  # by another sentence
    cut = (
        f"episodes that did not end were cut after {log.longest} steps, whatever happened; that step is not used, because "
        "the log does not tell where it led"
    )
    excluded = f"left out on request, and not because of what happened in them: {log.excluded}"
    return [
        "episodes are a log of one finite Markov decision process: every decision depended on the past alone, and nothing "
        "is missing because of what it led to",
        f"there are no other {'actions' if closed else 'states and actions'} than those that are named",
        "the user declares that the states of the log are all there are" if log.seen else "",
        cut if log.unused else "",
        excluded if log.excluded is not None else "",
    ]


def _of_limits(claim: Claim) -> list[str]:
    sentences = []
    if claim.max_states is not None:
        bound = f"there are at most {claim.max_states} different observations"
        sentences.append(f"{bound}; a state is one of them, numbered as it was first seen")
    if claim.max_successors is not None:
        paid = claim.black_box and not claim.random_rewards
        outcomes = "outcomes (next state and reward)" if paid else "next states"
        sentences.append(f"every action in every state has at most {claim.max_successors} different {outcomes}")
    if claim.return_range is not None:
        least, most = claim.return_range
        sentences.append(f"the return of every episode lies in [{least:g}, {most:g}], whatever is played")
    return sentences


def _of_rewards(claim: Claim) -> str:
    known = "state, action and next state" if claim.rewards is None else "state and action"
    if claim.explored is not None:
        (first, last), (least, most) = claim.explored
        sentence = f"the claim is for every reward in [{least:g}, {most:g}] that is a function of step, {known}"
        return f"{sentence}, and for every beta from {first:g} to {last:g}"
    if not claim.black_box:
        return f"rewards are known, a function of {known}"
    low, high = claim.declared_range
    sentence = f"rewards lie in [{low:g}, {high:g}] and are "
    if claim.known_reward:
        ends = f"up to {END_REWARDS} different" if claim.successors == "unknown" else "as many as are declared for it"
        sentence += "a known function of state, action and the next observation; "
        return sentence + f"the end of an episode may have several, {ends}"
    if claim.random_rewards:
        given = known if claim.reward_law == "random" else "state and action, whatever the next state"
        alone = "this beta alone" if not claim.lams else f"{len(claim.lams)} values of lambda declared beforehand"
        return f"{sentence}random, independent from visit to visit, with one law for each {given}; the claim is for {alone}"
    sentence += "determined by state, action and next state, except "
    if claim.successors == "unknown":
        sentence += f"for up to {END_REWARDS} different rewards at the end of an episode"
        sentence += f" and up to {STAY_REWARDS} when the state does not change"
    else:
        sentence += "that a next state which is declared several times may have as many"
    if claim.has_rounded_rewards:
        sentence += f"; those that differ by at most {SAME_REWARD:g} of that range are one, between them"
    return sentence


def _of_discount(claim: Claim) -> str:
    if claim.discount is None:
        return ""
    return (
        f"the return never ends, and a reward counts {claim.discount.gamma!r} times as much with every step; "
        f"{claim.horizon} steps are planned, and what all later ones can add, whatever is done, is part of the bounds"
    )


def _of_start(claim: Claim) -> str:
    if claim.start is None:
        return "the distribution of the first state is estimated from the episodes"
    if claim.start == "fixed":
        return "every episode starts in the same state"
    states = claim.start if isinstance(claim.start, list) else [claim.start]
    names = ", ".join(claim.state_names[s] for s in states)
    return f"every episode starts in {'state' if len(states) == 1 else 'one of the states'} {names}"


def _of_noise(claim: Claim) -> str:
    if claim.noise is None:
        return ""
    sizes = claim.noise.sizes
    law = "one unknown law" if len(sizes) == 1 else f"one of {len(sizes)} unknown laws, declared for each of them,"
    return (
        "the outcome is a known function of state, action and a random label, which is drawn independently at every visit "
        f"from {law} on {' or '.join(map(str, sizes))} labels"
    )


def _of_masks(claim: Claim) -> str:
    if claim.allowed is None:
        return ""
    masks = claim.allowed[:, :-1] if claim.black_box else claim.allowed
    kind = "state and action" if len(masks) == 1 else "step, state and action"
    forbidden = f"{int((~masks).sum()):,} of {masks.size:,} combinations of {kind}"
    if not claim.offered:
        return f"actions are restricted by known masks, which forbid {forbidden}"
    return (
        "actions are restricted by masks that come with the observations, the same at every visit of a state; those seen "
        f"forbid {forbidden}, and where none was seen every action counts as allowed"
    )


def _of_constants(claim: Claim) -> str:
    low, high = claim.reward_range
    on_paper = {
        "plans and tests in batches": claim.provenance.batches,
        "rewards are rescaled to [0, 1]": low < 0 or high > 1,
        "the start is random": claim.random_start,
    }
    parts = ", ".join(part for part, holds in on_paper.items() if holds)
    if claim.constants == "verified" and parts:
        paper = "here the guarantee rests on the proof on paper"
        return f"the machine-checked theorem is about the run without: {parts}; {paper}"
    if claim.constants == "printed":
        return (
            "the bonus is the one that the paper prints, the caps and the stopping rule are corrected; the guarantee rests "
            "on the proof on paper, for at most 12 steps or S <= 16H/(H - 12)"
        )
    return ""


def _of_tests(tests: SimpleNamespace, noise: bool) -> str:
    tested = {
        "that transitions are the same at every step" + " and have the declared laws" * noise: tests.stationary,
        "that transitions do not depend on the previous state": tests.memoryless,
        "that nothing changes over the episodes": tests.unchanging,
    }
    found = ", ".join(f"{what} (log e-value {value:.3g})" for what, value in tested.items() if value is not None)
    sentence = (
        f"the episodes were used to test {found}: no sign of a violation; each test has a false-alarm rate of at most "
        f"{100 * TEST_LEVEL:g} % (alarm at {REJECTED_FROM:.3g})"
    )
    if tests.returns is None:
        return sentence
    return f"{sentence}. Their returns alone show a value of at least {tests.returns:.3g}"
