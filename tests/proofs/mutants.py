"""Verifiers with one mistake each: the file, what is written there, and what is written instead."""

import sys
from contextlib import contextmanager
from pathlib import Path

from entropic_bpi.verification import rigorous

MUTANTS = {
    "radius without log(P/δ)": ("_data", '((union / arb(self.problem["delta"])).log() + regret) / n', "regret / n"),
    "radius of one row only": ("_data", "* self.rows_at_risk\n", "\n"),
    "radius of the outcomes seen only": (
        "_data",
        'k, most, n = self.slots["possible"][row]',
        "k, most, n = len(counts)",
    ),
    "at most m outcomes, without the share": ("_data", "share * likelihood", "likelihood"),
    "unseen outcomes left out": ("_data", "if len(happened) == self.most(row) else", "if happened else"),
    "radius of rewards without log(P/δ)": ("_data", "+ regret) / n)\n\n\ndef", "* 0 + regret) / n)\n\n\ndef"),
    "largest mean of what was seen": (
        "_ball",
        "top, n = max(f), sum(counts)\n    seen = [i for i, count in enumerate(counts) if count]\n    if radius",
        "n = sum(counts)\n    seen = [i for i, count in enumerate(counts) if count]\n    top = max(f[i] for i in "
        "seen or range(len(f)))\n    if radius",
    ),
    "dual without the radius": ("_ball", "(logs - radius).expm1()", "logs.expm1()"),
    "dual of half a unit too deep": ("_ball", "depth * w * (logs", "1.5 * depth * w * (logs"),
    "a reward at one end of its range": (
        "_plan",
        "for reward in (least, most))\n\n    def _ends",
        "for reward in (least, least))\n\n    def _ends",
    ),
    "elsewhere as good as the best": (
        "_plan",
        "(max, min) if self.positive else (min, max)",
        "(min, max) if self.positive else (max, min)",
    ),
    "one action forgotten": (
        "_plan",
        "max(optimistic.values()) if positive else min(optimistic.values())",
        "next(iter(optimistic.values()))",
    ),
    "the last allowed action forgotten": (
        "_data",
        "return [a for a in range(self.n_actions) if mask[a]]",
        "return [a for a in range(self.n_actions) if mask[a]][:1]",
    ),
    "the policy valued optimistically": ("_plan", "later.policy, not positive, limit", "later.policy, positive, limit"),
    "top of the policy's lower bound": (
        "_plan",
        "now.top[s] = min(rows[chosen].mean(later.top, True, limit), optimum)",
        "now.top[s] = policy",
    ),
    "top of the optimum's lower bound": ("_plan", "now.top[s] = max(min([policy]", "now.top[s] = min(min([policy]"),
    "same without e^{βr}": (
        "_plan",
        "row.products(top, True, limit)",
        "row.products(bottom, True, limit)",
    ),
    "same below its root": (
        "_plan",
        "if row.extreme(excess, True) <= 0:",
        "if True:\n                return 1 + (level - 1) / 2\n            if False:",
    ),
    "deviations ignored": (
        "_plan",
        "worst = max(worst, self.deviation(row, rows[chosen], later, limit, first))",
        "pass",
    ),
    "returns cut without what was paid before": ("_plan", "least - paid - step * (high - low)", "least - paid"),
    "one corner only": ("_plan", "in product((False, True), repeat=len(both)):", "in [(False,) * len(both)]:"),
    "what is not shared at its lower end": (
        "_plan",
        "least, most = list(bottom), list(top)",
        "least, most = list(bottom), list(bottom)",
    ),
    "ratio of the plain bounds halved": (
        "_plan",
        "min(self.quotient(optimum, policy), worst)",
        "min(1 + (self.quotient(optimum, policy) - 1) / 2, worst)",
    ),
    "box of the pair lemma closed": (
        "_pairs",
        "high = {j: ONE if j == ref else d[j, ref] for j in base.tally}",
        "high = dict(low)",
    ),
    "moves that lose mass": (
        "_pairs",
        "/ sum(map(arb, move[i].values()), arb(0))",
        "/ sum(map(arb, move[i].values()), arb(1))",
    ),
    "the optimum compared as the policy": (
        "_pairs",
        "worst = max(worst, self.compare(self.row(h, z, a), own[w], later.d, later.r, known))",
        "pass",
    ),
    "gains without deviations": ("_pairs", "elif (times := self._first(h, s, a)) > 1:", "elif (times := ONE) > 1:"),
    "gains of the policy's action halved": (
        "_pairs",
        "if times > 1:\n                gains[a] = times",
        "if times > 1:\n                gains[a] = 1 + (times - 1) / 2",
    ),
    "relative weights without a box": ("_pairs", "(1 / later.d[ref, y], later.d[y, ref])", "(ONE, ONE)"),
    "relations of elsewhere at their smallest": ("_pairs", "table[end, s] = max(", "table[end, s] = min("),
    "two unseen states are one": (
        "_pairs",
        "table[end, end] = max(table[s, end] for s in states)",
        "table[end, end] = ONE",
    ),
    "relations of the occupied states halved": (
        "_pairs",
        "d[x, y] = min(apart[x, y], r[x, y])",
        "d[x, y] = min(apart[x, y], r[x, y]) / 2",
    ),
}

ORDER = ["_ball", "_data", "_plan", "_pairs"]


@contextmanager
def mutated(file, old, new):
    """The modules of the verifier with one change in one of them, executed again in their order."""
    modules = {name: sys.modules[f"{rigorous.__name__}.{name}"] for name in ORDER}
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
