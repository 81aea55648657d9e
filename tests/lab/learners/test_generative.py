"""The plug-in with a generative model is near-optimal with the stated number of samples."""

import math

import numpy as np

import entropic_bpi as eb
from entropic_bpi.lab.learners import run


def test_plug_in_with_the_stated_samples_is_near_optimal():
    mdp = eb.instances.garnet(3, 2, 2, horizon=3, seed=0)
    errors = np.expm1(np.arange(3.0)).sum()  # at |beta| = 1, over the steps that are left
    n = math.ceil(2 * math.log(4 * 3 * 3 * 2 / 0.1) * (errors / 0.5) ** 2)
    result = run("generative", mdp, beta=-1.0, episodes=6 * (n + 1), seed=0, samples=n)
    loss = eb.solve(mdp, -1.0).value - eb.evaluate(mdp, result.policy, -1.0).value
    assert loss <= 0.5
    assert np.isfinite(result.regret).all()
