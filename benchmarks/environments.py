"""Thirty-six environments that people use: inspect, confirm what is true, identify within 60 seconds.

    python -m benchmarks.environments --list
    python -m benchmarks.environments 1 4 7 --seconds 60
    python -m benchmarks.environments

Each environment is inspected for five seconds. Its proposals are used where they are true of it: those that the truth of the
case contradicts are replaced by it, and counted. Horizon, β and ε are those of the case, δ is 0.05. Packages besides
gymnasium: gym-classics2, gym-simplegrid, mo-gymnasium, minigrid; a case whose package is missing is left out.

A claim is compared with the true model, which is read from the transition table of the environment or found by playing each
action in each state with every outcome of the random generator (``--no-oracle`` leaves it out).
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import entropic_bpi as eb

DELTA, SEED = 0.05, 0


@dataclass(frozen=True)
class Case:
    """An environment, the question, and what is known to be true of it.

    ``refused`` says that the observation is not a Markov state, so that a certificate would be wrong.
    """

    name: str
    make: Callable[[], Any]
    horizon: int
    beta: float
    eps: float
    truth: dict[str, Any] = field(default_factory=dict)
    refused: bool = False


# -- environments of the kind that people write --------------------------------------------------------------------


class Inventory(gymnasium.Env):
    """Up to 20 items; order 0 to 4 at cost 1 each, sell at 4, hold at 0.1; demand is Poisson-like with mean 2."""

    observation_space, action_space = spaces.Discrete(21), spaces.Discrete(5)

    def __init__(self, variant: str = "fixed") -> None:
        self.variant = variant
        self.demand = np.array([0.15, 0.25, 0.25, 0.2, 0.1, 0.05])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.stock, self.h, self.cash = 5, 0, 0.0
        return self.stock, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        law = self.demand[::-1] if self.variant == "changing" and self.h >= 5 else self.demand
        wanted = int(self.np_random.choice(6, p=law))
        held = min(self.stock + int(action), 20)
        sold = min(held, wanted)
        price = 4.0 + (self.np_random.choice([-1.0, 1.0]) if self.variant == "random prices" else 0.0)
        reward = price * sold - (held - self.stock) - 0.1 * (held - sold)
        if self.variant == "lost sales":
            reward -= 5.0 * (wanted - sold)
        before, self.cash = self.cash, self.cash + reward
        self.stock, self.h = held - sold, self.h + 1
        return self.stock, self.cash - before if self.variant == "cash" else reward, False, self.h == 10, {}


class Machine(gymnasium.Env):
    """Wear from 0 to 99: run it and earn less the more it is worn, or replace it."""

    observation_space, action_space = spaces.Discrete(100), spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.wear, self.h = 0, 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.h += 1
        reward = -1.0 if action else 1.0 - self.wear / 99
        more = int(self.np_random.choice([2, 8], p=[0.7, 0.3]))
        self.wear = 0 if action else min(self.wear + more, 99)
        return self.wear, reward, False, self.h == 20, {}


class AmericanPut(gymnasium.Env):
    """A binomial tree of 12 steps: exercise at strike 1, or wait."""

    observation_space, action_space = spaces.Discrete(25), spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.level, self.h = 12, 0
        return self.level, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.h += 1
        if action:
            return self.level, max(1.0 - 1.05 ** (self.level - 12), 0.0), True, False, {}
        self.level += 1 if self.np_random.random() < 0.5 else -1
        return self.level, 0.0, False, self.h == 12, {}


class Corridor(gymnasium.Env):
    """Six cells, left and right, slippery; the observation and the action have the form of the case."""

    def __init__(self, form: str) -> None:
        self.form = form
        self.action_space = spaces.MultiDiscrete([2, 1]) if form == "MultiDiscrete action" else spaces.Discrete(2)
        self.observation_space = {
            "Dict": spaces.Dict(cell=spaces.Discrete(6), lit=spaces.Discrete(1)),
            "MultiBinary": spaces.MultiBinary(3),
            "Box": spaces.Box(0, 5, (1,), np.int64),
            "flattened Dict": spaces.Box(0, 1, (7,), np.int64),
        }.get(form, spaces.Discrete(6))

    def _observed(self) -> Any:
        cell = self.cell
        return {
            "Dict": lambda: {"cell": cell, "lit": 0},
            "MultiBinary": lambda: np.array([cell >> k & 1 for k in range(3)], dtype=np.int8),
            "Box": lambda: np.array([cell]),
            "flattened Dict": lambda: np.append(np.eye(6, dtype=np.int64)[cell], 1),
        }.get(self.form, lambda: cell)()

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.cell, self.h = 2, 0
        return self._observed(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.h += 1
        right = bool(np.ravel(action)[0]) ^ (self.np_random.random() < 0.2)
        self.cell = min(max(self.cell + (1 if right else -1), 0), 5)
        return self._observed(), float(self.cell == 5), False, self.h == 5, {}


class Bins(gymnasium.ObservationWrapper):
    """Continuous observations in bins: not a Markov state."""

    def __init__(self, env: gymnasium.Env, low: list[float], high: list[float], bins: list[int]) -> None:
        super().__init__(env)
        self.edges = [np.linspace(a, b, n + 1)[1:-1] for a, b, n in zip(low, high, bins, strict=True)]
        self.bins, self.observation_space = bins, spaces.Discrete(int(np.prod(bins)))

    def observation(self, observation: Any) -> int:
        digits = [int(np.digitize(x, edges)) for x, edges in zip(observation, self.edges, strict=True)]
        return int(np.ravel_multi_index(digits, self.bins))


class GridState(gymnasium.ObservationWrapper):
    """MiniGrid, fully observed: position and direction."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        size = env.unwrapped.width
        self.observation_space = spaces.MultiDiscrete([size, size, 4])

    def observation(self, observation: Any) -> np.ndarray:
        world = self.env.unwrapped
        return np.array([*world.agent_pos, world.agent_dir])


