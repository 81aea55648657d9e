"""An adversary against certificates of EVaR: kernels at the boundary of every ball, judged by a fine grid of λ.

It drives the kernel to where the candidate loses most at one λ (:mod:`reference.kl_attack`), and then asks what is lost in
EVaR under that kernel. Rewards must be known: the learner's problem and the tables then agree at every λ.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from reference.kl_attack import Case, _begin, _evaluate, _sweep


def values(kernel, rewards, actions, reachable, policy, start, lams) -> np.ndarray:
    """Best and own value at every λ, ``(2, λ)``, in logarithms; rewards are counted from the smallest."""
    states, lams = np.arange(kernel.shape[1]), np.asarray(lams)[:, None, None]
    best, mine = np.zeros((2, len(lams), kernel.shape[1]))
    with np.errstate(divide="ignore"):
        likely = np.log(kernel)
    for h in reversed(range(len(kernel))):
        u = _risk(likely[h], rewards[h], best, lams)[..., : actions[h]]
        own = _risk(likely[h], rewards[h], mine, lams)[:, states, policy[h]]
        best, mine = np.where(reachable[h], u.max(axis=-1), 0.0), np.where(reachable[h], own, 0.0)
    return np.stack([best[:, start], mine[:, start]])


def _risk(likely, rewards, after, lams) -> np.ndarray:
    terms = likely - lams[..., None] * (rewards + after[:, None, None, :])
    most = np.maximum(terms.max(axis=-1), -1e300)
    return -(most + np.log(np.exp(terms - most[..., None]).sum(axis=-1).clip(1e-300))) / lams


def evars(kernel, rewards, t, policy, start, alpha, spread) -> tuple[float, float]:
    """Lower bound of the largest EVaR, and the candidate's own, whose one peak is refined to the end."""
    c, found = -math.log(alpha), np.zeros(2)
    for side in range(2):
        low, high = 0.5 * c / spread, 1e7 * max(c, 1.0) / spread
        for _ in range(6):
            lams = np.geomspace(low, high, 60)
            heights = values(kernel, rewards, t.actions, t.reachable, policy, start, lams)[side] - c / lams
            best = int(np.argmax(heights))
            found[side] = max(found[side], heights[best])
            low, high = lams[max(best - 1, 0)], lams[min(best + 1, 59)]
    return float(found[0]), float(found[1])


def attack_evar(case: Case, policy, alpha: float, lams, seed: int, starts: int = 2, sweeps: int = 3) -> np.ndarray:
    """Over all kernels tried: largest gap, largest best EVaR, smallest EVaR of the policy; from the smallest return."""
    t, rng = case.tables, np.random.default_rng(seed)
    rewards, worst = np.log(t.high) / case.problem.beta, np.array([0.0, 0.0, math.inf])
    actions = np.array(t.actions)
    for lam in lams:
        gains = np.exp(-lam * rewards)
        at = dataclasses.replace(t, sign=-1, low=gains, high=gains)
        arrays = (at.shares, at.allowed, at.radius, at.low, at.high, actions, at.reachable)
        ones = np.ones((t.steps + 1, t.n_states))
        for start in range(starts):
            kernel, gain = np.zeros(t.shares.shape), gains.copy()
            _begin(kernel, gain, arrays, -1, ones, rng, start % 3)
            for sweep in range(sweeps + 1):
                best, own = evars(kernel, rewards, t, policy, case.start, alpha, case.problem.return_spread)
                worst[:2], worst[2] = np.maximum(worst[:2], (best - own, best)), min(worst[2], own)
                if sweep < sweeps:
                    greedy = _evaluate(kernel, gain, actions, t.reachable, -1, policy)[2]
                    _sweep(kernel, gain, arrays, policy, greedy, 0, case.start, case.start, False)
    return worst
