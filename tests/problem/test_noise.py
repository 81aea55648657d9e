"""Declared noise: classes, balls and what feeds them, against a plain version; contradictions, files, refusals."""

import json
from itertools import product

import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.types import Transitions

GOAL = {"eps": 0.5, "delta": 0.1, "beta": -1.0}


def stock(state, order, demand):
    full = min(state + order, 4)
    left = max(full - demand, 0)
    return left, 2.0 * (full - left) - (full - state) - 0.1 * left


def shop(horizon=4):
    return eb.FiniteMDP.from_noise(
        range(5), range(3), range(5), [0.1, 0.2, 0.4, 0.2, 0.1], stock, horizon=horizon, start=2
    )


def random_model(rng, laws=2, states=5, actions=2, horizon=3):
    labels = {f"g{i}": range(int(rng.integers(2, 5))) for i in range(laws)}
    chances = {name: rng.dirichlet(np.ones(len(each))) for name, each in labels.items()}
    law = {(s, a): f"g{rng.integers(laws)}" for s in range(states) for a in range(actions)}
    outcome = {(s, a, w): int(rng.integers(states)) for (s, a), name in law.items() for w in labels[name]}
    outcome = {key: (y, float((y * 7 + key[0]) % 3)) for key, y in outcome.items()}
    mdp = eb.FiniteMDP.from_noise(
        range(states), range(actions), labels, chances, outcome, horizon=horizon, start=0, law=law
    )
    return mdp, law, outcome, labels


def plain_balls(law, outcome, labels):
    """The ball of each pair, as its law and a set of sets of labels."""
    balls = {}
    for pair, name in law.items():
        classes = {}
        for w in labels[name]:
            classes.setdefault(outcome[(*pair, w)][0], set()).add(w)
        balls[pair] = name, frozenset(map(frozenset, classes.values()))
    return balls


def refines(fine, coarse):
    return fine[0] == coarse[0] and all(any(c <= d for d in coarse[1]) for c in fine[1])


def test_the_labels_of_each_law_are_shown():
    assert repr(eb.Noise(range(5), stock)) == "Noise(5 labels)"
    noise = eb.Noise({"calm": [0], "storm": [0, 1]}, stock, law=lambda state, action: "calm")
    assert repr(noise) == "Noise(calm: 1, storm: 2 labels)"


@pytest.mark.parametrize("seed", range(8))
def test_balls_and_their_counts_are_those_of_the_plain_definition(seed):
    rng = np.random.default_rng(seed)
    mdp, law, outcome, labels = random_model(rng)
    problem = Problem.from_mdp(mdp, noise="model", **GOAL)
    balls = plain_balls(law, outcome, labels)
    visits = {
        (s, a, w): int(rng.integers(0, 9)) for (s, a), name in law.items() for w in labels[name] if rng.random() < 0.7
    }
    pairs = [(s * 2 + a, outcome[s, a, w][0], times) for (s, a, w), times in visits.items() if times]
    columns = (np.array(column) for column in zip(*pairs, strict=True))
    counts = Counts.of(problem, Transitions(*columns), 1)
    arrays = problem.balls.arrays(counts.arrays)
    for pair, ball in balls.items():
        row = pair[0] * 2 + pair[1]
        if len(ball[1]) == 1:
            continue
        got = {
            int(arrays.successor[j]): int(arrays.tally[j])
            for j in range(arrays.begin[row], arrays.begin[row] + arrays.used[row])
        }
        expected = dict.fromkeys(got, 0)
        for (s, a, w), times in visits.items():
            if refines(balls[s, a], ball):  # the pair decides, never the label
                expected[outcome[(*pair, w)][0]] += times
        assert got == expected
        assert arrays.visits[row] == sum(expected.values())


