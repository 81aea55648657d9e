"""Declared action masks: what they mean for models, environments and logs, and what contradicts them."""

import json

import gymnasium
import numpy as np
import pytest
from typer.testing import CliRunner

import entropic_bpi as eb
from entropic_bpi.cli import app

GOAL = {"beta": -1.0, "eps": 0.3, "delta": 0.1}
MASKS = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 1], [0, 0, 1]], dtype=bool)


class Store(gymnasium.Env):
    """Four levels; action a moves to level a with probability 0.9, and pays a/3; what ``masks`` forbids is refused."""

    observation_space, action_space = gymnasium.spaces.Discrete(4), gymnasium.spaces.Discrete(3)

    def __init__(self, masks=MASKS, offers=True, changes=False):
        self.masks, self.offers, self.changes, self.resets = masks, offers, changes, 0

    def _info(self):
        mask = self.masks[self.level]
        if self.changes and self.resets > 20:
            mask = ~mask | (self.level == 2)
        return {"action_mask": mask.astype(np.int8)} if self.offers else {}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.level, self.resets = 2, self.resets + 1
        return 2, self._info()

    def step(self, action):
        if not self.masks[self.level, action]:
            raise ValueError("forbidden")
        self.level = int(action) if self.np_random.random() < 0.9 else 3
        return self.level, action / 3, False, False, self._info()


def as_model(masks=MASKS):
    kernel = np.zeros((4, 3, 4))
    kernel[:, range(3), range(3)] = 0.9
    kernel[..., 3] = 0.1
    return eb.FiniteMDP(kernel, np.tile(np.arange(3) / 3, (4, 1)), horizon=3, start=2, allowed=masks)


RUN = {"horizon": 3, "reward_range": (0, 1), "start": "fixed", "seed": 1, **GOAL}
BY_STATE = {s: np.flatnonzero(mask).tolist() for s, mask in enumerate(MASKS)}


@pytest.mark.parametrize("allowed", [MASKS, np.stack([MASKS] * 3), lambda s: BY_STATE[s], "info"])
def test_masks_of_an_environment(allowed, tmp_path):
    result = eb.identify(Store(), **RUN, allowed=allowed)
    claim, truth = result.certificate, as_model()
    assert result.stopped
    assert MASKS[range(4), claim.policy[:, :4]].all()
    best, own = eb.solve(truth, -1.0).value, eb.evaluate(truth, claim.policy[:, :4], -1.0).value
    assert claim.lower <= own <= best <= claim.upper
    assert best - own <= claim.gap
    claim.save(tmp_path / "claim.json")
    content = json.loads((tmp_path / "claim.json").read_text())["problem"]["allowed"]
    assert content == {"table": [[*MASKS.astype(int).tolist(), [1, 1, 1]]], "offered": isinstance(allowed, str)}
    assert eb.Certificate.load(tmp_path / "claim.json")._content() == claim._content()
    assert eb.verify(tmp_path / "claim.json").problems == []
    assert eb.verify(claim, rigorous=True).proved
    said = [sentence for sentence in claim.assumptions if "masks" in sentence]
    assert len(said) == 1
    assert "forbid 4 of 12 combinations of state and action" in said[0]


@pytest.mark.parametrize("allowed", [MASKS, "info"])
def test_forbidden_actions_cost_nothing(allowed):
    """They are neither tried nor counted among what must be learned, if that is known before."""
    with_masks = eb.identify(Store(), **RUN, allowed=allowed)
    everything = eb.identify(Store(np.ones((4, 3), dtype=bool)), **RUN)
    assert with_masks.episodes < everything.episodes
    rows = with_masks.certificate.problem.rows_at_risk
    assert rows == everything.certificate.problem.rows_at_risk - (0 if isinstance(allowed, str) else 4)


def test_offered_masks_of_a_vector_environment():
    result = eb.identify(lambda: Store(), **RUN, allowed="info", num_envs=3)
    assert result.stopped
    assert (result.certificate.problem.allowed.table[0, :4] == MASKS).all()
    assert eb.verify(result.certificate).ok


def test_offered_masks_with_states_that_are_found():
    result = eb.identify(Store(), **RUN, allowed="info", max_states=6)
    order = [int(name) for name in result.certificate.problem.state_names[:4]]
    assert (result.certificate.problem.allowed.table[0, :4] == MASKS[order]).all()
    assert result.certificate.problem.allowed.table[0, 4:].all()
    assert eb.verify(result.certificate).ok


