"""How much longer: forecasts from gaps whose law is known, budgets of time, and what is printed meanwhile."""

from __future__ import annotations

import io
import math
import sys
import time

import gymnasium
import numpy as np
import pytest

import entropic_bpi as eb
from entropic_bpi.compile.decorators import compile_clock
from entropic_bpi.methods.kl.method import KL
from entropic_bpi.runs import progress as _progress
from entropic_bpi.runs.forecasts.timings import Forecast, Timings, forecast_of

ROWS = [("episodes", np.int64), ("gap", float)]


def batch(played):
    return max(1, math.ceil(0.01 * played))


def falling(power, until=5000, noise=0.0):
    rng, played, rows = np.random.default_rng(0), 1, []
    while played < until:
        rows.append((played, 30.0 * played**-power * math.exp(noise * rng.normal())))
        played += batch(played)
    return np.array(rows, dtype=ROWS)


@pytest.mark.parametrize("power", [0.5, 0.7, 1.0])
def test_where_gaps_fall_like_a_power_the_range_begins_with_the_fastest_and_ends_with_the_truth(power):
    history, pace = falling(power), Timings(episode=1e-3, plan=0.5)
    told = forecast_of(history, 1e-3, pace, batch)
    last = int(history["episodes"][-1])
    until = (30.0 / 1e-3) ** (1 / power)
    soonest = last * history["gap"][-1] / 1e-3  # if from now on the gap fell like 1/n
    assert told.episodes == pytest.approx((soonest - last, until - last), rel=1e-6)
    for end, seconds in zip((soonest, until), told.seconds, strict=True):
        plans, played = 0, last
        while played < end * (1 - 1e-9):
            played, plans = played + batch(played), plans + 1
        assert seconds == pytest.approx(1e-3 * (end - last) + 0.5 * plans, rel=1e-4)


def test_where_plans_are_rare_the_last_eight_are_used_over_three_octaves_at_most():
    rare, law = (
        Timings(episode=1e-3, plan=0.5),
        [(n, 30.0 * n**-0.5) for n in (round(100 * 1.25**i) for i in range(20))],
    )
    told = forecast_of(np.array(law[:12], dtype=ROWS), 0.1, rare, batch)
    assert told.episodes[1] == pytest.approx(300.0**2 - law[11][0], rel=1e-6)
    doublings = np.array([(2**i, 30.0 * 2 ** (-i / 2)) for i in range(12)], dtype=ROWS)
    assert forecast_of(doublings, 0.1, rare, batch) is None


def test_a_plateau_is_not_taken_to_go_on_for_ever():
    history = falling(0.1)
    low, high = forecast_of(history, 1.0, Timings(episode=1e-3, plan=0.1), batch).episodes
    played, ratio = history["episodes"][-1], history["gap"][-1]
    assert low == pytest.approx(played * (ratio - 1))
    assert played * (ratio**2 - 1) < high < played * ratio**2.5


def test_noise_widens_the_range_and_the_truth_is_near():
    told = forecast_of(falling(0.5, noise=0.01), 0.1, Timings(episode=1e-3, plan=0.1), batch)
    low, high = told.episodes
    assert low < (30.0 / 0.1) ** 2 < 1.5 * high


@pytest.mark.parametrize(
    "history",
    [
        np.empty(0, dtype=ROWS),
        falling(0.5, until=5),  # too early
        np.array([(n, math.inf) for n in range(1, 50)], dtype=ROWS),
        np.array([(n, 2.0) for n in range(1, 50)], dtype=ROWS),  # not falling
        np.array([(n, 1.0 + n) for n in range(1, 50)], dtype=ROWS),
        np.array([(n, math.nan) for n in range(1, 50)], dtype=ROWS),
        falling(0.0001),  # not in this life
    ],
)
def test_without_ground_there_is_no_forecast(history):
    assert forecast_of(history, 0.01, Timings(episode=1e-3, plan=0.1), batch) is None


def test_the_first_plan_which_compiles_does_not_count():
    pace = Timings()
    pace.made_plan(30.0)
    pace.made_plan(0.1)
    assert pace.plan == 0.1


def test_a_forecast_in_words():
    assert str(Forecast((15_234.0, 21_876.0), (12.1, 34.0))) == "15,000 to 22,000 more episodes, 13 s to 34 s to go"
    assert str(Forecast((150.0, 150.0), (700.0, 710.0))) == "150 more episodes, 12 min to go"
    assert str(Forecast((2e9, 2e9), (7e4, 7e4))) == "2,000,000,000 more episodes, 19 h to go"


OPTIONS = {"beta": -1.0, "delta": 0.1, "successors": "model", "seed": 1}


@pytest.fixture(scope="module")
def model():
    return eb.instances.garnet(3, 2, 3, horizon=3, seed=0)


def test_a_budget_of_time_ends_a_run_with_what_is_certified(model):
    lake = {"horizon": 4, "reward_range": (0, 1), "beta": -1.0, "eps": 1e-9, "delta": 0.1, "seed": 1}
    eb.identify("FrozenLake-v1", **lake, max_episodes=5)  # compiles
    result = eb.identify("FrozenLake-v1", **lake, max_seconds=0.2)
    assert not result.stopped
    assert result.episodes > 0
    assert eb.verify(result.certificate).ok
    assert 0 < result.certificate.gap < 4.0
    with pytest.raises(eb.InvalidProblemError, match="max_seconds"):
        eb.identify(model, **OPTIONS, eps=1.0, max_seconds=0)