@pytest.mark.parametrize("seed", range(8))
def test_the_number_of_balls_counts_partitions_that_matter(seed):
    mdp, law, outcome, labels = random_model(np.random.default_rng(seed), horizon=12)
    balls, reached = plain_balls(law, outcome, labels), {0}
    for _ in range(12):
        reached |= {outcome[(*pair, w)][0] for pair in balls if pair[0] in reached for w in labels[law[pair]]}
    at_risk = {ball for pair, ball in balls.items() if pair[0] in reached and len(ball[1]) > 1}
    assert Problem.from_mdp(mdp, noise="model", **GOAL).rows_at_risk == len(at_risk)


def test_with_lost_sales_each_ball_is_fed_by_all_larger_stocks():
    problem = Problem.from_mdp(shop(), noise="model", **GOAL)
    assert problem.rows_at_risk == 4  # stocks of 1 to 4; that of 0 has one class
    pair = 4 * 3 + 0  # a stock of 4, nothing ordered: demands from 0 to 4 and more
    counts = Counts.of(problem, Transitions(np.array([pair] * 2), np.array([3, 0]), np.array([5, 2])), 1)
    arrays = problem.balls.arrays(counts.arrays)
    for full in (1, 2, 3, 4):
        assert arrays.visits[full * 3] == 7
    counts = Counts.of(problem, Transitions(np.array([2 * 3]), np.array([1]), np.array([9])), 1)
    arrays = problem.balls.arrays(counts.arrays)
    # A stock of 2 sold 1: the demand was seen, but that it was seen is an outcome, so it feeds no finer ball.
    assert [arrays.visits[full * 3] for full in (1, 2, 3, 4)] == [9, 9, 0, 0]


def test_a_model_made_from_noise_is_the_one_of_its_probabilities():
    mdp = shop()
    assert np.allclose(mdp.transitions[2, 1], [0.3, 0.4, 0.2, 0.1, 0])
    assert mdp.rewards[2, 1, 3] == pytest.approx(-1 - 0.3)


@pytest.mark.parametrize("suffix", ["npz", "json"])
def test_the_mechanics_are_part_of_the_model_file(tmp_path, suffix):
    mdp = shop()
    mdp.save(tmp_path / f"shop.{suffix}")
    loaded = eb.FiniteMDP.load(tmp_path / f"shop.{suffix}")
    assert loaded == mdp
    assert np.array_equal(loaded.mechanics.following, mdp.mechanics.following)
    assert Problem.from_mdp(loaded, noise="model", **GOAL).rows_at_risk == 4


def test_an_end_is_one_more_state():
    mdp = eb.FiniteMDP.from_noise(
        ["a"],
        ["go"],
        ["stay", "leave"],
        [0.5, 0.5],
        lambda s, a, w: (s, 1.0) if w == "stay" else eb.END,
        horizon=3,
        start="a",
    )
    assert mdp.state_names == ("a", "end")
    assert eb.solve(mdp, 0).value == pytest.approx(0.5 + 0.25 + 0.125)


WRONG_MODELS = [
    (lambda s, a, w: 9, r"the outcome of \(0, 0, 0\) is 9, expected a next state"),
    (lambda s, a, w: (s, np.nan), "with a finite reward"),
    (lambda s, a, w: (0, float(w)), "add what determines the reward to the state"),
    (lambda s, a, w: 1 / 0, "raised ZeroDivisionError"),
    ({(0, 0, 0): 1}, r"the outcome of \(0, 0, 1\) is not listed"),
]


@pytest.mark.parametrize(("outcome", "message"), WRONG_MODELS)
def test_wrong_outcomes_are_refused(outcome, message):
    with pytest.raises(eb.InvalidModelError, match=message):
        eb.FiniteMDP.from_noise(range(2), range(2), range(2), [0.5, 0.5], outcome, horizon=2, start=0)


@pytest.mark.parametrize("probabilities", [[0.5, 0.6], [1.5, -0.5], [np.nan, 1], [1], ["x", "y"], [[1], [2, 3]], None])
def test_wrong_probabilities_are_refused(probabilities):
    with pytest.raises(eb.InvalidModelError, match="probabilities must be 2 non-negative numbers that add up to 1"):
        eb.FiniteMDP.from_noise(range(2), range(2), range(2), probabilities, lambda s, a, w: s, horizon=2, start=0)


