"""Episodes of a Gymnasium environment, used as a black box by ``reset`` and ``step``.

The state is the number of the observation. An additional state "end" is absorbing, with reward 0; steps that terminate lead
there. Rewards are unknown until they are observed. Unless they are declared random, they must be determined by state, action
and next state, up to rounding, with two exceptions that real environments need: up to ``END_REWARDS`` different rewards at
the end of an episode (win, draw, loss), and up to ``STAY_REWARDS`` when the state does not change (hitting a wall, and
falling back to the start).
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from typing import Any, NoReturn

import numpy as np

from entropic_bpi.errors import EntropicBPIError, InvalidProblemError
from entropic_bpi.model.gymnasium.ids import env_factory, is_class_in_file
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.declarations import Declarations, goal_of
from entropic_bpi.problem.noise import Noise
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.risk import AnyReward
from entropic_bpi.sources.adapters import as_gymnasium_env
from entropic_bpi.sources.assumption_tests import BEFORE_THE_FIRST, AssumptionTests, Batch
from entropic_bpi.sources.spaces import END_NAME, DiscoveredStates, listed
from entropic_bpi.sources.successors import in_numbers
from entropic_bpi.tools.checks import ask, check_memory
from entropic_bpi.tools.facts import qualified_name, source_digest
from entropic_bpi.tools.text import shown
from entropic_bpi.types import END, Behaviour, Transitions

_ANSWERS = {"reset": "(observation, info)", "step": "(observation, reward, terminated, truncated, info)"}
_Tables = tuple[list[int], list[int], list[int]]  # Behaviour.greedy, lead and switch_action of one step


class EnvironmentRaised(InvalidProblemError):
    """``reset`` or ``step`` of an environment raised an exception, so that the outcome is unknown."""


def open_environment(source: Any, num_envs: int, max_states: int | None = None) -> Environment:
    """Return the :class:`Environment` of an env, a vector env, an id, a class or a factory.

    For an id, a class or a factory, ``num_envs`` copies are made as one vector environment.
    """
    check_memory(f"{num_envs} copies of an environment", 1000 * num_envs)
    if not isinstance(source, type):
        source = as_gymnasium_env(source, type(source).__name__)
    ours = not _is_env(source)
    if num_envs != 1 and not ours:
        raise InvalidProblemError("num_envs needs an environment id, a class or a factory, to make copies of it")
    env = make_env(source, num_envs) if ours else source
    try:
        return Environment(env, ours=ours, max_states=max_states)
    except BaseException:
        if ours:
            env.close()
        raise


def make_env(source: Any, num_envs: int = 1) -> Any:
    """Return a new environment of an id, a class or a factory, or a vector environment of copies."""
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
    except Exception as error:  # a factory or a constructor may raise any exception
        for env in filter(_is_env, copies):
            env.close()
        if isinstance(error, EntropicBPIError):
            raise
        raise InvalidProblemError(f"cannot make the environment {name!r}: {error}") from error
    if not _is_env(env):
        raise InvalidProblemError(f"{name} made {shown(env)}, expected a Gymnasium environment")
    return env


def _is_env(thing: Any) -> bool:
    import gymnasium

    return isinstance(thing, (gymnasium.Env, gymnasium.vector.VectorEnv))


class Environment:
    """A Gymnasium environment, or a vector of copies, with finitely many observations and actions."""

    def __init__(self, env: Any, *, ours: bool = False, max_states: int | None = None) -> None:
        from gymnasium.vector import AutoresetMode, VectorEnv

        self.env, self.ours = env, ours
        self.vector = isinstance(env, VectorEnv)
        self.copies = int(env.num_envs) if self.vector else 1
        # With another mode, the last step of an episode returns the first observation of the next episode.
        if self.vector and (mode := env.metadata.get("autoreset_mode")) is not AutoresetMode.NEXT_STEP:
            raise InvalidProblemError(
                f"the vector environment has metadata['autoreset_mode'] = {mode}, expected {AutoresetMode.NEXT_STEP}: "
                "with another mode, the observation at the end of an episode may be one of the next episode"
            )
        self.single_observation_space = env.single_observation_space if self.vector else env.observation_space
        self.single_action_space = env.single_action_space if self.vector else env.action_space
        remedy = "declare max_states=M, an upper bound on the number of distinct observations (--max-states M)"
        discovered = None if max_states is None else DiscoveredStates(max_states)
        self.states = discovered or listed("observation", self.single_observation_space, remedy)
        self.actions = listed("action", self.single_action_space, "wrap the environment so that there are few actions")
        self.noise: Noise | None = None  # of the problem that was made last
        self.name = getattr(env.spec, "id", "environment")
        self.time_limit: int | None = getattr(env.spec, "max_episode_steps", None)

    def close(self) -> None:
        """Close the environment if this library made it; an environment of the user stays open."""
        if self.ours:
            self.env.close()

    def reset(self, seed: int | None) -> tuple[list[Any], Any]:
        """Return the first observation of each copy, and the info."""
        observation, info = self._call("reset", seed=seed)
        return self._singles(observation), info

    def step(self, actions: list[int]) -> tuple[list[tuple[Any, Any, bool, bool]], Any]:
        """Return (observation, reward, terminated, truncated) of each copy for its action, and the info."""
        if not self.vector:
            observation, reward, ended, cut, info = self._call("step", self.actions.element(actions[0]))
            return [(observation, reward, bool(ended), bool(cut))], info
        from gymnasium.vector.utils import concatenate, create_empty_array

        room: Any = create_empty_array(self.single_action_space, len(actions))
        batch = concatenate(self.single_action_space, [self.actions.element(a) for a in actions], room)
        observation, rewards, terminated, truncated, info = self._call("step", batch)
        each = zip(self._singles(observation), rewards.tolist(), terminated.tolist(), truncated.tolist(), strict=True)
        return list(each), info

    def _call(self, what: str, *args: Any, **options: Any) -> Any:
        try:
            answer = getattr(self.env, what)(*args, **options)
        except EntropicBPIError:
            raise
        except Exception as error:
            raise EnvironmentRaised(f"{self.name}.{what} raised {type(error).__name__}: {error}") from error
        if not isinstance(answer, tuple | list) or len(answer) != 1 + _ANSWERS[what].count(","):
            raise InvalidProblemError(f"{self.name}.{what} returned {shown(answer)}, expected {_ANSWERS[what]}")
        return answer

    def _singles(self, observation: Any) -> list[Any]:
        """Return the observation of each copy; vector environments return a batch of tuples as a tuple of batches."""
        if not self.vector:
            return [observation]
        from gymnasium.vector.utils import iterate

        return list(iterate(self.env.observation_space, observation))

    def masks(self, info: Any) -> Any:
        """Return the action mask of each copy in an info; None for copies without a mask."""
        given = info.get("action_mask") if isinstance(info, dict) else None
        return [given] * self.copies if given is None or not self.vector else given

    def paid(self, reward: Any, where: str = "") -> float:
        """Return a reward as a float; raise an error if it is not a finite number."""
        try:
            value = float(reward)
        except (TypeError, ValueError, OverflowError):
            value = math.nan
        if math.isfinite(value):
            return value
        advice = "it must be a finite real number"
        if np.ndim(reward):
            advice = f"the reward is a vector of {np.size(reward)} numbers; make it one number, such as a "
            advice += "weighted sum, by a gymnasium.RewardWrapper"
        raise InvalidProblemError(f"{self.name} paid {shown(reward)}{where}: {advice}")

    def facts(self) -> dict[str, Any]:
        """Return what determines the environment's law, as far as possible: its options, classes and their source code."""
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

    def problem(self, **declared: Any) -> Problem:
        """Return the identification problem with this goal and these declarations."""
        goal, given = goal_of(declared)
        states, actions = self.states, self.actions
        given.check_source("environment")
        self.noise, given = given.noise, in_numbers(given, states, actions, played=True)
        return Problem.black_box(
            states.size,
            actions.size,
            state_labels=states.names if isinstance(states, DiscoveredStates) else (*states.labels(), END_NAME),
            action_labels=actions.labels(),
            source=f"gymnasium:{self.name}",
            **goal | given.given(),
        )


