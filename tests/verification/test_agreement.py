"""The verifier agrees with its reference, which computes one number after another in plain Python."""

import copy
import json
import math
from itertools import islice

import numpy as np
import pytest
from reference import verifier as reference
from verification.test_forgeries import forgery, honest, restated, saved  # noqa: F401  (a fixture)
from verification.test_honest_certificates import KINDS, honest_certificates

import entropic_bpi as eb

# Both round outwards, each in its own order: by how much the bounds may differ. Of the range of the return, of Z at each
# step (a tenth of what the library leaves for it), and of the gap, whose root both search up to this precision.
OF_RANGE, OF_STEP, OF_GAP = 1e-11, 1e-14, 1e-9


class Stated:
    """A certificate that says anything."""

    def __init__(self, content):
        self._content = lambda: content


def room(content, gap):
    """By how much the values, and the gap, of the two may differ; ``gap`` is that of one of them.

    For β > 0 the Bernstein method has gap = -log(1 - G/Z)/β. What rounding changes of G/Z, a share of Z at each step,
    changes this gap 1/(1 - G/Z) = e^{β gap} times as much.
    """
    problem, cells = content["problem"], content["claim"]["cells"]
    ends = (
        (problem["rewards"],) if problem["rewards"] is not None else (problem["slots"][end] for end in ("low", "high"))
    )
    rewards = np.concatenate([np.ravel(table) for table in ends])
    spread = float(np.ptp(rewards)) * problem["horizon"]
    if content["method"] == "bernstein" and rewards.min() >= 0.0 and rewards.max() <= 1.0:
        spread = float(problem["horizon"])  # these rewards are not rescaled, and any from 0 to 1 count as possible
    beta = abs(problem["beta"]) if cells is None else min(cell["lam"] for cell in cells)
    beta = max(beta, 1e-5 / spread) if spread else 1.0
    lost = math.exp(min(beta * gap, 700.0)) if content["method"] == "bernstein" else 1.0
    return OF_RANGE * spread + OF_STEP * (problem["horizon"] + 2) / beta * lost


def disagreement(content):
    """Return what the two say differently of a certificate, None if nothing, and whether the verifier accepts it."""
    mine, theirs = eb.verify(Stated(content)), reference.verify(Stated(content))
    return difference(content, mine, theirs), mine.ok


def difference(content, mine, theirs):
    """Return both verifications of a certificate if they differ, otherwise None.

    Where a claim lies between the bounds of the two, or their verdict is about the last digits of a claim, both are right.
    """
    bounds = [(getattr(mine, name), getattr(theirs, name)) for name in ("lower", "upper", "gap")]
    if math.isnan(mine.gap) or math.isnan(theirs.gap):
        same = not mine.ok and not theirs.ok and math.isnan(mine.gap) == math.isnan(theirs.gap)
        return None if same else (mine, theirs)
    values = room(content, theirs.gap)
    # Where what was seen contradicts a declaration, the bounds of the values may be crossed: the gap is negative then.
    rooms = values, values, values + OF_GAP * abs(theirs.gap)
    if not all(abs(one - other) <= most for (one, other), most in zip(bounds, rooms, strict=True)):
        return mine, theirs
    claimed = [content["claim"][name] for name in ("lower", "upper", "gap")]
    at_the_edge = any(min(pair) <= claim <= max(pair) for claim, pair in zip(claimed, bounds, strict=True))
    return None if mine.ok == theirs.ok or at_the_edge else (mine, theirs)


def understated(content, rng):
    """The same with a claim that is better by a share of its width, from nothing that matters to far too much."""
    content = copy.deepcopy(content)
    name = ("lower", "upper", "gap")[rng.integers(3)]
    claim = content["claim"]
    better = (claim["upper"] - claim["lower"]) * 10.0 ** rng.uniform(-11, 0)
    claim[name] += better if name == "lower" else -better
    claim["reached"] = claim["gap"] <= content["problem"]["eps"]
    return content


def by_pairs(content):
    """The same with the gap by the pair certificate, where that holds; it need not be what is claimed."""
    content = copy.deepcopy(content)
    tests = [content["claim"], *(content["claim"]["cells"] or ())]
    if content["method"] == "kl" and content["problem"]["return_range"] is None:
        for part in tests[1:] or tests:
            part["test"] = "pairs"
    return content


def compared(kind):
    """Yield the certificates of one kind that are compared, with the seed of each: honest, understated, and by pairs."""
    rng = np.random.default_rng(len(kind))
    for seed, claim in honest_certificates(kind):
        content = json.loads(json.dumps(claim._content()))
        yield seed, content
        yield seed, understated(content, rng)
        if (other := by_pairs(content)) != content:
            yield seed, other


def check_kind(kind, many):
    verdicts = {True: 0, False: 0}
    for seed, content in islice(compared(kind), many):
        found, accepted = disagreement(content)
        assert found is None, (seed, found)
        verdicts[accepted] += 1
    assert min(verdicts.values()) > many / 60


@pytest.mark.parametrize("kind", KINDS)
def test_the_verifier_agrees_with_its_reference(kind):
    check_kind(kind, {"discounted": 75, "noise": 39, "known rewards": 24}.get(kind, 15))  # few of these are refused


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_verifier_agrees_with_its_reference_on_75_certificates_of_every_kind(kind):
    check_kind(kind, 75)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_verifier_agrees_with_its_reference_on_1e4_certificates_of_every_kind(kind):
    check_kind(kind, 10_000)


@pytest.mark.parametrize(
    ("seed", "many"),
    [(150, 30), pytest.param(150, 150, marks=pytest.mark.slow), pytest.param(10_000, 10_000, marks=pytest.mark.slow)],
)
def test_the_verifier_agrees_with_its_reference_on_forgeries(seed, many, honest, tmp_path):  # noqa: F811
    rng, bases, accepted = np.random.default_rng(seed), list(honest.values()), 0
    for i in range(many):
        content, done = forgery(bases[i % len(bases)], rng)
        content = restated(json.loads(json.dumps(content)), tmp_path)
        found, ok = disagreement(content)
        assert found is None, (done, found)
        accepted += ok
    assert many / 20 < accepted < many / 2


@pytest.mark.parametrize("verifier", [eb.verify, reference.verify])
def test_a_discount_of_which_the_bernstein_method_knows_nothing_is_refused(verifier):
    """The assumptions are those of a discount, but the bounds of this method are about returns without one."""
    goal = {"beta": 0.5, "eps": 1.0, "delta": 0.1, "stationary": True, "max_episodes": 20, "seed": 0}
    mdp = eb.instances.garnet(2, 2, 2, horizon=2, seed=0)
    content = eb.identify(mdp, method="bernstein", constants="sharp", **goal).certificate._content()
    assert verifier(Stated(content)).ok
    discounted = eb.identify(mdp, discount=0.5, **goal).certificate._content()
    (said,) = (text for text in discounted["assumptions"] if text.startswith("the return never ends"))
    content["problem"]["discount"] = 0.5
    content["assumptions"].insert(-1, said.replace(f"{discounted['problem']['horizon']} steps are", "2 steps are"))
    assert "makes no use of" in verifier(Stated(content)).problems[0]
