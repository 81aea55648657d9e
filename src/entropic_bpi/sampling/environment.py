"""Episodes of a Gymnasium environment, used as a black box: ``reset`` and ``step``, nothing else.

The state is the observation, flattened to an integer, and one more state "end" that absorbs with reward 0: a step that
terminates leads there. Rewards are unknown until seen. Unless they are declared random they must be determined by state,
action and next state, up to rounding, with two exceptions that real environments need: an end may come with up to
:data:`END_REWARDS` different rewards (win, draw, loss), and a step back to the same observation with up to
:data:`STAY_REWARDS` (a bump into a wall, and a fall back to the start).
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from entropic_bpi._checks import check_finite, check_memory
from entropic_bpi._facts import qualified_name, source_digest
from entropic_bpi.counts import Counts
from entropic_bpi.errors import EntropicBPIError, InvalidProblemError
from entropic_bpi.problem import END_REWARDS, STAY_REWARDS, Problem
from entropic_bpi.sampling.declared import declared_rows
from entropic_bpi.sampling.witness import BEFORE_THE_FIRST, Batch, Visit, Witness
from entropic_bpi.types import Behaviour, Transitions

__all__ = [
    "END_REWARDS",
    "STAY_REWARDS",
    "Environment",
    "EnvironmentRaised",
    "Player",
    "check_black_box",
    "open_environment",
]

_MAX_STATES = 100_000
_INTEGERS = (int, np.integer)

_Tables = tuple[list[int], list[int], list[int]]  # of one step: the greedy actions, the lead and the turns


class EnvironmentRaised(InvalidProblemError):
    """``reset`` or ``step`` raised an error of its own: what it would have answered is not known."""


def open_environment(source: Any, num_envs: int) -> Environment:
    """Make ``source`` (an env or an id) ready to be played; of an id, ``num_envs`` copies as one vector environment."""
    try:
        import gymnasium
    except ImportError as error:  # pragma: no cover - a core dependency
        raise InvalidProblemError(f"gymnasium cannot be imported: {error}") from None
    check_memory(f"{num_envs} copies of an environment", 1000 * num_envs)
    if isinstance(source, str):
        name = source.removeprefix("gym:")
        try:
            if num_envs > 1:
                env: Any = gymnasium.make_vec(name, num_envs=num_envs, vectorization_mode="sync")
            else:
                env = gymnasium.make(name, disable_env_checker=True)
            return Environment(env, ours=True)
        except gymnasium.error.Error as error:
            raise InvalidProblemError(f"cannot make the environment {name!r}: {error}") from None
    if isinstance(source, gymnasium.Env):
        if num_envs != 1:
            raise InvalidProblemError("num_envs needs an environment id, from which several copies can be made")
        return Environment(source)
    raise InvalidProblemError(
        f"source must be a FiniteMDP, a Gymnasium environment or an environment id, got {type(source).__name__}"
    )


@dataclass(frozen=True)
class Numbered:
    """A finite space: the number of each element, -1 for anything else, and the element of each number."""

    size: int
    index: Callable[[Any], int]
    element: Callable[[int], Any]


class Environment:
    """A Gymnasium environment, or a vector of copies, with finitely many observations and actions."""

    def __init__(self, env: Any, *, ours: bool = False) -> None:
        self.env, self.ours = env, ours
        self.copies = int(env.num_envs) if hasattr(env, "single_observation_space") else 1
        observations, actions = env.observation_space, env.action_space
        if self.copies > 1:
            _check_autoreset(env)
            observations, actions = env.single_observation_space, env.single_action_space
        self.sizes, self.index, element = _flattener(observations)
        self.n_observations = int(np.prod(self.sizes))
        self.states = Numbered(self.n_observations, self.index, element)
        if self.n_observations > _MAX_STATES:
            raise InvalidProblemError(
                f"the environment has {self.n_observations} observations, more than {_MAX_STATES}"
            )
        self.n_actions, self.first_action = _action_count(actions)
        self.actions = Numbered(self.n_actions, *_flattener(actions)[1:])
        spec = env.spec
        self.name = "environment" if spec is None else spec.id
        self.time_limit = None if spec is None else spec.max_episode_steps

    def close(self) -> None:
        """Close the environment if it was opened here; one that was handed in stays open."""
        if self.ours:
            self.env.close()

    def facts(self) -> dict[str, Any]:
        """All that can be seen of the environment's law from outside: its options, its classes and their source."""
        spec, layers = self.env.spec, _layers(self.env)
        facts = {
            "environment": self.name,
            "num_envs": self.copies,
            "observation_space": self.env.observation_space,
            "action_space": self.env.action_space,
            "wrappers": [type(layer).__name__ for layer in layers[:-1]],
            "classes": [[qualified_name(type(layer)), _constructor_arguments(layer)] for layer in layers],
            "source code": source_digest(part for layer in layers for part in _ancestry(type(layer))),
        }
        if spec is not None:
            facts |= {"entry_point": spec.entry_point, "max_episode_steps": spec.max_episode_steps}
            facts |= {f"environment.{name}": value for name, value in spec.kwargs.items()}
        return facts

    def problem(
        self,
        *,
        horizon: int,
        reward_range: tuple[float, float],
        beta: float,
        eps: float,
        delta: float,
        stationary: bool,
        reward_law: str = "fixed",
        successors: Any = None,
        max_successors: int | None = None,
        return_range: tuple[float, float] | None = None,
    ) -> Problem:
        """The identification problem: nothing known but the sizes, the range of the rewards, and what is declared."""
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
            reward_law=reward_law,
            successors=None if successors is None else declared_rows(self.states, self.actions, successors),
            max_successors=max_successors,
            return_range=return_range,
        )


