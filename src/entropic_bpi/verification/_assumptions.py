"""What a claim rests on, in words: the file must say what its content implies, and nothing less."""

from __future__ import annotations

from entropic_bpi.verification._claim import REJECTED_FROM, SAME_REWARD, TEST_LEVEL, Claim
from entropic_bpi.verification._file import Rejected
from entropic_bpi.verification._problem import END_REWARDS, STAY_REWARDS


def check_assumptions(claim: Claim) -> None:
    expected = _assumptions(claim)
    if claim.assumptions != expected:
        raise Rejected(f"the assumptions are not those of such a claim, which are: {expected!r}")


def _assumptions(claim: Claim) -> list[str]:
    """The words that every certificate of such a problem has."""
    low, high = claim.reward_range
    sentences = [
        *_origin(claim),
        f"transitions {'are the same at every' if claim.stationary else 'may differ from step to'} step",
        *{
            "unknown": ["any state may follow any state and action"],
            "model": ["the possible next states are those of the model (their probabilities are not used)"],
            "mask": ["the possible next states are those of the declared mask"],
            "noise": [],
        }[claim.successors],
        *_of_states(claim),
        *_limits(claim),
        _of_rewards(claim),
        *_of_discount(claim),
        _of_start(claim),
        *_of_noise(claim),
        *_of_masks(claim),
    ]
    if claim.ignored:
        sentences.append(f"constants='{claim.constants}' ignores {' and '.join(claim.ignored)}")
    on_paper = {
        "plans and tests in batches": claim.batches,
        "rewards are rescaled to [0, 1]": low < 0 or high > 1,
        "the start is random": claim.random_start,
    }
    if claim.constants == "verified" and any(on_paper.values()):
        parts = ", ".join(part for part, holds in on_paper.items() if holds)
        sentences.append(
            f"the machine-checked theorem is about the run without: {parts}; here the guarantee rests on the proof on "
            "paper"
        )
    if claim.constants == "printed":
        sentences.append(
            "the bonus is the one that the paper prints, the caps and the stopping rule are corrected; the guarantee rests "
            "on the proof on paper, for at most 12 steps or S <= 16H/(H - 12)"
        )
    if claim.accepted:
        names = ", ".join(claim.accepted)
        sentences.append(f"declarations accepted all at once, not confirmed one by one: {names}")
    if claim.other_rewards is not None:
        sentences.append(f"the rewards are {claim.other_rewards}; the episodes were collected for other rewards")
    if claim.errors:
        often = "once" if claim.errors == 1 else f"{claim.errors} times"
        sentences.append(
            f"the environment raised an error {often} and the run went on: episodes may have been lost, but not "
            "because of what happened in them"
        )
    if claim.tests is not None:
        sentences.append(_tested(claim.tests, claim.noise is not None))
    return sentences


def _of_start(claim: Claim) -> str:
    if claim.start is None:
        return "the distribution of the first state is estimated from the episodes"
    if isinstance(claim.start, str):
        return "every episode starts in the same state"
    if isinstance(claim.start, int):
        return f"every episode starts in state {claim.state_names[claim.start]}"
    names = ", ".join(claim.state_names[s] for s in claim.start)
    return f"every episode starts in {'state' if len(claim.start) == 1 else 'one of the states'} {names}"


def _of_masks(claim: Claim) -> list[str]:
    if claim.allowed is None:
        return []
    masks = claim.allowed[:, :-1] if claim.black_box else claim.allowed
    places = "state and action" if len(masks) == 1 else "step, state and action"
    forbidden = f"{int((~masks).sum()):,} of {masks.size:,} combinations of {places}"
    if not claim.offered:
        return [f"actions are restricted by known masks, which forbid {forbidden}"]
    return [
        "actions are restricted by masks that come with the observations, the same at every visit of a state; those seen "
        f"forbid {forbidden}, and where none was seen every action counts as allowed"
    ]


