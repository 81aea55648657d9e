r"""RF-UCRL, a published rule for exploration without a reward, as a baseline of :func:`entropic_bpi.explore`.

Kaufmann, Ménard, Domingues, Jonsson, Leurent and Valko, "Adaptive reward-free exploration" (ALT 2021): for rewards in
[0, 1] and the expected return, with their constants and without pooling of steps,

.. math::

    E_h(s,a) = \min\Big\{H-h,\ (H-h)\sqrt{\frac{2\beta(n_h(s,a),\delta)}{n_h(s,a)}}
    + \sum_{s'}\hat p_h(s'\mid s,a)\max_b E_{h+1}(s',b)\Big\},\qquad
    \beta(n,\delta) = \log\frac{2SAH}{\delta} + (S-1)\log\Big(e\Big(1+\frac n{S-1}\Big)\Big).

It plays the greedy policy for E and stops when :math:`\max_aE_1(s_1,a)\le\varepsilon/2`. Every reward can then be optimised
to accuracy ε.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.types import Behaviour, Bounds, Plan


class RFUCRL:
    """The rule as a method: ``methods.register("rf-ucrl", RFUCRL)``, then ``identify(mdp, beta=0, method="rf-ucrl", …)``.

    The gap is 2E; nothing else is claimed.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> from tests.reference.rf_ucrl import RFUCRL
    >>> eb.methods.register("rf-ucrl", RFUCRL)
    >>> bridge = eb.instances.risky_bridge(horizon=2)
    >>> eb.identify(bridge, beta=0.0, eps=1.0, delta=0.1, method="rf-ucrl", seed=1).stopped
    True
    """

    options: ClassVar[dict[str, tuple[str, ...]]] = {}
    events: ClassVar[tuple[str, ...]] = ()
    proof: ClassVar[tuple[str, ...]] = ()
    unused: ClassVar[dict[str, tuple[str, ...]]] = {}

    def __init__(self, problem: Problem, seed: int = 0) -> None:
        if problem.stationary or problem.artificial or problem.black_box_rewards:
            raise InvalidProblemError("RF-UCRL is for models with one first state, with counts for each step")
        self.problem = problem

    def plan(self, counts: Counts, round: int) -> Plan:
        """The errors, and the policy that is greedy for them."""
        problem = self.problem
        steps, n, actions = problem.horizon, problem.n_states, problem.n_actions
        seen = counts.seen()
        tally = np.zeros((problem.n_rows, n))
        tally[seen.rows, seen.successors] = seen.times
        visits = counts.arrays.visits
        threshold = math.log(2 * n * actions * steps / problem.delta) + (n - 1) * (1 + np.log1p(visits / max(n - 1, 1)))
        often = np.maximum(visits, 1)
        bonus = np.where(visits > 0, np.sqrt(2 * threshold / often), np.inf).reshape(steps, n, actions)
        kernel = (tally / often[:, None]).reshape(steps, n, actions, n)
        fewer = 1e-9 * (visits / often.max()).reshape(steps, n, actions)
        policy, later = np.zeros((steps, n), dtype=np.int64), np.zeros(n)
        for h in reversed(range(steps)):
            after = steps - 1 - h
            error = np.minimum(after, after * bonus[h] + kernel[h] @ later) if after else np.zeros((n, actions))
            # Where all actions are capped, the one that was played least.
            policy[h] = (error - fewer[h]).argmax(axis=1)
            later = error.max(axis=1)
        nowhere = np.full_like(policy, -1)
        bounds = Bounds(-math.inf, math.inf, 2 * float(later[problem.first_state]))
        return Plan(policy, bounds, Behaviour(policy, policy, nowhere, False))

    def claim(self, counts: Counts, plan: Plan) -> Bounds:
        """The same bounds."""
        return plan.bounds