class Player:
    """Plays an :class:`Environment` into counts, before the eyes of a witness.

    Every batch starts by seeding the environment with a number derived from the run's seed and the batch's number, so that
    a run can be taken up again between batches.
    """

    fragile = True

    def __init__(self, environment: Environment, problem: Problem, seed: int) -> None:
        self.environment, self.problem, self.seed = environment, problem, seed
        self.witness: Witness | None = Witness(problem)
        self.low, self.high = problem.declared_range
        everything = (-math.inf, math.inf)
        self.least, self.most = everything if problem.return_range is None else problem.widened_return_range

    def facts(self) -> dict[str, Any]:
        return self.environment.facts()

    def close(self) -> None:
        self.environment.close()

    def play(self, behaviour: Behaviour, episodes: int, into: Counts, round: int) -> None:
        """Play ``episodes`` episodes of one behaviour and add them to the counts, all or nothing."""
        copies = self.environment.copies
        seed: int | None = int(np.random.SeedSequence([self.seed, round]).generate_state(1)[0])
        seen = Batch(Counter(), Counter(), Counter())
        # Lists, because one number is read from them faster than from an array.
        plan = list(zip(*(table[1:].tolist() for table in behaviour[:3]), strict=True))
        for begun in range(0, episodes, copies):
            starts = self._reset(seed)[: episodes - begun]
            seen.starts.update(starts)
            if copies == 1:
                visits, earned = self._walk_alone(starts[0], behaviour.leading, plan)
                seen.returns[earned] += 1
            else:
                walkers = [_Walker(state, behaviour.leading) for state in starts]
                visits = self._walk_together(walkers, plan)
                seen.returns.update(walker.earned for walker in walkers)
            seen.visits.update(visits)
            seed = None
        for earned in seen.returns:
            self._check_return(earned)
        into.add(_transitions(seen, self.problem), episodes)
        assert self.witness is not None
        self.witness.add(seen)

    def _walk_alone(self, state: int, leading: bool, plan: list[_Tables]) -> tuple[list[Visit], float]:
        """One episode of the only copy: what :meth:`_walk_together` does with one walker, written out.

        A step of a small environment takes a few microseconds; the general way would take as long again.
        """
        environment, end = self.environment, self.problem.n_states - 1
        play, first_action = environment.env.step, environment.first_action
        last, previous, earned = self.problem.horizon - 1, BEFORE_THE_FIRST, 0.0
        visits = []
        for h, (greedy, lead, turn) in enumerate(plan):
            if not leading:
                action = greedy[state]
            elif turn[state] < 0:
                action = lead[state]
            else:
                action, leading = turn[state], False
            try:
                answer = play(action + first_action)
            except Exception as error:
                self._refuse_error("step", error)
            observation, reward, terminated, truncated, _ = answer
            following = end if terminated else self._state(observation, "step")
            paid = self._reward(reward, state, action)
            visits.append((h, state, action, following, paid, previous))
            earned += paid
            if terminated:
                break
            if truncated and h < last:
                self._refuse_truncation(h + 1)
            previous, state = state, following
        return visits, earned

    def _walk_together(self, walkers: list[_Walker], plan: list[_Tables]) -> list[Visit]:
        """One episode of each walker, step by step together; one that has ended waits for the others."""
        problem, visits = self.problem, []
        for h, tables in enumerate(plan):
            for walker in walkers:
                walker.choose(*tables)
            answers = self._step([walker.action for walker in walkers])
            for walker, (observation, reward, terminated, truncated) in zip(walkers, answers, strict=True):
                if walker.done:
                    continue
                following = problem.n_states - 1 if terminated else self._state(observation, "step")
                paid = self._reward(reward, walker.state, walker.action)
                visits.append((h, walker.state, walker.action, following, paid, walker.previous))
                walker.arrive(following, paid, terminated)
                if truncated and not terminated and h + 1 < problem.horizon:
                    self._refuse_truncation(h + 1)
            if all(walker.done for walker in walkers):
                break
        return visits

    def _reset(self, seed: int | None) -> list[int]:
        """The first state of each copy."""
        observation, _ = self._guard("reset", self.environment.env.reset, seed=seed)
        return [self._state(single, "reset") for single in self._singles(observation)]

    def _step(self, actions: list[int]) -> list[tuple[Any, Any, bool, bool]]:
        """What the copies answer to one action each; copies without a walker repeat the first one's."""
        environment = self.environment
        played = [action + environment.first_action for action in actions]
        played += played[:1] * (environment.copies - len(played))
        answer = self._guard("step", environment.env.step, np.array(played))
        observation, rewards, terminated, truncated, _ = answer
        each = zip(self._singles(observation), rewards.tolist(), terminated.tolist(), truncated.tolist(), strict=True)
        return list(each)[: len(actions)]

    def _singles(self, observation: Any) -> list[Any]:
        """The observation of each copy: a batch of tuples comes as a tuple of batches."""
        if self.environment.copies == 1:
            return [observation]
        return list(zip(*observation, strict=True)) if isinstance(observation, tuple) else list(observation)

    def _refuse_truncation(self, steps: int) -> NoReturn:
        limit = self.environment.time_limit
        raise InvalidProblemError(
            f"{self.environment.name} was truncated after {steps} steps, before the horizon {self.problem.horizon}"
            + (f" (its time limit is {limit} steps)" if limit else "")
            + ": choose a smaller horizon or make the environment with a larger max_episode_steps"
        )

    def _guard(self, what: str, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        try:
            return call(*args, **options)
        except Exception as error:
            self._refuse_error(what, error)

    def _refuse_error(self, what: str, error: Exception) -> NoReturn:
        if isinstance(error, EntropicBPIError):
            raise error
        raise EnvironmentRaised(f"{self.environment.name}.{what} raised {type(error).__name__}: {error}") from error

    def _state(self, observation: Any, what: str) -> int:
        state = self.environment.index(observation)
        if state < 0:
            raise InvalidProblemError(
                f"{self.environment.name}.{what} returned observation {observation!r}, outside its observation space"
            )
        return state

    def _reward(self, reward: Any, state: int, action: int) -> float:
        try:
            value = float(reward)
        except (TypeError, ValueError, OverflowError):
            value = math.nan
        if not self.low <= value <= self.high:
            self._refuse_reward(reward, state, action)
        return value

    def _check_return(self, earned: float) -> None:
        if not self.least <= earned <= self.most:
            raise InvalidProblemError(
                f"an episode of {self.environment.name} earned {earned:g}, outside the declared return_range "
                f"{self.problem.return_range}"
            )

    def _refuse_reward(self, reward: Any, state: int, action: int) -> NoReturn:
        place = f"in state {self.problem.state_names[state]}, action {action}"
        value = check_finite(f"the reward {place}", reward)
        raise InvalidProblemError(
            f"{self.environment.name} paid reward {value} {place}, "
            f"outside the declared reward_range ({self.low}, {self.high})"
        )


@dataclass
class _Walker:
    """One episode on its way: where it is, whether it still follows the lead, whether it has ended, what it earned."""

    state: int
    leading: bool
    previous: int = BEFORE_THE_FIRST
    action: int = 0
    earned: float = 0.0
    done: bool = False

    def choose(self, greedy: list[int], lead: list[int], turn: list[int]) -> None:
        if self.leading and turn[self.state] >= 0:
            self.action, self.leading = turn[self.state], False
        else:
            self.action = (lead if self.leading else greedy)[self.state]

    def arrive(self, state: int, paid: float, done: bool) -> None:
        self.previous, self.state, self.done = self.state, state, done
        self.earned += paid


def _transitions(seen: Batch, problem: Problem) -> Transitions:
    """What the counts take of it: row by row, in the order of first sight."""
    nothing, n_actions = problem.reward_range[0], problem.n_actions
    stride = 0 if problem.stationary else problem.n_states * n_actions
    outcomes = {(problem.n_rows - 1, state, nothing): times for state, times in seen.starts.items()}
    for (h, state, action, following, paid, _), times in seen.visits.items():
        outcome = (h * stride + state * n_actions + action, following, paid)
        outcomes[outcome] = outcomes.get(outcome, 0) + times
    rows, successors, rewards = zip(*outcomes, strict=True)
    return Transitions(np.array(rows), np.array(successors), np.array(list(outcomes.values())), np.array(rewards))


def _check_autoreset(env: Any) -> None:
    """Refuse a vector environment whose answer to an episode's last step is the first observation of the next episode."""
    import gymnasium

    modes = getattr(gymnasium.vector, "AutoresetMode", None)
    if modes is None:  # Gymnasium 1.0, where all of them reset at the next step
        return
    mode = env.metadata.get("autoreset_mode")
    if mode is not modes.NEXT_STEP:
        raise InvalidProblemError(
            f"the vector environment has metadata['autoreset_mode'] = {mode}, expected {modes.NEXT_STEP}: "
            "with any other the observation at the end of an episode may be one of the next episode"
        )


def _layers(env: Any) -> list[Any]:
    """The environment and what it wraps, outermost first; of a vector of copies, the first copy."""
    from gymnasium import Wrapper
    from gymnasium.vector import SyncVectorEnv, VectorWrapper

    layers = [env]
    while isinstance(layers[-1], (Wrapper, VectorWrapper, SyncVectorEnv)):
        outer = layers[-1]
        layers.append(outer.envs[0] if isinstance(outer, SyncVectorEnv) else outer.env)
    return layers


def _constructor_arguments(env: Any) -> Any:
    """What the environment was made with, where it records that in Gymnasium's way."""
    arguments = getattr(env, "_saved_kwargs", None)
    return arguments and {name: value for name, value in arguments.items() if name != "env"}


def _ancestry(cls: type) -> list[type]:
    """The class and all that it inherits from, except what is Python's own."""
    return [part for part in cls.__mro__ if part.__module__.split(".")[0] not in sys.stdlib_module_names]


def _action_count(space: Any) -> tuple[int, int]:
    from gymnasium import spaces

    if not isinstance(space, spaces.Discrete):
        raise InvalidProblemError(f"the action space must be Discrete, got {space}")
    return int(space.n), int(space.start)


def _flattener(space: Any) -> tuple[tuple[int, ...], Callable[[Any], int], Callable[[int], Any]]:
    """Sizes of the observation's parts, a function to its index in C order, -1 if it is outside the space, and back."""
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
        flat = 0
        try:
            for value, (n, start) in zip(observation, parts, strict=True):
                place = int(value) - start
                if place + start != value or not 0 <= place < n:
                    return -1
                flat = flat * n + place
        except (TypeError, ValueError, OverflowError):  # not a number, or not as many as there are parts
            return -1
        return flat

    def element(index: int) -> tuple[int, ...]:
        return tuple(
            int(place) + start for place, (_, start) in zip(np.unravel_index(index, sizes), parts, strict=True)
        )

    if len(parts) != 1:
        return sizes, index, element
    size, first = parts[0]

    def index_of_one(observation: Any) -> int:
        if isinstance(observation, _INTEGERS):  # the same without the loop: it is what most environments return
            place = int(observation) - first
            return place if 0 <= place < size else -1
        return index((observation,) if np.ndim(observation) == 0 else observation)

    return sizes, index_of_one, lambda index: first + index


def check_black_box(horizon: Any, reward_range: Any) -> None:
    """Refuse to play an environment without what only an environment needs."""
    if horizon is None:
        raise InvalidProblemError("an environment needs horizon=: the number of steps that count")
    if reward_range is None:
        raise InvalidProblemError("an environment needs reward_range=(low, high), where rewards not seen yet must lie")
