"""The benchmarks' own machinery: tables, files, slopes, checks, and parts that need no peer. Nothing here is timed."""

import csv
import math
import sys
from pathlib import Path

import numpy as np
import pytest

import entropic_bpi as eb

sys.path.insert(0, str(Path(__file__).parents[1]))
pytest.importorskip("benchmarks", reason="the benchmarks are part of a checkout only")

from benchmarks import __main__ as command
from benchmarks import certify, fresh, kl, learning, machine, peers, planning, table, timing
from benchmarks.bench import Bench, Curve
from benchmarks.peer_side import arrays, jobs
from benchmarks.table import Row

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture
def race():
    return timing.Race({"ours": [1e-3, 2e-3, 3e-3], "theirs": [4e-3, 4e-3, 9e-3]})


class TestRatios:
    def test_a_ratio_is_that_of_the_medians_and_its_spread_that_of_the_rounds(self, race):
        assert race.ratio("theirs", "ours") == 2.0
        assert race.spread("theirs", "ours") == (2.0, 4.0)

    def test_a_row_has_times_in_its_unit(self, race):
        row = table.compared("part", "what", race, theirs="theirs", peer="peer 1.0", unit="ms per solve")
        assert (row.ours, row.theirs, row.ratio, row.low, row.high) == (2.0, 4.0, 2.0, 2.0, 4.0)

    def test_rates_turn_the_numbers_but_not_the_ratio(self, race):
        row = table.compared("part", "what", race, theirs="theirs", peer="peer 1.0", unit="ms per solve")
        rates = table.as_rates(row, "solves per second")
        assert rates.ours == pytest.approx(500)
        assert rates.theirs == pytest.approx(250)
        assert rates.ratio == row.ratio

    def test_contestants_take_turns_and_the_first_round_does_not_count(self):
        turns = []

        def contestant(name):
            return lambda: turns.append(name) or float(len(turns))

        result = timing.race(2, ours=contestant("ours"), theirs=contestant("theirs"))
        assert turns == ["ours", "theirs"] * 3
        assert result.seconds == {"ours": [3.0, 5.0], "theirs": [4.0, 6.0]}

    @pytest.mark.parametrize("power", [-1.0, 0.0, 0.5, 2.0])
    def test_slope_finds_the_power(self, power):
        sizes = [1, 3, 10, 50]
        assert timing.slope(sizes, [7 * size**power for size in sizes]) == pytest.approx(power)


class TestFiles:
    ROWS = (
        Row("planning", "a | b", "ms", 1.0, 2.0, "peer 1.0", 2.0, 1.5, 2.5, "note"),
        Row("certify", "x", "episodes", math.inf),
        Row("certify", "y", "episodes", None, note="does not apply"),
    )

    def test_csv_holds_every_field(self, tmp_path):
        path = tmp_path / "rows.csv"
        table.write_csv(self.ROWS, path)
        with path.open(newline="", encoding="utf-8") as file:
            first, second, _ = csv.DictReader(file)
        assert first == {
            "part": "planning", "what": "a | b", "unit": "ms", "ours": "1", "theirs": "2", "peer": "peer 1.0",
            "ratio": "2", "low": "1.5", "high": "2.5", "note": "note",
        }  # fmt: skip
        assert (second["ours"], second["theirs"], second["ratio"]) == ("inf", "", "")

    def test_what_is_written_can_be_read_again(self, tmp_path):
        path = tmp_path / "rows.csv"
        assert table.read_csv(path) == []
        table.write_csv(self.ROWS, path)
        assert table.read_csv(path) == list(self.ROWS)

    def test_a_run_that_goes_on_keeps_the_parts_that_are_finished(self, tmp_path, monkeypatch, capsys):
        asked = []

        def part(name):
            return lambda bench: asked.append(name) or iter([Row(name, "x", "s", 1.0)])

        monkeypatch.setattr(command, "PARTS", {name: (part(name), f"{name}: in words") for name in ("certify", "kl")})
        command.main(["--out", str(tmp_path), "--no-peers", "--only", "kl"])
        command.main(["--out", str(tmp_path), "--no-peers", "--only", "certify,kl", "--resume"])
        assert asked == ["kl", "certify"]
        assert [row.part for row in table.read_csv(tmp_path / "benchmarks.csv")] == ["certify", "kl"]

    def test_markdown_starts_with_the_machine_and_leaves_out_empty_columns(self):
        titles = {"planning": "Planning: in words.", "certify": "Episodes: in words.", "absent": "Absent: never."}
        page = table.markdown(["CPU: fast"], titles, self.ROWS, None)
        assert page.startswith("- CPU: fast\n\n### Planning\n\nIn words.\n\n| what | ours | theirs |")
        assert "| a &#124; b | 1.00 | 2.00 | peer 1.0 | ms | 2.00 | 1.50 – 2.50 | note |" in page
        assert "| what | ours | unit | note |\n| --- | --- | --- | --- |\n| x | ∞ | episodes |  |" in page
        assert "| y |  | episodes | does not apply |" in page
        assert "Absent" not in page

    def test_results_go_between_the_markers_of_the_page_again_and_again(self):
        page = f"above\n{table.BEGIN}\nold\n{table.END}\nbelow\n"
        once = table.insert(page, "new\n")
        assert once == f"above\n{table.BEGIN}\n\nnew\n\n{table.END}\nbelow\n"
        assert table.insert(once, "new\n") == once
        with pytest.raises(ValueError, match="two lines"):
            table.insert("no markers", "new")

    def test_docs_are_updated_from_a_finished_run(self, tmp_path):
        out, docs = tmp_path / "out", tmp_path / "docs"
        out.mkdir()
        docs.mkdir()
        (docs / "benchmarks.md").write_text((DOCS / "benchmarks.md").read_text(encoding="utf-8"), encoding="utf-8")
        bench = Bench(curves=[Curve("solve", "S", [1, 10], [1.0, 10.0], 1.0)])
        rows = [Row("scaling", "solve, in the number of states", "slope", 1.0)]
        command.write(out, ["CPU: fast"], rows, bench)
        command.update_docs(out, docs)
        page = (docs / "benchmarks.md").read_text(encoding="utf-8")
        assert "- CPU: fast" in page
        assert "![scaling curves](images/benchmarks.png)" in page
        assert (docs / "images" / "benchmarks.png").stat().st_size > 0
        assert (docs / "data" / "benchmarks.csv").read_text(encoding="utf-8").startswith("part,what,unit,ours")