def _mountain_car() -> gymnasium.Env:
    return Bins(gymnasium.make("MountainCar-v0"), [-1.2, -0.07], [0.6, 0.07], [12, 8])


def _cart_pole() -> gymnasium.Env:
    return Bins(gymnasium.make("CartPole-v1"), [-2.4, -3, -0.21, -3], [2.4, 3, 0.21, 3], [3, 3, 4, 3])


def _weighted(name: str) -> Callable[[], Any]:
    def make() -> Any:
        import mo_gymnasium

        env = mo_gymnasium.make(name)
        weights = np.ones(env.unwrapped.reward_space.shape[0])
        return mo_gymnasium.wrappers.LinearReward(env, weight=weights)

    return make


def _simple_grid() -> Any:
    import gym_simplegrid  # noqa: F401

    class Fixed(gymnasium.Wrapper):
        """Start and goal are the same in every episode."""

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return self.env.reset(seed=seed, options={"start_loc": 0, "goal_loc": 15})

    return Fixed(gymnasium.make("SimpleGrid-4x4-v0"))


def _mini_grid() -> Any:
    import minigrid  # noqa: F401

    return GridState(gymnasium.make("MiniGrid-Empty-5x5-v0"))


def _of(name: str, package: str | None = None, **options: Any) -> Callable[[], Any]:
    def make() -> Any:
        if package is not None and name not in gymnasium.registry:
            module = __import__(package)
            module.register("gymnasium")
        return gymnasium.make(name, **options)

    return make


def _lakes() -> Any:
    return gymnasium.make_vec("FrozenLake-v1", num_envs=4, vectorization_mode="sync")