def test_a_run_with_offered_masks_goes_on_from_its_checkpoint(tmp_path):
    run = {**RUN, "eps": 0.02, "allowed": "info", "replan": 0.01}
    whole = eb.identify(Store(), **run, max_episodes=90)
    eb.identify(Store(), **run, max_episodes=40, checkpoint=tmp_path / "run.bin")
    resumed = eb.identify(Store(), **run, max_episodes=90, checkpoint=tmp_path / "run.bin")
    assert resumed.certificate._content() == whole.certificate._content()
    with pytest.raises(eb.InvalidProblemError, match="allowed was"):
        eb.identify(Store(), **{**run, "allowed": MASKS}, max_episodes=90, checkpoint=tmp_path / "run.bin")


@pytest.mark.parametrize(
    ("env", "allowed", "message"),
    [
        (Store(offers=False), "info", r"info\['action_mask'\] in state 2 is None; allowed='info' needs 3 flags"),
        (Store(changes=True), "info", "differs from the one before: it must depend only on the state"),
        (Store(np.zeros((4, 3), dtype=bool)), "info", "at least one of them 1"),
        (Store(), "mask", "allowed must be one of info"),
        (Store(), MASKS[:3], r"allowed must be a boolean array of shape \(S, A\) = \(4, 3\)"),
        (Store(), np.full((4, 3), 0.5), "an array of booleans"),
        (Store(), MASKS & [True, True, False], r"allowed\[s=3\] allows no action"),
        (Store(), lambda s: [], r"allowed\(0\) returned no action"),
        (Store(), lambda s: [7], r"allowed\(0\) returned 7, which is not an action"),
        (Store(), lambda s: 1 / 0, r"allowed\(0\) raised ZeroDivisionError"),
    ],
)
def test_masks_that_are_none(env, allowed, message):
    with pytest.raises(eb.EntropicBPIError, match=message):
        eb.identify(env, **{**RUN, "eps": 1e-3}, allowed=allowed, max_episodes=200)


def test_masks_need_states_that_are_listed():
    with pytest.raises(eb.InvalidProblemError, match="use allowed='info'"):
        eb.identify(Store(), **RUN, allowed=MASKS, max_states=4)


# -- models ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["kl", "bernstein"])
@pytest.mark.parametrize("beta", [-1.0, 1.0])
def test_the_masks_of_a_model_are_known(method, beta):
    truth = as_model()
    declared = eb.FiniteMDP(truth.transitions, truth.rewards, horizon=3, start=2)
    options = {**GOAL, "beta": beta, "eps": 0.1, "method": method, "stationary": True, "max_episodes": 3000, "seed": 1}
    options |= {"constants": "sharp"} if method == "bernstein" else {}
    one, other = eb.identify(truth, **options), eb.identify(declared, **options, allowed=MASKS)
    for result in (one, other):
        claim = result.certificate
        best, own = eb.solve(truth, beta).value, eb.evaluate(truth, claim.policy, beta).value
        assert claim.lower <= own <= best <= claim.upper
        assert best - own <= claim.gap
        assert eb.verify(claim).problems == []
    assert one.episodes == other.episodes
    assert (one.policy == other.policy).all()


def test_masks_that_change_from_step_to_step():
    masks = np.ones((3, 4, 3), dtype=bool)
    masks[1, :, 2] = False
    result = eb.identify(as_model(None), **GOAL, allowed=masks, stationary=True, seed=1)
    assert (result.policy[1] != 2).all()
    assert eb.verify(result.certificate, rigorous=True).proved
    truth = as_model(masks)
    assert eb.solve(truth, -1.0).value - eb.evaluate(truth, result.policy, -1.0).value <= result.certificate.gap


@pytest.mark.parametrize(
    ("allowed", "message"),
    [
        ("info", "a FiniteMDP's own masks are known"),
        (~MASKS | (np.arange(4) == 2)[:, None], "together forbid every action"),
    ],
)
def test_masks_that_a_model_cannot_have(allowed, message):
    with pytest.raises(eb.EntropicBPIError, match=message):
        eb.identify(as_model(), **GOAL, allowed=allowed, max_episodes=5)


def test_a_given_policy_must_be_allowed():
    result = eb.identify(as_model(), **GOAL, successors="model", seed=1)
    with pytest.raises(eb.InvalidProblemError, match="policy plays '1' in state '0' at step 0, which is forbidden"):
        eb.certify(result, beta=-1.0, policy=np.ones((3, 4), dtype=int))


