"""Arguments of the wrong kind: every public function answers with an error of ours, or does what it was asked for."""

import signal
import sys
import time
import tracemalloc

import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi import compare, events, experiments, instances, learners, theory
from entropic_bpi.cli import main
from entropic_bpi.tools import checks as _checks

BRIDGE = instances.risky_bridge(horizon=3)
POLICY = np.zeros((3, 8), dtype=np.int64)
SIZES = {"n_states": 10, "n_actions": 2, "horizon": 12}
LAW = eb.return_law(BRIDGE, POLICY)


def _function():
    return None


WRONG = {
    "none": None,
    "list": [],
    "nested list": [[1, "a"], []],
    "text": "no such thing",
    "number as text": "0.4",
    "bytes": b"kl",
    "function": _function,
    "class": dict,
    "dict": {"a": 1},
    "set": {1},
    "array": np.array(["kl"]),
    "numbers": np.array([0.5, 0.5]),
    "object": object(),
    "complex": 1j,
    "fraction": 2.5,
    "negative": -1,
    "zero": 0,
    "true": True,
    "nan": float("nan"),
    "infinite": float("inf"),
    "tiny": 1e-320,
    "large float": 1e308,
    "2**62": 2**62,
    "2**70": 2**70,
    "10**400": 10**400,
    "10**5000": 10**5000,
}
HUGE = {"large float", "2**62", "2**70", "10**400", "10**5000"}
# Amounts of work: a large one is not wrong, it only takes long.
WORK = {"episodes", "max_episodes", "rounds", "runs", "max_support", "bins"}

IDENTIFY = {"beta": -1.0, "eps": 0.9, "delta": 0.2, "max_episodes": 3, "seed": 1}
OPTIONS = {
    "method": "kl", "constants": None, "horizon": None, "stationary": None, "successors": None, "replan": None,
    "sampling": None, "reward_range": None, "ties": "random", "checkpoint": None, "num_envs": 1,
    "max_successors": None, "return_range": None,
}  # fmt: skip
LAKE = {"source": "FrozenLake-v1", "horizon": 3, "reward_range": (0, 1)}
LEARN = {"mdp": BRIDGE, "beta": 1.0, "delta": 0.1, "seed": 1, "scale": 1.0, "ties": "random"}
BOUND = {**SIZES, "beta": -1.0, "eps": 0.05, "delta": 0.05, "max_return": None, "form": "verified", "log": False}

