"""Certificates with cuts: the verifier walks the tree itself, and forged trees are refused."""

import copy
import dataclasses
import itertools
import json
import math

import numpy as np
import pytest
from reference import verifier as reference

import entropic_bpi as eb
from entropic_bpi.verification import _claim
from entropic_bpi.verification._ball import Balls, Rows, closed, extreme_mean, holds_none, intervals_of
from entropic_bpi.verification._kl import KLRecursion

BRIDGE = eb.instances.risky_bridge()
RISKY_AT_S4, GOAL, PIT = 4 * 2 + 1, 6, 7


class Stated:
    def __init__(self, content):
        self._content = lambda: content


@pytest.fixture(scope="module")
def honest():
    goal = {"beta": 2.5, "eps": 0.2, "delta": 0.1, "successors": "model", "stationary": True}
    return eb.identify(BRIDGE, **goal, seed=3).certificate._content()


@pytest.fixture
def content(honest):
    return copy.deepcopy(honest)


def problems(content):
    check = eb.verify(Stated(content))
    assert check.ok == (not check.problems)
    return check.problems


def first_cut(content):
    return content["claim"]["cuts"][0]


def test_the_verifier_and_its_reference_agree(content):
    mine, theirs = eb.verify(Stated(content)), reference.verify(Stated(content))
    assert mine.ok
    assert theirs.ok
    assert mine.gap == pytest.approx(theirs.gap, rel=1e-9)
    assert mine.gap <= content["claim"]["gap"] <= content["problem"]["eps"]


def test_without_its_cuts_the_claim_does_not_follow(content):
    content["claim"] |= {"test": "ratio", "cuts": None}
    assert "gap" in problems(content)[0]
    content["claim"] |= {"test": "boxes"}
    assert "claim.cuts belong to the test 'boxes'" in problems(content)[0]
    content["claim"] |= {"test": "boxes", "cuts": ["ratio"]}
    assert "gap" in problems(content)[0]


@pytest.mark.parametrize("change", ["missing", "twice", "none", "no list"])
def test_the_leaves_must_be_those_of_one_tree(content, change):
    cuts = content["claim"]["cuts"]
    content["claim"]["cuts"] = {"missing": cuts[:-1], "twice": [*cuts, "ratio"], "none": [], "no list": 3}[change]
    assert "claim.cuts" in problems(content)[0]


def test_half_of_the_kernels_may_not_be_left_out(content):
    """A tree that is pruned to one half of its first cut, with the other half called empty."""
    cuts, depth, end = content["claim"]["cuts"], 1, 1
    while depth:
        depth += 1 if isinstance(cuts[end], dict) else -1
        end += 1
    for pruned in ([cuts[0], *cuts[1:end], "empty"], [cuts[0], "empty", *cuts[end:]]):
        content["claim"]["cuts"] = pruned
        assert "is said to hold no kernel, and may hold one" in problems(content)[0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("at", math.nan), ("at", None), ("at", 0.0), ("at", 1.0), ("at", "0.5"), ("at", -1.0),
        ("event", []), ("event", [0]), ("event", [GOAL, PIT]), ("event", [GOAL, GOAL]), ("event", [GOAL, 0]),
        ("event", GOAL), ("event", [1.0]), ("law", 0), ("law", -1), ("law", 10**6), ("law", 0.5),
    ],
)  # fmt: skip
def test_a_cut_must_be_an_event_of_a_law_at_a_probability(content, name, value):
    first_cut(content)[name] = value
    assert problems(content)
    assert not reference.verify(Stated(content)).ok


def test_another_policy_in_the_file_is_another_claim(content):
    """All leaves are about the policy of the file; no leaf can name one of its own."""
    content["policy"] = (1 - np.array(content["policy"])).tolist()
    assert problems(content)
    first_cut(content)["policy"] = content["policy"]
    assert "claim.cuts has an unknown key" in problems(content)[0]


