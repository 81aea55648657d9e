"""The plug-in with a generative model is near-optimal with the stated number of samples."""

import numpy as np

import entropic_bpi as eb
from entropic_bpi.lab.learners import run
from entropic_bpi.lab.learners.generative import sample_size


def test_plug_in_with_the_stated_samples_is_near_optimal():
    mdp = eb.instances.garnet(3, 2, 2, horizon=3, seed=0)
    n = sample_size(3, 2, 3, beta=-1.0, eps=0.5, delta=0.1)
    result = run("generative", mdp, beta=-1.0, episodes=6 * (n + 1), seed=0, samples=n)
    loss = eb.solve(mdp, -1.0).value - eb.evaluate(mdp, result.policy, -1.0).value
    assert loss <= 0.5
    assert np.isfinite(result.regret).all()
