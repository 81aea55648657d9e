"""Verifiers with one mistake each: the file, what is written there, and what is written instead."""

import sys
from contextlib import contextmanager
from pathlib import Path

from entropic_bpi import verification

MUTANTS = {
    "radius without log(P/δ)": ("_kl", "up(up(self.log_union + mixture) / visits.low)", "up(mixture / visits.low)"),
    "radius of one row only": ("_kl", "* max(rows, 1)) / claim.delta", ") / claim.delta"),
    "radius of the outcomes seen only": (
        "_kl",
        "mixture_radii(counts, sizes, claim.possible[numbers], claim.most[numbers])",
        "mixture_radii(counts, sizes, sizes, sizes)",
    ),
    "at most m outcomes, without the share": (
        "_ball",
        "radii - where(sets, share,",
        "radii - where(sets, Interval.of(0.5).log(),",
    ),
    "unseen outcomes left out": ("_claim", "== self.most[layer.start : layer.stop]", "> 0"),
    "radius of rewards without log(P/δ)": ("_ball", "up(up(log_union + regret.high)", "up(up(0.0 + regret.high)"),
    "largest mean of what was seen": (
        "_ball",
        "    top = f.max(axis=0)\n    depths",
        "    top = np.where((ball.tallies > 0.0) | (ball.visits == 0.0), f, f.min(axis=0)).max(axis=0)\n    depths",
    ),
    "dual without the radius": ("_ball", "down(mean - ball.radius)", "down(mean)"),
    "dual of half a unit too deep": ("_ball", "gain = down(depth * gain)", "gain = down(1.5 * depth * gain)"),
    "a reward at one end of its range": (
        "_intervals",
        "power(beta, least, origin), power(beta, most, origin)",
        "power(beta, least, origin), power(beta, least, origin)",
    ),
    "elsewhere as good as the best": (
        "_pairs",
        "(np.max, np.min) if self.sign > 0 else (np.min, np.max)",
        "(np.min, np.max) if self.sign > 0 else (np.max, np.min)",
    ),
    "one action forgotten": (
        "_kl",
        "optimistic.max(axis=2) if sign > 0 else optimistic.min(axis=2)",
        "optimistic[:, :, 0]",
    ),
    "the last allowed action forgotten": (
        "_kl",
        "~claim.permitted(h, states)]",
        "~claim.permitted(h, states) | (np.cumsum(claim.permitted(h, states), axis=1) > 1)]",
    ),
    "the policy valued optimistically": ("_kl", "low[own], later.policy, -sign)", "low[own], later.policy, sign)"),
    "top of the policy's lower bound": (
        "_kl",
        "now.top[:, states] = np.minimum(top, optimum)",
        "now.top[:, states] = policy",
    ),
    "top of the optimum's lower bound": (
        "_kl",
        "now.top[:, states] = np.maximum(top, optimum)",
        "now.top[:, states] = np.minimum(top, optimum)",
    ),
    "same without e^{βr}": ("_pairs", "np.minimum(ball.high * top,", "np.minimum(ball.high * bottom,"),
    "same below its root": (
        "_pairs",
        "    return np.where(largest > start, level, largest)",
        "    return np.where(largest > start, 1.0 + (level - 1.0) / 2.0, largest)",
    ),
    "deviations ignored": ("_kl", "            if at[0].size:\n", "            if False:\n"),
    "returns cut without what was paid before": (
        "_kl",
        "room - paid - step * (Fraction(high) - Fraction(low))",
        "room - paid",
    ),
    "one corner only": (
        "_pairs",
        "in product((0, 1), repeat=len(ends)):",
        "in [(0,) * len(ends)]:",
    ),
    "what is not shared at its lower end": ("_pairs", "up(ratio[to] * top[to])", "up(ratio[to] * bottom[to])"),
    "ratio of the plain bounds halved": (
        "_kl",
        "plain, worst = self.over(optimum, policy),",
        "plain, worst = 1.0 + (self.over(optimum, policy) - 1.0) / 2.0,",
    ),
    "box of the pair lemma closed": (
        "_pairs",
        "        ends = later.box(base.to, ref)\n",
        "        ends = (later.box(base.to, ref)[0],) * 2\n",
    ),
    "moves that lose mass": ("_pairs", "value * (1.0 + sign * slack)", "value * (1.0 - sign * 0.1)"),
    "the optimum compared as the policy": (
        "_pairs",
        "            if at.size:\n                other, mine",
        "            if False:\n                other, mine",
    ),
    "gains without deviations": (
        "_pairs",
        "        if len(s):\n            times[s, a]",
        "        if False:\n            times[s, a]",
    ),
    "gains of the policy's action halved": (
        "_pairs",
        "times[mine, chosen[mine]] = self._same(h, mine, chosen[mine], later)",
        "times[mine, chosen[mine]] = 1.0 + (self._same(h, mine, chosen[mine], later) - 1.0) / 2.0",
    ),
    "relative weights without a box": (
        "_pairs",
        "rho, (low, high) = self.rho[mine.to], self.later.box(mine.to, mine.frequent())",
        "rho, (low, high) = self.rho[mine.to], np.ones((2, *mine.to.shape))",
    ),
    "relations of elsewhere at their smallest": (
        "_pairs",
        "closed[:many, many], closed[many, :many] = table.max(axis=1), table.max(axis=0)",
        "closed[:many, many], closed[many, :many] = table.min(axis=1), table.min(axis=0)",
    ),
    "two unseen states are one": ("_pairs", "closed[many, many] = table.max()", "closed[many, many] = 1.0"),
    "relations of the occupied states halved": (
        "_pairs",
        "d = np.where(x == y, exact(1.0), np.minimum(apart, r))",
        "d = np.where(x == y, exact(1.0), np.minimum(apart, r) / 2.0)",
    ),
}

ORDER = ["_intervals", "_claim", "_ball", "_pairs", "_kl"]


@contextmanager
def mutated(file, old, new):
    """The modules of the verifier with one change in one of them, executed again in their order."""
    modules = {name: sys.modules[f"{verification.__name__}.{name}"] for name in ORDER}
    before = {name: dict(module.__dict__) for name, module in modules.items()}
    sources = {name: Path(module.__file__).read_text() for name, module in modules.items()}
    assert sources[file].count(old) == 1, "the mutant does not fit the source any more"
    try:
        for name, module in modules.items():
            source = sources[name].replace(old, new) if name == file else sources[name]
            exec(compile(source, f"mutant of {module.__file__}", "exec"), module.__dict__)
        yield
    finally:
        for name, module in modules.items():
            module.__dict__.clear()
            module.__dict__.update(before[name])
