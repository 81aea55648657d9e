"""The figures about tightness: the bounds are those of the theory, and an ablated run is never called a certificate."""

from functools import cache
from unittest import mock

import numpy as np
import pytest

from entropic_bpi import theory
from entropic_bpi.lab.experiments.figures import FIGURES, tightness
from entropic_bpi.lab.experiments.figures._figure import FULL, QUICK
from entropic_bpi.lab.experiments.store import Results

SIZES = (6, 2, 6)


@pytest.fixture(scope="module", autouse=True)
def bounds_once():
    """The bounds of a point take seconds, and two tests show the same points."""
    with mock.patch.object(tightness, "_bounds", cache(tightness._bounds)):
        yield


def made_up(specs, episodes):
    """Results of a sweep that nobody ran."""
    runs = {
        "spec": [spec.as_json for spec in specs],
        "episodes": [episodes(spec) for spec in specs],
        "stopped": [True] * len(specs),
        "seed": [spec.seed for spec in specs],
    }
    return Results({name: np.array(values) for name, values in runs.items()}, {})


def test_the_lower_bound_applies_at_every_point_of_the_hard_instance():
    points = [point for point in tightness._settings(quick=False) if point[0] == tightness.HARD]
    assert len(points) == len({(beta, eps) for _, beta, eps in points}) == 14
    assert all(theory.condition_a(*SIZES, beta=beta, eps=eps) for _, beta, eps in points)


def test_no_rule_that_pools_steps_is_held_against_a_bound_for_kernels_by_step():
    for name in ("tight", "factors"):
        assert not any(spec.options.get("stationary") for spec in FIGURES[name].sweep(FULL))


@pytest.mark.slow
@pytest.mark.sample
def test_measured_times_stand_beside_the_bounds_of_the_theory():
    wanted = {(1, 0.04), (1, 0.1)}
    chosen = [spec for spec in FIGURES["tight"].sweep(QUICK) if (spec.beta, spec.options["eps"]) in wanted]
    results = made_up(chosen, lambda spec: 10**6 + spec.seed)
    table = FIGURES["tight"].table(results)
    assert {(row["model"], row["rule"]) for row in table} == {
        (name, rule) for name in (tightness.HARD, tightness.BRIDGE) for rule in tightness.SHOWN
    }
    for row in table:
        assert row["mean"] == 10**6 + 1
        assert row["times_lower"] == pytest.approx(row["mean"] / row["lower"])
    hard = next(row for row in table if row["model"] == tightness.HARD)
    demands = {"beta": 1.0, "eps": 0.04, "delta": 0.05}
    assert hard["lower"] == theory.lower_bound(*SIZES, **demands, form="exact")
    assert hard["upper"] == theory.upper_bound(*SIZES, **demands, max_return=2.0, form="implicit")
    bridge = next(row for row in table if row["model"] == tightness.BRIDGE)
    assert 100 < bridge["lower"] < 10_000
    told = FIGURES["tight"].describe(table)
    assert "8 of 8 means are above the lower bound, and 2 of the 2 of that rule below its upper bound" in told
    assert FIGURES["tight"].draw(table).axes


@pytest.mark.slow
@pytest.mark.sample
def test_a_point_below_the_lower_bound_is_not_counted():
    wanted = {(1, 0.04), (1, 0.1)}
    chosen = [spec for spec in FIGURES["tight"].sweep(QUICK) if (spec.beta, spec.options["eps"]) in wanted]
    table = FIGURES["tight"].table(made_up(chosen, lambda spec: 7))
    assert "0 of 8 means are above the lower bound" in FIGURES["tight"].describe(table)


def test_factors_are_compared_with_the_full_bounds_of_the_same_run():
    sweep = FIGURES["factors"].sweep(QUICK)
    kinds = {spec.kind for spec in sweep if "without" in spec.options}
    assert kinds == {"ablation"}
    assert {spec.kind for spec in sweep if "without" not in spec.options} == {"identify"}
    results = made_up(sweep, lambda spec: 500 if spec.options.get("without") == "range" else 1000)
    table = FIGURES["factors"].table(results)
    for row in table:
        assert row["times_fewer"] == pytest.approx(2.0 if row["without"] == "range" else 1.0)
        assert row["low"] <= row["times_fewer"] <= row["high"]
        assert (row["certifies"] == "nothing") == (row["without"] != "none")
    told = FIGURES["factors"].describe(table)
    assert "certify nothing" in told
    assert "paper, verified constants: 'range' costs most, up to a factor of 2" in told
    assert FIGURES["factors"].draw(table).axes
