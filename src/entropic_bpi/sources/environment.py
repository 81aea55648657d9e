"""Episodes of a Gymnasium environment, used as a black box: ``reset`` and ``step``, nothing else.

The state is the observation, flattened to an integer, and one more state "end" that absorbs with reward 0: a step that
terminates leads there. Rewards are unknown until seen. Unless they are declared random they must be determined by state,
action and next state, up to rounding, with two exceptions that real environments need: an end may come with up to
``END_REWARDS`` different rewards (win, draw, loss), and a step back to the same observation with up to
``STAY_REWARDS`` (a bump into a wall, and a fall back to the start).
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np

from entropic_bpi._gymnasium_ids import env_factory, is_class_in_file
from entropic_bpi.errors import EntropicBPIError, InvalidProblemError
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.declarations import INFO, Declarations
from entropic_bpi.problem.known_rewards import with_known_rewards
from entropic_bpi.problem.masks import Masks, masks_of, numbered_starts, offered_masks
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.risk import AnyReward, Risk
from entropic_bpi.sources.adapters import as_gymnasium_env
from entropic_bpi.sources.assumption_tests import BEFORE_THE_FIRST, AssumptionTests, Batch, Visit
from entropic_bpi.sources.spaces import END_NAME, MOST_STATES, DiscoveredStates, FiniteSpace, finite
from entropic_bpi.sources.successors import declared_rows, with_noise
from entropic_bpi.tools.checks import check_finite, check_memory
from entropic_bpi.tools.facts import qualified_name, source_digest
from entropic_bpi.tools.text import shown
from entropic_bpi.types import Behaviour, Transitions

_Tables = tuple[list[int], list[int], list[int]]  # of one step: the greedy actions, the lead and the turns


class EnvironmentRaised(InvalidProblemError):
    """``reset`` or ``step`` raised an error of its own: what it would have answered is not known."""


def open_environment(source: Any, num_envs: int, max_states: int | None = None) -> Environment:
    """Make ``source`` (an env, a vector env, an id, a class or a factory) ready to be played.

    Of an id, a class or a factory, ``num_envs`` copies as one vector environment.
    """
    try:
        import gymnasium
    except ImportError as error:  # pragma: no cover - a core dependency
        raise InvalidProblemError(f"gymnasium cannot be imported: {error}") from None
    check_memory(f"{num_envs} copies of an environment", 1000 * num_envs)
    if not isinstance(source, type):
        source = as_gymnasium_env(source, type(source).__name__)
    given = isinstance(source, (gymnasium.Env, gymnasium.vector.VectorEnv))
    if given and num_envs != 1:
        raise InvalidProblemError(
            "num_envs needs an environment id, a class or a factory, from which several copies can be made"
        )
    if given:
        return Environment(source, max_states=max_states)
    env = make_env(source, num_envs)
    try:
        return Environment(env, ours=True, max_states=max_states)
    except BaseException:
        env.close()
        raise


def make_env(source: Any, num_envs: int = 1) -> Any:
    """An environment made here, or a vector of copies."""
    import gymnasium

    if not isinstance(source, str) and not callable(source):
        raise InvalidProblemError(
            "source must be a FiniteMDP, a Gymnasium environment, a vector of them, an environment id, a class or a "
            f"factory; got {type(source).__name__}"
        )
    name = source.removeprefix("gym:") if isinstance(source, str) else getattr(source, "__qualname__", repr(source))
    copies: list[Any] = []

    def copy() -> Any:
        copies.append(as_gymnasium_env(make(), name))
        return copies[-1]

    try:
        make = env_factory(name, {}) if isinstance(source, str) else source
        if num_envs == 1:
            env = copy()
        elif isinstance(source, str) and not is_class_in_file(name):
            env = gymnasium.make_vec(name, num_envs=num_envs, vectorization_mode="sync")
        else:
            env = gymnasium.vector.SyncVectorEnv([copy] * num_envs)
    except Exception as error:  # a factory may raise anything, and so may an environment on being made
        for env in copies:
            if isinstance(env, gymnasium.Env):
                env.close()
        if isinstance(error, EntropicBPIError):
            raise
        raise InvalidProblemError(f"cannot make the environment {name!r}: {error}") from error
    if not isinstance(env, (gymnasium.Env, gymnasium.vector.VectorEnv)):
        raise InvalidProblemError(f"{name} made {shown(env)}, expected a Gymnasium environment")
    return env


class Environment:
    """A Gymnasium environment, or a vector of copies, with finitely many observations and actions."""

    def __init__(self, env: Any, *, ours: bool = False, max_states: int | None = None) -> None:
        from gymnasium.vector import VectorEnv

        if max_states is not None and max_states > MOST_STATES:
            raise InvalidProblemError(f"max_states must be at most {MOST_STATES}, got {max_states}")
        self.env, self.ours, self.max_states = env, ours, max_states
        self.vector = isinstance(env, VectorEnv)
        self.copies = int(env.num_envs) if self.vector else 1
        if self.vector:
            _check_autoreset(env)
        observations = env.single_observation_space if self.vector else env.observation_space
        self.single_action_space = env.single_action_space if self.vector else env.action_space
        self.states = _listed(observations) if max_states is None else DiscoveredStates(max_states)
        self.actions = _actions(self.single_action_space)
        spec = env.spec
        self.name = "environment" if spec is None else spec.id
        self.time_limit = None if spec is None else spec.max_episode_steps

    def close(self) -> None:
        """Close the environment if it was opened here; one that was handed in stays open."""
        if self.ours:
            self.env.close()

    def batch(self, actions: list[int]) -> Any:
        """One action for each copy, in the form that a vector of them takes."""
        from gymnasium.vector.utils import concatenate, create_empty_array

        room: Any = create_empty_array(self.single_action_space, len(actions))
        return concatenate(self.single_action_space, [self.actions.element(a) for a in actions], room)

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
        eps: float,
        delta: float,
        beta: float | None = None,
        risk: Risk | None = None,
        **declared: Any,
    ) -> Problem:
        """Return the identification problem: nothing is known but the sizes and what is declared."""
        given, states = Declarations(**declared), self.states
        given.check_source("environment")
        check_black_box(given)
        if given.successors is not None:
            rows = self._declared(given.successors, given.reward_law in (None, "fixed"))
            given = replace(given, successors=rows)
        if given.noise is not None:
            given.check_combinations()
            assert isinstance(states, FiniteSpace)
            given = with_noise(states, self.actions, given)
        if given.reward is not None:
            given = with_known_rewards(states, self.actions, given)
        if given.start is not None:
            given = replace(given, start=numbered_starts(given.start, states.index))
        if given.allowed is not None:
            given = replace(given, allowed=self._masks(given.allowed, given.horizon or 0))
        return Problem.black_box(
            states.size,
            self.actions.size,
            eps=eps,
            delta=delta,
            beta=beta,
            risk=risk,
            state_names=states.names if isinstance(states, DiscoveredStates) else (*states.labels(), END_NAME),
            action_names=self.actions.labels(),
            source=f"gymnasium:{self.name}",
            **{**given.given(), "max_states": self.max_states},
        )

    def _masks(self, allowed: Any, horizon: int) -> Masks | None:
        states, actions = self.states, self.actions
        if isinstance(allowed, str) and allowed == INFO:
            return offered_masks(states.size + 1, actions.size)
        if isinstance(states, DiscoveredStates):
            raise InvalidProblemError(
                "allowed= needs states that can be listed before they are seen, not max_states: use allowed='info'"
            )
        elements = map(states.element, range(states.size))
        return masks_of(allowed, horizon, elements, actions.size, actions.index, extra=1)

    def _declared(self, successors: Any, repeated: bool) -> tuple[np.ndarray, np.ndarray]:
        if isinstance(self.states, DiscoveredStates):
            raise InvalidProblemError(
                "successors needs states that can be listed before they are seen, not max_states: declare max_successors"
            )
        return declared_rows(self.states, self.actions, successors, repeated=repeated)


class Player:
    """Plays an :class:`Environment` into counts; ``tests`` of the assumptions are told of every episode.

    Every batch starts by seeding the environment with a number derived from the run's seed and the batch's number, so that
    a run can be taken up again between batches.
    """

    can_lose_episodes = True

    def __init__(self, environment: Environment, problem: Problem, seed: int, tests: AssumptionTests) -> None:
        self.environment, self.problem, self.seed, self.tests = environment, problem, seed, tests
        # Rewards that are known are compared with what is declared when they are counted.
        self.low, self.high = problem.declared_range if problem.reward is None else (-math.inf, math.inf)
        self.ignores_rewards = isinstance(problem.risk, AnyReward)
        self.factor = problem.factors.tolist()
        self.least, self.most = problem.return_limits
        self.masks = problem.allowed if problem.allowed is not None and problem.allowed.offered else None
        self.mask_of: dict[int, bytes] = {}  # as they were last seen
        self.latest_masks: Any = None  # of the copies of a vector

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
            if not self.environment.vector:
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
        moves = transitions_of(seen, self.problem)
        into.add(moves, episodes)
        self.tests.add(seen, moves)

    def _walk_alone(self, state: int, leading: bool, plan: list[_Tables]) -> tuple[list[Visit], float]:
        """One episode of the only copy: what :meth:`_walk_together` does with one walker, written out.

        A step of a small environment takes a few microseconds; the general way would take as long again.
        """
        environment, end = self.environment, self.problem.n_states - 1
        play, action_of = environment.env.step, environment.actions.element
        last, previous, earned = self.problem.horizon - 1, BEFORE_THE_FIRST, 0.0
        visits, factor = [], self.factor
        for h, (greedy, lead, turn) in enumerate(plan):
            if not leading:
                action = greedy[state]
            elif turn[state] < 0:
                action = lead[state]
            else:
                action, leading = turn[state], False
            if self.masks is not None:
                action = self._permitted(state, action)
            try:
                answer = play(action_of(action))
            except Exception as error:
                self._refuse_error("step", error)
            observation, reward, terminated, truncated, info = answer
            following = end if terminated else self._state(observation, "step")
            if self.masks is not None and not terminated:
                self._note_masks([following], info)
            paid = self._reward(reward, state, action)
            if terminated and self.problem.reward is not None:
                self._check_end(observation, state, action, paid)
            visits.append((h, state, action, following, paid, previous))
            earned += factor[h] * paid
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
                if self.masks is not None:  # what a copy plays after its episode is of no interest
                    walker.action = -1 if walker.done else self._permitted(walker.state, walker.action)
            answers, info = self._step([walker.action for walker in walkers])
            arrived: list[int] = []
            for walker, (observation, reward, terminated, truncated) in zip(walkers, answers, strict=True):
                arrived.append(-1)
                if walker.done:
                    continue
                following = problem.n_states - 1 if terminated else self._state(observation, "step")
                paid = self._reward(reward, walker.state, walker.action)
                if terminated and problem.reward is not None:
                    self._check_end(observation, walker.state, walker.action, paid)
                visits.append((h, walker.state, walker.action, following, paid, walker.previous))
                walker.arrive(following, self.factor[h] * paid, terminated)
                arrived[-1] = -1 if terminated else following
                if truncated and not terminated and h + 1 < problem.horizon:
                    self._refuse_truncation(h + 1)
            if self.masks is not None:
                self._note_masks(arrived, info)
            if all(walker.done for walker in walkers):
                break
        return visits

    def _reset(self, seed: int | None) -> list[int]:
        """The first state of each copy."""
        observation, info = self._guard("reset", self.environment.env.reset, seed=seed)
        states = [self._state(single, "reset") for single in self._singles(observation)]
        if self.masks is not None:
            self._note_masks(states, info)
        return states

    def _note_masks(self, states: list[int], info: Any) -> None:
        """Record the action mask that came with the state of each copy; a state of -1 has none.

        Raises
        ------
        InvalidProblemError
            If there is none, if it allows nothing, or if it is not what it was when the state was visited before.
        """
        assert self.masks is not None
        given = self.latest_masks = info.get("action_mask") if isinstance(info, dict) else None
        masks = [given] if not self.environment.vector else [None] * len(states) if given is None else given
        for state, mask in zip(states, masks, strict=False):
            if state < 0:
                continue
            flags = np.asarray(mask)
            where = f"{self.environment.name}: info['action_mask'] in state {self.problem.state_names[state]}"
            if flags.shape != (self.problem.n_actions,) or not np.isin(flags, (0, 1)).all() or not flags.any():
                raise InvalidProblemError(
                    f"{where} is {shown(mask)}; allowed='info' needs {self.problem.n_actions} flags, at least one of them 1"
                )
            content = flags.astype(bool).tobytes()
            if self.mask_of.setdefault(state, content) != content:
                raise InvalidProblemError(f"{where} is not what it was before: it must depend on the state alone")
            self.masks.table[0, state] = flags

    def _permitted(self, state: int, action: int) -> int:
        """The action, or the first allowed one if the state's mask, which the plan may not have known, forbids it."""
        assert self.masks is not None
        mask = self.masks.table[0, state]
        return action if mask[action] else int(mask.argmax())

    def _step(self, actions: list[int]) -> tuple[list[tuple[Any, Any, bool, bool]], Any]:
        """What the copies answer to one action each, and their info; copies without a walker repeat the first one's."""
        environment = self.environment
        played = [*actions, *actions[:1] * (environment.copies - len(actions))]
        if self.masks is not None:
            busy = len(actions)
            played = [a if i < busy and a >= 0 else int(np.argmax(self.latest_masks[i])) for i, a in enumerate(played)]
        answer = self._guard("step", environment.env.step, environment.batch(played))
        observation, rewards, terminated, truncated, info = answer
        each = zip(self._singles(observation), rewards.tolist(), terminated.tolist(), truncated.tolist(), strict=True)
        return list(each)[: len(actions)], info

    def _singles(self, observation: Any) -> list[Any]:
        """The observation of each copy; of a vector, a batch of tuples comes as a tuple of batches."""
        if not self.environment.vector:
            return [observation]
        from gymnasium.vector.utils import iterate

        return list(iterate(self.environment.env.observation_space, observation))

    def _refuse_truncation(self, steps: int) -> NoReturn:
        name, limit, horizon = self.environment.name, self.environment.time_limit, self.problem.horizon
        cause, remedy = "", "let it go on for that long"
        if limit is not None:
            cause = f" (its time limit is {limit} steps)"
            remedy = f"pass gymnasium.make({name!r}, max_episode_steps={horizon}) (-p max_episode_steps={horizon})"
        raise InvalidProblemError(
            f"{name} was truncated after {steps} steps, before the horizon {horizon}{cause}, and what would have come is "
            f"unknown: declare horizon={steps}, or {remedy}"
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
        state = self.environment.states.index(observation)
        if state < 0:
            raise InvalidProblemError(
                f"{self.environment.name}.{what} returned observation {observation!r}, outside its observation space; "
                "max_states=M (--max-states M) takes any observation, at most M different ones"
            )
        return state

    def _reward(self, reward: Any, state: int, action: int) -> float:
        if self.ignores_rewards:
            return self.low
        try:
            value = float(reward)
        except (TypeError, ValueError, OverflowError):
            value = math.nan
        if not self.low <= value <= self.high:
            self._refuse_reward(reward, state, action)
        return value

    def _check_end(self, observation: Any, state: int, action: int, paid: float) -> None:
        """Whether an end pays what is declared for the observation that came with it."""
        table = self.problem.reward and self.problem.reward.table
        if table is None:
            return
        declared = table[state, action, self._state(observation, "step")]
        if not abs(declared - paid) <= self.problem.same_reward:
            where = f"in state {self.problem.state_names[state]}, action {self.problem.action_names[action]}"
            raise InvalidProblemError(
                f"{self.environment.name} paid {paid:g} {where}, but the declared reward for an end with observation "
                f"{shown(observation)} is {declared:g}"
            )

    def _check_return(self, earned: float) -> None:
        if not self.least <= earned <= self.most:
            self.problem.refuse_return(f"an episode of {self.environment.name}", earned)

    def _refuse_reward(self, reward: Any, state: int, action: int) -> NoReturn:
        place = f"in state {self.problem.state_names[state]}, action {self.problem.action_names[action]}"
        if np.ndim(reward) > 0:
            raise InvalidProblemError(
                f"{self.environment.name} paid {shown(reward)} {place}: its reward is a vector of {np.size(reward)} "
                "numbers, wrap it so that it is one number, such as a weighted sum (gymnasium.RewardWrapper)"
            )
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


def transitions_of(seen: Batch, problem: Problem) -> Transitions:
    """What the counts take of it: row by row, in the order of first sight."""
    nothing, n_actions = problem.possible_rewards[0], problem.n_actions
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


def _listed(space: Any) -> FiniteSpace:
    """The observations of a space that is small enough to list them."""
    numbered = finite(space)
    if numbered is not None and numbered.listable:
        return numbered
    size = "is not made of finitely many integers" if numbered is None else f"has {numbered}, too many to list them"
    raise InvalidProblemError(
        f"the observation space {shown(space)} {size}: declare max_states=M, at most how many different observations the "
        "environment really makes; they are then numbered as they are first seen"
    )


def _actions(space: Any) -> FiniteSpace:
    numbered = finite(space)
    if numbered is not None and numbered.listable:
        return numbered
    size = "is not finite" if numbered is None else f"has {numbered}, too many to list them"
    raise InvalidProblemError(
        f"the action space {shown(space)} {size}: wrap the environment so that there are few actions"
    )


def check_black_box(declared: Declarations, what: str = "an environment") -> None:
    """Refuse to go on without what only an environment or a log needs."""
    if declared.horizon is None:
        raise InvalidProblemError(f"{what} needs horizon=: the number of steps that count")
    if declared.reward_range is None and declared.noise is None and declared.reward is None:
        raise InvalidProblemError(f"{what} needs reward_range=(low, high), where rewards not seen yet must lie")
