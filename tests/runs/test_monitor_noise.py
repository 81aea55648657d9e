"""A monitor of a certificate with declared noise: its rows are the balls of the laws."""

import copy
import pickle

import gymnasium
import numpy as np
import pytest
from reference.monitoring import largest_likelihood, log_mixture
from reference.noise import Adversary, Case

import entropic_bpi as eb
from entropic_bpi.methods.kl.method import KL
from entropic_bpi.runs.monitoring.evidence import RowEvidence

STOCK, DEMANDS = 4, 5
LAW = np.array([0.15, 0.3, 0.3, 0.15, 0.1])


def lost_sales(state, action, demand):
    full = min(state + action, STOCK)
    return max(full - demand, 0), 2.0 * min(demand, full) - action


def shop(law):
    return eb.FiniteMDP.from_noise(range(STOCK + 1), range(3), range(DEMANDS), law, lost_sales, horizon=3, start=0)


def claim(episodes=200, seed=1):
    goal = {"beta": -1.0, "eps": 1e-6, "delta": 0.1, "noise": "model"}
    return eb.identify(shop(LAW), max_episodes=episodes, seed=seed, **goal).certificate


def stream(rng, monitor, law, episodes):
    """Episodes with this law, under actions at random."""
    for _ in range(episodes):
        states, actions, rewards = [0], [], []
        for _ in range(3):
            actions.append(int(rng.integers(3)))
            following, reward = lost_sales(states[-1], actions[-1], int(rng.choice(DEMANDS, p=law)))
            states.append(following)
            rewards.append(reward)
        monitor.observe(states, actions, rewards)


def test_a_row_is_a_ball_and_its_pairs_count_together():
    certificate = claim()
    problem, rng = certificate.problem, np.random.default_rng(0)
    evidence, balls = RowEvidence(problem, certificate.transitions), problem.balls
    fed = balls.arrays(certificate.counts.arrays, certificate.counts.labels)
    sequences = {}
    for _ in range(400):
        pair, demand = int(rng.integers(15)), int(rng.choice(DEMANDS, p=LAW[::-1]))
        assert evidence.add(pair, lost_sales(*divmod(pair, 3), demand)[0], 0.0) is None
        if problem.at_risk[pair]:
            labels = [w for w in range(DEMANDS) if balls.slot_of_label[pair, w] == balls.slot_of_label[pair, demand]]
            sequences.setdefault(int(balls.of_pair[pair]), []).append(labels[0])
    evidence.log_e()
    assert evidence.rows == len(sequences) == problem.rows_at_risk
    by_ball = {
        int(balls.of_pair[row]): (evidence._radii[row], evidence._log_e[0, i]) for i, row in enumerate(evidence._balls)
    }
    for ball, sequence in sequences.items():
        pair = int(np.flatnonzero(balls.of_pair == ball)[0])
        kinds = list(dict.fromkeys(balls.slot_of_label[pair].tolist()))
        firsts = [balls.slot_of_label[pair].tolist().index(kind) for kind in kinds]
        before = [int(fed.tally[fed.begin[pair] + kind]) for kind in kinds]
        since = [sequence.count(label) for label in firsts]
        xi, log_e = by_ball[ball]
        likelihood = len(sequence) * largest_likelihood(before, since, xi)
        assert log_e == pytest.approx(log_mixture(sequence, len(kinds)) - likelihood, abs=1e-6)


def alarms(streams, level, episodes=40):
    """How many streams whose law lies at the edge of the balls have an alarm, and how many there are."""
    found = inside = 0
    for seed in range(streams):
        rng = np.random.default_rng(seed)
        certificate = claim(int(rng.choice([5, 50, 500])), seed=seed % 7)
        problem, method = certificate.problem, KL(certificate.problem)
        method.bounds_of(certificate.counts, np.zeros((problem.steps, problem.n_states), dtype=int), pairs=False)
        law, following = np.zeros((5, 3), dtype=int), np.zeros((5, 3, DEMANDS), dtype=int)
        case = Case(problem, certificate.counts, law, following, following, [LAW], 3, 0)
        adversary = Adversary(case, method.rules.radius)
        if not adversary.is_inside(0, LAW):
            continue
        inside += 1
        edge = adversary.edge(0, LAW, rng.dirichlet(np.full(DEMANDS, 0.5)) - LAW)
        monitor = eb.Monitor(certificate, level=level)
        stream(rng, monitor, edge / edge.sum(), episodes)
        found += monitor.alarm
    return found, inside


def test_there_are_few_false_alarms():
    found, inside = alarms(40, 0.1)
    assert inside >= 30
    assert found <= 4


@pytest.mark.slow
def test_2000_streams_at_the_edge_of_the_balls_have_no_more_alarms_than_the_level():
    found, inside = alarms(2000, 0.1)
    print(f"false alarms of {inside} at level 0.1: {found}")
    assert inside >= 1800
    assert found <= 0.1 * inside


