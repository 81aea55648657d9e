"""``verify(rigorous=True)``: what it accepts is proved, without tolerance; its parts against fifty digits."""

import copy
import dataclasses
import math
import sys
from itertools import count, islice

import numpy as np
import pytest
from flint import arb
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from reference import kl as reference
from reference.noisy import walk
from strict import Strict
from test_hypotheses import KINDS, certificates, evar, random_rewards, run
from typer.testing import CliRunner

import entropic_bpi as eb
from entropic_bpi import cli
from entropic_bpi.verification import rigorous
from entropic_bpi.verification._ball import Rows, mixture_radii
from entropic_bpi.verification._file import content_of
from entropic_bpi.verification._intervals import enclosures
from entropic_bpi.verification.rigorous import Balls, balls, prove

NAMES = ("lower", "upper", "gap")


def evar_of_random_rewards(rng):
    env, law = walk(), str(rng.choice(["random", "random-pair"]))
    options = {"horizon": int(rng.integers(1, 3)), "reward_range": env.reward_range, "reward_law": law}
    return run(env, rng, risk=eb.EVaR(float(rng.choice([0.1, 0.5]))), eps=0.3, **options)


def noise(rng):
    """A shop whose demand is unknown; what exceeds the stock is not seen."""
    mdp = eb.FiniteMDP.from_noise(
        range(4), range(3), range(4), rng.dirichlet(np.ones(4)),
        lambda s, a, w: (max(min(s + a, 3) - w, 0), float(min(min(s + a, 3), w)) - 0.5 * a),
        horizon=int(rng.integers(1, 4)), start=0,
    )  # fmt: skip
    return run(mdp, rng, noise="model", stationary=True)


def and_again(kind, rng):
    """A certificate of a run, and more from its counts: at other risks, with other ε and δ, of any policy."""
    claim = kind(rng)
    yield claim
    for _ in range(20):
        options = {"delta": float(rng.choice([0.5, 0.1, 1e-6])), "eps": claim.eps * 10.0 ** rng.uniform(-2, 2)}
        if kind in (evar, evar_of_random_rewards):
            options["risk"] = eb.EVaR(float(rng.uniform(0.3, 0.9)))
        elif kind is random_rewards:
            options["beta"] = claim.beta
        else:
            options["beta"] = float(
                rng.choice([-1, 1, 0], p=[0.45, 0.45, 0.1]) * 10.0 ** rng.uniform(-6, 2) / len(claim.policy)
            )
        policy = rng.integers(claim.problem.n_actions, size=claim.policy.shape) if rng.random() < 0.5 else None
        if policy is not None and claim.problem.allowed is not None:
            policy = claim.problem.replace_forbidden(policy)
        try:
            yield eb.certify(claim, policy=policy, **options)
        except eb.InvalidProblemError as refusal:  # an ε of EVaR may need larger exponents
            if "cannot be certified" not in str(refusal):
                raise


def honest(kind):
    """Honest certificates, except for those whose gap comes from boxes, which are not covered."""
    for seed in count():
        claims = and_again(kind, np.random.default_rng([seed, *kind.__name__.encode(), 1]))
        yield from (claim for claim in claims if claim.test != "boxes")


def check_honest(kind, many):
    """The ordinary verifier never says more than what is proved, and both accept."""
    for claim in islice(honest(kind), many):
        ordinary, proved = eb.verify(claim), eb.verify(claim, rigorous=True)
        assert proved.ok, proved.problems
        assert proved.proved
        room = 1e-9 * (ordinary.upper - ordinary.lower)
        assert ordinary.lower <= proved.lower + room
        assert ordinary.upper >= proved.upper - room
        assert ordinary.gap >= proved.gap - room


@pytest.mark.parametrize("kind", [*KINDS, evar_of_random_rewards, noise])
def test_honest_certificates_are_proved(kind):
    check_honest(kind, 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS, evar_of_random_rewards, noise])
def test_1000_honest_certificates_of_each_kind_are_proved(kind):
    check_honest(kind, 1000)


@pytest.mark.parametrize("kind", [*KINDS, evar_of_random_rewards, noise])
def test_a_claim_that_is_better_by_one_unit_in_the_last_place_is_refused(kind):
    content = content_of(next(certificates(kind)))
    bounds, _ = prove(content)
    content["claim"].update(zip(NAMES, bounds, strict=True))
    assert prove(content) == (bounds, [])
    for name, bound, better in zip(NAMES, bounds, (math.inf, -math.inf, -math.inf), strict=True):
        forged = copy.deepcopy(content)
        forged["claim"][name] = math.nextafter(bound, better)
        again, problems = prove(forged)
        assert again == bounds
        assert [problem.partition(":")[0] for problem in problems] == [name]
        assert repr(bound) in problems[0]


