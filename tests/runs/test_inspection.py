"""What inspect reports and proposes, against environments whose truth is known."""

import itertools
import json
import shlex

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Discrete
from typer.testing import CliRunner

import entropic_bpi as eb
from entropic_bpi import cli
from entropic_bpi.problem.declarations import ENTRIES
from entropic_bpi.runs.inspection.proposals import Notes, _ranges_of_returns
from entropic_bpi.sources.observed import observe

GOAL = {"beta": -1.0, "eps": 0.5, "delta": 0.1}


class Small(gymnasium.Env):
    """Four states in a row and a last step: what happens is a function ``(env, state, action)`` of the test."""

    def __init__(self, move, n_states=4, n_actions=2, start=lambda env: 0, masks=None, limit=6):
        self.observation_space, self.action_space = Discrete(n_states), Discrete(n_actions)
        self.move, self.start, self.masks, self.limit = move, start, masks, limit

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.h, self.state, self.hidden = 0, self.start(self), self.np_random.random() < 0.5
        return self.state, self._info()

    def step(self, action):
        following, reward = self.move(self, self.state, int(action))
        self.h += 1
        self.state = following
        ended = following is None
        return (0 if ended else following), reward, ended, not ended and self.h == self.limit, self._info()

    def _info(self):
        return {} if self.masks is None or self.state is None else {"action_mask": self.masks[self.state]}


def forward(env, state, action):
    """Deterministic: action 1 goes on and ends after the last state, action 0 stays."""
    return (state, -1.0) if action == 0 else (state + 1, 0.5) if state < 3 else (None, 2.0)


def slippery(env, state, action):
    following = int(env.np_random.choice(4, p=[0.4, 0.3, 0.2, 0.1]))
    return following, float(following == 3)


def noisy(env, state, action):
    return (state + 1) % 4, float(env.np_random.random() < 0.3)


def by_step(env, state, action):
    return (state + 1) % 4, 1.0 / (1 + env.h)


def hidden(env, state, action):
    return (state + 1 if env.hidden else state) % 4, 0.0


def changing(env, state, action):
    return int(env.np_random.integers(2)) + (2 if env.h >= 3 else 0), 0.0


def inspected(move, episodes=400, **options):
    return eb.inspect(Small(move, **options), episodes=episodes, seconds=60.0, seed=1)


def test_a_deterministic_environment_is_described_exactly():
    found = inspected(forward).declarations
    assert (found.horizon, found.stationary, found.max_successors, found.reward_law) == (6, True, 1, "fixed")
    assert found.reward_range == (-1.0, 2.0)
    assert found.max_states is None  # all elements of the space were seen


def test_the_range_of_returns_is_that_of_all_ways_to_play():
    found = inspected(forward)
    returns = []
    for actions in itertools.product(range(2), repeat=6):
        env, earned = Small(forward), 0.0
        env.reset(seed=0)
        for action in actions:
            _, reward, ended, cut, _ = env.step(action)
            earned += reward
            returns.append(earned)  # also of shorter horizons
            if ended or cut:
                break
    assert found.declarations.return_range == (min(returns), max(returns))


def test_a_random_start_may_be_any_state_in_the_range_of_returns():
    """Starts in states 0 and 1 were seen; from state 3 one more return is possible, and it is reckoned with."""
    found = inspected(forward, start=lambda env: int(env.np_random.integers(2)), limit=2)
    assert found.declarations.return_range is None or found.declarations.return_range[1] >= 2.5
    ranges = _ranges_of_returns(notes_of(Small(forward, start=lambda env: int(env.np_random.integers(2)))).seen, 6)
    assert ranges[-1] == (-6.0, 3.5)
    assert ranges[0] == (-1.0, 2.0)


def test_a_random_environment_has_its_number_of_successors():
    found = inspected(slippery).declarations
    assert (found.max_successors, found.reward_range, found.reward_law) == (4, (0.0, 1.0), "fixed")


def test_random_rewards_are_noticed_and_their_range_is_a_guess():
    found = inspected(noisy)
    assert found.declarations.reward_law == "random"
    assert "0 or 1" in found.remarks["reward_law"]
    assert "cannot tell" in found.remarks["reward_range"]
    assert found.declarations.max_successors == 1  # rewards are no part of the outcome


def test_rewards_that_depend_on_the_step_are_told_from_random_ones():
    found = inspected(by_step)
    assert (found.declarations.stationary, found.declarations.reward_law) == (False, "fixed")
    assert found.declarations.max_successors == 1
    assert "cannot tell" in found.remarks["reward_range"]


def test_transitions_that_change_with_the_step_are_not_called_stationary():
    assert inspected(changing, start=lambda env: int(env.np_random.integers(2))).declarations.stationary is False


