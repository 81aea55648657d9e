"""What an extra installs: the core works without it, and an error names the extra."""

import re
import sys
import tomllib
from importlib import import_module
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import entropic_bpi as eb
from entropic_bpi.cli import main

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
BRIDGE = ["risky-bridge", "--beta", "2.5", "--eps", "2", "--delta", "0.1", "--successors", "model"]


@pytest.fixture(params=[["duckdb"], ["jinja2"], ["duckdb", "jinja2", "markupsafe", "distributed", "minari"]])
def missing(request, monkeypatch):
    for module in request.param:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "entropic_bpi.lab.experiments.store", raising=False)
    return request.param


def typed(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return ended.value.code, *capsys.readouterr()


def test_the_core_needs_no_extra(missing, tmp_path, capsys):
    assert typed(capsys, "identify", *BRIDGE, "--out", tmp_path / "run")[0] == 0
    for words in (["verify", tmp_path / "run"], ["certify", tmp_path / "run", "--beta", "0:1:1"], ["doctor"]):
        assert typed(capsys, *words)[0] == 0
    claim = eb.Certificate.load(tmp_path / "run" / "certificate.json")
    assert "Certified" in claim._repr_html_()


def test_an_error_names_the_extra(missing, tmp_path, capsys):
    (tmp_path / "log.csv").write_text("e,t,s,a,r\n0,0,x,0,1\n")
    columns = ["--episode", "e", "--step", "t", "--state", "s", "--action", "a", "--reward", "r"]
    goal = ["--beta", "-1", "--delta", "0.1", "--horizon", "1", "--reward-range", "0", "1", "--all-truncated"]
    logged = typed(capsys, "certify", tmp_path / "log.csv", *columns, *goal, "--states", "x")
    assert (logged[0] == 2) == ("duckdb" in missing)
    if "duckdb" in missing:
        assert logged[2] == "entropic-bpi: a log needs duckdb: pip install 'entropic-bpi[logs]'\n"
        with pytest.raises(eb.InvalidProblemError, match=r"a file of results needs duckdb: .*\[logs\]"):
            import_module("entropic_bpi.lab.experiments.store")
    if "jinja2" in missing:
        typed(capsys, "identify", *BRIDGE, "--out", tmp_path / "run")
        code, _, err = typed(capsys, "report", tmp_path / "run", "-o", tmp_path / "report.html")
        assert (code, err) == (2, "entropic-bpi: a report needs jinja2: pip install 'entropic-bpi[report]'\n")
    if "minari" in missing:
        with pytest.raises(eb.InvalidProblemError, match=r"from_minari needs minari: .*\[minari\]"):
            eb.Log.from_minari("any")


@pytest.mark.skipif(not PROJECT.exists(), reason="tested without the sources")
def test_every_extra_that_an_error_names_installs_the_module():
    extras = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    sources = Path(eb.__file__).parent.rglob("*.py")
    named = {m for path in sources for m in re.findall(r'module_of_extra\("(\w+)", "(\w+)"', path.read_text())}
    named -= {("json", "all"), ("no_such_module", "all")}  # examples
    assert {extra for _, extra in named} == {"logs", "report", "cluster", "minari"}
    installed = packages_distributions()
    for module, extra in named:
        names = {module, *installed.get(module, [])}
        assert any(re.split(r"[\[>=]", wanted)[0] in names | {"dask"} for wanted in extras[extra]), (module, extra)
    assert set(re.findall(r"\w+", extras["all"][0].split("[")[1])) == set(extras) - {"all", "browser", "test", "docs"}