def test_a_change_of_the_law_is_found_named_and_kept_in_a_file(tmp_path):
    monitor, rng = eb.Monitor(claim(2000)), np.random.default_rng(3)
    stream(rng, monitor, LAW, 200)
    assert not monitor.alarm
    monitor.save(tmp_path / "monitor.json")
    again = eb.Monitor.load(tmp_path / "monitor.json")
    assert again.evidence == monitor.evidence
    for each in (monitor, again):
        stream(np.random.default_rng(4), each, np.array([0.5, 0.1, 0.1, 0.1, 0.2]), 200)
    assert monitor.alarm
    assert again.evidence == pytest.approx(monitor.evidence)
    assert "expected" in monitor.suspects[0]


def test_an_outcome_that_no_label_explains_is_an_alarm_at_once():
    monitor = eb.Monitor(claim())
    monitor.observe([0, 1, 4], [1, 0], [-1.0, 0.0])
    assert monitor.alarm
    assert "no label of the declared noise" in monitor.suspects[0]


def tired_walk(state, action, label):
    """Rewards of the state and action alone: slots of the model have none."""
    return min(max(state + (label if action else -label), 0), 3), float(state == 3) + 0.1 * action


@pytest.mark.parametrize(("law", "alarm"), [([0.3, 0.4, 0.3], False), ([0.9, 0.05, 0.05], True)])
def test_a_model_whose_rewards_do_not_depend_on_the_label_is_watched(law, alarm):
    labels = 0, 1, -1
    mdp = eb.FiniteMDP.from_noise(range(4), range(2), labels, [0.3, 0.4, 0.3], tired_walk, horizon=4, start=1)
    assert mdp.rewards.shape == (4, 2)
    goal = {"beta": -1.0, "eps": 1e-6, "delta": 0.1, "noise": "model", "max_episodes": 500, "seed": 0}
    monitor, rng = eb.Monitor(eb.identify(mdp, **goal)), np.random.default_rng(0)
    for _ in range(100):
        states, actions, rewards = [1], rng.integers(2, size=4).tolist(), []
        for action in actions:
            following, reward = tired_walk(states[-1], action, labels[int(rng.choice(3, p=law))])
            states.append(following)
            rewards.append(reward)
        monitor.observe(states, actions, rewards)
    assert monitor.alarm == alarm
    assert monitor.excluded is None
    following, _ = tired_walk(1, 1, 1)
    monitor.observe([1, following], [1], [0.2])
    assert monitor.excluded is not None  # another reward than the known one


class Shop(gymnasium.Env):
    """The same with rewards that are part of the outcome."""

    observation_space, action_space = gymnasium.spaces.Discrete(STOCK + 1), gymnasium.spaces.Discrete(3)

    def __init__(self, law=LAW, bonus=0.0):
        self.law, self.bonus = law, bonus

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.stock = 0
        return 0, {}

    def step(self, action):
        self.stock, reward = lost_sales(self.stock, action, int(self.np_random.choice(DEMANDS, p=self.law)))
        return self.stock, reward + self.bonus, False, False, {}


@pytest.mark.parametrize(("changed", "alarm"), [({}, False), ({"law": LAW[::-1]}, True), ({"bonus": 0.5}, True)])
def test_an_environment_is_watched(changed, alarm):
    noise = eb.Noise(range(DEMANDS), lost_sales)
    goal = {"beta": -0.1, "eps": 1e-6, "delta": 0.1, "horizon": 3, "start": 0}
    result = eb.identify(Shop, noise=noise, max_episodes=1000, seed=1, **goal)
    monitor = eb.Monitor(result)
    eb.rollout(monitor.watch(Shop(**changed)), result, episodes=300, seed=2)
    assert monitor.alarm == alarm


LAKE = "SFFFFHFHFFFHHFFG"


def slip(state, action, label):
    """Where FrozenLake goes, without the rewards, which are learned."""
    side, (row, column) = (action + label) % 4, divmod(state, 4)
    row = min(max(row + (side == 1) - (side == 3), 0), 3)
    column = min(max(column + (side == 2) - (side == 0), 0), 3)
    return eb.END if LAKE[4 * row + column] in "HG" else 4 * row + column


@pytest.fixture(scope="module")
def slipping():
    declared = {"horizon": 8, "noise": eb.Noise([-1, 0, 1], slip), "start": 0, "reward_range": (0, 1)}
    goal = {"beta": -1.0, "eps": 0.5, "delta": 0.1, "max_episodes": 100, "seed": 1}
    return eb.identify("FrozenLake-v1", **declared, **goal)


def test_rewards_that_another_pair_of_the_ball_has_shown_are_possible(slipping):
    """The first pair of a ball stands for all, although it may not have seen an outcome and its reward."""
    for seed in range(5):
        monitor = eb.Monitor(slipping)
        eb.rollout(monitor.watch(gymnasium.make("FrozenLake-v1")), slipping, episodes=40, seed=100 * seed)
        assert not monitor.alarm
        assert monitor.excluded is None


@pytest.mark.parametrize("again", [copy.deepcopy, lambda monitor: pickle.loads(pickle.dumps(monitor))])
def test_a_copy_of_a_monitor_gathers_the_same_evidence(again):
    result = eb.identify(shop(LAW), beta=-1.0, eps=1e-6, delta=0.1, max_episodes=200, seed=1)
    first = eb.Monitor(result)
    second = again(first)
    for monitor in (first, second):
        stream(np.random.default_rng(0), monitor, [0.0, 0.0, 0.1, 0.3, 0.6], 100)
    assert first.evidence > 2.0
    assert second.evidence == first.evidence