LAKE = {"max_successors": 3, "return_range": (0.0, 1.0), "reward_range": (0.0, 1.0)}
CASES = [
    Case("FrozenLake8x8-v1", _of("FrozenLake8x8-v1"), 60, -1, 0.1, LAKE),
    Case("FrozenLake-v1, vector of 4", _lakes, 5, -1, 0.3, LAKE),
    Case("CliffWalkingSlippery-v1", _of("CliffWalkingSlippery-v1"), 30, -0.05, 5, {"reward_range": (-100, 0)}),
    Case("CliffWalking-v1", _of("CliffWalking-v1"), 30, -0.05, 2, {"reward_range": (-100, -1), "max_successors": 1}),
    Case("Taxi-v4", _of("Taxi-v4"), 20, -0.1, 2, {"reward_range": (-10, 20), "max_successors": 1, "max_states": 400}),
    Case("Blackjack-v1", _of("Blackjack-v1"), 10, -1, 0.1, {"reward_range": (-1, 1)}),
    *(
        Case(f"inventory, {variant}", lambda variant=variant: Inventory(variant), 10, -0.1, 2, {"reward_range": ends})
        for variant, ends in {
            "fixed": (-6, 20),
            "cash": (-6.000001, 20.000001),  # differences of sums are rounded
            "random prices": (-6, 25),
            "lost sales": (-25, 20),
            "changing": (-6, 20),
        }.items()
    ),
    Case("machine", Machine, 20, -0.5, 2, {"reward_range": (-1, 1), "max_successors": 2}),
    Case("American put", AmericanPut, 12, -1, 0.03, {"reward_range": (0, 1), "max_successors": 2}),
    *(
        Case(form, lambda form=form: Corridor(form), 5, -1, 0.3, {"reward_range": (0, 1)})
        for form in ("Dict", "MultiDiscrete action", "MultiBinary", "Box", "flattened Dict")
    ),
    Case("MountainCar, 96 bins", _mountain_car, 100, -0.1, 10, {"reward_range": (-1, 0)}, refused=True),
    Case("CartPole, 108 bins", _cart_pole, 20, -0.5, 2, {"reward_range": (0, 1)}, refused=True),
    *(
        Case(name, _of(name, "gym_classics2"), horizon, -0.05 if "Cliff" in name else -1, eps, {"reward_range": ends})
        for name, horizon, eps, ends in (
            ("5Walk-v0", 10, 0.1, (0, 1)),
            ("19Walk-v0", 20, 0.3, (-1, 1)),
            ("ClassicGridworld-v1", 12, 0.2, (-1, 1)),
            ("CliffWalk-v1", 20, 10, (-100, 0)),
            ("WindyGridworld-v0", 15, 1.5, (0, 1)),
            ("DynaMaze-v0", 15, 0.3, (0, 1)),
            ("FourRooms-v0", 20, 0.3, (0, 1)),
            ("SparseGridworld-v0", 20, 0.3, (0, 1)),
        )
    ),
    Case("SimpleGrid-4x4-v0", _simple_grid, 15, -1, 0.3, {"reward_range": (-1, 1)}),
    *(
        Case(name, _weighted(name), 12, -0.1, 1)
        for name in (
            "deep-sea-treasure-v0",
            "resource-gathering-v0",
            "fishwood-v0",
            "breakable-bottles-v0",
            "four-room-v0",
            "fruit-tree-v0",
        )
    ),
    Case("MiniGrid-Empty-5x5-v0", _mini_grid, 12, -1, 0.3, {"reward_range": (0, 1)}),
]


# -- the true model: an oracle that shares nothing with the runs ------------------------------------------------------


class Dice:
    """Stands in for ``np_random``: follows a path of outcomes and notes what else could have come."""

    def __init__(self, path: tuple[int, ...]) -> None:
        self.path, self.taken, self.chance = path, (), 1.0
        self.sizes: list[int] = []

    def draw(self, law: Any) -> int:
        number = len(self.taken)
        index = self.path[number] if number < len(self.path) else 0
        self.taken += (index,)
        self.sizes.append(len(law))
        self.chance *= float(law[index])
        return index

    def choice(self, values: Any, p: Any = None) -> Any:
        values = np.arange(values) if isinstance(values, int) else np.asarray(values)
        return values[self.draw(np.full(len(values), 1 / len(values)) if p is None else p)]

    def random(self) -> Any:
        return Uniform(self)

    def others(self) -> list[tuple[int, ...]]:
        """Paths that leave this one at a later draw than its own path did."""
        return [
            (*self.taken[:k], other)
            for k in range(len(self.path), len(self.taken))
            for other in range(1, self.sizes[k])
        ]


@dataclass(frozen=True)
class Uniform:
    """A number between 0 and 1 that is only ever compared with a probability."""

    dice: Dice

    def __lt__(self, threshold: float) -> bool:
        return self.dice.draw([threshold, 1 - threshold]) == 0


History = tuple[tuple[Any, tuple[int, ...]], ...]  # actions, and the outcomes of the draws of each


def outcomes(env: gymnasium.Env, before: History, action: Any) -> list[tuple[float, Any, float, bool, History]]:
    """Probability, observation, reward, whether the episode ends, and the history, for every outcome after a history.

    The history is played again for each of them: environments that cannot be copied have outcomes too.
    """
    found, paths = [], [()]
    while paths:
        history: History = (*before, (action, paths.pop()))
        env.reset(seed=SEED)
        for one, path in history:
            dice = Dice(path)
            env.unwrapped.np_random = dice
            seen, reward, terminated, _, _ = env.step(one)
        paths += dice.others()
        if dice.chance > 0:
            found.append((dice.chance, seen, float(reward), bool(terminated), (*before, (action, dice.taken))))
    return found


def _label(observation: Any) -> Any:
    if isinstance(observation, dict):
        return tuple(_label(part) for part in observation.values())
    return tuple(np.ravel(observation).tolist())


