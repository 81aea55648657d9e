"""Figures are checked by their data: the CSV holds what the runs gave, and drawing and words follow from it alone."""

from __future__ import annotations

import csv
import math

import numpy as np
import pytest
from typer.testing import CliRunner

import entropic_bpi as eb
from entropic_bpi import cli
from entropic_bpi.lab.experiments import grid, reproduce
from entropic_bpi.lab.experiments.figures import FIGURES, PAPER, stopping, tuned
from entropic_bpi.lab.experiments.figures import regret as regret_figures
from entropic_bpi.lab.experiments.figures._figure import FULL, QUICK, save_drawing
from entropic_bpi.lab.experiments.statistics import line, summary
from entropic_bpi.lab.experiments.store import Outcome, Results


def read(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def made_up(specs, outcome):
    """Results of a sweep that nobody ran."""
    found = [outcome(spec) for spec in specs]
    runs = {
        "hash": [spec.hash for spec in specs],
        "spec": [spec.as_json for spec in specs],
        "algorithm": [spec.algorithm for spec in specs],
        "horizon": [spec.mdp.horizon for spec in specs],
        "beta": [spec.beta for spec in specs],
        "seed": [spec.seed for spec in specs],
        **{name: [each.columns[name] for each in found] for name in found[0].columns},
    }
    curves = {name: np.concatenate([each.curve[name] for each in found]) for name in found[0].curve}
    curves["run"] = np.repeat(np.arange(len(specs)), [len(each.curve["episodes"]) for each in found])
    return Results({name: np.array(values) for name, values in runs.items()}, curves)


def stop_after(episodes, *, stopped=True):
    columns = {"episodes": episodes, "stopped": stopped, "gap": 0.2, "lower": 1.0, "upper": 1.2, "true_gap": 0.0}
    return Outcome({**columns, "policy": "x"}, {"episodes": np.array([0, 1, episodes]), "lower": np.array([0, 0, 1.0]),
                    "upper": np.array([7, 7, 4.0]), "gap": np.array([7, 7, 0.2])}, 0.0)  # fmt: skip


def test_the_sweeps_are_those_of_the_paper():
    assert PAPER == ("fig3", "fig4", "fig5", "fig6", "fig7", "fig8")
    fig3, fig4 = (FIGURES[name].sweep(FULL) for name in ("fig3", "fig4"))
    assert sorted({run.beta for run in fig3}) == [2.5, 3.0, 3.5, 4.0, 4.5]
    assert {(run.mdp.horizon, run.options["eps"], run.options["delta"]) for run in fig3} == {(7, 0.2, 0.1)}
    assert sorted({run.mdp.horizon for run in fig4}) == [5, 7, 9, 11, 13, 15, 17]
    assert {run.beta for run in fig4} == {0.5}
    for runs in (fig3, fig4):
        assert {run.seed for run in runs} == set(range(15))
        assert {run.algorithm for run in runs} == {"bernstein"}
        assert {run.options["constants"] for run in runs} == {"printed", "verified"}
    for name, beta in (("fig5", 1.0), ("fig6", 2.0), ("fig7", 3.0), ("fig8", 4.0)):
        runs = FIGURES[name].sweep(FULL)
        assert {run.beta for run in runs} == {beta}
        assert {run.options["episodes"] for run in runs} == {10**7}
        assert {run.algorithm for run in runs} == set(regret_figures.LEARNERS)
        assert len(regret_figures.LEARNERS) == 9
        assert {run.seed for run in runs} == set(range(15))
        assert {run.options.get("constants") for run in runs if run.algorithm == "entropic_bpi"} == {
            "printed",
            "verified",
        }
        assert {run.options["episodes"] for run in FIGURES[name].sweep(QUICK)} == {10**5}


def test_the_words_follow_from_the_data():
    exponential = made_up(FIGURES["fig3"].sweep(QUICK), lambda run: stop_after(round(1e6 * math.exp(run.beta))))
    table = FIGURES["fig3"].table(exponential)
    assert [row["beta"] for row in table] == 2 * [2.5, 3.0, 3.5, 4.0, 4.5]
    assert [row["rule"] for row in table] == 5 * ["paper, printed constants"] + 5 * ["paper, verified constants"]
    assert table[0]["mean"] == pytest.approx(1e6 * math.exp(2.5))
    told = FIGURES["fig3"].describe(table)
    assert "increases sharply: confirmed" in told
    assert "roughly linear in β: confirmed" in told
    assert "not constant in β: not confirmed" in told
    printed, checked = told.split("With the machine-checked bonus")
    assert printed.count("confirmed") == checked.count("confirmed") == 3
    flat = made_up(FIGURES["fig3"].sweep(QUICK), lambda run: stop_after(10**6 + run.seed))
    assert "increases sharply: not confirmed" in FIGURES["fig3"].describe(FIGURES["fig3"].table(flat))


def test_capped_runs_are_counted_and_shown():
    specs = FIGURES["fig4"].sweep(QUICK)
    results = made_up(specs, lambda run: stop_after(1000 + run.mdp.horizon, stopped=run.seed > 0))
    table = FIGURES["fig4"].table(results)
    assert [row["capped"] for row in table] == [1] * 14
    labels = FIGURES["fig4"].draw(table).axes[0].get_legend_handles_labels()[1]
    assert "some runs capped" in labels
    assert "14 runs were capped" in FIGURES["fig4"].describe(table)


def regret_results(name, level, gap=lambda spec: 0.0):
    """Regret ``level(spec) * sqrt(K)``, and a policy in the end that loses ``gap(spec)``."""

    def outcome(spec):
        episodes = np.unique(np.geomspace(1, spec.options["episodes"], 300).astype(int))
        regret = level(spec) * np.sqrt(episodes)
        columns = {"episodes": episodes[-1], "regret": regret[-1], "true_gap": gap(spec)}
        return Outcome(columns, {"episodes": episodes, "regret": regret}, 0.0)

    return made_up(FIGURES[name].sweep(QUICK), outcome)


def entry_of(run):
    """The name of a run in the tables about regret."""
    entry = {"learner": run.algorithm, "constants": run.options.get("constants")}
    return next(name for name, given in regret_figures.ENTRIES.items() if {"constants": None, **given} == entry)


RANK = {name: i + 1.0 for i, name in enumerate(regret_figures.ENTRIES)}


def test_learners_are_ranked_by_their_regret_at_the_end():
    results = regret_results("fig5", lambda run: RANK[entry_of(run)] + 0.01 * run.seed)
    table = FIGURES["fig5"].table(results)
    assert [row["learner"] for row in regret_figures.ranking(table)] == list(regret_figures.ENTRIES)
    assert table[-1]["mean"] == pytest.approx(10.01 * math.sqrt(10**5))
    assert table[-1]["mean_low"] < table[-1]["median"] < table[-1]["mean_high"]
    assert len(table) <= 60 * len(regret_figures.ENTRIES)
    told = FIGURES["fig5"].describe(table)
    assert "Entropic-BPI, printed bonus 319.4 [" in told
    assert "3 trials of 1e5 episodes" in told


def test_each_claim_about_regret_is_checked_for_both_bonuses():
    """Regret ``level * sqrt(K)``: lowest at the end, throughout and flattest are then the same."""
    results = regret_results("fig5", lambda run: {1.0: 3.0, 2.0: 5.0}.get(RANK[entry_of(run)], 4.0) + 0.01 * run.seed)
    told = FIGURES["fig5"].describe(FIGURES["fig5"].table(results))
    printed, checked = told.split("With the bonus that the paper prints: ")[1].split(
        " With the machine-checked bonus: "
    )
    assert printed.count(": confirmed") == 3
    assert (
        "RSVI, 1.33 times as much; their intervals are apart); lowest throughout: confirmed (at every point" in printed
    )
    assert checked.count("not confirmed") == 3
    assert "RSVI, 0.80 times as much; their intervals are apart)" in checked
    assert "still behind at the end, by at most 25% after the first 1e4, which are played nearly at random)" in checked


def crossing(run):
    """ROVI has 10 √K; Entropic-BPI is behind it up to K = 10⁴, with the machine-checked bonus up to K = 810 000."""
    episodes = np.unique(np.geomspace(1, 10**5, 300).astype(int))
    regret = {"printed": 100 * episodes**0.25, "verified": 300 * episodes**0.25}.get(run.options.get("constants"))
    regret = (10 + (run.algorithm != "rovi")) * episodes**0.5 if regret is None else regret
    return Outcome({"episodes": 10**5, "regret": regret[-1]}, {"episodes": episodes, "regret": regret}, 0.0)


def test_a_curve_that_crosses_the_others_is_lowest_at_the_end_and_not_throughout():
    table = FIGURES["fig6"].table(made_up(FIGURES["fig6"].sweep(QUICK), crossing))
    end, throughout, flattest = regret_figures.claim_checks(table, regret_figures.PRINTED)
    assert (end.holds, throughout.holds, flattest.holds) == (True, False, True)
    assert "ROVI, 1.78 times as much" in end.evidence
    last = max(row["episodes"] for row in table if row["episodes"] < 10**4)
    assert throughout.evidence == f"behind for the last time after {last / 1e3:.3g}e3 episodes"
    end, throughout, flattest = regret_figures.claim_checks(table, regret_figures.CHECKED)
    assert (end.holds, throughout.holds, flattest.holds) == (False, False, True)
    assert throughout.evidence.startswith("still behind at the end, by at most 1")


def test_one_trial_has_no_interval_that_could_be_apart():
    specs = [run for run in FIGURES["fig5"].sweep(QUICK) if run.seed == 0]
    told = FIGURES["fig5"].describe(FIGURES["fig5"].table(made_up(specs, crossing)))
    assert "mean over 1 trial of 1e5 episodes" in told
    assert told.count("their intervals are not apart") == 2


def test_missing_runs_leave_their_claims_unchecked():
    specs = [run for run in FIGURES["fig5"].sweep(QUICK) if run.options.get("constants") != "verified"]
    table = FIGURES["fig5"].table(made_up(specs, crossing))
    assert "With the machine-checked bonus: runs are missing." in FIGURES["fig5"].describe(table)


def test_the_overview_checks_all_values_of_beta_together():
    overview = FIGURES["regret"]
    assert {run.beta for run in overview.sweep(FULL)} == {1.0, 2.0, 3.0, 4.0}
    assert {run.hash for run in overview.sweep(FULL)} == {
        run.hash for name in ("fig5", "fig6", "fig7", "fig8") for run in FIGURES[name].sweep(FULL)
    }

    def level(run):
        best = {"printed": 1.0, "verified": 1.0 if run.beta > 2 else 3.0}
        return best.get(run.options.get("constants"), 2.0)

    table = overview.table(regret_results("regret", level))
    told = overview.describe(table)
    assert "prints: lowest at the end at every β: confirmed (it is at β = 1, 2, 3, 4)" in told
    assert "bonus: lowest at the end at every β: not confirmed (it is at β = 3, 4)" in told
    (axes,) = overview.draw(table).axes
    assert [tick.get_text() for tick in axes.get_yticklabels()][-1] == "Entropic-BPI, printed bonus"


def test_regret_is_drawn_on_the_axes_of_the_paper_and_on_logarithmic_ones():
    table = FIGURES["fig5"].table(made_up(FIGURES["fig5"].sweep(QUICK), crossing))
    figure = FIGURES["fig5"].draw(table)
    assert [(axes.get_xscale(), axes.get_yscale()) for axes in figure.axes] == [
        ("linear",) * 2,
        ("log",) * 2,
        ("log",) * 2,
    ]
    looks = {(line.get_color(), line.get_linestyle()) for line in figure.axes[0].get_lines()}
    assert len(looks) == len(regret_figures.ENTRIES)


def test_tuning_chooses_a_scale_on_seeds_that_are_not_shown():
    def level(run):
        tuning = run.seed >= tuned.TUNING_SEED
        best = 0.01 if tuning else 1.0  # on the seeds that are shown, another scale would look better
        return 1.0 + abs(math.log10(run.options["scale"] / best))

    table = FIGURES["tuned"].table(regret_results("tuned", level))
    assert {row["scale"] for row in table} == {0.01}
    assert table[-1]["seeds"] == 3
    assert "seeds of their own" in FIGURES["tuned"].describe(table)


def test_tuning_tells_what_the_policies_at_the_end_lose():
    def told(gap):
        return FIGURES["tuned"].describe(FIGURES["tuned"].table(regret_results("tuned", lambda run: 1.0, gap)))

    same = told(lambda run: 0.051)
    assert "RSVI 0.051;" in same
    assert "All learners end with a policy of the same loss, which is not optimal" in same
    some = told(lambda run: 0.0 if run.algorithm == "rsvi" else 0.01 * run.seed)
    assert "RSVI 0;" in some
    assert "ROVI 0 to 0.02." in some
    assert "RSVI ends with an optimal policy on every seed; the regret of the others" in some
    assert "No learner ends with an optimal policy on every seed" in told(lambda run: 0.01 * run.seed)


def test_the_other_figures_follow_from_their_data():
    certify = FIGURES["certify"]
    results = made_up(certify.sweep(QUICK), lambda run: stop_after(10**9 if run.algorithm != "kl" else 10**6))
    table = certified = certify.table(results)
    assert list(dict.fromkeys(row["rule"] for row in table))[:7] == list(stopping.RULES)
    text = certify.describe(table)
    assert "needs 1e+03 to 1e+03 times fewer episodes than the paper's with the bonus that it prints" in text
    chi2 = FIGURES["chi2"]
    results = made_up(chi2.sweep(QUICK), lambda run: stop_after(round(1e6 * math.exp(run.beta**2))))
    table = chi2.table(results)
    bridge = eb.instances.risky_bridge(horizon=7)
    for row in table:
        exact = eb.chi_square(bridge, eb.solve(bridge, row["beta"]).policy, row["beta"])
        assert row["chi_square"] == pytest.approx(exact)
    assert "not supported" in chi2.describe(table)
    assert "The optimal policy changes at β = 1.005, 1." in chi2.describe(table)
    for beta in (row["changes_at"] for row in table if not math.isnan(row["changes_at"])):
        before, after = (eb.solve(bridge, beta + step).policy for step in (-1e-4, 1e-4))
        assert eb.evaluate(bridge, before, beta).value == pytest.approx(
            eb.evaluate(bridge, after, beta).value, abs=1e-5
        )
        assert (before != after).any()
    for plot, data in ((certify, certified), (chi2, table)):
        for axes in plot.draw(data).axes:
            assert axes.get_ylabel()


def tick_labels(axis):
    """The labels that are seen on an axis, its own or those of the panel that it shares them with."""
    low, high = sorted(axis.get_view_interval())
    places = axis.get_majorticklocs()
    return [place for place in places if low <= place <= high]


@pytest.mark.parametrize("name", ["fig3", "fig4", "fig5", "certify", "chi2", "tuned"])
def test_every_axis_has_ticks_and_no_code_names(name):
    figure_of = FIGURES[name]
    if name in ("fig5", "tuned"):
        results = regret_results(name, lambda run: 1.0 + 0.01 * run.seed + 0.02 * len(run.algorithm))
    else:
        results = made_up(
            figure_of.sweep(QUICK), lambda run: stop_after(round(1e6 * math.exp(run.beta + run.mdp.horizon / 5)))
        )
    figure = figure_of.draw(figure_of.table(results))
    figure.canvas.draw()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            assert len(tick_labels(axis)) >= 2, (name, axis.get_label_text())
    words = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert not any("_" in word for word in words)


def test_the_curves_of_a_figure_differ_in_their_looks():
    table = FIGURES["fig5"].table(regret_results("fig5", lambda run: 1.0))
    lines = FIGURES["fig5"].draw(table).axes[0].get_lines()
    looks = {(line.get_color(), line.get_linestyle(), line.get_linewidth()) for line in lines}
    assert len(looks) == len(lines) == 10


def test_fonts_of_a_pdf_can_be_printed(tmp_path):
    table = FIGURES["fig3"].table(made_up(FIGURES["fig3"].sweep(QUICK), lambda run: stop_after(10**6)))
    save_drawing(FIGURES["fig3"].draw(table), tmp_path, "fig3")
    content = (tmp_path / "fig3.pdf").read_bytes()
    assert b"/Type3" not in content
    assert b"/TrueType" in content or b"/CIDFontType2" in content


def test_statistics_have_the_seed_as_their_unit():
    found = summary([1.0, 2.0, 4.0], capped=[False, False, True])
    assert (found["seeds"], found["capped"], found["median"]) == (3, 1, 2.0)
    half = 4.302652729911275 * np.std([1.0, 2.0, 4.0], ddof=1) / math.sqrt(3)
    assert found["mean_high"] - found["mean"] == pytest.approx(half)
    assert math.isnan(summary([1.0])["mean_low"])
    assert line([1, 2, 3], [2, 2, 2]) == (pytest.approx(0.0), 1.0)


@pytest.fixture
def app():
    return cli.app


@pytest.mark.slow
@pytest.mark.sample
def test_reproduce_writes_pictures_data_and_words(tmp_path, app):
    arguments = ["reproduce", "fig3", "--quick", "--seeds", "2", "--workers", "0", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    assert {file.name for file in (tmp_path / "fig3").iterdir()} == {"fig3.png", "fig3.pdf", "fig3.csv", "README.md"}
    assert (tmp_path / "fig3" / "fig3.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "fig3" / "fig3.pdf").read_bytes().startswith(b"%PDF")
    assert "# fig3" in (tmp_path / "fig3" / "README.md").read_text()
    rows = read(tmp_path / "fig3" / "fig3.csv")
    assert [float(row["beta"]) for row in rows] == 2 * [2.5, 3.0, 3.5, 4.0, 4.5]
    problem = {"beta": 2.5, "eps": 0.2, "delta": 0.1, "method": "bernstein"}
    for row, constants in ((rows[0], "printed"), (rows[5], "verified")):
        alone = [
            eb.identify(eb.instances.risky_bridge(horizon=7), **problem, constants=constants, seed=seed).episodes
            for seed in (0, 1)
        ]
        assert float(row["mean"]) == np.mean(alone)
    again = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert (again.exit_code, "already holds" in again.stderr) == (2, True)
    assert CliRunner().invoke(app, [*arguments, "--resume"], catch_exceptions=False).exit_code == 0


def test_failed_runs_are_left_out_and_mentioned(tmp_path, monkeypatch):
    def execute(spec):
        return stop_after(10**6) if spec.seed else Outcome({}, {}, 0.0, "ValueError: made up")

    monkeypatch.setattr("entropic_bpi.lab.experiments.runner.execute", execute)
    told = reproduce(["fig3"], tmp_path, quick=True, workers=0)
    assert "10 of 30 runs failed and are left out" in told["fig3"]
    assert read(tmp_path / "fig3" / "fig3.csv")[0]["seeds"] == "2"


def test_figures_are_computed_seed_by_seed(tmp_path, monkeypatch):
    """So that a sweep that is cut off has as many seeds of one learner as of another."""
    seeds = []

    def execute(spec):
        seeds.append(spec.seed)
        return stop_after(10**6)

    monkeypatch.setattr("entropic_bpi.lab.experiments.runner.execute", execute)
    reproduce(["fig3", "fig4"], tmp_path, quick=True, seeds=2, workers=0)
    assert seeds == sorted(seeds)
    assert set(seeds) == {0, 1}


def test_an_unknown_figure_is_a_clear_error(tmp_path):
    with pytest.raises(eb.InvalidProblemError, match="fig3, fig4"):
        reproduce(["fig9"], tmp_path)
    assert not list(tmp_path.iterdir())


def test_sweep_and_export_from_the_command_line(tmp_path, app):
    (tmp_path / "mine.toml").write_text('[[runs]]\nlearner = "rsq"\nepisodes = 50\nbeta = [1.0, 2.0]\nseeds = 2\n')
    done = CliRunner().invoke(
        app,
        ["sweep", str(tmp_path / "mine.toml"), "--out", str(tmp_path / "out"), "--workers", "0"],
        catch_exceptions=False,
    )
    assert (done.exit_code, done.stdout.split()[0]) == (0, "4")
    done = CliRunner().invoke(
        app,
        ["export", str(tmp_path / "out"), "--out", str(tmp_path / "tables"), "--format", "csv"],
        catch_exceptions=False,
    )
    assert done.exit_code == 0
    assert len(read(tmp_path / "tables" / "runs.csv")) == 4


def test_a_sweep_with_a_failed_run_ends_with_code_1(tmp_path, app, monkeypatch):
    (tmp_path / "mine.toml").write_text('[[runs]]\nlearner = "rsq"\nepisodes = 50\nbeta = 1.0\nseeds = 2\n')
    monkeypatch.setattr(
        "entropic_bpi.lab.experiments.runner.execute", lambda spec: Outcome({}, {}, 0.0, "ValueError: no")
    )
    done = CliRunner().invoke(
        app,
        ["sweep", str(tmp_path / "mine.toml"), "--out", str(tmp_path / "out"), "--workers", "0"],
        catch_exceptions=False,
    )
    assert done.exit_code == 1
    assert done.stderr.count("ValueError: no") == 2


def test_results_of_nothing_can_be_selected():
    none = made_up(grid(learner="rsq", beta=1.0, episodes=5, seeds=1), lambda spec: stop_after(5)).select([])
    assert len(none.runs["hash"]) == len(none.curves["run"]) == 0