def test_a_hidden_state_is_a_problem_and_nothing_is_said_about_the_steps():
    found = inspected(hidden)
    assert found.problems
    assert "depends on what came before" in found.problems[0]
    assert found.declarations.stationary is None
    assert str(found).splitlines()[1].startswith("PROBLEM")


def notes_of(env, episodes=100):
    from entropic_bpi.sources.environment import open_environment

    return Notes(observe(open_environment(env, 1, 1000), seconds=60.0, episodes=episodes, seed=1))


def test_a_start_that_is_always_the_same_is_proposed_after_enough_episodes():
    assert notes_of(Small(forward)).proposals()["start"][0] == "fixed"
    assert notes_of(Small(forward), 10).proposals()["start"][0] is None
    random = notes_of(Small(forward, start=lambda env: int(env.np_random.integers(3)))).proposals()["start"]
    assert random == (None, "3 different first states in 100 episodes")


MASKS = np.array([[1, 1], [1, 0], [1, 1], [1, 1]], dtype=np.int8)


def enforcing(env, state, action):
    if not MASKS[state][action]:
        raise RuntimeError("illegal move")
    return (state + 1) % 4, 0.0


def test_masks_are_found_and_obeyed_where_the_environment_insists():
    notes = notes_of(Small(enforcing, masks=MASKS))
    assert notes.seen.enforced
    assert notes.proposals()["allowed"][0] == "info"
    assert (1, 1) not in notes.seen.outcomes
    assert not notes.unsettled
    assert not notes_of(Small(slippery, masks=MASKS)).seen.enforced


def test_masks_that_differ_between_visits_are_not_proposed():
    class Changing(Small):
        def _info(self):
            return {"action_mask": np.array([1, self.h % 2], dtype=np.int8)}

    value, text = notes_of(Changing(slippery)).proposals()["allowed"]
    assert value is None
    assert "differs between visits" in text


def test_an_error_of_the_environment_that_no_mask_explains_is_told():
    with pytest.raises(eb.InvalidProblemError, match="illegal move"):
        eb.inspect(Small(enforcing), episodes=50, seed=0)


def test_too_few_episodes_are_said_to_be_too_few():
    found = eb.inspect("Taxi-v4", episodes=2, seed=0)
    assert found.declarations.max_successors is None
    assert "cannot tell" in found.remarks["reward_range"]
    assert "max_successors" in found.not_proposed


@pytest.mark.parametrize("seed", range(6))
def test_proposals_are_true_of_random_models_or_say_that_they_cannot_tell(seed):
    rng = np.random.default_rng(seed)
    kernel = (rng.random((5, 2, 5)) < 0.4).astype(
        float
    )  # outcomes are possible with at least one in five, or not at all
    kernel[..., 0] += kernel.sum(axis=-1) == 0
    kernel /= kernel.sum(axis=-1, keepdims=True)
    rewards = rng.integers(-3, 4, size=(5, 2)).astype(float)
    mdp = eb.FiniteMDP(kernel, rewards, horizon=4)
    found = eb.inspect(eb.as_gymnasium(mdp), episodes=300, seconds=60.0, seed=seed)
    reachable = np.zeros(5, dtype=bool)
    reachable[0] = True
    for _ in range(4):
        reachable |= kernel[reachable].max(axis=(0, 1)) > 0
    truth = {
        "max_successors": int((kernel[reachable] > 0).sum(axis=-1).max()),
        "max_states": int(reachable.sum()),
        "horizon": 4,
    }
    for name, value in found.declarations.given().items():
        if name in truth:
            assert value >= truth[name] or "cannot tell" in found.remarks[name], name
    low, high = found.declarations.reward_range
    inside = low <= rewards[reachable].min() and rewards[reachable].max() <= high
    assert inside or "cannot tell" in found.remarks["reward_range"]
    assert not found.problems


def test_a_model_is_read_and_a_vector_of_environments_is_played():
    model = eb.inspect("risky-bridge", episodes=40, seed=0)
    bridge = eb.instances.risky_bridge()
    assert model.declarations.given() == {
        "horizon": bridge.horizon,
        "stationary": True,
        "successors": "model",
        "max_successors": 2,
    }
    vector = gymnasium.make_vec("FrozenLake-v1", num_envs=3, vectorization_mode="sync")
    found = eb.inspect(vector, episodes=600, seconds=60.0, seed=0)
    assert found.episodes >= 600
    assert found.declarations.max_successors == 3


def test_logs_are_not_played():
    log = eb.Log.read({"e": [0], "t": [0], "s": [0], "a": [0], "r": [0.0]}, episode="e", step="t", state="s",
                      action="a", reward="r", truncated=True)  # fmt: skip
    with pytest.raises(eb.InvalidProblemError, match="inspect plays"):
        eb.inspect(log)


