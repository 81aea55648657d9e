"""Does play that tracks the limit need fewer episodes? It is compared with the sampling of ``identify``, run by run.

    python -m benchmarks.tracking [SEEDS]

At every plan the cheapest alternative is looked for: the model, among those in which another policy is right, that the data
so far are least able to rule out. The policy that gathers most information against it is played until the next plan; every
second plan is followed as ``identify`` does. The stopping rule and its guarantee are those of ``identify`` in both columns,
for they hold however the episodes are played. Printed as Markdown, with the mean episodes and their ratio.
"""

import sys

import numpy as np

import entropic_bpi as eb
from benchmarks.limits_by_delta import SHARE, what_can_be_lost
from entropic_bpi.lab.limits.alternatives import AlternativeKernels, DenseModel, Target, row_divergence
from entropic_bpi.runs.identification import start_run
from entropic_bpi.runs.settings import Settings
from entropic_bpi.types import Behaviour

DELTA, REPLAN, AS_TODAY = 0.1, 0.1, 2
# How many places are looked at again at a plan, beside those of the cheapest alternatives.
LOOKED_AT, KEPT = 12, 40


def cases():
    bridge = eb.instances.risky_bridge()
    river = eb.instances.river_swim(4, horizon=6)
    garnet = eb.instances.garnet(6, 2, 2, horizon=5, seed=1)
    for name, mdp, beta, eps in (
        ("risky bridge", bridge, 2.5, 0.2),
        ("risky bridge", bridge, 1.0, None),
        ("risky bridge", bridge, -1.0, None),
        ("RiverSwim", river, 1.0, None),
        ("RiverSwim", river, -1.0, None),
        ("garnet", garnet, 1.0, None),
        ("garnet", garnet, -1.0, None),
    ):
        for stationary in (True, False):
            yield name, mdp, beta, eps or SHARE * what_can_be_lost(mdp, beta), stationary


class Tracking:
    """Replaces what a loop plays by the best response to the cheapest alternative; the rest of the method stays."""

    def __init__(self, loop, mdp, eps, stationary):
        self.loop, self.method, self.mdp, self.eps, self.stationary = loop, loop.method, mdp, eps, stationary
        self.true = DenseModel.of(mdp, loop.state.problem.beta)
        self.alternatives, self.rng = [], np.random.default_rng(loop.state.seed)
        self.plan_as_today, loop.method.plan = loop.method.plan, self.plan

    def plan(self, counts, round):
        plan = self.plan_as_today(counts, round)
        if round % AS_TODAY == 0 or counts.episodes < 2 * self.mdp.n_states * self.mdp.n_actions:
            return plan
        policy = self.best_response(counts)
        if policy is None:
            return plan
        return plan._replace(behaviour=Behaviour(policy, policy, np.full_like(policy, -1), False))

    def estimate(self, counts):
        """The estimated kernel ``(H, S, A, S)``, half an observation added to each possible successor, and the visits."""
        shape, possible = self.true.kernel.shape, self.true.kernel > 0
        tally, arrays = np.zeros(shape), counts.arrays
        rows = tally[0].reshape(-1, shape[3]) if self.stationary else tally.reshape(-1, shape[3])
        for row in range(len(rows)):
            slots = slice(arrays.begin[row], arrays.begin[row] + arrays.used[row])
            rows[row][arrays.successor[slots]] += arrays.tally[slots]
        if self.stationary:
            tally[:] = tally[0]
        visits = tally.sum(axis=-1) / (shape[0] if self.stationary else 1)
        kernel = tally + 0.5 * possible
        return kernel / kernel.sum(axis=-1, keepdims=True), visits

    def best_response(self, counts):
        kernel, visits = self.estimate(counts)
        model = DenseModel(kernel, self.true.rewards, self.true.start, self.true.beta)
        search = AlternativeKernels(model, self.eps, False, self.stationary)
        weights = visits + 1e-3 * counts.episodes
        found = []
        for target in self._targets(search):
            found += [(target, each) for each in search.leading_to(target, weights, first=False)]
        kept = [
            (target, each)
            for target, each in self.alternatives
            if search.restricted_loss(search.model_of(each)) > self.eps * (1 + 1e-7)
        ]
        self.alternatives = sorted(found + kept, key=lambda one: search._cost(one[1], weights))[:KEPT]
        if not self.alternatives:
            return None
        return most_informative(kernel, row_divergence(kernel, self.alternatives[0][1]))

    def _targets(self, search):
        horizon, states, actions = search.model.shape
        again = [target for target, _ in self.alternatives[:2]]
        places = self.rng.permutation(horizon * states * actions)
        for index in places:
            if len(again) >= LOOKED_AT + 2:
                break
            h, s, a = np.unravel_index(index, search.model.shape)
            others = [int(b) for b in np.flatnonzero(search.decisions[h, s]) if b != a]
            if others and self.true.kernel[h, s, a].max() < 1:
                again.append(Target((int(h), int(s)), int(a), others))
        return again


def most_informative(kernel, divergence):
    """The policy ``(H, S)`` with the largest expected sum of divergences in an episode."""
    horizon, states = kernel.shape[:2]
    values, policy = np.zeros(states), np.zeros((horizon, states), dtype=np.int64)
    for h in reversed(range(horizon)):
        q = divergence[h] + kernel[h] @ values
        policy[h], values = q.argmax(axis=1), q.max(axis=1)
    return policy


def episodes(mdp, beta, eps, stationary, seed, track):
    declared = {"successors": "model", "stationary": stationary}
    settings = Settings.of(beta=beta, eps=eps, delta=DELTA, method="kl", seed=seed, replan=REPLAN, **declared)
    loop = start_run(mdp, settings)
    if track:
        Tracking(loop, mdp, eps, stationary)
    loop.go(lambda plan: None)
    return loop.state.counts.episodes


def main():
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    print("| model | β | ε | counts | as identify | tracking | ratio |\n|---|---|---|---|---|---|---|")
    ratios = []
    for name, mdp, beta, eps, stationary in cases():
        today, tracked = (
            np.mean([episodes(mdp, beta, eps, stationary, seed, track) for seed in range(seeds)])
            for track in (False, True)
        )
        ratios.append(tracked / today)
        counts = "pooled" if stationary else "per step"
        row = f"| {name} | {beta:g} | {eps:.3g} | {counts} | {today:,.0f} | {tracked:,.0f} | {ratios[-1]:.2f} |"
        print(row, flush=True)
    print(f"\ngeometric mean of the ratios {np.exp(np.mean(np.log(ratios))):.2f}, largest {max(ratios):.2f}")


if __name__ == "__main__":
    main()
