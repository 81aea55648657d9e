"""The library and the verifier, which share no code, accept the same numbers."""

import math

import numpy as np
import pytest
from reference.noisy import bandit

import entropic_bpi as eb
from entropic_bpi.problem import problem
from entropic_bpi.tools import checks as _checks
from entropic_bpi.verification import _file, _intervals
from entropic_bpi.verification import _problem as stated

RUN = {"eps": 0.1, "delta": 0.1, "max_episodes": 10, "seed": 0}
KERNEL = np.random.default_rng(0).dirichlet(np.ones(2), size=(2, 2))


def test_the_limits_are_the_same():
    assert _checks.LARGEST_REAL == _file._LARGEST_NUMBER
    assert _checks.LARGEST_COUNT == _file._LARGEST_INTEGER
    assert _checks.LARGEST_REACH == _intervals.LARGEST_EXPONENT
    assert problem.LARGEST_RETURN == stated._LARGEST_RETURN
    assert problem.SMALLEST_RANGE == stated._SMALLEST_RANGE


def of_model(size=1.0, beta=None, **options):
    """A certificate of rewards of a given size, at a β that is neither small nor large for them."""
    mdp = eb.FiniteMDP(KERNEL, size * np.array([[0.0, 1.0], [1.0, -1.0]]), horizon=2)
    risk = {} if "risk" in options else {"beta": 1 / size if beta is None else beta}
    return eb.identify(mdp, **risk, **{**RUN, **options}).certificate


def of_environment(low, high, **options):
    env = bandit()
    env.values = np.array([low, high])
    return eb.identify(
        env, beta=0.0, horizon=1, reward_range=(low, high), reward_law="random", **{**RUN, **options}
    ).certificate


# A function of one number, the last number that is accepted, and what is said of the next one.
EDGES = {
    "eps": (lambda x: of_model(eps=x), 1e300, "eps must be at most 1e\\+300"),
    "eps of EVaR": (lambda x: of_model(risk=eb.EVaR(0.1), eps=x), 1e300, "eps must be at most 1e\\+300"),
    "beta": (lambda x: of_model(0.0, beta=-x), 1e300, "beta must be at most 1e\\+300"),
    "max_successors": (
        lambda x: of_model(max_successors=int(x)),
        2**53,
        "max_successors must be at most 9007199254740992",
    ),
    "large rewards": (lambda x: of_model(x, eps=1e149), 5e149, "leave the range of doubles"),
    "large rewards of EVaR": (lambda x: of_model(x, risk=eb.EVaR(0.1), eps=1e149), 5e149, "leave the range of doubles"),
    "large rewards of Bernstein": (lambda x: of_model(x, method="bernstein"), 5e149, "leave the range of doubles"),
    "large rewards of an environment": (lambda x: of_environment(-x, 0.0), 1e150, "leave the range of doubles"),
    "small rewards": (lambda x: of_model(1 / x, eps=1e-151), 2e150, "leave the range of doubles"),
    "small rewards of an environment": (lambda x: of_environment(0.0, 1 / x), 1e150, "leave the range of doubles"),
    "returns": (
        lambda x: of_environment(0.0, 1.0, return_range=(-x, 1.0)),
        1e150,
        "return_range must be at most 1e\\+150",
    ),
}


@pytest.mark.parametrize("what", EDGES)
def test_what_the_library_accepts_is_verified_and_the_rest_is_refused_at_once(what, tmp_path):
    certificate_of, last, words = EDGES[what]
    certificate = certificate_of(last)
    assert eb.verify(certificate).ok
    certificate.save(tmp_path / "c.json")
    assert eb.Certificate.load(tmp_path / "c.json")._content() == certificate._content()
    following = last + 1 if isinstance(last, int) else math.nextafter(last, math.inf) * (1 + 1e-15)
    with pytest.raises(eb.InvalidProblemError, match=words):
        certificate_of(following)


def test_certify_has_the_limits_of_a_run():
    certificate = of_model()
    for goal, name in (({"beta": 1.0, "eps": 1.7e308}, "eps"), ({"beta": 1e301}, "beta")):
        with pytest.raises(eb.InvalidProblemError, match=f"{name} must be at most"):
            eb.certify(certificate, **goal)


@pytest.mark.parametrize("change", [{"eps": 1.1e300}, {"max_successors": 2**53 + 1}])
def test_the_verifier_refuses_what_lies_beyond(change):
    content = of_model()._content()
    content["problem"].update(change)
    assert "must be" in eb.verify(_Stated(content)).problems[0]


def test_the_verifier_refuses_rewards_that_lie_beyond():
    for size in (5.1e149, 4e-151):
        content = of_model()._content()
        content["problem"]["rewards"] = [[[0.0, size], [size, -size]]]
        assert "leave the range of doubles" in eb.verify(_Stated(content)).problems[0]


class _Stated:
    """A certificate that says anything."""

    def __init__(self, content):
        self._content = lambda: content
