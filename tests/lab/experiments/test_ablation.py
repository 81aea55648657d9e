"""Switching a factor off does that and nothing else, and keeps no claim."""

import math

import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi.lab.experiments import grid
from entropic_bpi.lab.experiments.ablation import FACTORS, without_factor
from entropic_bpi.lab.experiments.runner import execute
from entropic_bpi.lab.experiments.spec import RunSpec
from entropic_bpi.problem.counts import Counts
from entropic_bpi.runs.identification import start_run
from entropic_bpi.runs.settings import Settings

BRIDGE = eb.instances.risky_bridge(horizon=5)
RANDOM_START = eb.FiniteMDP(BRIDGE.transitions, BRIDGE.rewards, horizon=5, start=np.full(8, 1 / 8))


def loop_of(mdp, **options):
    return start_run(mdp, Settings.of(**{"beta": 1.0, "eps": 0.1, "delta": 0.1, "seed": 3} | options))


def ablated(method, without, **options):
    (plain,) = grid(horizon=5, beta=options.pop("beta", 1.0), method=method, seeds=[3], **options)
    return RunSpec(
        plain.instance, {}, "ablation", method, plain.beta, {**plain.options, "without": without}, 3, plain.mdp
    )


@pytest.mark.parametrize("constants", ["verified", "sharp"])
@pytest.mark.parametrize("factor", FACTORS["bernstein"])
def test_a_factor_changes_its_own_table_only(constants, factor):
    loop, plain = (loop_of(BRIDGE, method="bernstein", constants=constants) for _ in range(2))
    without_factor(loop, BRIDGE, factor)
    changed = {
        name
        for name, mine, before in zip(loop.method.tables._fields, loop.method.tables, plain.method.tables, strict=True)
        if not np.array_equal(mine, before)
    }
    expected = {
        "union": {"log_kl", "log_bernstein"},
        "states": {"dimension"},
        "horizon": {"linear"} if constants == "verified" else {"linear_star", "extra"},
        "recursion": {"slack"},
        "range": {"span"},
    }
    assert changed == expected[factor]


@pytest.mark.parametrize("mdp", [BRIDGE, RANDOM_START], ids=["known start", "random start"])
@pytest.mark.parametrize("beta", [1.0, -1.0, 0.05])
def test_the_true_span_is_that_of_the_optimal_values(mdp, beta):
    loop = loop_of(mdp, method="bernstein", constants="sharp", beta=beta)
    before = loop.method.tables.span
    without_factor(loop, mdp, "range")
    spans, first = loop.method.tables.span, len(loop.method.tables.span) - 5
    assert (spans <= before * (1 + 1e-12)).all()
    values, unit = eb.solve(mdp, beta).values, loop.method.unit
    for h in range(5):
        for s in range(8):
            for a in range(2):
                z = np.exp(beta * values[h + 1][np.asarray(mdp.transitions)[s, a] > 0])
                assert spans[first + h, s, a] * unit == pytest.approx(np.ptp(z), abs=1e-12)
    if first:
        assert spans[0].max() * unit == pytest.approx(np.ptp(np.exp(beta * values[0])))


@pytest.mark.parametrize("without", [*FACTORS["kl"], "all"])
def test_the_balls_have_the_radius_that_is_left(without):
    loop, plain = loop_of(BRIDGE), loop_of(BRIDGE)
    without_factor(loop, BRIDGE, without)
    for _ in range(3):  # each plan starts again from the full radius
        loop._play(loop.method.plan(loop.state.counts, loop.state.round))
    loop.method.plan(loop.state.counts, loop.state.round)
    plain.method.plan(Counts.of(plain.state.problem, loop.state.counts.transitions(), loop.state.counts.episodes), 0)
    n = loop.state.counts.arrays.visits
    seen, full = n > 0, plain.method.rules.log_union
    mixture = plain.method.rules.radius[seen] * n[seen] - full
    union = math.log(10) if without in ("union", "all") else full
    expected = union + (0.0 if without in ("mixture", "all") else mixture)
    assert loop.method.rules.radius[seen] * n[seen] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("method", "options"), [("kl", {}), ("bernstein", {"constants": "sharp"})])
@pytest.mark.parametrize("beta", [1.0, -1.0])
def test_without_a_factor_a_run_stops_earlier_and_claims_nothing(method, options, beta):
    (plain,) = grid(horizon=5, beta=beta, method=method, seeds=[3], **options)
    full = execute(plain).columns
    without = execute(ablated(method, "all", beta=beta, **options)).columns
    assert without["episodes"] < 0.7 * full["episodes"]
    assert without["stopped"]
    assert without.keys() == {"episodes", "stopped", "true_gap"}


def test_the_id_says_that_it_is_an_ablation():
    spec = ablated("kl", "union")
    assert spec.id == "risky_bridge/h5/beta=1/kl/without=union/ablation/seed=3"


def test_an_unknown_factor_is_refused():
    assert "without must be" in execute(ablated("kl", "luck")).error