class TestParts:
    """Parts without peers: their checks against the plain versions run, and rows come out."""

    def test_kl_plans_agree_with_the_plain_version(self):
        row = kl._small_kl_plan(Bench(quick=True))
        assert row.part == "kl"
        assert row.theirs > 0

    def test_bernstein_loop_agrees_with_the_plain_version(self):
        learning.PlainBernstein(eb.instances.risky_bridge(horizon=7), "sharp").check()

    def test_planning_contest_without_peers(self):
        mdp = planning.sparse_mdp(50, 2, 3, 4)
        rows = list(planning._contest(Bench(quick=True), "sparse", mdp, "loop"))
        assert [row.what for row in rows] == [
            f"sparse S = 50, A = 2, H = 4: {kind}" for kind in ("expectation", "β = 0.1")
        ]

    def test_methods_that_do_not_apply_say_so(self, monkeypatch):
        lake = eb.from_gymnasium("FrozenLake-v1", horizon=3)
        monkeypatch.setattr(certify, "instances", lambda quick: {"lake": (lake, -1.0)})
        paper, sharp, *others = certify.certify(Bench(quick=True))
        assert paper.ours is None
        assert sharp.note.startswith("does not apply")
        assert all(row.ours is not None and row.ratio is None for row in others)

    def test_every_registered_instance_is_certified(self):
        names = " ".join(certify.instances(quick=False))
        assert all(name in names for name in eb.instances.names())

    @pytest.mark.slow
    @pytest.mark.sample
    def test_command_line_writes_the_files(self, tmp_path, capsys):
        command.main(["--quick", "--no-peers", "--only", "certify", "--out", str(tmp_path)])
        assert {path.name for path in tmp_path.iterdir()} == {"benchmarks.csv", "benchmarks.md"}
        assert "Episodes to certify" in capsys.readouterr().out

    @pytest.mark.parametrize("wrong", [["--only", "nothing"], ["--docs", "docs", "--no-peers"]])
    def test_wrong_options_are_refused(self, wrong, capsys):
        with pytest.raises(SystemExit):
            command.parsed(wrong)
        assert "error:" in capsys.readouterr().err


class TestPeerSide:
    def test_nothing_of_the_peers_side_imports_this_library(self):
        for path in Path(jobs.__file__).parent.glob("*.py"):
            assert "entropic_bpi" not in path.read_text(encoding="utf-8").split('"""', 2)[2]

    def test_balls_by_roots_agree_with_ours(self):
        answer = jobs.ScipyBalls(size=30, k=3, first=10).answer()["values"]
        np.testing.assert_allclose(answer, kl.solved(arrays.balls(30, 3), kl.CONVERGED)[:10], atol=1e-6)

    def test_every_pin_names_one_version(self):
        assert all("==" in pin for environment in peers.PINS for pin in peers.pins(environment))
        assert peers.named("quantecon").startswith("quantecon ")

    def test_a_process_of_its_own_reports_its_time_and_memory(self):
        usage = fresh.alone("solve", 100)
        assert 0 < usage.job < usage.process
        assert usage.peak > 2**20


def test_machine_is_described():
    lines = machine.description()
    assert lines[0].startswith("CPU: ")
    assert "numba" in lines[1]
    assert "load average" in lines[2]


def test_documented_data_has_no_absolute_path():
    path = DOCS / "data" / "benchmarks.csv"
    if path.exists():
        text = path.read_text(encoding="utf-8")
        assert str(Path.home()) not in text
        assert "/tmp/" not in text
