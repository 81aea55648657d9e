"""A Gymnasium environment whose episodes a monitor sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium

if TYPE_CHECKING:
    from entropic_bpi.runs.monitoring.monitor import Monitor


class Watched(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Plays as the environment does, and hands each episode to ``monitor``."""

    def __init__(self, env: Any, monitor: Monitor) -> None:
        super().__init__(env)
        self.monitor = monitor
        self._states: list[Any] = []
        self._done: list[tuple[Any, float]] = []  # actions and rewards

    def reset(self, **options: Any) -> Any:
        self._hand_over(False)
        answer = self.env.reset(**options)
        self._states = [answer[0]]
        return answer

    def step(self, action: Any) -> Any:
        answer = self.env.step(action)
        observation, reward, terminated, truncated, _ = answer
        if self._states:
            self._states.append(observation)
            self._done.append((action, float(reward)))
        if terminated or truncated or len(self._done) == self.monitor.certificate.problem.horizon:
            self._hand_over(bool(terminated))
        return answer

    def close(self) -> None:
        self._hand_over(False)
        super().close()

    def _hand_over(self, terminated: bool) -> None:
        """Also of an episode that was given up: leaving it out would be a selection by what happened in it."""
        states, done, self._states, self._done = self._states, self._done, [], []
        if done:
            actions, rewards = zip(*done, strict=True)
            self.monitor.observe(states, actions, rewards, terminated)
