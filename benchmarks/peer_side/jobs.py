"""The peers' side of each contest. A job has ``measure()``: seconds per unit, and ``answer()``: arrays to be compared."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from .arrays import balls, dense_model, sparse_model

Arrays = dict[str, np.ndarray]


def _seconds(call: Any) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


class UCBVI:
    """rlberry-scool's UCBVIAgent with stage-dependent counts: seconds per episode.

    ``compiled``: with its backward induction compiled by Numba, which the released version does not do.
    """

    def __init__(
        self, transitions: list, rewards: list, start: int, horizon: int, episodes: int, compiled: bool
    ) -> None:
        import logging

        from rlberry.envs.finite_mdp import FiniteMDP
        from rlberry_scool.agents.dynprog import utils
        from rlberry_scool.agents.ucbvi import ucbvi

        logging.disable(logging.CRITICAL)
        ucbvi.backward_induction_sd = utils.backward_induction_sd
        if compiled:
            import numba

            ucbvi.backward_induction_sd = numba.njit(utils.backward_induction_sd)
        self.planner, self.module = ucbvi.backward_induction_sd, ucbvi
        env = FiniteMDP(np.array(rewards), np.array(transitions), initial_state_distribution=start)
        self.agent = ucbvi.UCBVIAgent(env, gamma=1.0, horizon=horizon, stage_dependent=True)
        self.episodes = episodes
        self.agent.fit(budget=20)

    def measure(self) -> float:
        self.module.backward_induction_sd = self.planner
        return _seconds(lambda: self.agent.fit(budget=self.episodes)) / self.episodes

    def answer(self) -> Arrays:
        return {}


class RlberryPlanning:
    """rlberry-scool's backward induction, as it is: loops in Python."""

    def __init__(self, transitions: list, rewards: list, horizon: int) -> None:
        from rlberry_scool.agents.dynprog.utils import backward_induction

        arguments = np.array(rewards), np.array(transitions), horizon
        self.solve = lambda: backward_induction(*arguments)

    def measure(self) -> float:
        return _seconds(self.solve)

    def answer(self) -> Arrays:
        return {"values": self.solve()[1]}


class QuantEconPlanning:
    """QuantEcon's backward induction of a DiscreteDP without discounting."""

    def __init__(self, horizon: int, repeats: int, dense: Any = None, sparse: Any = None, given: Any = None) -> None:
        import warnings

        from quantecon.markov import DiscreteDP, backward_induction

        warnings.simplefilter("ignore")  # it says that beta = 1 rules out infinite horizons
        if sparse:
            problem = DiscreteDP(*_state_action_pairs(*sparse))
        else:
            kernel, rewards = dense_model(*dense) if dense else map(np.array, given)
            problem = DiscreteDP(rewards, kernel, 1.0)
        self.solve, self.repeats = lambda: backward_induction(problem, horizon), repeats

    def measure(self) -> float:
        return _seconds(lambda: [self.solve() for _ in range(self.repeats)]) / self.repeats

    def answer(self) -> Arrays:
        return {"values": self.solve()[0]}


def _state_action_pairs(n_states: int, n_actions: int, successors: int) -> tuple[Any, ...]:
    from scipy import sparse

    indptr, indices, probabilities, rewards = sparse_model(n_states, n_actions, successors)
    matrix = sparse.csr_matrix(
        (probabilities, indices, indptr.astype(np.int32)), shape=(n_states * n_actions, n_states)
    )
    states, actions = np.divmod(np.arange(n_states * n_actions), n_actions)
    return rewards.ravel(), matrix, 1.0, states, actions


class Lake:
    """Gymnasium's own loop on FrozenLake-v1 with a fixed policy: seconds per step; answers lengths and returns."""

    def __init__(self, policy: list[int], episodes: int) -> None:
        import gymnasium

        self.env = gymnasium.make("FrozenLake-v1", disable_env_checker=True)
        self.env.reset(seed=0)
        self.policy, self.episodes = policy, episodes
        self.lengths: list[int] = []
        self.returns: list[float] = []

    def measure(self) -> float:
        first = len(self.lengths)
        return _seconds(self._play) / sum(self.lengths[first:])

    def _play(self) -> None:
        env, policy = self.env, self.policy
        for _ in range(self.episodes):
            state, _ = env.reset()
            steps, total, done = 0, 0.0, False
            while not done:
                state, reward, terminated, truncated, _ = env.step(policy[state])
                steps, total, done = steps + 1, total + reward, terminated or truncated
            self.lengths.append(steps)
            self.returns.append(total)

    def answer(self) -> Arrays:
        return {"lengths": np.array(self.lengths), "returns": np.array(self.returns)}


class ScipyBalls:
    """KL balls by ``scipy.optimize.brentq`` on the derivative of the dual: seconds per solve."""

    def __init__(self, size: int, k: int, first: int) -> None:
        self.problems = list(zip(*(part[:first] for part in balls(size, k)), strict=True))

    def measure(self) -> float:
        return _seconds(self._all) / len(self.problems)

    def _all(self) -> list[float]:
        return [_ball_by_root(*problem) for problem in self.problems]

    def answer(self) -> Arrays:
        return {"values": np.array(self._all())}


def _ball_by_root(tally: np.ndarray, f: np.ndarray, n: int, x: float) -> float:
    from scipy.optimize import brentq

    seen = tally > 0
    p, top = tally[seen] / n, f.max()
    gaps = top - f[seen]

    def excess(log_w: float) -> float:
        shifted = gaps + np.exp(log_w)
        return p @ np.log(shifted) + np.log(p @ (1 / shifted)) - x

    low, high = -40.0, 40.0
    w = np.exp(brentq(excess, low, high, xtol=1e-10)) if excess(low) > 0 else np.exp(low)
    return top + w - np.exp(p @ np.log(gaps + w) - x)


class CvxpyBalls:
    """KL balls by CVXPY: one problem with parameters, compiled once and solved again and again."""

    def __init__(self, size: int, k: int, first: int) -> None:
        import cvxpy as cp

        q = cp.Variable(k, nonneg=True)
        self.f, self.p, self.bound = cp.Parameter(k), cp.Parameter(k, nonneg=True), cp.Parameter()
        ball = -self.p @ cp.log(q) <= self.bound
        self.problem = cp.Problem(cp.Maximize(self.f @ q), [cp.sum(q) == 1, ball])
        data = balls(size, k)
        shares = data.tally[:first] / data.visits[:first, None]
        entropy = (shares * np.log(np.where(shares > 0, shares, 1.0))).sum(axis=1)
        self.data = list(zip(data.values[:first], shares, data.radius[:first] - entropy, strict=True))

    def measure(self) -> float:
        return _seconds(self._all) / len(self.data)

    def _all(self) -> list[float]:
        return [self._solve(*problem) for problem in self.data]

    def _solve(self, f: np.ndarray, p: np.ndarray, bound: float) -> float:
        self.f.value, self.p.value, self.bound.value = f, p, bound
        return float(self.problem.solve(solver="CLARABEL"))

    def answer(self) -> Arrays:
        return {"values": np.array(self._all())}


JOBS = {
    "ucbvi": UCBVI,
    "rlberry_planning": RlberryPlanning,
    "quantecon_planning": QuantEconPlanning,
    "lake": Lake,
    "scipy_balls": ScipyBalls,
    "cvxpy_balls": CvxpyBalls,
}
