"""Episodes of a Gymnasium environment, used as a black box: ``reset`` and ``step``, nothing else.

The state is the observation, flattened to an integer, and one more state "end" that absorbs with reward 0: a step that
terminates leads there. Rewards are unknown until seen. They must be determined by state, action and next state, with two
exceptions that real environments need: an end may come with up to :data:`END_REWARDS` different rewards (win, draw, loss),
and a step back to the same observation with up to :data:`STAY_REWARDS` (a bump into a wall, and a fall back to the start).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from entropic_bpi._checks import check_finite, check_integer
from entropic_bpi.counts import Counts, Transitions
from entropic_bpi.errors import EntropicBPIError, InvalidProblemError
from entropic_bpi.problem import END_REWARDS, STAY_REWARDS, Problem
from entropic_bpi.sampling.simulator import Behaviour

__all__ = ["END_REWARDS", "STAY_REWARDS", "Environment", "Player", "check_black_box", "open_environment"]

_MAX_STATES = 100_000


def open_environment(source: Any, num_envs: int) -> Environment:
    """Make ``source`` (an env or an id) ready to be played; ids are opened ``num_envs`` times."""
    try:
        import gymnasium
    except ImportError as error:  # pragma: no cover - a core dependency
        raise InvalidProblemError(f"gymnasium cannot be imported: {error}") from None
    if isinstance(source, str):
        name = source.removeprefix("gym:")
        try:
            envs = [gymnasium.make(name, disable_env_checker=True) for _ in range(num_envs)]
        except gymnasium.error.Error as error:
            raise InvalidProblemError(f"cannot make the environment {name!r}: {error}") from None
        return Environment(envs)
    if isinstance(source, gymnasium.Env):
        if num_envs != 1:
            raise InvalidProblemError("num_envs needs an environment id, from which several copies can be made")
        return Environment([source])
    raise InvalidProblemError(
        f"source must be a FiniteMDP, a Gymnasium environment or an environment id, got {type(source).__name__}"
    )


class Environment:
    """One or several copies of an environment with finitely many observations and actions."""

    def __init__(self, envs: list[Any]) -> None:
        self.envs = envs
        env = envs[0]
        self.sizes, self.index = _flattener(env.observation_space)
        self.n_observations = int(np.prod(self.sizes))
        if self.n_observations > _MAX_STATES:
            raise InvalidProblemError(
                f"the environment has {self.n_observations} observations, more than {_MAX_STATES}"
            )
        self.n_actions, self.first_action = _action_count(env.action_space)
        spec = env.spec
        self.name = "environment" if spec is None else spec.id
        self.time_limit = None if spec is None else spec.max_episode_steps

    def problem(
        self,
        *,
        horizon: int,
        reward_range: tuple[float, float],
        beta: float,
        eps: float,
        delta: float,
        stationary: bool,
    ) -> Problem:
        """The identification problem: nothing known but the sizes and the range of the rewards."""
        labels = [str(place[0]) if len(place) == 1 else str(place) for place in np.ndindex(*self.sizes)]
        return Problem.black_box(
            self.n_observations,
            self.n_actions,
            horizon=horizon,
            reward_range=reward_range,
            beta=beta,
            eps=eps,
            delta=delta,
            stationary=stationary,
            state_names=(*labels, "end"),
            source=f"gymnasium:{self.name}",
        )


class Player:
    """Plays an :class:`Environment` into counts.

    Every batch starts by seeding the copies with numbers derived from the run's seed and the batch's number, so that a run
    can be taken up again between batches.
    """

    def __init__(self, environment: Environment, problem: Problem, seed: int) -> None:
        self.environment, self.problem, self.seed = environment, problem, seed
        self.low, self.high = float(problem.slots.low[0, 0]), float(problem.slots.high[0, 0])

    def play(self, behaviour: Behaviour, episodes: int, into: Counts, round: int) -> None:
        """Play ``episodes`` episodes of one behaviour and add them to the counts, all or nothing."""
        seeds = np.random.SeedSequence([self.seed, round]).generate_state(len(self.environment.envs))
        log = _Log()
        greedy, lead, turn = (table.tolist() for table in behaviour[:3])
        for copy, (env, seed) in enumerate(zip(self.environment.envs, seeds, strict=True)):
            share = episodes // len(seeds) + (copy < episodes % len(seeds))
            for episode in range(share):
                state = self._reset(env, int(seed) if episode == 0 else None)
                self._episode(env, state, greedy, lead, turn, behaviour.leading, log)
        into.add(log.transitions(), episodes)

    def _reset(self, env: Any, seed: int | None) -> int:
        observation, _ = self._guard("reset", partial(env.reset, seed=seed))
        return self._state(observation, "reset")

    def _episode(self, env: Any, state: int, greedy: Any, lead: Any, turn: Any, leading: bool, log: _Log) -> None:
        problem, first_action = self.problem, self.environment.first_action
        n_states, n_actions = problem.n_states, problem.n_actions
        log.add(problem.n_rows - 1, state, problem.reward_range[0])
        end = n_states - 1
        for h in range(problem.horizon):
            if leading and turn[h + 1][state] >= 0:
                action, leading = turn[h + 1][state], False
            else:
                action = (lead if leading else greedy)[h + 1][state]
            observation, reward, terminated, truncated, _ = self._guard(
                "step", partial(env.step, action + first_action)
            )
            successor = end if terminated else self._state(observation, "step")
            step = 0 if problem.stationary else h
            log.add((step * n_states + state) * n_actions + action, successor, self._reward(reward, state, action))
            if terminated:
                return
            if truncated and h + 1 < problem.horizon:
                limit = self.environment.time_limit
                raise InvalidProblemError(
                    f"{self.environment.name} was truncated after {h + 1} steps, before the horizon {problem.horizon}"
                    + (f" (its time limit is {limit} steps)" if limit else "")
                    + ": choose a smaller horizon or make the environment with a larger max_episode_steps"
                )
            state = successor

    def _guard(self, what: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except EntropicBPIError:
            raise
        except Exception as error:
            raise InvalidProblemError(
                f"{self.environment.name}.{what} raised {type(error).__name__}: {error}"
            ) from error

    def _state(self, observation: Any, what: str) -> int:
        state = self.environment.index(observation)
        if state < 0:
            raise InvalidProblemError(
                f"{self.environment.name}.{what} returned observation {observation!r}, outside its observation space"
            )
        return state

    def _reward(self, reward: Any, state: int, action: int) -> float:
        value = check_finite(f"the reward in state {self.problem.state_names[state]}, action {action}", reward)
        if not self.low <= value <= self.high:
            raise InvalidProblemError(
                f"{self.environment.name} paid reward {value} in state {self.problem.state_names[state]}, action {action}, "
                f"outside the declared reward_range ({self.low}, {self.high})"
            )
        return value


class _Log:
    """Outcomes of a batch, in the order they were seen."""

    def __init__(self) -> None:
        self.outcomes: dict[tuple[int, int, float], int] = {}

    def add(self, row: int, successor: int, reward: float) -> None:
        key = (row, successor, reward)
        self.outcomes[key] = self.outcomes.get(key, 0) + 1

    def transitions(self) -> Transitions:
        rows, successors, rewards = zip(*self.outcomes, strict=True)
        return Transitions(
            np.array(rows), np.array(successors), np.array(list(self.outcomes.values())), np.array(rewards)
        )


def _action_count(space: Any) -> tuple[int, int]:
    from gymnasium import spaces

    if not isinstance(space, spaces.Discrete):
        raise InvalidProblemError(f"the action space must be Discrete, got {space}")
    return int(space.n), int(space.start)


def _flattener(space: Any) -> tuple[tuple[int, ...], Callable[[Any], int]]:
    """Sizes of the observation's parts and a function to its index in C order, -1 if it is outside the space."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        parts = [(int(space.n), int(space.start))]
    elif isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        parts = [(int(n), int(start)) for n, start in zip(space.nvec, space.start, strict=True)]
    elif isinstance(space, spaces.Tuple) and all(isinstance(part, spaces.Discrete) for part in space.spaces):
        discrete: list[Any] = list(space.spaces)
        parts = [(int(part.n), int(part.start)) for part in discrete]
    else:
        raise InvalidProblemError(
            f"the observation space must be Discrete, MultiDiscrete or a Tuple of Discrete spaces, got {space}"
        )
    sizes = tuple(n for n, _ in parts)

    def index(observation: Any) -> int:
        values = (observation,) if len(parts) == 1 and np.ndim(observation) == 0 else tuple(observation)
        if len(values) != len(parts):
            return -1
        flat = 0
        for value, (n, start) in zip(values, parts, strict=True):
            try:
                place = int(value) - start
            except (TypeError, ValueError):
                return -1
            if place != value - start or not 0 <= place < n:
                return -1
            flat = flat * n + place
        return flat

    return sizes, index


def check_black_box(horizon: Any, reward_range: Any, successors: Any) -> tuple[int, tuple[float, float]]:
    """The arguments that only an environment needs."""
    if horizon is None:
        raise InvalidProblemError("an environment needs horizon=: the number of steps that count")
    if reward_range is None:
        raise InvalidProblemError("an environment needs reward_range=(low, high), where rewards not seen yet must lie")
    if successors is not None:
        raise InvalidProblemError(
            "successors cannot be declared for a black box; from_gymnasium reads a transition table"
        )
    try:
        low, high = (float(bound) for bound in reward_range)
    except (TypeError, ValueError):
        raise InvalidProblemError(f"reward_range must be a pair of numbers, got {reward_range!r}") from None
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise InvalidProblemError(f"reward_range must be finite with low <= high, got ({low}, {high})")
    return check_integer("horizon", horizon), (low, high)