def _tabulated(env: Any) -> Callable[[int, Any], list[tuple[float, int, float, bool]]] | None:
    """The environment's own transition table, if it has one."""
    if hasattr(env, "P"):
        return lambda state, action: env.P[state][action]
    if hasattr(env, "state2id"):
        return lambda state, action: [
            (p, following, reward, bool(ends))
            for following, reward, ends, p in zip(*env.model(state, action), strict=True)
        ]
    return None


def _first_states(env: Any) -> dict[int, float]:
    if hasattr(env, "initial_state_distrib"):
        return {int(state): float(p) for state, p in enumerate(env.initial_state_distrib) if p > 0}
    if hasattr(env, "start_states"):
        return {env.state2id(state): 1 / len(env.start_states) for state in env.start_states}
    return {int(env.reset(seed=SEED)[0]): 1.0}


def _single(case: Case) -> Any:
    """One environment, also of a vector of them."""
    env = case.make()
    return env.envs[0] if hasattr(env, "envs") else env


def _actions(env: Any) -> list[Any]:
    space = env.action_space
    return [np.array([k, 0]) for k in range(2)] if isinstance(space, spaces.MultiDiscrete) else list(range(space.n))


def true_model(case: Case) -> tuple[eb.FiniteMDP, list[Any], np.ndarray, np.ndarray]:
    """The model, the observations of its states (its last state is the end), and its smallest and largest rewards.

    An outcome that pays a random amount pays its certain equivalent at the case's β, so entropic values do not change.
    """
    env = _single(case)
    table, numbers = _tabulated(env.unwrapped), {}
    by_step = "changing" in case.name
    seen: list[Any] = []
    histories: list[History] = []

    def number(observation: Any, history: History) -> int:
        label = (len(history) if by_step else 0, _label(observation))
        if label not in numbers:
            numbers[label] = len(seen)
            seen.append(copy.deepcopy(observation))
            histories.append(history)
        return numbers[label]

    if table is not None:
        start = {number(state, ()): p for state, p in _first_states(env.unwrapped).items()}
    else:
        start = {number(env.reset(seed=SEED)[0], ()): 1.0}
    actions = _actions(env)
    rows: dict[tuple[int, int], list[tuple[float, int, float]]] = {}
    done = 0
    while done < len(seen):
        history = histories[done]
        if len(history) < case.horizon:
            for index, action in enumerate(actions):
                entries = table(seen[done], action) if table else outcomes(env, history, action)
                rows[done, index] = [
                    (p, -1 if ends else number(after, *(rest or [()])), reward)
                    for p, after, reward, ends, *rest in entries
                    if p > 0
                ]
        done += 1
    size = len(seen) + 1
    transitions, weights = np.zeros((size, len(actions), size)), np.zeros((size, len(actions), size))
    transitions[-1, :, -1] = 1.0
    least, most = np.zeros((size, len(actions))), np.zeros((size, len(actions)))
    for state in range(size - 1):
        for index in range(len(actions)):
            entries = rows.get((state, index), [(1.0, -1, 0.0)])
            least[state, index] = min(reward for _, _, reward in entries)
            most[state, index] = max(reward for _, _, reward in entries)
            for p, following, reward in entries:
                transitions[state, index, following] += p
                weights[state, index, following] += p * np.exp(case.beta * reward)
    rewards = np.zeros_like(weights)
    possible = (transitions > 0) & (weights > 0)
    rewards[possible] = np.log(weights[possible] / transitions[possible]) / case.beta
    law = np.zeros(size)
    law[list(start)] = list(start.values())
    return eb.FiniteMDP(transitions, rewards, horizon=case.horizon, start=law), seen, least, most


def compare(case: Case, result: Any, declared: dict[str, Any]) -> list[str]:
    """What is false of the claim or of a declaration that was used; empty if all is true."""
    mdp, seen, least, most = true_model(case)
    policy = eb.Policy.load(result, unseen=None)
    actions = [_label(action) for action in _actions(_single(case))]
    played = np.zeros((case.horizon, mdp.n_states), dtype=int)
    for step in range(case.horizon):
        for state, observation in enumerate(seen):
            action = policy(observation, step=step)
            if action is not None:
                played[step, state] = actions.index(_label(action))
    best, own = eb.solve(mdp, case.beta).value, eb.evaluate(mdp, played, case.beta).value
    claim, room = result.certificate, 1e-9 * max(1.0, abs(best))
    checks = {
        f"lower bound {claim.lower} above the true value {own}": claim.lower <= own + room,
        f"upper bound {claim.upper} below the best value {best}": best <= claim.upper + room,
        f"gap {claim.gap} below the true one {best - own}": best - own <= claim.gap + room,
    }
    if "max_successors" in declared:
        checks["max_successors is too small"] = (mdp.transitions > 0).sum(axis=2).max() <= declared["max_successors"]
    if "max_states" in declared:
        checks["max_states is too small"] = len(seen) <= declared["max_states"]
    low, high = declared["reward_range"]
    checks["reward_range is too narrow"] = low <= least[:-1].min() + room and most[:-1].max() <= high + room
    if "return_range" in declared:
        low, high = declared["return_range"]
        opposite = eb.FiniteMDP(mdp.transitions, -mdp.rewards, horizon=mdp.horizon, start=mdp.start)
        worst, largest = -eb.max_return(opposite), eb.max_return(mdp)
        checks[f"return_range is too narrow: {worst} to {largest}"] = low <= worst + room and largest <= high + room
    return [text for text, holds in checks.items() if not holds]