@pytest.mark.parametrize("start", [2, ["x", "y"], [0.5, 0.6], [1.0]])
def test_a_wrong_start_of_a_model_with_noise_is_refused(start):
    with pytest.raises(eb.InvalidModelError, match="start"):
        eb.FiniteMDP.from_noise(range(2), range(2), range(2), [0.5, 0.5], lambda s, a, w: s, horizon=2, start=start)


def test_declarations_that_do_not_fit_are_refused():
    mdp = shop()
    for more, message in (
        ({"successors": "model"}, "noise determines the possible next states"),
        ({"max_successors": 2}, "noise determines the possible next states"),
        ({"method": "bernstein"}, "bernstein"),
    ):
        with pytest.raises(eb.InvalidProblemError, match=message):
            eb.identify(mdp, noise="model", **GOAL, **more)
    with pytest.raises(eb.InvalidProblemError, match="from_noise"):
        eb.identify(eb.instances.risky_bridge(horizon=5), noise="model", **GOAL)
    with pytest.raises(eb.InvalidProblemError, match=r"must be an eb\.Noise"):
        eb.identify(mdp, noise=3, **GOAL)
    with pytest.raises(eb.InvalidProblemError, match="law= must name"):
        eb.identify(mdp, noise=eb.Noise({"a": [0], "b": [1]}, lambda s, a, w: s), **GOAL)


def test_a_transition_that_no_label_explains_names_the_pair():
    noise = eb.Noise(range(3), lambda s, a, w: stock(s, a, w)[0])  # demands of 3 and 4 are missing
    with pytest.raises(
        eb.InvalidProblemError, match=r"state '\d', action '\d' went to state '\d', which no label explains"
    ):
        eb.identify(shop(), noise=noise, seed=1, **(GOAL | {"eps": 1e-3}))


@pytest.mark.parametrize("beta", [-1.0, 0.5])
def test_a_run_with_noise_needs_fewer_episodes_and_is_verified(beta, tmp_path):
    mdp = shop()
    goal = {"beta": beta, "eps": 1.0, "delta": 0.1, "seed": 1}
    result = eb.identify(mdp, noise="model", **goal)
    without = eb.identify(mdp, successors="model", stationary=True, max_episodes=result.episodes, **goal)
    assert result.stopped
    assert not without.stopped
    assert eb.solve(mdp, beta).value - eb.evaluate(mdp, result.policy, beta).value <= result.certificate.gap
    result.certificate.save(tmp_path / "certificate.json")
    check = eb.verify(tmp_path / "certificate.json")
    assert check.ok, check.problems
    assert check.gap == pytest.approx(result.certificate.gap, rel=1e-3)
    again = eb.certify(eb.Certificate.load(tmp_path / "certificate.json"), beta=beta)
    assert again.gap == pytest.approx(result.certificate.gap, rel=1e-6)


def test_noise_as_a_table_is_read_from_a_problem_file(tmp_path):
    outcome = {(s, a, w): stock(s, a, w) for s, a, w in product(range(5), range(3), range(5))}
    declared = eb.Declarations(horizon=3, noise=eb.Noise(range(5), outcome))
    declared.save(tmp_path / "problem.toml")
    found = eb.Declarations.load(tmp_path / "problem.toml").noise
    assert found.laws == {"": list(range(5))}
    assert found.outcome == outcome
    with pytest.raises(eb.InvalidProblemError, match="cannot contain a function"):
        eb.Declarations(noise=eb.Noise(range(5), stock)).save(tmp_path / "other.toml")


def test_the_command_line_declares_the_mechanics_of_a_model(tmp_path):
    from typer.testing import CliRunner

    from entropic_bpi import cli

    shop().save(tmp_path / "shop.npz")
    words = f"identify {tmp_path / 'shop.npz'} --beta 0.5 --eps 1 --delta 0.1 --noise model --seed 1 --json"
    result = CliRunner().invoke(cli.app, words.split())
    assert result.exit_code == 0, result.output
    assert any("one unknown law on 5 labels" in text for text in json.loads(result.output)["assumptions"])