def test_what_is_shown_is_one_table():
    found = inspected(forward)
    assert "reward_range = (-1, 2)" in str(found)
    assert "reward_range = (-1, 2)" in found._repr_html_()
    assert "reward_range=(-1, 2)" in repr(found)


# -- problem files -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    path = tmp_path_factory.mktemp("inspected") / "problem.toml"
    eb.inspect("gym:FrozenLake-v1", episodes=1500, seconds=60.0, seed=0).save(path)
    return path


def test_nothing_is_used_before_it_is_confirmed(lake):
    file = eb.Declarations.load(lake)
    assert file.source == "gym:FrozenLake-v1"
    assert set(file.unconfirmed) == set(file.given())
    assert all("confirm it if it is true" in file.remarks[name].seen for name in file.given())
    with pytest.raises(eb.InvalidProblemError, match=r"not confirmed: .*accept all"):
        eb.identify(lake, **GOAL)


def test_what_was_accepted_at_once_is_part_of_the_certificate(lake, tmp_path):
    result = eb.identify(eb.Declarations.load(lake).accept_all(), **GOAL, horizon=3, seed=1, max_episodes=300)
    accepted = set(eb.Declarations.load(lake).given()) - {"horizon"}
    assert set(result.certificate.provenance.accepted) == accepted
    path = tmp_path / "certificate.json"
    result.certificate.save(path)
    assert eb.Certificate.load(path).provenance == result.certificate.provenance
    assert eb.verify(path).ok
    assert any("not confirmed one by one: " in text for text in result.certificate.assumptions)