def test_learners_play_allowed_actions_only():
    run = eb.run("rsvi2", as_model(), beta=-1.0, episodes=300, seed=0)
    assert MASKS[range(4), run.policy].all()
    assert (np.diff(run.regret) >= -1e-9).all()


def test_a_gpu_is_refused():
    with pytest.raises(eb.EntropicBPIError, match=r"GPU|does not support action masks"):
        eb.identify(as_model(), **GOAL, successors="model", device="gpu")


# -- logs --------------------------------------------------------------------------------------------------------


def log(actions, states=("a", "b")):
    n = len(actions)
    columns = {
        "episode": np.arange(n),
        "step": np.zeros(n, dtype=int),
        "state": np.array([states[i % 2] for i in range(n)]),
        "action": np.array(actions),
        "reward": np.array([float(action == "go") for action in actions]),
        "terminated": np.ones(n, dtype=bool),
    }
    return eb.Log.read(columns, **{name: name for name in columns}, states=["a", "b"], actions=["go", "rest", "stay"])


def test_masks_of_a_log():
    declared = {"beta": -1.0, "delta": 0.1, "horizon": 1, "reward_range": (0, 1)}
    seen = log(["go", "rest"] * 200)
    for allowed in (np.array([[1, 0, 0], [0, 1, 0]]), lambda state: ["go"] if state == "a" else ["rest"]):
        claim = eb.certify(seen, **declared, allowed=allowed)
        assert eb.verify(claim).ok
        assert claim.upper < eb.certify(seen, **declared).upper
    with pytest.raises(
        eb.InvalidProblemError, match=r"line 2 of .*: action 'rest' in state 'b' is forbidden by allowed="
    ):
        eb.certify(seen, **declared, allowed=lambda state: ["go"])
    with pytest.raises(eb.InvalidProblemError, match="an array or a function"):
        eb.certify(seen, **declared, allowed="info")


# -- files and command line --------------------------------------------------------------------------------------


@pytest.mark.parametrize("allowed", [MASKS, np.stack([MASKS, ~MASKS | MASKS[::-1], MASKS]), "info"])
def test_problem_files(allowed, tmp_path):
    eb.Declarations(horizon=3, allowed=allowed).save(tmp_path / "problem.toml")
    np.testing.assert_array_equal(eb.Declarations.load(tmp_path / "problem.toml").allowed, allowed)


def test_a_problem_file_whose_masks_are_none(tmp_path):
    text = 'source = "risky-bridge"\n[declare.allowed]\nvalue = ["10", "0x"]\nconfirmed = true\n'
    (tmp_path / "problem.toml").write_text(text)
    with pytest.raises(eb.InvalidModelError, match="allowed must be"):
        eb.identify(tmp_path / "problem.toml", beta=-1.0, eps=0.5, delta=0.1)


def test_the_option(tmp_path):
    np.save(tmp_path / "masks.npy", np.tile([True, False, True, True], (48, 1)))
    words = "gym:CliffWalking-v1 --horizon 3 --reward-range -100 -1 --beta -0.05 --eps 9 --delta 0.1 --max-episodes 9"
    words = ["identify", *words.split(), "--allowed", str(tmp_path / "masks.npy"), "--out", str(tmp_path / "run")]
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code in (0, 1), answer.output
    masks = eb.Certificate.load(tmp_path / "run" / "certificate.json").problem.allowed
    assert not masks.table[0, :48, 1].any()


def test_inspect_proposes_the_masks_that_are_offered():
    found = eb.inspect(Store(), episodes=60, seconds=60, seed=0)
    assert found.declarations.allowed == "info"
    assert (
        eb.inspect(Store(changes=True, masks=MASKS | True), episodes=60, seconds=60, seed=0).declarations.allowed
        is None
    )


def test_masks_and_noise():
    """The label's law is learned from allowed actions alone."""
    noise = eb.Noise(["reaches", "falls"], lambda s, a, label: a if label == "reaches" else 3)
    truth, plain = as_model(), as_model(None)
    result = eb.identify(plain, **GOAL, noise=noise, allowed=MASKS, seed=1)
    claim = result.certificate
    assert MASKS[range(4), claim.policy].all()
    assert claim.lower <= eb.solve(truth, -1.0).value <= claim.upper
    assert eb.verify(claim).problems == []


def test_the_first_action_that_does_not_exist_is_named():
    wrong = {"allowed": lambda state: [0, 7, 8], "beta": 1.0, "eps": 0.5, "delta": 0.1}
    with pytest.raises(eb.InvalidProblemError, match="returned 7, which is not an action"):
        eb.identify(eb.instances.risky_bridge(horizon=3), **wrong)
