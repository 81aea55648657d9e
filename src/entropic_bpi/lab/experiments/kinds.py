"""The kinds of runs. Each computes values for the columns of ``runs``, and arrays for ``curves``.

``identify`` and ``learner`` call the two functions of the library. ``validate`` is an identification whose plans are
checked by an oracle. ``ablation`` is an identification without one factor of its bounds: it shows the cost of the
factor and certifies nothing, so its bounds are not recorded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from entropic_bpi.lab.experiments.ablation import without_factor
from entropic_bpi.lab.experiments.oracle import Oracle, true_values
from entropic_bpi.lab.experiments.spec import RunSpec
from entropic_bpi.lab.learners import run as play
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.problem.risk import EVaR
from entropic_bpi.runs.identification import identify, start_run
from entropic_bpi.runs.loop import Loop
from entropic_bpi.runs.settings import Settings
from entropic_bpi.runs.walk import walk_model

Columns = dict[str, Any]
Curve = dict[str, np.ndarray]


def _identify(spec: RunSpec) -> tuple[Columns, Curve]:
    result = identify(spec.mdp, beta=spec.beta, method=spec.algorithm, seed=spec.seed, **spec.options)
    names = ("episodes", "lower", "upper", "gap")
    return _claimed(spec, result), {name: result.history[name].copy() for name in names}


def _learn(spec: RunSpec) -> tuple[Columns, Curve]:
    result = play(spec.algorithm, spec.mdp, beta=spec.beta, seed=spec.seed, **spec.options)
    columns = {
        "episodes": int(result.grid[-1]),
        "true_gap": _true_gap(spec, result.policy),
        "regret": float(result.regret[-1]),
        "policy_changes": result.policy_changes,
        "policy": policy_digest(spec.mdp, result.policy),
    }
    return columns, {"episodes": result.grid, "regret": result.regret}


def _validate(spec: RunSpec) -> tuple[Columns, Curve]:
    loop = _loop(spec, spec.options)
    oracle = Oracle(spec.mdp, loop)
    loop.go(oracle.watch)
    result = loop.result()
    checked = {"claim_holds": oracle.confirms(result.certificate), "failed_events": " ".join(sorted(oracle.failed))}
    return {**_claimed(spec, result), **checked}, {}


def _ablate(spec: RunSpec) -> tuple[Columns, Curve]:
    options = dict(spec.options)
    without = options.pop("without")
    loop = _loop(spec, options)
    without_factor(loop, spec.mdp, without)
    loop.go(lambda plan: None)
    assert loop.state.best is not None
    plan = loop.state.best.plan
    stopped = plan.bounds.reached(loop.state.problem.goal)
    policy = plan.policy[int(loop.state.problem.artificial) :]
    return {"episodes": loop.state.counts.episodes, "stopped": stopped, "true_gap": _true_gap(spec, policy)}, {}


def _loop(spec: RunSpec, options: dict[str, Any]) -> Loop:
    options = dict(options)
    risk = {"risk": EVaR(options.pop("evar"))} if "evar" in options else {"beta": spec.beta}
    return start_run(spec.mdp, Settings.of(**risk, method=spec.algorithm, seed=spec.seed, **options))


KINDS: Mapping[str, Callable[[RunSpec], tuple[Columns, Curve]]] = {
    "identify": _identify,
    "learner": _learn,
    "validate": _validate,
    "ablation": _ablate,
}


def _claimed(spec: RunSpec, result: Any) -> Columns:
    claim = result.certificate
    return {
        "episodes": result.episodes,
        "stopped": result.stopped,
        "lower": claim.lower,
        "upper": claim.upper,
        "gap": claim.gap,
        "true_gap": _true_gap(spec, result.policy),
        "policy": policy_digest(spec.mdp, result.policy),
    }


def _true_gap(spec: RunSpec, policy: Any) -> float:
    """Compute V* - V^π in the true model."""
    best, mine = true_values(spec.mdp, policy, spec.beta, spec.options.get("evar"))
    return max(0.0, best - mine)


def policy_digest(mdp: FiniteMDP, policy: np.ndarray) -> str:
    """Return a digest of the transitions and rewards that a policy reaches; action names do not matter."""
    digest = hashlib.sha256()
    paid = slice(None if mdp.next_state_rewards else 1)  # otherwise all entries of a row have the same reward
    for h, (states, _, _) in enumerate(walk_model(mdp, policy, reach=True)):
        rows: Any = mdp.policy_rows(policy, h)
        for s in states:
            entries = slice(rows.indptr[s], rows.indptr[s + 1])
            digest.update(rows.indices[entries].tobytes() + rows.probabilities[entries].tobytes())
            digest.update(rows.rewards[entries][paid].tobytes())
    return digest.hexdigest()[:12]