def test_a_certificate_of_a_log_names_what_was_accepted_too(tmp_path):
    lines = "".join(f"{e},{t},{s},{a},{s * a}\n" for e in range(40) for t, s, a in ((0, 0, e % 2), (1, 1, e // 2 % 2)))
    (tmp_path / "log.csv").write_text("e,t,s,a,r\n" + lines)
    columns = {"episode": "e", "step": "t", "state": "s", "action": "a", "reward": "r", "truncated": True}
    declared = {"horizon": 2, "reward_range": (0, 1)}
    remarks = dict.fromkeys(declared, eb.Remark(False))
    eb.ProblemFile(source="log.csv", params=columns, remarks=remarks, **declared).save(tmp_path / "problem.toml")
    file = eb.Declarations.load(tmp_path / "problem.toml")
    claim = eb.certify(file.accept_all(), beta=-1.0, delta=0.1, states="seen")
    assert set(claim.provenance.accepted) == set(declared)


def test_a_certificate_cannot_hide_what_was_accepted(lake, tmp_path):
    result = eb.identify(eb.Declarations.load(lake).accept_all(), **GOAL, horizon=3, seed=1, max_episodes=20)
    path = tmp_path / "certificate.json"
    result.certificate.save(path)
    content = json.loads(path.read_text())
    content["provenance"]["accepted"] = []
    from entropic_bpi.certificate.contents import digest

    content.pop("digest")
    path.write_text(json.dumps({**content, "digest": digest(content)}))
    assert not eb.verify(path).ok


def typed(*words):
    return CliRunner().invoke(cli.app, list(map(str, words)), prog_name="entropic-bpi")


def test_the_command_writes_a_file_that_identify_takes(tmp_path):
    path = tmp_path / "problem.toml"
    shown = typed("inspect", "gym:FrozenLake-v1", "--episodes", 800, "--seconds", 60, "--seed", 0, "--out", path)
    assert shown.exit_code == 0, shown.output
    assert "max_successors = 3" in shown.output
    assert f"next: entropic-bpi forecast {path} --accept all" in shown.output
    goal = ("--beta", -1, "--eps", 0.5, "--delta", 0.1, "--horizon", 3, "--seed", 1)
    refused = typed("identify", path, *goal)
    assert refused.exit_code == 2
    assert "--accept all" in refused.output
    done = typed("identify", path, "--accept", "all", *goal, "--json", "-q")
    assert json.loads(done.stdout)["certified"] is True
    again = typed("inspect", "gym:FrozenLake-v1", "--episodes", 5, "--out", path)
    assert again.exit_code == 2


ENDLESS = """
import gymnasium

class Counter(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = 0
        return 0, {}

    def step(self, action):
        self.state = int(self.np_random.random() < 0.5)
        return self.state, float(2 * action * self.state), False, False, {}
"""


def test_the_next_command_can_be_run_also_if_episodes_do_not_end(tmp_path):
    (tmp_path / "endless.py").write_text(ENDLESS)
    words = ("inspect", f"{tmp_path / 'endless.py'}:Counter", "--episodes", 3, "--out", tmp_path / "problem.toml")
    shown = typed(*words)
    assert "horizon: not proposed" in shown.output
    following = shlex.split(shown.output.partition("next: entropic-bpi ")[2])
    assert following[following.index("--eps") + 1] == "2"  # a tenth of 10 steps with rewards from 0 to 2
    done = typed(*following, "--trial-episodes", 5)
    assert done.exit_code == 0, done.output


def test_a_problem_file_is_a_source_of_every_way_to_collect_data(lake):
    """What it says about the rewards that are paid is ignored by an exploration, which is for every reward."""
    file = eb.Declarations.load(lake).accept_all()
    assert {"return_range", "reward_law"} <= set(file.given())
    found = eb.explore(file, eps=0.5, delta=0.1, betas=(-1, 1), horizon=2, max_episodes=50, seed=1)
    assert found.certificate.problem.return_range is None
    assert "return_range" not in found.certificate.provenance.accepted
    assert eb.verify(found.certificate).ok
    words = ("explore", lake, "--betas", -1, 1, "--eps", 2.1, "--delta", 0.1, "--horizon", 2, "--max-episodes", 20)
    assert "not confirmed" in typed(*words).output
    done = typed(*words, "--accept", "all")
    assert done.exit_code == 0, done.output
    with pytest.raises(eb.InvalidProblemError, match="return_range is not for explore"):
        eb.explore(file, eps=0.5, delta=0.1, betas=(-1, 1), horizon=2, return_range=(0, 1))


def test_accept_is_for_problem_files_and_knows_one_word(lake):
    goal = ("--beta", -1, "--eps", 0.5, "--delta", 0.1)
    assert "is for problem files" in typed("identify", "risky-bridge", *goal, "--accept", "all").output
    assert "must be all" in typed("identify", lake, *goal, "--accept", "some").output


def test_what_is_not_in_the_table_of_declarations_is_left_out():
    assert set(inspected(forward).declarations.given()) <= set(ENTRIES)


# -- declared noise ------------------------------------------------------------------------------------------------


def drift(state, action, label):
    """What ``slippery`` does: the label is the next state, whatever is done."""
    return label, float(label == 3)


def test_declared_noise_that_explains_all_transitions_is_said_to():
    found = eb.inspect(Small(slippery), episodes=200, seconds=60.0, seed=1, noise=eb.Noise(range(4), drift))
    assert f"all {found.steps:,} transitions seen are explained by the declared labels" in str(found)
    assert not found.problems


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (lambda s, a, w: (w, 0.0), "went to state 3 with reward 1, which no label explains"),
        (lambda s, a, w: drift(s, a, min(w, 2)), "went to state 3"),
        (lambda s, a, w: eb.END, "which no label explains"),
    ],
)
def test_transitions_that_no_label_explains_are_a_problem(outcome, words):
    found = eb.inspect(Small(slippery), episodes=200, seconds=60.0, seed=1, noise=eb.Noise(range(4), outcome))
    (told,) = found.problems
    assert words in told
    assert f"of {found.steps:,} transitions seen" in told
    assert "explained" not in str(found)


def test_noise_of_a_problem_file_is_checked(tmp_path):
    outcome = {(s, a, w): (w, float(w == 3)) for s, a, w in itertools.product(range(4), range(2), range(4))}
    eb.ProblemFile(source=f"{tmp_path}/environments.py:Small", noise=eb.Noise(range(4), outcome)).save(
        tmp_path / "problem.toml"
    )
    (tmp_path / "environments.py").write_text(
        "import sys\nsys.path.insert(0, '.')\nfrom tests.runs.test_inspection import Small as Base, slippery\n\n\n"
        "def Small():\n    return Base(slippery)\n"
    )
    found = eb.inspect(tmp_path / "problem.toml", episodes=50, seed=1)
    assert "transitions seen are explained" in str(found)


def test_noise_needs_observations_that_are_listed():
    env = Small(slippery)
    env.observation_space = gymnasium.spaces.Box(0.0, 4.0)
    with pytest.raises(eb.InvalidProblemError, match="noise= needs observations that can be listed"):
        eb.inspect(env, episodes=5, seed=1, noise=eb.Noise(range(4), drift))


@pytest.mark.parametrize("command", ["identify", "explore --betas -1 1"])
def test_a_target_in_a_problem_file_need_not_be_given(command, tmp_path):
    path = tmp_path / "problem.toml"
    eb.ProblemFile(source="risky-bridge", risk=eb.Entropic(-1.0), eps=7.5, delta=0.1).save(path)
    done = typed(*command.split(), path, "--max-episodes", 5, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["eps"] == 7.5
