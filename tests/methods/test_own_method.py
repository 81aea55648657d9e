"""A stopping rule of one's own: one class and one line of registration, and everything knows it by name."""

import math

import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi import methods
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.lab.experiments import grid, run
from entropic_bpi.lab.experiments.oracle import Oracle
from entropic_bpi.runs.identification import start_run
from entropic_bpi.runs.settings import Settings
from entropic_bpi.types import Behaviour, Bounds, Plan

MDP = eb.instances.garnet(3, 2, 2, horizon=3, seed=0)


class Exhaustive:
    """Plays every action in turn and claims only what the range of the return implies, until it has seen enough."""

    options = {"sampling": ("round-robin",)}  # noqa: RUF012
    events = proof = ()
    unused = {}  # noqa: RUF012

    def __init__(self, problem, seed=0, sampling="round-robin"):
        self.problem, self.inner = problem, methods.make("kl", problem, {"sampling": "optimistic"}, seed)

    def plan(self, counts, round):
        plan = self.inner.plan(counts, round)
        actions = np.full_like(plan.policy, round % self.problem.n_actions)
        return Plan(plan.policy, plan.bounds, Behaviour(actions, actions, actions, False))

    def claim(self, counts, plan):
        return self.inner.claim(counts, plan)


@pytest.fixture
def registered():
    methods.register("exhaustive", Exhaustive)
    yield "exhaustive"
    del methods._REGISTERED["exhaustive"]


GOAL = {"beta": -1.0, "eps": 0.3, "delta": 0.1, "successors": "model"}


def test_it_identifies(registered, tmp_path):
    result = eb.identify(MDP, method=registered, seed=1, **GOAL)
    assert result.stopped
    assert result.certificate.method == registered
    best, mine = eb.solve(MDP, -1.0).value, eb.evaluate(MDP, result.policy, -1.0).value
    assert best - mine <= result.certificate.gap <= 0.3
    every = eb.identify(MDP, method=registered, seed=1, replan="every", **GOAL)
    assert every.stopped
    assert every.episodes <= result.episodes * 1.1 + 10


def test_it_resumes(registered, tmp_path):
    whole = eb.identify(MDP, method=registered, seed=1, **GOAL)
    path = tmp_path / "half"
    eb.identify(MDP, method=registered, seed=1, checkpoint=path, max_episodes=whole.episodes // 2, **GOAL)
    resumed = eb.identify(MDP, method=registered, seed=1, checkpoint=path, **GOAL)
    assert resumed.episodes == whole.episodes
    assert resumed.certificate.gap == whole.certificate.gap


def test_it_runs_in_a_sweep(registered, tmp_path):
    runs = grid(instance="garnet", params={"n_states": 3, "n_actions": 2, "branching": 2, "seed": 0}, horizon=3,
                method=[registered, "kl"], beta=-1.0, eps=0.3, seeds=2, successors="model")  # fmt: skip
    results = run(runs, tmp_path, workers=0)
    assert list(results.runs["algorithm"]) == [registered] * 2 + ["kl"] * 2
    assert results.runs["stopped"].all()


def test_the_oracle_watches_it(registered):
    loop = start_run(MDP, Settings.of(method=registered, seed=3, **GOAL))
    oracle = Oracle(MDP, loop)
    loop.go(oracle.watch)
    assert oracle.confirms(loop.result().certificate)
    assert oracle.failed == set()


def test_its_options_are_checked_and_others_refused(registered):
    with pytest.raises(InvalidProblemError, match="sampling of method='exhaustive' must be one of round-robin"):
        eb.identify(MDP, method=registered, sampling="challenger", **GOAL)
    with pytest.raises(InvalidProblemError, match="constants='sharp' belongs to method 'bernstein'"):
        eb.identify(MDP, method=registered, constants="sharp", **GOAL)


def test_the_verifier_refuses_what_it_has_no_formulas_for(registered):
    verification = eb.verify(eb.identify(MDP, method=registered, seed=1, **GOAL).certificate)
    assert not verification.ok
    assert math.isnan(verification.gap)
    assert "method" in verification.problems[0]


def test_its_certificate_is_read_back_where_nobody_knows_the_method(registered, tmp_path, monkeypatch):
    made = eb.identify(MDP, method=registered, seed=1, **GOAL).certificate
    made.save(tmp_path / "certificate.json")
    monkeypatch.delitem(methods._REGISTERED, registered)
    read = eb.Certificate.load(tmp_path / "certificate.json")
    assert read._content() == made._content()
    assert eb.Policy.load(tmp_path / "certificate.json")(0, step=0) == made.policy[0, 0]
    verification = eb.verify(tmp_path / "certificate.json")
    assert not verification.ok
    assert "method" in verification.problems[0]
    methods._REGISTERED[registered] = Exhaustive  # for the fixture


def test_built_in_names_are_taken():
    with pytest.raises(InvalidProblemError, match="'kl' is the name of a built-in method"):
        methods.register("kl", Exhaustive)


def test_a_nan_never_reaches_the_goal():
    goal = Settings.of(beta=1, eps=0.1, delta=0.1).goal
    assert not Bounds(0.0, 1.0, math.nan).reached(goal)
    assert Bounds(0.0, 1.0, 0.1).reached(goal)


def test_a_method_with_the_old_array_is_told_the_new_functions(registered, monkeypatch):
    """Its checkpoints would not save what it remembers."""
    monkeypatch.setattr(Exhaustive, "memory", np.zeros(3), raising=False)
    with pytest.raises(
        InvalidProblemError,
        match=r"method 'exhaustive' has memory, which is replaced by state\(\) and restore\(state\)",
    ):
        eb.identify(MDP, method=registered, **GOAL)