def _of_noise(claim: Claim) -> list[str]:
    if claim.noise is None:
        return []
    sizes = claim.noise.sizes
    law = "one unknown law" if len(sizes) == 1 else f"one of {len(sizes)} unknown laws, declared for each of them,"
    return [
        "the outcome is a known function of state, action and a random label, which is drawn independently at every visit "
        f"from {law} on {' or '.join(map(str, sizes))} labels"
    ]


def _of_states(claim: Claim) -> list[str]:
    if claim.max_states is None:
        return []
    bound = f"there are at most {claim.max_states} different observations"
    return [f"{bound}; a state is one of them, numbered as it was first seen"]


def _tested(tests: dict[str, float], noise: bool) -> str:
    tested = {
        "stationary": "that transitions are the same at every step" + (" and have the declared laws" if noise else ""),
        "memoryless": "that transitions do not depend on the previous state",
        "unchanging": "that nothing changes over the episodes",
    }
    found = ", ".join(f"{tested[name]} (log e-value {tests[name]:.3g})" for name in tested if name in tests)
    sentence = (
        f"the episodes were used to test {found}: no sign of a violation; each test has a false-alarm rate of at most "
        f"{100 * TEST_LEVEL:g} % (alarm at {REJECTED_FROM:.3g})"
    )
    if "returns" in tests:
        sentence += f". Their returns alone show a value of at least {tests['returns']:.3g}"
    return sentence


def _origin(claim: Claim) -> list[str]:
    """Where the episodes come from."""
    if claim.log is None:
        others = "no other was discarded" if claim.errors else "none was discarded"
        return ["episodes are independent runs of one finite Markov decision process, and " + others]
    closed = claim.max_states is not None or claim.log.seen  # by another sentence
    sentences = [
        "episodes are a log of one finite Markov decision process: every decision depended on the past alone, and nothing "
        "is missing because of what it led to",
        f"there are no other {'actions' if closed else 'states and actions'} than those that are named",
    ]
    if claim.log.seen:
        sentences.append("the user declares that the states of the log are all there are")
    if claim.log.unused > 0:
        sentences.append(
            f"episodes that did not end were cut after {claim.log.longest} steps, whatever happened; that step is not used, "
            "because the log does not tell where it led"
        )
    if claim.log.excluded is not None:
        sentences.append(f"left out on request, and not because of what happened in them: {claim.log.excluded}")
    return sentences


def _of_rewards(claim: Claim) -> str:
    if claim.explored is not None:
        (first, last), (least, most) = claim.explored
        of = "state, action and next state" if claim.rewards is None else "state and action"
        return (
            f"the claim is for every reward in [{least:g}, {most:g}] that is a function of step, {of}, and for every beta "
            f"from {first:g} to {last:g}"
        )
    if not claim.black_box:
        known = "state, action and next state" if claim.rewards is None else "state and action"
        return f"rewards are known, a function of {known}"
    low, high = claim.declared_range
    if claim.known_reward:
        ends = f"up to {END_REWARDS} different" if claim.successors == "unknown" else "as many as are declared for it"
        return (
            f"rewards lie in [{low:g}, {high:g}] and are a known function of state, action and the next observation; the "
            f"end of an episode may have several, {ends}"
        )
    sentence = f"rewards lie in [{low:g}, {high:g}] and are "
    if claim.random_rewards:
        given = {
            "random": "state, action and next state",
            "random-pair": "state and action, whatever the next state",
        }[claim.reward_law]
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


def _of_discount(claim: Claim) -> list[str]:
    if claim.discount is None:
        return []
    return [
        f"the return never ends, and a reward counts {claim.discount.gamma!r} times as much with every step; "
        f"{claim.horizon} steps are planned, and what all later ones can add, whatever is done, is part of the bounds"
    ]


def _limits(claim: Claim) -> list[str]:
    sentences = []
    if claim.max_successors is not None:
        paid = claim.black_box and not claim.random_rewards
        outcomes = "outcomes (next state and reward)" if paid else "next states"
        sentences.append(f"every action in every state has at most {claim.max_successors} different {outcomes}")
    if claim.return_range is not None:
        least, most = claim.return_range
        sentences.append(f"the return of every episode lies in [{least:g}, {most:g}], whatever is played")
    return sentences