class Player:
    """Plays an :class:`Environment`, and adds the episodes to counts and to the ``tests`` of the assumptions.

    At the beginning of each batch, the environment is seeded with a number derived from the run's seed and the batch's
    number, so that a run can be continued between batches.
    """

    def __init__(self, environment: Environment, problem: Problem, seed: int, tests: AssumptionTests) -> None:
        self.environment, self.problem, self.seed, self.tests = environment, problem, seed, tests
        # Known rewards are compared with the declared ones when they are counted.
        self.low, self.high = problem.declared_range if problem.reward is None else (-math.inf, math.inf)
        self.ignores_rewards = isinstance(problem.risk, AnyReward)
        self.factor = problem.factors.tolist()
        self.masks = problem.allowed if problem.allowed is not None and problem.allowed.offered else None
        self.mask_of: dict[int, bytes] = {}  # the mask of each state that was visited
        self.latest_masks: Any = None  # the current mask of each copy
        self.labels = np.zeros(problem.n_observed_labels, dtype=np.int64)  # counts of the labels in this batch

    def play(self, behaviour: Behaviour, episodes: int, into: Counts, round: int) -> None:
        """Play ``episodes`` episodes of one behaviour and add them to the counts; after an error none is added."""
        seed: int | None = int(np.random.SeedSequence([self.seed, round]).generate_state(1)[0])
        seen, (least, most) = Batch(Counter(), Counter(), Counter()), self.problem.return_limits
        # Lists, since reading a single number from a list is faster than from an array.
        plan = list(zip(*(table[1:].tolist() for table in behaviour[:3]), strict=True))
        self.labels[:] = 0
        for begun in range(0, episodes, self.environment.copies):
            observations, info = self.environment.reset(seed)
            states = [self._state(observation, "reset") for observation in observations]
            if self.masks is not None:
                self._note_masks(states, info)
            self._walk(states[: episodes - begun], behaviour.leading, plan, seen)
            seed = None
        for earned in seen.returns:
            if not least <= earned <= most:
                self.problem.refuse_return(f"an episode of {self.environment.name}", earned)
        moves = transitions_of(seen, self.problem)._replace(labels=self.labels.copy())
        into.add(moves, episodes)
        self.tests.add(seen, moves)

    def _walk(self, states: list[int], leading: bool, plan: list[_Tables], seen: Batch) -> None:
        """Play one episode from each state, one step of all at a time; a copy whose episode has ended waits."""
        problem, environment, end = self.problem, self.environment, self.problem.n_states - 1
        seen.starts.update(states)
        walking, visits = list(range(len(states))), []
        leads, previous = [leading] * len(states), [BEFORE_THE_FIRST] * len(states)
        earned = [0.0] * len(states)
        for h, (greedy, lead, switch_action) in enumerate(plan):
            actions = []
            for i, state in enumerate(states):
                if leads[i] and switch_action[state] >= 0:
                    leads[i] = False
                    actions.append(switch_action[state])
                else:
                    actions.append((lead if leads[i] else greedy)[state])
            if self.masks is not None:
                for i in walking:  # a mask that is new since the plan may forbid the action: play the first allowed one
                    mask = self.masks.table[0, states[i]]
                    actions[i] = actions[i] if mask[actions[i]] else int(mask.argmax())
            answers, info = environment.step(self._for_all_copies(actions, walking))
            arrived = [-1] * len(states)
            for i in walking:
                observation, reward, terminated, truncated = answers[i]
                state, action = states[i], actions[i]
                following = end if terminated else self._state(observation, "step")
                paid = self._reward(reward, state, action)
                if terminated and problem.reward is not None:
                    self._check_end(observation, state, action, paid)
                if self.labels.size:
                    own = _info_of_copy(info, i) if environment.vector else info
                    self._note_label(own, state, action, following, paid)
                visits.append((h, state, action, following, paid, previous[i]))
                earned[i] += self.factor[h] * paid
                previous[i], states[i] = state, following
                if not terminated:
                    if truncated and h + 1 < problem.horizon:
                        self._refuse_truncation(h + 1)
                    arrived[i] = following
            if self.masks is not None:
                self._note_masks(arrived, info)
            walking = [i for i in walking if arrived[i] >= 0]
            if not walking:
                break
        seen.visits.update(visits)
        seen.returns.update(earned)

    def _for_all_copies(self, actions: list[int], walking: list[int]) -> list[int]:
        """Return an action for each copy; copies without an episode repeat the first action, or play an allowed one."""
        copies = self.environment.copies
        if self.masks is None:
            return [*actions, *actions[:1] * (copies - len(actions))]
        return [actions[i] if i in walking else int(np.argmax(self.latest_masks[i])) for i in range(copies)]

    def _note_masks(self, states: list[int], info: Any) -> None:
        """Record the action mask that came with the state of each copy; a state of -1 has none.

        Raises
        ------
        InvalidProblemError
            If there is no mask, if it allows no action, or if it differs from the mask of an earlier visit of the state.
        """
        assert self.masks is not None
        self.latest_masks = self.environment.masks(info)
        for state, mask in zip(states, self.latest_masks, strict=False):
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
                raise InvalidProblemError(f"{where} differs from the one before: it must depend only on the state")
            self.masks.table[0, state] = flags

    def _note_label(self, info: Any, state: int, action: int, following: int, paid: float) -> None:
        """Count the observed label of a visit; raise an error if the visit had another outcome than that of the label."""
        problem, slots = self.problem, self.problem.slots
        # With observed noise, none of these is None, and the states are a FiniteSpace.
        states: Any = self.environment.states
        noise: Any = self.environment.noise
        mechanics: Any = problem.noise
        balls: Any = problem.balls
        next_state = END if following == problem.n_states - 1 else states.element(following)
        visit = states.element(state), self.environment.actions.element(action), next_state, paid
        label = ask("observed", noise.observed, info, *visit)
        pair = state * problem.n_actions + action
        law = int(mechanics.law[pair])
        known = list(noise.laws.values())[law]
        wrong = f"the declared noise is wrong: {problem.describe(pair)} showed the label"
        if label not in known:
            raise InvalidProblemError(f"{wrong} {shown(label)}, expected one of {shown(known)}")
        number = known.index(label)
        slot = slots.begin[pair] + balls.slot_of_label[pair, number]
        least, most = slots.low[0, slot] - problem.same_reward, slots.high[0, slot] + problem.same_reward
        if slots.successor[slot] != following or not least <= paid <= most:
            went = f"went to state {problem.state_names[following]!r} with reward {paid:g}"
            raise InvalidProblemError(f"{wrong} {shown(label)} and {went}, which it does not explain")
        self.labels[sum(map(len, mechanics.labels[:law])) + number] += 1

    def _refuse_truncation(self, steps: int) -> NoReturn:
        name, limit, horizon = self.environment.name, self.environment.time_limit, self.problem.horizon
        cause, remedy = "", "make its episodes at least that long"
        if limit is not None:
            cause = f" (its time limit is {limit} steps)"
            remedy = f"pass gymnasium.make({name!r}, max_episode_steps={horizon}) (-p max_episode_steps={horizon})"
        raise InvalidProblemError(
            f"{name} was truncated after {steps} steps, before the horizon {horizon}{cause}, so the rest of the episode is "
            f"unknown: declare horizon={steps}, or {remedy}"
        )

    def _state(self, observation: Any, what: str) -> int:
        state = self.environment.states.index(observation)
        if state < 0:
            raise InvalidProblemError(
                f"{self.environment.name}.{what} returned observation {observation!r}, outside its observation space; "
                "max_states=M (--max-states M) accepts any observations, at most M distinct ones"
            )
        return state

    def _reward(self, reward: Any, state: int, action: int) -> float:
        if self.ignores_rewards:
            return self.low
        if type(reward) is float and self.low <= reward <= self.high:  # the fast path, for most environments
            return reward
        where = f" in state {self.problem.state_names[state]}, action {self.problem.action_names[action]}"
        value = self.environment.paid(reward, where)
        if not self.low <= value <= self.high:
            wrong = f"outside the declared reward_range ({self.low}, {self.high})"
            raise InvalidProblemError(f"{self.environment.name} paid reward {value}{where}, {wrong}")
        return value

    def _check_end(self, observation: Any, state: int, action: int, paid: float) -> None:
        """Raise an error if the reward at an end is not the declared one for the last observation."""
        table: Any = self.problem.reward and self.problem.reward.table
        declared = table[state, action, self._state(observation, "step")]
        if not abs(declared - paid) <= self.problem.same_reward:
            where = f"in state {self.problem.state_names[state]}, action {self.problem.action_names[action]}"
            raise InvalidProblemError(
                f"{self.environment.name} paid {paid:g} {where}, but the declared reward for an end with observation "
                f"{shown(observation)} is {declared:g}"
            )


