r"""Results as tables of a paper: one ``tabular`` for each kind of run, a row for each setting, summarised over its seeds.

The tables are for ``\input`` and need the package ``booktabs``. What all rows share is left out of them and said in a
comment at the head of the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from entropic_bpi.lab.experiments.statistics import summary
from entropic_bpi.lab.learners import title
from entropic_bpi.tools.files import write_text_atomically

# What a run of a kind is measured by.
_MEASURE = {"learner": ("regret", "regret"), "identify": ("episodes", "episodes until the stop")}
_ESCAPES = str.maketrans(
    {
        **{c: rf"\{c}" for c in "&%$#_{}"},
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "\\": r"\textbackslash{}",
    }
)
_NAMES = {"beta": r"$\beta$", "horizon": "$H$", "eps": r"$\varepsilon$", "delta": r"$\delta$"}

Setting = dict[str, Any]


def write_tables(runs: Mapping[str, np.ndarray], folder: Path) -> list[Path]:
    """Write ``KIND.tex`` for each kind of run that there is; runs that failed are left out."""
    files, succeeded = [], np.array([error is None for error in runs["error"]], dtype=bool)
    for kind in dict.fromkeys(runs["kind"]):
        chosen = (runs["kind"] == kind) & succeeded
        if chosen.any():
            files.append(folder / f"{kind}.tex")
            measured = {name: column[chosen] for name, column in runs.items()}
            write_text_atomically(files[-1], _document(measured, *_MEASURE.get(kind, _MEASURE["identify"])))
    return files


def _document(runs: Mapping[str, np.ndarray], measure: str, heading: str) -> str:
    settings = [_setting(spec) for spec in runs["spec"]]
    names = list(dict.fromkeys(name for setting in settings for name in setting))
    values = {name: [setting.get(name) for setting in settings] for name in names}
    varying = [name for name in names if len({json.dumps(value) for value in values[name]}) > 1] or ["algorithm"]
    shared = ", ".join(f"{name} {values[name][0]}" for name in names if name not in varying)
    lines = [
        r"\toprule",
        _row([*map(_heading, varying), "seeds", heading, r"95\% interval", r"$V^\star-V^\pi$"]),
        r"\midrule",
    ]
    for label in dict.fromkeys(json.dumps(setting) for setting in settings):
        mine = np.array([json.dumps(setting) == label for setting in settings])
        setting = json.loads(label)
        lines.append(_row([*(_cell(setting.get(name)) for name in varying), *_measured(runs, mine, measure)]))
    columns = "l" * len(varying) + "r" * 4
    body = "\n".join([*lines, r"\bottomrule"])
    return f"% All rows: {shared}\n\\begin{{tabular}}{{{columns}}}\n{body}\n\\end{{tabular}}\n"


def _setting(spec: str) -> Setting:
    """All that settles a run but its seed and the model's content."""
    fields = json.loads(spec)
    of_model = {"instance": fields["instance"], **fields["params"], "horizon": fields["horizon"]}
    return {**of_model, "beta": fields["beta"], "algorithm": fields["algorithm"], **fields["options"]}


def _measured(runs: Mapping[str, np.ndarray], mine: np.ndarray, measure: str) -> Sequence[str]:
    capped = (runs["stopped"][mine] == 0) if measure == "episodes" else None
    found = summary(runs[measure][mine], capped)
    interval = (
        f"{_tex_number(found['mean_low'])} to {_tex_number(found['mean_high'])}" if found["seeds"] > 1 else "one seed"
    )
    more = "$>$ " if found["capped"] else ""  # a capped run counts with the number it was stopped at
    return [
        str(found["seeds"]),
        more + _tex_number(found["mean"]),
        "" if found["capped"] else interval,
        _tex_number(float(np.mean(runs["true_gap"][mine]))),
    ]


def _row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _heading(name: str) -> str:
    return _NAMES.get(name, _word(name.replace("_", " ")))


def _cell(value: Any) -> str:
    if value is None:
        return "--"
    return _tex_number(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else _word(value)


def _word(value: Any) -> str:
    return title(str(value)).translate(_ESCAPES)


def _tex_number(value: float) -> str:
    """1234 as 1\\,234 and 2.09e8 as $2.09\\cdot10^{8}$."""
    if value == 0 or not np.isfinite(value):
        return "0" if value == 0 else "--"
    if not 1e-3 <= abs(value) < 1e6:
        mantissa, exponent = f"{value:.3g}".split("e") if "e" in f"{value:.3g}" else f"{value:.2e}".split("e")
        return rf"${mantissa}\cdot10^{{{int(exponent)}}}$"
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return "$-$" * (value < 0) + text.lstrip("-").replace(",", r"\,")
