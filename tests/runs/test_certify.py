"""Certificates for other risk levels from data that was collected already."""

import dataclasses

import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi.errors import CertificateError, InvalidProblemError
from entropic_bpi.methods.kl.method import KL
from entropic_bpi.problem.counts import Counts

BETAS = np.concatenate([np.arange(-6, 6.01, 0.5), [1e-300, -1e-12, 1e-6, 0.0]])


def random_start_model():
    rng = np.random.default_rng(0)
    kernel, rewards = rng.dirichlet(np.full(3, 0.5), (3, 2)), rng.random((3, 2, 3))
    return eb.FiniteMDP(kernel, rewards, horizon=3, start=[0.2, 0.5, 0.3])


def small_run(mdp, **options):
    given = {"beta": 1.0, "eps": 0.3, "delta": 0.1, "seed": 0, "max_episodes": 2000, **options}
    return eb.identify(mdp, **given)


@pytest.fixture(scope="module")
def bridge_run():
    bridge = eb.instances.risky_bridge()
    return bridge, small_run(bridge, successors="model", stationary=True)


def assert_true(mdp, certificate):
    """The claim against the exact values; whatever may be said with probability 1 - δ is checked as said."""
    beta = certificate.beta
    best, mine = eb.solve(mdp, beta).value, eb.evaluate(mdp, certificate.policy, beta).value
    assert certificate.lower <= mine + 1e-9
    assert best <= certificate.upper + 1e-9
    assert best - mine <= certificate.gap + 1e-9


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3, 4))])
def test_all_risk_levels_hold_at_once(seed):
    for mdp in (eb.instances.risky_bridge(), random_start_model()):
        run = small_run(mdp, successors="model", stationary=True, seed=seed)
        for beta in BETAS:
            assert_true(mdp, eb.certify(run, beta=beta))


@pytest.mark.slow
def test_all_risk_levels_hold_at_once_as_often_as_promised():
    """A run fails when any of its certificates does; δ is large so that failures could be seen."""
    mdp, delta, failed, runs = random_start_model(), 0.5, 0, 400
    for seed in range(runs):
        run = small_run(mdp, stationary=True, seed=seed, delta=delta, max_episodes=100)
        try:
            for beta in BETAS[::3]:
                assert_true(mdp, eb.certify(run, beta=beta))
        except AssertionError:
            failed += 1
    assert failed <= delta * runs


def test_the_bounds_grow_with_beta(bridge_run):
    """V_β grows with β, and so does what is certified of it, up to the solver's tolerance."""
    certificates = [eb.certify(bridge_run[1], beta=beta) for beta in np.arange(-5, 5.1, 0.5)]
    upper = np.array([c.upper for c in certificates])
    assert (np.diff(upper) >= -1e-3).all()


def test_run_certificate_and_counts_say_the_same(bridge_run):
    run = bridge_run[1]
    counts = Counts(run.certificate.problem)
    counts.add(run.certificate.transitions, run.certificate.episodes)
    for beta in (-2.0, 0.0, 0.7):
        claims = [eb.certify(source, beta=beta) for source in (run, run.certificate, counts, run.certificate.counts)]
        for claim in claims[1:]:
            assert (claim.lower, claim.upper, claim.gap) == (claims[0].lower, claims[0].upper, claims[0].gap)
            np.testing.assert_array_equal(claim.policy, claims[0].policy)


def test_a_certificate_can_be_certified_again(bridge_run):
    run = bridge_run[1]
    direct, twice = eb.certify(run, beta=-1.5), eb.certify(eb.certify(run, beta=3.0), beta=-1.5)
    assert (direct.lower, direct.upper, direct.gap) == (twice.lower, twice.upper, twice.gap)


def test_the_same_beta_gives_the_claim_of_the_run(bridge_run):
    run = bridge_run[1]
    again = eb.certify(run, beta=1.0)
    assert again.lower == pytest.approx(run.certificate.lower, abs=1e-9)
    assert again.upper == pytest.approx(run.certificate.upper, abs=1e-9)


def test_a_smaller_delta_widens_the_claim(bridge_run):
    loose, strict = (eb.certify(bridge_run[1], beta=1.0, delta=delta) for delta in (0.1, 0.001))
    assert strict.lower < loose.lower
    assert strict.upper > loose.upper


def test_eps_decides_only_whether_it_is_reached(bridge_run):
    coarse, fine = (eb.certify(bridge_run[1], beta=1.0, eps=eps) for eps in (5.0, 1e-9))
    assert coarse.reached
    assert not fine.reached
    assert (coarse.lower, coarse.upper) == (fine.lower, fine.upper) or coarse.gap >= fine.gap


def test_the_claim_follows_from_the_counts_alone(bridge_run):
    certificate = bridge_run[1].certificate
    counts = Counts.of(certificate.problem, certificate.transitions, certificate.episodes)
    claim = KL(dataclasses.replace(certificate.problem)).bounds_of(counts, certificate.policy)
    assert claim == (certificate.lower, certificate.upper, certificate.gap, certificate.test, None, None)


@pytest.mark.parametrize("successors", [None, "model", "mask"])
@pytest.mark.parametrize("stationary", [False, True])
def test_saved_and_loaded_certificates_are_equal_to_the_last_digit(tmp_path, successors, stationary):
    mdp = random_start_model()
    if successors == "mask":
        successors = np.ones((3, 2, 3), dtype=bool)
    original = small_run(mdp, successors=successors, stationary=stationary, max_episodes=50).certificate
    original.save(tmp_path / "claim.json")
    loaded = eb.Certificate.load(tmp_path / "claim.json")
    for field in dataclasses.fields(original):
        if field.name not in ("problem", "transitions", "provenance", "cuts"):
            np.testing.assert_array_equal(getattr(loaded, field.name), getattr(original, field.name))
    assert (loaded.provenance, loaded.cuts) == (original.provenance, original.cuts)
    for field in dataclasses.fields(original.problem):
        mine, theirs = getattr(original.problem, field.name), getattr(loaded.problem, field.name)
        if field.name == "slots":
            for a, b in zip(mine, theirs, strict=True):
                np.testing.assert_array_equal(a, b)
                assert a.dtype == b.dtype
                assert a.shape == b.shape
        else:
            np.testing.assert_array_equal(mine, theirs)
    for a, b in zip(original.transitions, loaded.transitions, strict=True):
        np.testing.assert_array_equal(a, b)
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "claim.json").read_bytes()
    for beta in (-1.0, 2.0):
        a, b = eb.certify(original, beta=beta), eb.certify(loaded, beta=beta)
        assert (a.lower, a.upper, a.gap) == (b.lower, b.upper, b.gap)


def test_a_changed_file_is_refused(tmp_path, bridge_run):
    path = tmp_path / "claim.json"
    bridge_run[1].certificate.save(path)
    text = path.read_text()
    path.write_text(text.replace('"beta": 1.0', '"beta": 1.5'))
    with pytest.raises(CertificateError, match="digest"):
        eb.Certificate.load(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beta": np.nan}, "beta"),
        ({"beta": np.inf}, "beta"),
        ({"beta": 1.0, "eps": 0.0}, "eps"),
        ({"beta": 1.0, "delta": 1.0}, "delta"),
        ({"beta": 1e5}, "exceeds 600"),
    ],
)
def test_bad_input_is_named(bridge_run, options, message):
    with pytest.raises(InvalidProblemError, match=message):
        eb.certify(bridge_run[1], **options)


def test_something_else_cannot_be_certified():
    with pytest.raises(InvalidProblemError, match="got dict"):
        eb.certify({}, beta=1.0)