def test_what_the_ordinary_verifier_refuses_is_refused():
    claim = next(certificates(KINDS[0]))
    forged = eb.verify(dataclasses.replace(claim, lower=claim.lower + 1e-6), rigorous=True)
    assert not forged.ok
    assert not forged.proved
    assert "lower" in forged.problems[0]


def test_what_is_not_covered_is_said():
    options = {"beta": -1.0, "eps": 0.3, "delta": 0.1, "max_episodes": 20, "seed": 1}
    claim = eb.identify(eb.instances.risky_bridge(horizon=4), method="bernstein", **options).certificate
    bounds, problems = prove(content_of(claim))
    assert all(map(math.isnan, bounds))
    assert problems == ["rigorous=True does not cover method 'bernstein'"]


def test_what_cannot_be_enclosed_is_not_proved(monkeypatch):
    monkeypatch.setattr(rigorous, "risk_bounds", lambda *_: 1 / 0)
    bounds, problems = prove(content_of(next(certificates(KINDS[0]))))
    assert all(map(math.isnan, bounds))
    assert problems == ["the bounds cannot be enclosed: ZeroDivisionError('division by zero')"]
    assert enclosures.get() is None


def test_a_missing_library_is_named(monkeypatch):
    for name in list(sys.modules):
        if name.startswith(("flint", "entropic_bpi.verification.rigorous")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "flint", None)
    with pytest.raises(eb.InvalidProblemError, match=r"pip install 'entropic-bpi\[rigorous\]'"):
        eb.verify("nothing.json", rigorous=True)


def test_the_command_proves(tmp_path):
    claim = eb.identify(
        eb.instances.risky_bridge(horizon=4), beta=-1.0, eps=0.3, delta=0.1, successors="model", seed=1
    ).certificate
    claim.save(tmp_path / "c.json")
    told = CliRunner().invoke(cli.app, ["verify", str(tmp_path / "c.json"), "--rigorous"])
    assert told.exit_code == 0
    assert "proved up to the assumptions" in told.output


# -- the parts, against fifty digits -----------------------------------------------------------------------------------


def exactly(x):
    return mpf(x.str(60, radius=False))


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.one_of(st.just(0), st.integers(1, 10**8)), st.floats(-3, 3)), min_size=2, max_size=6),
    st.floats(1e-9, 80),
)
@example([(13, -1.0), (19, -0.486), (13, -0.0124), (0, 0.0)], 0.507)  # F is nearly flat for small w
def test_the_largest_mean_over_a_ball_is_enclosed_from_above_and_tight(outcomes, radius):
    counts, f = map(list, zip(*outcomes, strict=True))
    with balls(), np.errstate(all="ignore"):
        rows = Rows(np.array([len(f)]), np.zeros(len(f), dtype=int), np.array(counts), Balls.exact(np.array([radius])))
        bound = Balls.double(rows.extreme_means(Balls.exact(np.array(f)), 1), 1).item()
    exact = reference.ball_max_mpmath(counts, f, radius) if any(counts) else max(f)
    assert mpf(bound) - exact >= -(mpf(10) ** -40)  # the oracle's own precision
    assert bound - float(exact) <= 1e-13 * (1.0 + max(map(abs, f)))


@settings(max_examples=40)
@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=6), st.integers(0, 40))
def test_the_mixture_radius_is_enclosed_from_above(counts, unseen):
    k = max(len(counts) + unseen, 2)
    with balls(), mp.workdps(60):
        sizes, cells = np.array([len(counts)]), np.array([k])
        (radius,) = mixture_radii(np.array(counts), sizes, cells, cells)
        room = exactly(radius) - reference.mixture_radius_mpmath(counts, k)
        assert -(mpf(10) ** -25) <= room <= mpf(10) ** -9


@given(st.floats(1e-300, 1e300), st.floats(0.1, 10))
def test_doubles_are_rounded_outwards(x, y):
    with balls():
        value = arb(x) / arb(y)
        below, above = (Balls.double(value, side).item() for side in (-1, 1))
        assert arb(below) <= value <= arb(above)
        assert above <= math.nextafter(math.nextafter(below, math.inf), math.inf)


@pytest.mark.parametrize(
    "kind",
    [*KINDS[::2], evar_of_random_rewards, noise, *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[1::2])],
)
def test_no_ball_is_rounded_and_no_comparison_is_uncertain(kind, monkeypatch):
    for claim in islice(honest(kind), 1):
        content = content_of(claim)
        bounds = prove(content)
        with monkeypatch.context() as patch:
            patch.setattr(rigorous, "arb", Strict)
            assert prove(content) == bounds