def agrees(name: str, proposed: Any, true: Any) -> bool:
    """Whether a proposal holds if the truth of the case does: a bound that is not tighter."""
    if isinstance(true, tuple):
        room = 1e-9 * (true[1] - true[0])  # rewards that are differences of sums
        return bool(proposed[0] <= true[0] + room and true[1] <= proposed[1] + room)
    return bool(proposed >= true)


def run(case: Case, seconds: float, oracle: bool = True) -> dict[str, Any]:
    """Inspect and identify; one line of the table."""
    found = eb.inspect(case.make(), seed=SEED)
    declared = found.declarations.given()
    tighter = [
        name
        for name, true in case.truth.items()
        if name in declared and not agrees(name, declared[name], true) and "cannot tell" not in found.remarks[name]
    ]
    line: dict[str, Any] = {"case": case.name, "proposed": declared, "tighter than known": tighter}
    declared = {**declared, **{name: true for name, true in case.truth.items() if name == "reward_range"}}
    if "return_range" in declared and declared["return_range"][0] == declared["return_range"][1]:
        declared.pop("return_range")
    asked = {**declared, "horizon": case.horizon}
    began, cpu = time.perf_counter(), time.process_time()
    try:
        result = eb.identify(
            case.make(), **asked, beta=case.beta, eps=case.eps, delta=DELTA, seed=SEED, max_seconds=seconds
        )
    except eb.EntropicBPIError as error:
        return {**line, "verdict": "refused" + (" (right)" if case.refused else ""), "why": str(error)[:160]}
    gap, spent = result.certificate.gap, time.perf_counter() - began - result.compile_seconds
    verdict = "certified" if result.stopped else "not certified"
    verdict += " (WRONG: not a Markov state)" if case.refused and result.stopped else ""
    if oracle and result.stopped:
        false = compare(case, result, asked)
        verdict += f" (FALSE: {'; '.join(false)})" if false else ""
        line["compared"] = True
    numbers = {"episodes": result.episodes, "gap": gap, "seconds": spent, "cpu": time.process_time() - cpu}
    return {**line, "verdict": verdict, **numbers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("numbers", nargs="*", type=int, help="cases, counted from 1; default: all")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each run")
    parser.add_argument("--no-oracle", action="store_true", help="do not compare with the true models")
    parser.add_argument("--list", action="store_true", help="print the cases and stop")
    options = parser.parse_args()
    chosen = options.numbers or range(1, len(CASES) + 1)
    certified = 0
    for number in chosen:
        case = CASES[number - 1]
        if options.list:
            print(f"{number:2}  {case.name}: H={case.horizon}, beta={case.beta}, eps={case.eps}")
            continue
        try:
            line = run(case, options.seconds, not options.no_oracle)
        except ImportError as error:
            print(f"{number:2}  {case.name}: left out, {error}")
            continue
        certified += line["verdict"] == "certified"
        numbers = " (agrees with the true model)" if line["verdict"] == "certified" and "compared" in line else ""
        if "gap" in line:
            numbers += (
                f" {line['episodes']:,} episodes, gap {line['gap']:.3g} (target {case.eps}), {line['seconds']:.3g} s "
                f"({line['cpu']:.3g} s of CPU time)"
            )
        print(f"{number:2}  {case.name}: {line['verdict']}{numbers}{line.get('why', '') and ': ' + line['why']}")
        doubt = f", TIGHTER THAN KNOWN: {line['tighter than known']}" if line["tighter than known"] else ""
        print(f"    proposed {line['proposed']}{doubt}", flush=True)
    if not options.list:
        print(f"{certified} of {len(list(chosen))} certified")


if __name__ == "__main__":
    main()
