"""How far runs are from what no algorithm can beat, like with like, and how that depends on δ.

    python -m benchmarks.limits_by_delta            # every model: pooled runs beside the pooled limit, and so on
    python -m benchmarks.limits_by_delta --delta    # the bridge, δ from 1e-1 to 1e-32
    python -m benchmarks.limits_by_delta --factors  # what the factor between episodes and limit consists of

ε is a share of what can be lost, the difference between the values of the best and the worst policy, so that no limit is
vacuous. Printed as Markdown.
"""

import math
import sys

import numpy as np

import entropic_bpi as eb
from entropic_bpi import theory
from entropic_bpi.lab.limits.alternatives import row_divergence
from entropic_bpi.lab.limits.characteristic import AlternativeKernels, DenseModel, _Search, _Solution
from entropic_bpi.runs.identification import start_run
from entropic_bpi.runs.settings import Settings

MODELS = {
    "risky bridge, H = 7": eb.instances.risky_bridge(),
    "RiverSwim, 4 states, H = 6": eb.instances.river_swim(4, horizon=6),
    "garnet, 6 states, H = 5": eb.instances.garnet(6, 2, 2, horizon=5, seed=1),
}
SHARE, DELTA, SEEDS = 0.1, 0.1, 5


def what_can_be_lost(mdp, beta):
    best = eb.solve(mdp, beta).value
    mirrored = eb.FiniteMDP(mdp.transitions, -np.asarray(mdp.rewards), horizon=mdp.horizon, start=mdp.start)
    return best + eb.solve(mirrored, -beta).value  # the worst policy is the best one for the negative rewards


def divergence(delta):
    return (1 - 2 * delta) * math.log((1 - delta) / delta)


def mean_episodes(mdp, beta, eps, delta, declared):
    runs = (eb.identify(mdp, beta=beta, eps=eps, delta=delta, seed=seed, **declared) for seed in range(SEEDS))
    return float(np.mean([run.episodes for run in runs]))


def compare():
    print("| model | β | ε | known | counts | limit | episodes | factor |\n|---|---|---|---|---|---|---|---|")
    for name, mdp in MODELS.items():
        for beta in (-1.0, 1.0):
            eps = SHARE * what_can_be_lost(mdp, beta)
            limits = {}
            for successors in ("model", None):
                for stationary in (True, False):
                    declared = {"successors": successors, "stationary": stationary}
                    found = theory.characteristic_time(mdp, beta, eps, delta=DELTA, **declared, seconds=20).episodes
                    # A class that contains another one has its alternatives, too.
                    limit = max(found, limits.get("model", 0) if successors is None else 0, limits.get(successors, 0))
                    limits[successors] = limit
                    taken = mean_episodes(mdp, beta, eps, DELTA, declared)
                    known = "next states" if successors else "nothing"
                    counts = "pooled" if stationary else "per step"
                    print(
                        f"| {name} | {beta:g} | {eps:.3g} | {known} | {counts} | {limit:,.0f} | {taken:,.0f} | "
                        f"{taken / limit if limit > 1 else math.inf:.1f} |",
                        flush=True,
                    )


def sweep():
    bridge, deltas = MODELS["risky bridge, H = 7"], [10.0**-k for k in (1, 2, 4, 8, 16, 32)]
    print("| β | counts | T* | " + " | ".join(f"δ = {d:g}" for d in deltas) + " | slope / T* |")
    print("|---|---|---|" + "---|" * (len(deltas) + 1))
    for beta, eps in ((2.5, 0.2), (-1.0, 0.2)):
        for stationary in (True, False):
            declared = {"successors": "model", "stationary": stationary}
            # For small δ the bound is T* log(1/δ): computed at one small δ.
            time = theory.characteristic_time(bridge, beta, eps, delta=1e-8, **declared, rounds=12, seconds=60).time
            taken = [mean_episodes(bridge, beta, eps, delta, declared) for delta in deltas]
            factors = [count / (time * divergence(delta)) for count, delta in zip(taken, deltas, strict=True)]
            slope = (taken[-1] - taken[-2]) / math.log(deltas[-2] / deltas[-1]) / time
            counts = "pooled" if stationary else "per step"
            cells = " | ".join(f"{count:,.0f} ({f:.1f})" for count, f in zip(taken, factors, strict=True))
            print(f"| {beta:g} | {counts} | {time:.1f} | {cells} | {slope:.2f} |", flush=True)


# -- what the factor consists of ---------------------------------------------------------------------------------------


def decompose():
    """Print the factor episodes / (T* kl(δ, 1 - δ)) as a product: radius × certificate × sampling."""
    columns = "T* | episodes | factor | radius | certificate | sampling"
    print(f"| model | β | ε | counts | δ | {columns} |\n|{'---|' * 11}")
    for name, mdp in MODELS.items():
        for beta, eps in ((2.5, 0.2), (1.0, None), (-1.0, None)):
            eps = eps or SHARE * what_can_be_lost(mdp, beta)
            for stationary in (True, False):
                search = _Search(AlternativeKernels(DenseModel.of(mdp, beta), eps, False, stationary), 1e-8)
                limit = search.run(12, 60.0)
                if not any(alternative.decisive for alternative in search.alternatives):
                    continue  # there the limit is about the law of the answer, not about one alternative
                time = limit.episodes / divergence(1e-8)
                for delta in (1e-1, 1e-16):
                    parts = [_parts(search, mdp, beta, eps, delta, stationary, seed) for seed in range(SEEDS)]
                    taken, radius, information = np.mean(parts, axis=0)
                    kl, counts = divergence(delta), "pooled" if stationary else "per step"
                    product = radius / kl, information / radius, taken / (time * information)
                    cells = " | ".join(f"{part:.1f}" for part in (taken / (time * kl), *product))
                    row = f"| {name} | {beta:g} | {eps:.3g} | {counts} | {delta:g} | {time:.1f} | {taken:,.0f} | {cells} |"
                    print(row, flush=True)


def _parts(search, mdp, beta, eps, delta, stationary, seed):
    """Episodes of a run, and what it knows at its stop of the alternative that it is least able to rule out.

    The radius is what the balls allow in the rows that the alternative changes, weighted by their share of the
    information; the information is the sum of visits times divergences.
    """
    declared = {"successors": "model", "stationary": stationary}
    loop = start_run(mdp, Settings.of(beta=beta, eps=eps, delta=delta, method="kl", seed=seed, **declared))
    loop.go(lambda plan: None)
    arrays, shape = loop.state.counts.arrays, search.model.shape
    rows = math.prod(shape[1:] if stationary else shape)
    visits, radius = (
        np.broadcast_to(each[:rows].reshape(shape[1:] if stationary else shape), shape)
        for each in (
            arrays.visits / (shape[0] if stationary else 1),
            arrays.visits * np.where(arrays.visits > 0, loop.method.rules.radius, 0.0),
        )
    )
    known = len(search.alternatives)
    for target in range(len(search.targets)):
        search._add_alternatives(target, _Solution(1.0, visits[search.reachable], [], [], []))
    divergences = [row_divergence(search.model.kernel, each.kernel) for each in search.alternatives if each.decisive]
    del search.alternatives[known:]  # those of other runs would say nothing of this one
    informations = [visits * each for each in divergences]
    least = min(informations, key=np.sum)
    return loop.state.counts.episodes, (least * radius).sum() / least.sum(), least.sum()


if __name__ == "__main__":
    decompose() if "--factors" in sys.argv else sweep() if "--delta" in sys.argv else compare()
