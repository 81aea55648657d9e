"""Each compiled learner plays the same episodes as its plain NumPy version, in other units and with full sweeps."""

import numpy as np
import pytest
from reference import learners as reference

import entropic_bpi as eb
from entropic_bpi.lab.learners import run

EPISODES = 1200
# Small scales let every learner leave its clip within the test.
CASES = [
    ("rsvi", 0.05, {}),
    ("rsvi2", 0.2, {}),
    ("rsvi2", 0.1, {"c": 3.0}),
    ("rsq", 0.02, {}),
    ("rsq2", 0.1, {}),
    ("ucb_advantage", 0.002, {}),
    ("ucb_advantage", 0.02, {"variant": "range", "reference": (20, 200)}),
    ("rodi_otp", 0.2, {}),
    ("rodi_pto", 0.2, {}),
    ("rovi", 0.2, {}),
    ("bpi_ucbvi", 0.001, {}),
    ("entropic_bpi", 0.005, {}),
    ("entropic_bpi", 0.01, {"constants": "printed"}),
    ("generative", 1.0, {}),
]


@pytest.fixture(scope="module")
def models():
    return {
        "bridge": eb.instances.risky_bridge(horizon=5),
        "garnet": eb.instances.garnet(4, 3, 2, horizon=4, seed=1, stationary=False),
    }


SLOW = pytest.mark.slow  # by default every learner plays each model once, and each sign of beta once


@pytest.mark.parametrize(
    ("model", "beta"),
    [
        ("bridge", 1.5),
        ("garnet", -1.0),
        pytest.param("bridge", -1.0, marks=SLOW),
        pytest.param("garnet", 1.5, marks=SLOW),
    ],
)
@pytest.mark.parametrize(("learner", "scale", "params"), CASES)
def test_kernel_plays_the_episodes_of_the_reference(models, learner, scale, params, model, beta):
    mdp = models[model]
    optimum = eb.solve(mdp, beta).value
    common = {"beta": beta, "episodes": EPISODES, "delta": 0.1, "seed": 5, "scale": scale}
    regret, policy = reference.regret(learner, mdp, optimum=optimum, **common, **params)
    result = run(learner, mdp, **common, **params)
    np.testing.assert_allclose(result.regret, regret[result.grid - 1], rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(result.policy, policy)


@pytest.mark.parametrize("beta", [-1.0, 1.5])
def test_rodi_pto_is_rsvi2_with_constant_root_two(models, beta):
    common = {"beta": beta, "episodes": 20_000, "seed": 2, "scale": 0.3}
    pto = run("rodi_pto", models["bridge"], **common)
    rsvi2 = run("rsvi2", models["bridge"], c=np.sqrt(2), **common)
    np.testing.assert_allclose(pto.regret, rsvi2.regret, rtol=1e-12)
    np.testing.assert_array_equal(pto.policy, rsvi2.policy)


@pytest.mark.parametrize("beta", [-1.0, 1.5])
def test_rodi_otp_is_rsvi2_with_the_tighter_range(models, beta):
    mdp, common = models["bridge"], {"beta": beta, "episodes": EPISODES, "delta": 0.1, "seed": 2, "scale": 0.3}
    regret, policy = reference.regret("tight_rsvi2", mdp, optimum=eb.solve(mdp, beta).value, **common)
    otp = run("rodi_otp", mdp, **common)
    np.testing.assert_allclose(otp.regret, regret[otp.grid - 1], rtol=1e-10)
    np.testing.assert_array_equal(otp.policy, policy)


@pytest.mark.parametrize("beta", [0.0, 1e-9, -1e-9])
def test_rsvi2_becomes_risk_neutral_value_iteration(models, beta):
    mdp, common = models["garnet"], {"episodes": EPISODES, "delta": 0.1, "seed": 4, "scale": 0.2}
    regret, policy = reference.regret("neutral", mdp, beta=0.0, optimum=eb.solve(mdp, 0).value, **common)
    limit = run("rsvi2", mdp, beta=beta, **common)
    np.testing.assert_allclose(limit.regret, regret[limit.grid - 1], rtol=1e-6)
    np.testing.assert_array_equal(limit.policy, policy)


@pytest.mark.parametrize("learner", ["rsvi", "rsq", "rsq2", "rodi_otp", "rodi_pto", "rovi", "bpi_ucbvi", "generative"])
def test_learners_are_continuous_through_beta_zero(models, learner):
    runs = [
        run(learner, models["garnet"], beta=beta, episodes=3000, seed=4, scale=0.1).regret
        for beta in (-1e-10, 0, 1e-10)
    ]
    np.testing.assert_allclose(runs[0], runs[1], rtol=1e-6)
    np.testing.assert_allclose(runs[2], runs[1], rtol=1e-6)