class SimulatedClock:
    """Time that passes where the test says so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.mark.parametrize("replan", [None, 1.0, "every"])
@pytest.mark.parametrize(("step", "plan"), [(0.01, 0.5), (0.2, 0.01), (1e-4, 3.0)])
def test_a_budget_of_time_is_kept_and_used(replan, step, plan, monkeypatch, tmp_path):
    """Whatever takes the time: the steps of an environment, or the plans. The claim takes as long as a plan."""
    clock = SimulatedClock()
    monkeypatch.setattr("entropic_bpi.runs.loop.run_clock", clock)

    class Slow(gymnasium.Wrapper):
        def step(self, action):
            clock.now += step
            return super().step(action)

    def slowly(original):
        def called(*arguments):
            clock.now += plan
            return original(*arguments)

        return called

    for name in ("plan", "claim"):
        monkeypatch.setattr(KL, name, slowly(getattr(KL, name)))
    lake = {"horizon": 4, "reward_range": (0, 1), "beta": -1.0, "eps": 1e-9, "delta": 0.1, "seed": 1, "replan": replan}
    path = tmp_path / "run"
    for part in range(2):  # the second one goes on with batches that are large at once
        began = clock.now
        result = eb.identify(lambda: Slow(gymnasium.make("FrozenLake-v1")), **lake, max_seconds=30, checkpoint=path)
        assert not result.stopped
        assert result.episodes > part
        assert 30 - 3 * (plan + 4 * step) <= clock.now - began <= 31.5  # episodes differ in length


def test_a_spent_budget_comes_with_a_forecast_and_a_reached_goal_with_none(model):
    spent = eb.identify(model, **OPTIONS, eps=0.02, max_episodes=600)
    done = eb.identify(model, **OPTIONS, eps=0.02)
    assert done.stopped
    assert done.forecast is None
    low, high = spent.forecast.episodes
    assert low / 8 < done.episodes - 600 < 8 * high


def test_a_budget_of_time_may_change_when_a_run_goes_on(model, tmp_path):
    path = tmp_path / "run"
    eb.identify(model, **OPTIONS, eps=0.2, max_seconds=1e-9, checkpoint=path)
    result = eb.identify(model, **OPTIONS, eps=0.2, checkpoint=path)
    alone = eb.identify(model, **OPTIONS, eps=0.2)
    assert result.stopped
    assert np.array_equal(result.history, alone.history)


def test_progress_says_once_that_code_is_compiled():
    class Line:
        words = ()

        def update(self, words, part):
            self.words += (words,)

        def stop(self):
            """There is nothing to clear."""

    with _progress.Progress(False) as line:
        line.line = Line()
        for _ in range(2):
            for observer in compile_clock.observers:
                observer()
    assert line.line.words == ("compiling, which is done once …",)
    assert compile_clock.observers == []


def test_the_time_of_a_run_does_not_contain_that_of_compiling(model, monkeypatch):
    def plan(method, counts, round, original=KL.plan):
        compile_clock.on_start(None)
        time.sleep(0.2 if round == 0 else 0.0)
        compile_clock.on_end(None)
        return original(method, counts, round)

    monkeypatch.setattr(KL, "plan", plan)
    began = time.perf_counter()
    result = eb.identify(model, **OPTIONS, eps=0.5)
    assert result.compile_seconds >= 0.2
    assert 0 < result.seconds <= time.perf_counter() - began - result.compile_seconds


def test_where_nothing_is_compiled_no_time_goes_into_it(model):
    eb.identify(model, **OPTIONS, eps=0.5)  # compiles
    assert [eb.identify(model, **OPTIONS, eps=0.5).compile_seconds for _ in range(5)] == [0.0] * 5


def test_without_a_terminal_lines_of_text_are_printed_now_and_then(monkeypatch):
    now, text = [0.0], io.StringIO()
    monkeypatch.setattr(_progress.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(sys, "stderr", text)
    with _progress.RunProgress(True, 0.1) as line:
        for second in range(600):
            now[0] = float(second)
            line.update_run(second, 1.0, lambda: "much to go" if now[0] > 15 else None)
    lines = text.getvalue().splitlines()
    assert lines[0] == "10 s: 11 episodes · gap 1 (goal 0.1) · no forecast yet"
    assert lines[1] == "20 s: 21 episodes · gap 1 (goal 0.1) · much to go"
    assert 10 < len(lines) < 20


def test_things_that_are_counted_are_shown_with_failures_and_the_time_left(monkeypatch):
    now, text = [0.0], io.StringIO()
    monkeypatch.setattr(_progress.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(sys, "stderr", text)
    with _progress.counting("runs", 40, 10, shown=True) as advance:
        for i in range(30):
            now[0] += 2.0
            advance(i == 3)
    lines = text.getvalue().splitlines()
    assert lines[0] == "10 s: 16 of 40 runs, 1 failed · 12 s elapsed, 48 s left"
    assert all(", 1 failed" in line for line in lines)


def test_nothing_is_shown_where_there_is_no_terminal_unless_it_is_asked_for(monkeypatch):
    text = io.StringIO()
    monkeypatch.setattr(sys, "stderr", text)
    monkeypatch.setattr(_progress, "_REFRESH_SECONDS", 0.0)
    monkeypatch.setattr(_progress, "_FIRST_LINE_SECONDS", 0.0)
    with _progress.counting("runs", 2) as advance:
        advance(False)
    assert text.getvalue() == ""


def test_a_terminal_shows_a_bar_that_is_gone_in_the_end(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    text = Terminal()
    monkeypatch.setattr(sys, "stderr", text)
    monkeypatch.setattr(_progress, "_REFRESH_SECONDS", 0.0)
    with _progress.RunProgress(True, 0.1) as line:
        line.update_run(7, 0.5, lambda: "[red]soon")
    shown, gone, rest = text.getvalue().split("\r")[1:]
    assert shown.endswith("7 episodes · gap 0.5 (goal 0.1) · [red]soon")
    assert (gone.strip(), len(gone), rest) == ("", len(shown), "")