def test_moved_cuts_and_smaller_claims_are_refused(content):
    gap = content["claim"]["gap"]
    content["claim"]["gap"] = gap * (1 - 1e-3)
    assert "gap" in problems(content)[0]
    content["claim"]["gap"] = gap
    first_cut(content)["at"] = 0.999
    assert problems(content)


@pytest.mark.parametrize("beta", [-2.5, 2.5])
@pytest.mark.parametrize("at", [0.01, 0.99])
def test_a_part_beyond_all_laws_does_not_count_whatever_its_leaf_says(beta, at):
    """One side of the cut holds no law of the ball: the ends of its box are crossed, and any bound holds there."""
    goal = {"beta": beta, "eps": 0.5, "delta": 0.1, "successors": "model", "stationary": True}
    content = eb.identify(BRIDGE, **goal, max_episodes=2000, seed=3).certificate._content()
    content["claim"] |= {"test": "boxes", "cuts": [{"law": RISKY_AT_S4, "event": [GOAL], "at": at}, "ratio", "ratio"]}
    mine, theirs = eb.verify(Stated(content)), reference.verify(Stated(content))
    assert mine.ok == theirs.ok
    without = eb.verify(Stated({**content, "claim": content["claim"] | {"test": "ratio", "cuts": None}}))
    assert mine.gap <= without.gap * (1 + 1e-9)
    assert (mine.lower, mine.upper, mine.gap) == pytest.approx((theirs.lower, theirs.upper, theirs.gap), rel=1e-9)


def test_the_rigorous_verifier_says_that_it_does_not_cover_cuts(content):
    pytest.importorskip("flint")
    check = eb.verify(Stated(content), rigorous=True)
    assert not check.proved
    assert check.problems == ["rigorous=True does not cover the gap on parts of the kernels (test 'boxes')"]


def test_cuts_of_a_file_of_another_test_are_refused(content, tmp_path):
    content["claim"] |= {"test": "pairs"}
    assert "claim.cuts belong to the test 'boxes'" in problems(content)[0]
    goal = {"beta": 2.5, "eps": 0.2, "delta": 0.1, "successors": "model", "stationary": True}
    certificate = eb.identify(BRIDGE, **goal, seed=3).certificate
    for cuts, message in ((None, "belong to the test"), ((), "lack 1"), (("ratio", "ratio"), "must be one tree")):
        dataclasses.replace(certificate, cuts=cuts).save(tmp_path / "forged.json")
        with pytest.raises(eb.CertificateError, match=message):
            eb.Certificate.load(tmp_path / "forged.json")
    path = tmp_path / "cut.json"
    certificate.save(path)
    stored = json.loads(path.read_text())
    assert isinstance(stored["claim"]["cuts"][0], dict)


# -- ball and box ----------------------------------------------------------------------------------------------------


@pytest.fixture
def silent():
    """What is not a number falls on the safe side by itself, as in ``verify``."""
    with np.errstate(all="ignore"):
        yield


def a_ball(rng, k, box=None):
    tallies = rng.multinomial(int(rng.choice([5, 50, 500])), rng.dirichlet(np.ones(k))).astype(float)[:, None]
    one = np.ones((k, 1))
    return Balls(np.arange(k)[:, None], tallies, np.array([k]), np.array([rng.uniform(0.001, 0.5)]), one, one, box)


def test_all_leaves_at_once_have_the_gap_of_one_after_another(honest, monkeypatch):
    together, told = eb.verify(Stated(honest)), []
    monkeypatch.setattr(_claim, "_LEAF_OUTCOMES", 1)
    apart = eb.verify(Stated(honest), progress=lambda *parts: told.append(parts))
    assert apart.ok
    assert apart.gap == pytest.approx(together.gap, rel=1e-12)
    leaves = sum(leaf == "ratio" for leaf in honest["claim"]["cuts"])
    assert leaves > 1
    assert told[-1] == (BRIDGE.horizon * (1 + leaves),) * 2


