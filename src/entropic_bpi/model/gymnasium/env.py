"""A :class:`~entropic_bpi.model.mdp.FiniteMDP` as a Gymnasium environment."""

from typing import Any

import gymnasium
import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.mdp import FiniteMDP, check_model


class MDPEnv(gymnasium.Env[Any, Any], gymnasium.utils.RecordConstructorArgs):
    """A Gymnasium environment of a model: observations are states, and episodes are truncated after its horizon.

    The observation does not include the step, which matters if the model is not stationary; ``info["step"]`` is the step.
    If actions are forbidden, ``info["action_mask"]`` has 1 for each allowed action.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - as in the base class

    def __init__(self, mdp: FiniteMDP) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self, mdp=mdp, _disable_deepcopy=True)
        self.mdp = mdp = check_model(mdp)
        self.observation_space = gymnasium.spaces.Discrete(mdp.n_states)
        self.action_space = gymnasium.spaces.Discrete(mdp.n_actions)
        self.state, self.step_count = 0, mdp.horizon

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        start, self.step_count = self.mdp.start, 0
        self.state = start if isinstance(start, int) else int(self.np_random.choice(self.mdp.n_states, p=start))
        return self.state, self._info()

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        mdp, h = self.mdp, self.step_count
        if h >= mdp.horizon:
            raise InvalidProblemError("the episode is over: call reset")
        if not self.action_space.contains(action):
            raise InvalidProblemError(f"action must be 0 to {mdp.n_actions - 1}, got {action!r}")
        if mdp.allowed is not None and not self._info()["action_mask"][action]:
            raise InvalidProblemError(f"action {action} is forbidden in state {self.state} at step {h}")
        rows, row = mdp.step_rows(h), self.state * mdp.n_actions + int(action)
        begin, end = rows.indptr[row : row + 2]
        draw = self.np_random.random()
        entry = begin + np.searchsorted(np.cumsum(rows.probabilities[begin:end]), draw, side="right")
        entry = min(entry, end - 1)
        reward = mdp.step_rewards(h)[self.state, action] if rows.rewards is None else rows.rewards[entry]
        self.state, self.step_count = int(rows.indices[entry]), h + 1
        return self.state, float(reward), False, self.step_count == mdp.horizon, self._info()

    def _info(self) -> dict[str, Any]:
        info, masks = {"step": self.step_count}, self.mdp._allowed
        if masks is None:
            return info
        return info | {"action_mask": masks[min(self.step_count, len(masks) - 1), self.state].astype(np.int8)}


def as_gymnasium(mdp: FiniteMDP) -> MDPEnv:
    """Return a Gymnasium environment that simulates a model.

    Parameters
    ----------
    mdp : FiniteMDP
        The model.

    Returns
    -------
    gymnasium.Env
        An environment whose episodes have ``mdp.horizon`` steps.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> env = eb.as_gymnasium(eb.instances.risky_bridge(horizon=7))
    >>> observation, info = env.reset(seed=0)
    >>> observation, reward, terminated, truncated, info = env.step(0)
    >>> observation, reward, terminated, truncated
    (1, 0.0, False, False)
    """
    return MDPEnv(mdp)


def make(instance: str, **parameters: Any) -> MDPEnv:
    """Return an environment of an instance: the entry point of the ids of :mod:`entropic_bpi.environments`."""
    from entropic_bpi.model import instances

    return MDPEnv(instances.make(instance, **parameters))
