"""Figures: labelled, on the right axes, and made without pyplot."""

import subprocess
import sys

import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi import plots
from entropic_bpi.lab.plots import regret


@pytest.fixture(scope="module")
def result():
    return eb.identify(eb.instances.risky_bridge(), beta=-1, eps=0.5, delta=0.1, successors="model", seed=1)


def labels(axes):
    return axes.get_xlabel(), axes.get_ylabel()


def test_the_interval_shows_bounds_gap_and_goal(result):
    values, gaps = plots.interval(result.history, eps=0.5, delta=0.1).axes
    assert (gaps.get_xscale(), gaps.get_yscale(), values.get_yscale()) == ("log", "log", "linear")
    assert labels(gaps) == ("episodes", "gap (units of reward)")
    assert values.get_ylabel() == "value (units of reward)"
    assert [text.get_text() for text in gaps.get_legend().get_texts()] == ["certified gap", "target ε = 0.5"]
    upper, lower = (line.get_ydata() for line in values.get_lines())
    assert np.array_equal(upper, result.history["upper"][1:])
    assert np.all(lower <= upper)


def test_a_run_that_stops_before_the_first_episode_can_be_drawn(tmp_path, result):
    plots.save(plots.interval(result.history[:1], eps=9.0, delta=0.1), tmp_path / "interval.png")
    assert (tmp_path / "interval.png").stat().st_size > 10_000


def test_an_infinite_gap_is_drawn_as_the_width_of_the_interval(result):
    history = result.history.copy()
    history["gap"] = np.inf
    drawn = plots.interval(history, eps=0.5, delta=0.1).axes[1].get_lines()[0].get_ydata()
    assert np.array_equal(drawn, (history["upper"] - history["lower"])[1:])


@pytest.mark.parametrize(("delta", "surely"), [(0.1, "90 %"), (1e-9, "99.9999999 %"), (1e-40, "1 − 1e−40")])
def test_a_probability_close_to_1_is_not_called_1(result, delta, surely):
    claims = [eb.certify(result, beta=beta, delta=delta) for beta in (-1.0, 0.0)]
    titles = (
        plots.spectrum(claims).axes[0].get_title(),
        plots.interval(result.history, eps=0.5, delta=delta).axes[0].get_title(),
    )
    assert all(title.endswith(f"with probability at least {surely}") for title in titles)
    assert f"With probability at least {surely}:".replace("−", "-") in claims[0].statement


def test_the_spectrum_marks_each_change_of_policy_between_its_levels(result):
    claims = [eb.certify(result, beta=beta) for beta in (-1.0, 0.0, 1.0, 2.0)]
    figure = plots.spectrum(claims, [1, 1, 2, 1])
    axes = figure.axes[0]
    assert labels(axes) == ("risk parameter β (1 / units of reward)", "value (units of reward)")
    upper, lower, *changes = axes.get_lines()
    assert upper.get_ydata().tolist() == [claim.upper for claim in claims]
    assert lower.get_ydata().tolist() == [claim.lower for claim in claims]
    assert [line.get_xdata()[0] for line in changes] == [0.5, 1.5]
    assert len(figure.legends[0].get_texts()) == 3


def test_twelve_learners_can_be_told_apart_and_have_the_names_of_their_papers():
    grid = np.array([1, 10])
    runs = {
        name: [eb.Run(name, grid, np.array([1.0, 2.0 + i]), 0, np.zeros((1, 1), dtype=int), 0.0)]
        for i, name in enumerate(eb.learners.names()[:12])
    }
    figure = regret(runs)
    assert len({(line.get_color(), line.get_linestyle()) for line in figure.axes[0].get_lines()}) == 12
    assert {"UCB-Advantage", "RSVI2", "ROVI"} <= {text.get_text() for text in figure.legends[0].get_texts()}


@pytest.mark.parametrize(("low", "high"), [(0.55, 0.9), (0.1, 0.2), (1.0, 1000.0)])
def test_a_short_logarithmic_axis_has_two_numbers(low, high):
    axes = plots.new_figure(3, 3).subplots()
    axes.set(yscale="log", ylim=(low, high))
    plots.plain_numbers(axes.yaxis)
    assert sum(low <= tick <= high for tick in axes.yaxis.get_majorticklocs()) >= 2


def test_regret_is_log_log_with_a_legend_beside_the_curves(tmp_path):
    mdp = eb.instances.garnet(3, 2, 2, horizon=3, seed=0)
    runs = {
        name: [eb.run(name, mdp, beta=1, episodes=50, seed=seed) for seed in range(3)] for name in ("rovi", "rsvi2")
    }
    figure = regret(runs, title="garnet")
    axes = figure.axes[0]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert labels(axes) == ("episodes", "regret (units of reward)")
    for name, line in zip(runs, axes.get_lines(), strict=True):
        assert line.get_label() == eb.learners.title(name)
        assert line.get_ydata() == pytest.approx(np.mean([run.regret for run in runs[name]], axis=0))
    plots.save(figure, tmp_path / "regret.png")
    assert figure.legends[0].get_window_extent().x0 > axes.get_window_extent().x1


def test_no_window_system_is_touched(tmp_path):
    code = (
        "import sys, numpy as np\nfrom entropic_bpi import plots\n"
        "rows = np.array([(1, 0.0, 2.0, 2.0)], dtype=[(name, float) for name in ('episodes', 'lower', 'upper', 'gap')])\n"
        "plots.save(plots.interval(rows, eps=1, delta=0.1), 'interval.png')\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert (tmp_path / "interval.png").exists()


def test_the_grid_shows_an_arrow_and_bounds_in_each_cell_that_was_seen():
    walk = np.zeros((4, 2, 4))
    for s, (left, right) in enumerate([(0, 1), (0, 2), (2, 2), (3, 3)]):  # state 3 is never reached
        walk[s, 0, left] = walk[s, 1, right] = 1
    mdp = eb.FiniteMDP(walk, [[0, 0], [0, 1], [0, 0], [0, 0]], horizon=3)
    claim = eb.identify(mdp, beta=-1.0, eps=0.01, delta=0.1, max_episodes=40, seed=0).certificate
    figure = plots.grid(claim, np.array([["S", ""], ["", "H"]]), "←→")
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert sum(text in "←→" and text != "" for text in texts) == 3
    assert sum("–" in text for text in texts) == 3


def test_the_policy_is_drawn_where_episodes_can_come(result):
    certificate, bridge = result.certificate, eb.instances.risky_bridge()
    [axes] = plots.policy(certificate).axes
    assert labels(axes) == ("step", "state")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == list(bridge.action_names)
    drawn = {}
    names = [label.get_text() for label in axes.get_yticklabels()]
    for action, places in enumerate(axes.collections):
        for h, row in places.get_offsets():
            drawn[int(h), bridge.state_names.index(names[int(row)])] = action
    assert all(certificate.policy[place] == action for place, action in drawn.items())
    support, reachable = bridge.rows, {(0, 0)}
    for h in range(bridge.horizon - 1):
        for s in [s for step, s in reachable if step == h]:
            for row in range(s * bridge.n_actions, (s + 1) * bridge.n_actions):
                reachable |= {(h + 1, int(y)) for y in support.indices[support.indptr[row] : support.indptr[row + 1]]}
    assert (0, 0) in drawn
    assert set(drawn) <= reachable