CALLS = {
    "FiniteMDP": (eb.FiniteMDP, {
        "transitions": np.eye(2)[:, None], "rewards": np.zeros((2, 1)), "horizon": 2, "start": 0,
        "state_names": ["a", "b"], "action_names": ["a"],
    }),
    "FiniteMDP of Rows": (eb.FiniteMDP, {
        "transitions": eb.SparseTransitions([0, 1], [0], [1.0], [[0.0]]), "rewards": (1, 1), "horizon": 2,
    }),
    "FiniteMDP of other Rows": (
        lambda indptr, indices, probabilities, rewards: eb.FiniteMDP(
            eb.SparseTransitions(indptr, indices, probabilities, rewards), (1, 1), horizon=2
        ),
        {"indptr": [0, 1], "indices": [0], "probabilities": [1.0], "rewards": [[0.0]]},
    ),
    "FiniteMDP.load": (eb.FiniteMDP.load, {"path": "missing.npz"}),
    "FiniteMDP.save": (BRIDGE.save, {"path": "missing/model.npz"}),
    "solve": (eb.solve, {"mdp": BRIDGE, "beta": 1.0}),
    "evaluate": (eb.evaluate, {"mdp": BRIDGE, "policy": POLICY, "beta": 1.0}),
    "max_return": (eb.max_return, {"mdp": BRIDGE}),
    "return_law": (eb.return_law, {"mdp": BRIDGE, "policy": POLICY, "bins": 5, "max_support": 1000}),
    "entropic_variance": (eb.entropic_variance, {"mdp": BRIDGE, "policy": POLICY, "beta": 1.0}),
    "chi_square": (eb.chi_square, {"mdp": BRIDGE, "policy": POLICY, "beta": 1.0}),
    "tilted": (eb.tilted, {"mdp": BRIDGE, "policy": POLICY, "beta": 1.0}),
    "ReturnLaw.entropic_risk": (LAW.entropic_risk, {"beta": 1.0}),
    "ReturnLaw.quantile": (LAW.quantile, {"q": 0.5}),
    "ReturnLaw.cvar": (LAW.cvar, {"alpha": 0.5}),
    "ReturnLaw.evar": (LAW.evar, {"alpha": 0.5}),
    "as_gymnasium": (eb.as_gymnasium, {"mdp": BRIDGE}),
    "from_gymnasium": (eb.from_gymnasium, {"env_or_id": "FrozenLake-v1", "horizon": 3, "start": 0, "is_slippery": True}),
    "identify": (eb.identify, {"source": BRIDGE, **IDENTIFY, **OPTIONS}),
    "identify a black box": (eb.identify, {**IDENTIFY, **OPTIONS, **LAKE}),
    "identify, bernstein": (eb.identify, {"source": BRIDGE, **IDENTIFY, "method": "bernstein", "constants": "sharp"}),
    "run": (eb.run, {**LEARN, "learner": "rsvi2", "episodes": 3, "c": 1.0}),
    "compare_regret": (
        compare.compare_regret,
        {"mdp": BRIDGE, "learners": ["rsvi2"], "beta": 1.0, "episodes": 3, "seeds": 1, "delta": 0.1, "workers": 1},
    ),
    "instances.make": (instances.make, {"name": "river-swim", "n_states": 4, "horizon": 3}),
    "instances.builder": (instances.builder, {"name": "garnet"}),
    "risky_bridge": (instances.risky_bridge, {"horizon": 3, "p_start": 0.9, "p_mid": 0.5, "p_final": 0.5, "p_dash": 0.5}),
    "river_swim": (instances.river_swim, {"n_states": 4, "horizon": 3}),
    "garnet": (
        instances.garnet,
        {"n_states": 4, "n_actions": 2, "branching": 2, "horizon": 3, "seed": 1, "stationary": False},
    ),
    "hard_instance": (instances.hard_instance, {**SIZES, "beta": -1.0, "eps": 0.05, "special": (2, 8, 1)}),
    "lower_bound": (theory.lower_bound, BOUND),
    "upper_bound": (theory.upper_bound, {**BOUND, "max_return": 5.0, "form": "implicit"}),
    "upper_bound, verified": (theory.upper_bound, {**BOUND, "max_return": 5.0}),
    "condition_a": (theory.condition_a, {**SIZES, "beta": -1.0, "eps": 0.05}),
    "small_eps_limit": (
        theory.small_eps_limit,
        {**SIZES, "beta": -1.0, "delta": 0.05, "max_return": None, "form": "exact", "log": True},
    ),
    "characteristic_time": (
        theory.characteristic_time,
        {
            "mdp": instances.risky_bridge(horizon=2), "beta": 1.0, "eps": 0.5, "delta": 0.1, "successors": "model",
            "stationary": False, "rounds": 1,
        },
    ),
    "expected_visits": (events.expected_visits, {"mdp": BRIDGE, "policy": POLICY}),
    "grid": (
        experiments.grid,
        {
            "instance": "risky-bridge", "beta": 1.0, "seeds": 2, "method": "kl", "learner": None, "horizon": 3,
            "params": {"p_dash": 0.5}, "folder": ".", "eps": 0.5, "delta": 0.1, "replan": 0.5, "successors": "model",
        },
    ),
    "read_sweep": (experiments.read_sweep, {"path": "missing.toml"}),
    "reproduce": (
        experiments.reproduce,
        {"names": ["no such figure"], "folder": "missing", "quick": True, "seeds": 1, "workers": -1},
    ),
    "validate": (
        experiments.validate,
        {"folder": "missing", "cases": [], "rules": [], "runs": 1, "delta": 0.1, "workers": 0},
    ),
    "run_sweep": (experiments.run, {"specs": [], "folder": "missing", "workers": 0, "resume": False, "imports": []}),
    "load_results": (experiments.load, {"path": "missing"}),
    "export": (experiments.export, {"path": "missing", "folder": "missing", "formats": ["csv"]}),
    "load_certificate": (eb.Certificate.load, {"path": "missing.json"}),
    "register": (learners.register, {"name": "rsvi2", "learner": _function}),
}  # fmt: skip


