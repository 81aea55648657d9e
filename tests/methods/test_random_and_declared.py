"""Random rewards together with declared structure: what each does alone must not disturb the other."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Discrete

import entropic_bpi as eb
from entropic_bpi.methods.kl.method import KL
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.types import Transitions


class NoisyCoin(gymnasium.Env):
    """Two states; the action moves or stays with probability 3/4, the reward is noisy and better in state 1."""

    observation_space, action_space = Discrete(2), Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = 0
        return self.state, {}

    def step(self, action):
        if self.np_random.random() < 0.75:
            self.state = (self.state + action) % 2
        return self.state, float(self.np_random.choice([0.2, 0.4]) * (1 + self.state)), False, False, {}


@pytest.mark.parametrize("law", ["random", "random-pair"])
def test_bounds_on_rewards_follow_their_successors_when_a_row_is_complete(law):
    problem = Problem.black_box(
        3, 1, horizon=2, reward_range=(0.0, 1.0), beta=1.0, eps=0.1, delta=0.1, stationary=True,
        state_labels=("0", "1", "2", "end"), source="test", reward_law=law, max_successors=2,
    )  # fmt: skip
    counts, method = Counts(problem), KL(problem)
    for successor, reward in ((0, 0.1), (1, 0.9)):  # as often as each other: their tallies do not tell them apart
        counts.add(Transitions(np.array([0]), np.array([successor]), np.array([50]), np.array([reward])), 1)
        planned = method.plan(counts, 0).bounds
    fresh = KL(problem).plan(Counts.of(problem, counts.transitions(), counts.episodes), 0).bounds
    assert planned == fresh


@pytest.mark.parametrize("beta", [1.0, -1.0])
@pytest.mark.parametrize(
    "declared",
    [
        {"max_successors": 2},
        {"successors": lambda s, a: [0, 1]},
        {"return_range": (0.0, 1.6)},
        {
            "successors": lambda s, a: [0, 1],
            "max_successors": 2,
            "return_range": (0.0, 1.6),
            "reward_law": "random-pair",
        },
    ],
)
def test_certificates_verify_and_hold(beta, declared, tmp_path):
    law = declared.get("rewards", "random")
    options = {"reward_law": law, **{k: v for k, v in declared.items() if k != "rewards"}}
    result = eb.identify(
        NoisyCoin,
        beta=beta,
        eps=0.4,
        delta=0.1,
        horizon=2,
        reward_range=(0.0, 0.8),
        seed=3,
        max_episodes=2000,
        **options,
    )
    result.certificate.save(tmp_path / "c.json")
    found = eb.verify(tmp_path / "c.json")
    assert found.ok, found.problems
    mean = [np.log(np.mean(np.exp(beta * np.array([0.2, 0.4]) * (1 + s)))) / beta for s in (0, 1)]
    kernel = np.array([[[1.0, 0.0], [0.25, 0.75]], [[0.0, 1.0], [0.75, 0.25]]])
    truth = eb.FiniteMDP(kernel, np.broadcast_to(mean, (2, 2, 2, 2)).copy(), horizon=2)
    best = eb.solve(truth, beta).value
    if law == "random":  # what a step pays depends on where it leads
        assert result.certificate.lower <= best <= result.certificate.upper