def test_a_leaf_whose_gap_is_not_a_number_makes_the_check_fail(honest, monkeypatch):
    """Whichever leaf it is: max() of Python ignores a NaN that does not come first."""
    gaps, gap_on = [], KLRecursion.gap_on

    def last_ones_are_nan(*arguments):
        gaps.append(gap_on(*arguments) if not gaps else math.nan)
        return gaps[-1]

    monkeypatch.setattr(_claim, "_LEAF_OUTCOMES", 1)
    monkeypatch.setattr(KLRecursion, "gap_on", last_ones_are_nan)
    assert "not finite" in problems(copy.deepcopy(honest))[0]
    assert math.isnan(gaps[-1])


def test_a_single_row_has_no_outcome_that_another_row_filled_it_up_with(silent):
    """A copy without visits would bound the probability of the first outcome by that of something never seen."""
    counts = np.array([50, 10, 10, 10, 20, 1, 1, 1, 1, 1, 1])
    rows = Rows(np.array([5, 6]), np.array([*range(5), *range(6)]), counts, np.array([0.05, 0.05]))
    ball = rows.one(0)
    assert ball.successors[:, 0].tolist() == list(range(5))
    low, high = intervals_of(ball)
    assert np.all(low <= counts[:5] / 100)
    assert np.all(high >= counts[:5] / 100)


def laws_on_a_grid(k, parts):
    return np.array([q for q in itertools.product(range(parts + 1), repeat=k) if sum(q) == parts]) / parts


@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.usefixtures("silent")
def test_no_law_of_ball_and_box_on_a_grid_exceeds_the_bound(k):
    rng, grid = np.random.default_rng(k), laws_on_a_grid(k, {2: 2000, 3: 80, 4: 24}[k])
    checked = 0
    for _ in range(60):
        ball = a_ball(rng, k)
        centre = grid[rng.integers(len(grid))]
        low, high = np.maximum(centre - 0.2 * rng.random(k), 0), np.minimum(centre + 0.2 * rng.random(k), 1)
        p = ball.shares[:, 0]
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(p > 0, p * (np.log(np.where(p > 0, p, 1)) - np.log(grid)), 0.0)
        inside = (terms.sum(axis=1) <= ball.radius[0]) & (grid >= low).all(axis=1) & (grid <= high).all(axis=1)
        if inside.any():
            assert not holds_none(ball, low, high)
        if not inside.any():
            continue
        part = dataclasses.replace(ball, box=np.stack([low, high])[:, :, None])
        f = rng.normal(size=k)
        checked += 1
        for side in (1, -1):
            bound = extreme_mean(part, f[:, None], side)[0]
            assert side * bound >= (side * grid[inside] @ f).max() - 1e-12
            assert side * bound <= side * extreme_mean(ball, f[:, None], side)[0] + 1e-12
    assert checked > 5


@pytest.mark.usefixtures("silent")
def test_ends_that_rounding_has_crossed_do_not_make_a_bound_negative():
    box = np.array([[1e-14, 1.0 - 1e-14], [-1e-14, 1.0]])[:, :, None]
    ball = a_ball(np.random.default_rng(1), 2, box)
    assert extreme_mean(ball, np.array([[1.0], [1e-200]]), 1)[0] > 0.0


@pytest.mark.usefixtures("silent")
def test_a_box_far_from_the_ball_holds_none():
    ball = a_ball(np.random.default_rng(1), 3)
    p = ball.shares[:, 0]
    j = int(np.argmax(p))
    low, high = np.zeros(3), np.ones(3)
    high[j] = 1e-6
    assert holds_none(ball, low, high)
    assert not holds_none(ball, np.zeros(3), np.ones(3))


def test_tables_of_events_are_closed_by_sums():
    table = np.tile([0.0, 1.0], (8, 1))
    table[1], table[2] = (0.2, 0.3), (0.4, 0.5)
    table = closed(table)
    assert table[4] == pytest.approx([0.2, 0.4], abs=1e-12)
    assert table[3] == pytest.approx([0.6, 0.8], abs=1e-12)