def transitions_of(seen: Batch, problem: Problem) -> Transitions:
    """Return the transitions of a batch, pooled by row and outcome, in the order in which they were first seen."""
    nothing, n_actions = problem.possible_rewards[0], problem.n_actions
    stride = 0 if problem.stationary else problem.n_states * n_actions
    outcomes = Counter({(problem.n_rows - 1, state, nothing): times for state, times in seen.starts.items()})
    for (h, state, action, following, paid, _), times in seen.visits.items():
        outcomes[h * stride + state * n_actions + action, following, paid] += times
    rows, successors, rewards = zip(*outcomes, strict=True)
    return Transitions(np.array(rows), np.array(successors), np.array(list(outcomes.values())), np.array(rewards))


def _info_of_copy(info: Any, i: int) -> dict[str, Any]:
    """Return the info of one copy, given that of a vector, whose values have one entry for each copy."""
    own = {key: value for key, value in info.items() if not key.startswith("_")}
    return {key: _info_of_copy(value, i) if isinstance(value, dict) else value[i] for key, value in own.items()}


def _layers(env: Any) -> list[Any]:
    """Return the environment and those that it wraps, outermost first; for a vector of copies, the first copy."""
    from gymnasium import Wrapper
    from gymnasium.vector import SyncVectorEnv, VectorWrapper

    layers = [env]
    while isinstance(layers[-1], (Wrapper, VectorWrapper, SyncVectorEnv)):
        outer = layers[-1]
        layers.append(outer.envs[0] if isinstance(outer, SyncVectorEnv) else outer.env)
    return layers


def _constructor_arguments(env: Any) -> Any:
    """Return the constructor arguments that the environment recorded by Gymnasium's RecordConstructorArgs, or None."""
    arguments = getattr(env, "_saved_kwargs", None)
    return arguments and {name: value for name, value in arguments.items() if name != "env"}


def _ancestry(cls: type) -> list[type]:
    """Return the class and its base classes, except those of Python's standard library."""
    return [part for part in cls.__mro__ if part.__module__.split(".")[0] not in sys.stdlib_module_names]


def check_black_box(declared: Declarations, what: str = "an environment") -> None:
    """Raise an error if a declaration is missing that an environment or a log requires."""
    if declared.horizon is None:
        raise InvalidProblemError(f"{what} needs horizon= (--horizon): the number of steps that count")
    if declared.reward_range is None and declared.noise is None and declared.reward is None:
        raise InvalidProblemError(f"{what} needs reward_range=(low, high), the range of all possible rewards")
