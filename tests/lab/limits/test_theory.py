"""The bounds are the theorems' formulas, at any size of their arguments, and stand in the order that they should."""

import contextlib
import functools
import json
import math

import mpmath
import numpy as np
import pytest
from typer.testing import CliRunner

import entropic_bpi as eb
from entropic_bpi import theory
from entropic_bpi.cli import app
from entropic_bpi.model.instances.hard import hard_shape, largest_eps

# (states, actions, horizon): full and other trees, horizons with and without a remainder modulo 3.
SIZES = [(6, 2, 6), (6, 5, 7), (7, 2, 11), (10, 2, 12), (13, 3, 10), (34, 5, 9), (40, 2, 20)]
BETAS = [1e-8, 0.05, 0.5, 1.0, 3.0]
BRIDGE = {"n_states": 8, "n_actions": 2, "horizon": 7, "eps": 0.2, "delta": 0.1, "max_return": 5}
mp = mpmath.mp


def paid_steps(sizes, rounded_up=False):
    shape = hard_shape(*sizes)
    return sizes[2] - (-(-sizes[2] // 3) if rounded_up else sizes[2] // 3) - shape.depth


def choices(sizes, rounded_up=False):
    exits = -(-sizes[2] // 3) if rounded_up else sizes[2] // 3
    return exits * (sizes[0] - hard_shape(*sizes).first_leaf) * sizes[1]


def kl(p, q):
    return p * mp.log(p / q) + (1 - p) * mp.log((1 - p) / (1 - q))


def close(log_value, expected):
    """The logarithm of a positive mpmath number, to 12 digits of the number itself or of its logarithm."""
    expected = float(mp.log(expected))
    return log_value == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.fixture(autouse=True)
def many_digits():
    """Enough for a difference of probabilities of size e^-500 whose relative size is 1e-6."""
    with mp.workdps(320):
        yield


def lower_in_mpmath(sizes, beta, eps, delta, largest, constant):
    s, a, h = sizes
    b, eps, delta = mp.mpf(abs(beta)), mp.mpf(eps), mp.mpf(delta)
    spread = (mp.exp(b * largest) - 1) ** 2 / mp.exp(b * largest)
    rate = mp.exp(2 * min(mp.mpf(beta), 0) * eps) * s * a * h / (mp.exp(b * eps) - 1) ** 2
    return spread * rate * mp.log(1 / delta) / constant


def exact_in_mpmath(sizes, beta, eps, delta, largest, count, half=False):
    """|U| kl(1/|U|, 1-δ)/kl(p-, p+); with ``half`` the variant whose gap is ε at visiting probability 1/2."""
    b, eps, delta = mp.mpf(abs(beta)), mp.mpf(eps), mp.mpf(delta)
    c, q = mp.exp(b * largest) - 1, mp.exp(b * eps)
    step = (q - 1) * (3 * c + 2) / (c * (c + 1))
    low = 1 / (2 * (c + 1))
    if beta < 0:
        low, step = 1 - low, step / (2 * q - 1)
    elif half:
        step = step / (2 - q)
    share = mp.mpf(1) / count
    return count * kl(share, 1 - delta) / kl(low, low + step)


def upper_in_mpmath(sizes, beta, eps, delta, largest):
    s, a, h = (mp.mpf(n) for n in sizes)
    b, eps, delta = mp.mpf(abs(beta)), mp.mpf(eps), mp.mpf(delta)
    spread = (mp.exp(b * largest) - 1) ** 2 / mp.exp(b * largest)
    confidence = mp.log(3 * s * a * h / delta)
    kappa = (mp.exp(b * eps) - 1) * mp.exp(-2 * b * eps) / 2
    c = mp.mpf(10) ** 9 * mp.sqrt(spread * s * a * h) / kappa
    d = mp.mpf(10) ** 10 * mp.exp(b * (h + 1)) * h**2 * s * a / kappa
    c1 = mp.mpf(8) / 5 * mp.log(11 * (8 * mp.e) ** 2 * (confidence + s) * (c + d) ** 2)
    return c**2 * (confidence + 1) * c1**2 + (d + 2 * mp.sqrt(d) * c) * (confidence + s) * c1**2 + 1


def grid():
    """Sizes, both signs, |β|H from 1e-8 to 500, and ε from tiny to the edge of condition A."""
    for sizes in SIZES:
        for strength in [*BETAS, 500 / sizes[2]]:
            for beta in (strength, -strength):
                for fraction in (1e-6, 0.3, 1 - 1e-6):
                    yield sizes, beta, fraction * largest_eps(paid_steps(sizes), beta)


# -- the formulas --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [1e-200, 0.05])
def test_lower_bounds_equal_an_evaluation_with_mpmath(delta):
    for sizes, beta, eps in grid():
        given = {"beta": beta, "eps": eps, "delta": delta, "log": True}
        largest = paid_steps(sizes)
        expected = lower_in_mpmath(sizes, beta, eps, delta, largest, 5000)
        assert close(theory.lower_bound(*sizes, **given), expected), (sizes, beta, eps)
        expected = exact_in_mpmath(sizes, beta, eps, delta, largest, choices(sizes))
        assert close(theory.lower_bound(*sizes, **given, form="exact"), expected), (sizes, beta, eps)


@pytest.mark.parametrize("delta", [1e-200, 0.3])
def test_the_verified_upper_bound_equals_an_evaluation_with_mpmath(delta):
    for sizes, beta, eps in grid():
        for largest in (0.5, sizes[2]):
            given = {"beta": beta, "eps": eps, "delta": delta, "max_return": largest}
            expected = upper_in_mpmath(sizes, beta, eps, delta, largest)
            assert close(theory.upper_bound(*sizes, **given, log=True), expected), (sizes, beta, eps)


def test_the_printed_upper_bound_equals_an_evaluation_with_mpmath():
    for sizes, beta, eps in grid():
        s, a, h = sizes
        eps = min(eps, 2 / (abs(beta) * h * s))
        b, e, delta = mp.mpf(abs(beta)), mp.mpf(eps), mp.mpf(0.1)
        spread = (mp.exp(b * h) - 1) ** 2 / mp.exp(b * h)
        inner = 4 * mp.exp(17) * (s + 1) * (h + 1) * mp.exp(b * h) * s * a * h**2 / (mp.exp(b * e) - 1)
        c2 = 2765 * mp.exp(22) * mp.log(inner)
        rate = mp.exp(2 * max(0, mp.mpf(beta)) * e) / (mp.exp(b * e) - 1) ** 2
        expected = rate * spread * s * a * h * mp.log(3 * s * a * h / delta) * c2**2
        given = {"beta": beta, "eps": eps, "delta": 0.1, "max_return": h}
        assert close(theory.upper_bound(*sizes, **given, form="printed", log=True), expected), (sizes, beta, eps)


def slack_of_k(log_tau, sizes, beta, eps, largest):
    """Left minus right side of (K) in mpmath, δ = 0.1."""
    s, a, h = sizes
    b, tau = mp.mpf(abs(beta)), mp.exp(mp.mpf(log_tau))
    x = (mp.exp(b * largest) - 1) ** 2 / (4 * mp.exp(b * largest))
    confidence = mp.log(3 * s * a * h / mp.mpf(0.1))
    kappa = (1 + mp.mpf(5) / h + mp.mpf(2) / h**2) ** (h - 1)
    top = mp.exp(b * h) - 1 if beta > 0 else mp.exp(b * largest) * (1 - mp.exp(-b * h))
    logs = mp.log(tau + 1)
    slow = 8 * mp.sqrt(2 * x * tau * 16 * s * a * h * (confidence + mp.log(8 * mp.e * tau)) * logs)
    fast = 53 * h * top * 16 * s * a * h * (confidence + s * mp.log(8 * mp.e * tau)) * logs
    return (1 - mp.exp(-b * mp.mpf(eps))) * tau - kappa * (slow + fast)


def test_the_implicit_upper_bound_is_the_largest_root():
    with mp.workdps(60):
        for sizes, beta, eps in grid():
            largest = sizes[2] / 2
            given = {"beta": beta, "eps": eps, "delta": 0.1, "max_return": largest, "form": "implicit"}
            root = theory.upper_bound(*sizes, **given, log=True)
            slack = functools.partial(slack_of_k, sizes=sizes, beta=beta, eps=eps, largest=largest)
            assert slack(root - 1e-9) < 0 < slack(root + 1e-9), (sizes, beta, eps)
            assert all(slack(root * factor) > 0 for factor in (1.01, 1.5, 10))


@pytest.mark.parametrize(("beta", "implicit"), [(2.5, "3.8e+19"), (4.5, "4.7e+25"), (-1.0, "6.2e+14")])
def test_numbers_of_the_bridge(beta, implicit):
    assert f"{theory.upper_bound(**BRIDGE, beta=beta, form='implicit'):.1e}" == implicit


def test_results_beyond_doubles_are_infinite_and_their_logarithm_is_not():
    given = {"beta": 400.0, "eps": 1e-3, "delta": 0.05}
    assert theory.lower_bound(10, 2, 12, **given) == math.inf
    assert 1990 < theory.lower_bound(10, 2, 12, **given, log=True) < 2010
    assert theory.upper_bound(10, 2, 12, **given, max_return=12) == math.inf
    for form in ("verified", "implicit"):
        assert 4800 < theory.upper_bound(10, 2, 12, **given, max_return=12, form=form, log=True) < 9700
    for beta in (1e6, -1e6):  # |β|H = 1.2e7
        eps = 0.05 / abs(beta)
        for form in ("verified", "exact"):
            assert math.isfinite(theory.lower_bound(10, 2, 12, beta=beta, eps=eps, delta=0.05, form=form, log=True))
        assert math.isfinite(
            theory.upper_bound(10, 2, 12, beta=beta, eps=eps, delta=0.05, max_return=12, form="implicit", log=True)
        )


# -- the order -----------------------------------------------------------------------------------------------


def test_the_verified_lower_bound_is_below_the_exact_one():
    for sizes, beta, eps in grid():
        for delta in (1e-10, 1 / 16):
            given = {"beta": beta, "eps": eps, "delta": delta, "log": True}
            assert theory.lower_bound(*sizes, **given) < theory.lower_bound(*sizes, **given, form="exact")


@pytest.mark.parametrize("sign", [1, -1])
def test_the_printed_lower_bound_is_below_the_exact_one_under_the_corrected_condition(sign):
    for sizes in SIZES:
        for strength in [*BETAS, 500 / sizes[2]]:
            beta, largest = sign * strength, paid_steps(sizes, rounded_up=True)
            c = mp.exp(mp.mpf(strength) * largest) - 1
            top = (11 * c + 8) / (10 * c + 8)
            if sign > 0:
                top = min((4 * c**2 + 14 * c + 8) / (2 * c**2 + 13 * c + 8), mp.mpf(16) / 13)
            for fraction in (1e-6, 0.1, 0.5, 0.9, 1.0):
                eps = float(mp.log(1 + fraction * (top - 1)) / mp.mpf(strength)) * (1 - 1e-12)
                for delta in (1e-10, 1 / 16):
                    printed = theory.lower_bound(*sizes, beta=beta, eps=eps, delta=delta, form="printed", log=True)
                    assert close(printed, lower_in_mpmath(sizes, beta, eps, delta, largest, 1650))
                    exact = exact_in_mpmath(sizes, beta, eps, delta, largest, choices(sizes, True), half=True)
                    assert printed < float(mp.log(exact)), (sizes, beta, eps)


def test_the_printed_lower_bound_is_also_below_the_exact_one_of_the_machine_checked_instances():
    compared = 0
    for sizes, beta, eps in grid():
        given = {"beta": beta, "eps": eps, "delta": 0.05}
        with contextlib.suppress(eb.InvalidProblemError):  # outside the corrected condition
            printed = theory.lower_bound(*sizes, **given, form="printed", log=True)
            assert printed < theory.lower_bound(*sizes, **given, form="exact", log=True), (sizes, beta, eps)
            compared += 1
    assert compared > 100


def test_every_lower_bound_is_below_every_proved_upper_bound():
    for sizes, beta, eps in grid():
        given = {"beta": beta, "eps": eps, "delta": 0.05, "log": True}
        lower = theory.lower_bound(*sizes, **given, form="exact")
        for form in ("verified", "implicit"):
            assert lower < theory.upper_bound(*sizes, **given, max_return=paid_steps(sizes), form=form)


# -- the limits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", SIZES)
def test_without_risk_the_bound_has_order_g2_sah_over_eps2(sizes):
    s, a, h = sizes
    largest, eps, delta = paid_steps(sizes), 0.01, 0.05
    limit = largest**2 * s * a * h * math.log(1 / delta) / eps**2
    given = {"eps": eps, "delta": delta}
    assert theory.lower_bound(*sizes, beta=0.0, **given) == pytest.approx(limit / 5000, rel=1e-12)
    for form in ("verified", "exact"):
        at_zero = theory.lower_bound(*sizes, beta=0.0, **given, form=form)
        for beta in (1e-9, -1e-9):
            assert theory.lower_bound(*sizes, beta=beta, **given, form=form) == pytest.approx(at_zero, rel=1e-6)
    up = -(-h // 3) - h // 3
    printed = theory.lower_bound(*sizes, beta=0.0, **given, form="printed")
    assert printed == pytest.approx(limit * ((largest - up) / largest) ** 2 / 1650, rel=1e-12)


def test_the_upper_bound_on_paper_is_continuous_at_zero():
    at_zero = theory.upper_bound(**BRIDGE, beta=0.0, form="implicit")
    for beta in (1e-9, -1e-9):
        assert theory.upper_bound(**BRIDGE, beta=beta, form="implicit") == pytest.approx(at_zero, rel=1e-6)


def test_the_verified_upper_bound_has_no_limit_at_zero():
    logs = [theory.upper_bound(**BRIDGE, beta=beta, log=True) for beta in (1e-3, 1e-5, 1e-7)]
    assert logs[0] < logs[1] < logs[2]
    with pytest.raises(eb.InvalidProblemError, match="form='verified' needs beta != 0"):
        theory.upper_bound(**BRIDGE, beta=0.0)


@pytest.mark.parametrize("form", ["verified", "exact", "printed"])
@pytest.mark.parametrize("beta", [0.0, 0.5, -0.5, 40.0, -40.0])
def test_small_eps(form, beta):
    sizes = (10, 2, 12)
    limit = theory.small_eps_limit(*sizes, beta=beta, delta=0.05, form=form, log=True)
    eps = 1e-9
    bound = theory.lower_bound(*sizes, beta=beta, eps=eps, delta=0.05, form=form, log=True)
    assert bound + 2 * math.log(eps) == pytest.approx(limit, abs=1e-6)


# -- the hypotheses ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [0.01, -0.01, 1.0, -1.0, 30.0, -30.0])
def test_condition_a_ends_where_the_instances_end(beta):
    for sizes in SIZES:
        edge = largest_eps(paid_steps(sizes), beta)
        assert theory.condition_a(*sizes, beta=beta, eps=edge)
        assert not theory.condition_a(*sizes, beta=beta, eps=edge * 1.001)
        with pytest.raises(eb.InvalidProblemError, match="outside condition A"):
            theory.lower_bound(*sizes, beta=beta, eps=edge * 1.001, delta=0.05)


@pytest.mark.parametrize("strength", [0.01, 0.3, 1.0, 5.0])
def test_the_corrected_condition_of_the_printed_bound(strength):
    sizes = (10, 2, 11)
    c = math.expm1(strength * paid_steps(sizes, rounded_up=True))
    tops = {
        strength: min((4 * c * c + 14 * c + 8) / (2 * c * c + 13 * c + 8), 16 / 13),
        -strength: min((11 * c + 8) / (10 * c + 8), 1.1),
    }
    for beta, top in tops.items():
        edge, given = math.log(top) / strength, {"beta": beta, "delta": 0.05, "form": "printed"}
        assert theory.lower_bound(*sizes, **given, eps=edge * (1 - 1e-9)) > 0
        with pytest.raises(eb.InvalidProblemError, match="outside condition A"):
            theory.lower_bound(*sizes, **given, eps=edge * (1 + 1e-9))


def test_a_smaller_largest_return_means_a_smaller_bound():
    sizes, given = (10, 2, 12), {"beta": 1.0, "eps": 0.01, "delta": 0.05}
    for form in ("verified", "exact"):
        bounds = [theory.lower_bound(*sizes, **given, max_return=g, form=form) for g in (1.0, 2.5, 5.0)]
        assert bounds == sorted(bounds)
        assert bounds[-1] == theory.lower_bound(*sizes, **given, form=form)
    expected = float(exact_in_mpmath(sizes, 1.0, 0.01, 0.05, 2.5, choices(sizes)))
    assert theory.lower_bound(*sizes, **given, max_return=2.5, form="exact") == pytest.approx(expected, rel=1e-11)


def test_a_vacuous_test_gives_a_vacuous_bound():
    assert theory.lower_bound(6, 2, 6, beta=1.0, eps=0.1, delta=0.95, form="exact") == 0.0


LOWER = {"n_states": 10, "n_actions": 2, "horizon": 12, "beta": 1.0, "eps": 0.1, "delta": 0.05}
UPPER = {**LOWER, "max_return": 6}


@pytest.mark.parametrize(
    ("function", "change", "message"),
    [
        (theory.lower_bound, {"n_states": 5}, "n_states must be at least 6"),
        (theory.lower_bound, {"horizon": 8}, "horizon must be at least 3 d = 9"),
        (theory.lower_bound, {"delta": 0.1}, "delta must be at most 1/16 for form='verified', got 0.1"),
        (theory.lower_bound, {"delta": 0.0}, "delta must lie strictly between 0 and 1"),
        (theory.lower_bound, {"eps": 0.0}, "eps must be greater than 0"),
        (theory.lower_bound, {"eps": 4.0}, r"eps=4 is outside condition A: .* at most 3\.\d+"),
        (theory.lower_bound, {"beta": math.nan}, "beta must be a finite real number"),
        (theory.lower_bound, {"max_return": 6}, "max_return must be at most 5"),
        (theory.lower_bound, {"form": "upper"}, "form must be one of verified, exact, printed; got 'upper'"),
        (theory.lower_bound, {"form": "printed", "eps": 0.3}, "outside condition A"),
        (theory.upper_bound, {"max_return": 13}, "max_return must be at most 12, the horizon"),
        (theory.upper_bound, {"max_return": 0}, "max_return must be greater than 0"),
        (theory.upper_bound, {"n_states": 0}, "n_states must be at least 1"),
        (theory.upper_bound, {"form": "exact"}, "form must be one of verified, implicit, printed"),
        (theory.upper_bound, {"form": "printed"}, r"eps <= 2/\(\|beta\| H S\) = 0.0166667, got 0.1"),
        (theory.upper_bound, {"form": "printed", "beta": 0.0}, "form='printed' needs beta != 0"),
    ],
)
def test_outside_the_hypotheses_there_is_no_number(function, change, message):
    given = LOWER if function is theory.lower_bound else UPPER
    with pytest.raises(eb.InvalidProblemError, match=message):
        function(**{**given, **change})


# -- measured ------------------------------------------------------------------------------------------------

METHODS = {
    "kl": {"method": "kl"},
    "kl, optimistic": {"method": "kl", "sampling": "optimistic"},
    "kl, known successors": {"method": "kl", "successors": "model"},
    "sharp": {"method": "bernstein", "constants": "sharp", "replan": 0.1},
    "verified": {"method": "bernstein", "constants": "verified", "replan": 0.1},
}


def check_stopping_times(method, beta, delta, seeds):
    """Mean stopping time on the hard instance M_0, between the exact lower and the implicit upper bound."""
    sizes = (6, 2, 6)
    eps = 0.5 * largest_eps(paid_steps(sizes), beta)
    mdp = eb.instances.hard_instance(*sizes, beta=beta, eps=eps)
    runs = [eb.identify(mdp, beta=beta, eps=eps, delta=delta, seed=seed, **METHODS[method]) for seed in seeds]
    assert all(run.stopped for run in runs)
    mean = np.mean([run.episodes for run in runs])
    given = {"beta": beta, "eps": eps, "delta": delta}
    lower = theory.lower_bound(*sizes, **given, form="exact")
    upper = theory.upper_bound(*sizes, **given, max_return=eb.max_return(mdp), form="implicit")
    assert lower < mean < upper
    if METHODS[method].get("constants") == "verified":
        assert mean < theory.upper_bound(*sizes, **given, max_return=eb.max_return(mdp))


@pytest.mark.parametrize("beta", [1.0, -1.0])
@pytest.mark.parametrize("method", METHODS)
def test_stopping_times_on_a_hard_instance_lie_between_the_bounds(method, beta):
    check_stopping_times(method, beta, delta=0.05, seeds=range(2))


@pytest.mark.slow
@pytest.mark.parametrize("beta", [2.0, 0.3, -0.3, -2.0])
@pytest.mark.parametrize("method", METHODS)
def test_stopping_times_lie_between_the_bounds_over_many_seeds(method, beta):
    check_stopping_times(method, beta, delta=0.01, seeds=range(20))


# -- the command ---------------------------------------------------------------------------------------------


@pytest.fixture
def command():
    def call(*more, **change):
        given = {"states": 10, "actions": 2, "horizon": 12, "beta": -1.0, "eps": 0.05, "delta": 0.05, **change}
        words = [word for name, value in given.items() for word in (f"--{name}", str(value))]
        return CliRunner().invoke(app, ["bounds", *words, *more])

    return call


def test_the_command_prints_every_bound_as_json(command):
    outcome = command("--json", "--max-return", "6")
    answer = json.loads(outcome.stdout)
    assert answer["beta"] == -1.0
    rows = {(row["side"], row["form"]): row for row in answer["bounds"]}
    sizes = {"n_states": 10, "n_actions": 2, "horizon": 12, "eps": 0.05, "delta": 0.05}
    for form in ("verified", "exact", "printed"):
        row = rows["lower", form]
        assert row["episodes"] == pytest.approx(theory.lower_bound(**sizes, beta=-1.0, form=form))
        assert row["beta_to_0"] == pytest.approx(theory.lower_bound(**sizes, beta=0.0, form=form))
    for form in ("verified", "implicit"):
        expected = theory.upper_bound(**sizes, beta=-1.0, max_return=6, form=form)
        assert rows["upper", form]["episodes"] == pytest.approx(expected)
    assert "supposes eps" in rows["upper", "printed"]["outside"]
    assert rows["upper", "printed"]["episodes"] is None


def test_the_command_prints_a_table_with_numbers_of_any_size(command):
    shown = command(beta=-1.0).stdout
    assert "7.25e+03" in shown
    assert "machine-checked" in shown
    huge = command(beta=1000.0, eps=1e-4).stdout
    assert "e+2173" in huge


def test_the_command_refuses_what_no_bound_covers(command):
    outcome = command(delta=2.0)
    assert outcome.exit_code == 2
    assert "delta must lie strictly between 0 and 1" in outcome.stderr