def numbers_of(result):
    """What a result claims."""
    claims = ("value", "values", "lower", "upper", "gap", "regret", "episodes", "time", "support", "probabilities")
    parts = [result, *(getattr(result, name, None) for name in claims), getattr(result, "certificate", None)]
    parts += [getattr(parts[-1], name, None) for name in claims]
    return [part for part in parts if isinstance(part, (float, np.ndarray))]


class TooSlow(BaseException):
    """Not an error that anything catches."""


def _give_up(*_):
    raise TooSlow


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """Files are written elsewhere, and learners that a call registers are forgotten after the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("entropic_bpi.lab.learners._run._REGISTERED", {})


@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_argument_is_an_error_of_ours(call):
    function, right = CALLS[call]
    complaints = []
    signal.signal(signal.SIGALRM, _give_up)
    for name in right:
        for kind, value in WRONG.items():
            if name in WORK and kind in HUGE:
                continue
            signal.setitimer(signal.ITIMER_REAL, 300)  # to catch what never ends; the first call compiles
            try:
                result = function(**{**right, name: value})
                if any(np.isnan(number).any() for number in numbers_of(result)):
                    complaints.append(f"{name}={kind}: NaN in {result!r}")
            except eb.EntropicBPIError as error:
                message = str(error)
                if not message or len(message) > 1000:
                    complaints.append(f"{name}={kind}: an odd message, {message[:200]!r}")
            except (Exception, TooSlow) as error:
                complaints.append(f"{name}={kind}: {type(error).__name__}: {error}"[:300])
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    assert not complaints, f"{len(complaints)} of {len(right) * len(WRONG)}:\n" + "\n".join(complaints)


# -- single cases -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"method": np.array(["kl"])}, "method must be one of kl, bernstein.*; got array"),
        ({"method": ["bernstein"]}, "method must be one of"),
        ({"eps": True}, "eps must be a finite real number, got True"),
        ({"eps": "0.4"}, "eps must be a finite real number, got '0.4'"),
        ({"beta": np.array(1.0)}, "beta must be a finite real number"),
        ({"seed": 1.5}, "seed must be an integer, got 1.5"),
    ],
)
def test_identify_takes_nothing_for_what_it_is_not(wrong, message):
    with pytest.raises(eb.InvalidProblemError, match=message):
        eb.identify(**({"source": BRIDGE, **IDENTIFY} | wrong))


def test_a_seed_of_any_size_is_a_seed():
    assert eb.identify(BRIDGE, **(IDENTIFY | {"seed": 2**127})).seed == 2**127


@pytest.mark.parametrize("seed", [1.5, "one", -1])
def test_learners_name_a_seed_that_is_none(seed):
    with pytest.raises(eb.InvalidProblemError, match="seed must be what"):
        eb.run("rsvi2", BRIDGE, beta=1.0, episodes=3, seed=seed)


def test_a_model_that_is_none_is_named():
    with pytest.raises(eb.InvalidModelError, match=r"mdp must be a FiniteMDP, got \[\]"):
        eb.solve([], 1.0)
    with pytest.raises(eb.InvalidModelError, match="mdp must be a FiniteMDP, got <function"):
        eb.run("rsvi2", _function, beta=1.0, episodes=3)


@pytest.mark.parametrize("reward_range", [(0, 1e-320), (-5e-324, 0), (-1e308, 1e308)])
def test_rewards_that_doubles_cannot_tell_apart_or_add_up_are_refused(reward_range):
    with pytest.raises(eb.InvalidProblemError, match="leave the range of doubles"):
        eb.identify("FrozenLake-v1", horizon=3, reward_range=reward_range, **IDENTIFY)


def test_next_state_rewards_that_doubles_cannot_tell_apart_are_refused():
    mdp = eb.FiniteMDP(np.full((2, 1, 2), 0.5), np.array([[[0, 1e-320]], [[0, 0]]]), horizon=2)
    with pytest.raises(eb.InvalidProblemError, match="leave the range of doubles"):
        eb.identify(mdp, **IDENTIFY)


@pytest.mark.parametrize("exponent", [601.0, np.inf, np.nan])
def test_an_exponent_that_is_too_large_or_not_a_number_is_refused(exponent):
    _checks.check_reach(1.0, 600.0, "range")
    with pytest.raises(eb.InvalidProblemError, match="exceeds 600"):
        _checks.check_reach(1.0, exponent, "range")


def test_the_largest_beta_prints_no_nan(capsys):
    sizes = ["--states", "10", "--actions", "2", "--horizon", "12", "--eps", "0.05", "--delta", "0.05"]
    with pytest.raises(SystemExit) as caught:
        main(["bounds", *sizes, "--beta", "1e308", "--json"])
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert "|beta| times 13 must be at most 1e+300" in err
    assert "nan" not in out.lower()


# -- sizes ---------------------------------------------------------------------------------------------------------

SMALL_MACHINE = 10_000_000
TOO_LARGE = {
    "identify a black box": lambda: eb.identify(
        "FrozenLake-v1", **(IDENTIFY | {"horizon": 10**5, "reward_range": (0, 1)})
    ),
    "identify": lambda: eb.identify(instances.risky_bridge(horizon=10**5), **IDENTIFY),
    "solve": lambda: eb.solve(instances.risky_bridge(horizon=10**6), 1.0),
    "run": lambda: eb.run("rsvi2", instances.risky_bridge(horizon=10**5), beta=1.0, episodes=3),
    "river_swim": lambda: instances.river_swim(10**6),
    "garnet": lambda: instances.garnet(10**4, 10, 10, horizon=3, seed=0),
    "hard_instance": lambda: instances.hard_instance(1000, 2, 1000, beta=-0.1, eps=0.01),
    "grid": lambda: experiments.grid(method="kl", beta=1.0, seeds=10**6),
}


@pytest.mark.parametrize("call", TOO_LARGE)
def test_what_does_not_fit_is_refused_before_it_is_allocated(call, monkeypatch):
    monkeypatch.setattr(_checks, "machine_memory", lambda: SMALL_MACHINE)
    tracemalloc.start()
    try:
        with pytest.raises(
            eb.InvalidProblemError, match=r"needs at least .* GiB of memory, this machine has 0\.00931 GiB"
        ):
            TOO_LARGE[call]()
        assert tracemalloc.get_traced_memory()[1] < SMALL_MACHINE
    finally:
        tracemalloc.stop()


def test_enormous_sizes_are_answered_at_once():
    began = time.perf_counter()
    with pytest.raises(eb.InvalidProblemError, match="GiB of memory"):
        eb.identify("FrozenLake-v1", **(IDENTIFY | {"horizon": 10**9, "reward_range": (0, 1)}))
    assert instances.river_swim(13_224).is_sparse
    assert time.perf_counter() - began < 10


def test_a_long_river_is_the_same_whether_dense_or_sparse(monkeypatch):
    dense = instances.river_swim(7)
    monkeypatch.setattr(sys.modules["entropic_bpi.model.instances.classic"], "_DENSE_STATES", 3)
    assert instances.river_swim(7).is_sparse
    assert instances.river_swim(7) == dense
