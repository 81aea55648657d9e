"""The page "Write your own learner" runs as it stands."""

import re
import sys
from pathlib import Path

import numpy as np

import entropic_bpi as eb
from entropic_bpi.learners import _run

PAGE = Path(__file__).parents[2] / "docs" / "write-your-own-learner.md"


def test_the_template_runs_and_learns(tmp_path, monkeypatch):
    file, script = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    (tmp_path / "try_each.py").write_text(file, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(_run, "_REGISTERED", {})
    namespace: dict = {}
    try:
        exec(compile(script, str(PAGE), "exec"), namespace)
    finally:
        sys.modules.pop("try_each", None)
    result = namespace["result"]
    loss = eb.solve(namespace["bridge"], -1.0).value - eb.evaluate(namespace["bridge"], result.policy, -1.0).value
    assert loss < 0.05
    assert (np.diff(result.regret) >= -1e-9).all()
