"""Logs: what is read, what is refused, and what the counts are."""

import csv
import math
import tempfile
from collections import Counter
from decimal import Decimal
from types import SimpleNamespace

import duckdb
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import entropic_bpi as eb
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.sources.logs import tables as _tables
from tests.reference.logs import ROLES, behaviour_value, counted, play, table

N_STATES = 4
RNG = np.random.default_rng(1)
MODEL = eb.FiniteMDP(RNG.dirichlet(np.ones(N_STATES), (N_STATES, 2)), RNG.random((N_STATES, 2)), horizon=5)
LINES = play(MODEL, 60, RNG, ends=(3,), cut=0.1)


def write_csv(path, lines, names=tuple(ROLES)):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(lines)
    return path


def seen_by(log, horizon=None):
    """Pooled over all steps or, with a horizon, at each step before it."""
    outcomes = log.outcomes(pooled=horizon is None, horizon=horizon, last_ends=horizon is not None)
    keys = zip(*(array.tolist() for array in outcomes[:5]), strict=True)
    return Counter(dict(zip(keys, outcomes.times.tolist(), strict=True)))


def read(data, **options):
    return eb.Log.read(data, **{**ROLES, **options})


def pooled(seen):
    total = Counter()
    for (_, *transition), times in seen.items():
        total[0, *transition] += times
    return total


# -- where logs come from ------------------------------------------------------------------------------------------


def from_csv(folder):
    return write_csv(folder / "log.csv", LINES)


def from_parquet(folder):
    path = folder / "it's a log.parquet"
    duckdb.from_query(f"FROM '{from_csv(folder)}'").write_parquet(str(path))
    return path


def from_pandas(folder):
    return pytest.importorskip("pandas").DataFrame(table(LINES))


def from_polars(folder):
    pytest.importorskip("pyarrow")
    return pytest.importorskip("polars").DataFrame(table(LINES))


def from_arrow(folder):
    return pytest.importorskip("pyarrow").table(table(LINES))


def from_arrays(folder):
    return table(LINES)


SOURCES = [from_csv, from_parquet, from_pandas, from_polars, from_arrow, from_arrays]


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_gives_the_same_counts(source, tmp_path):
    log = read(source(tmp_path), states=range(N_STATES))
    assert seen_by(log) == pooled(counted(LINES, 5, N_STATES))
    assert seen_by(log, 5) == counted(LINES, 5, N_STATES)
    assert log.starts().tolist() == [sum(line[1] == 0 and line[2] == s for line in LINES) for s in range(N_STATES)]
    assert (log.episodes, log.lines, log.longest) == (60, len(LINES), 5)
    assert (log.states, log.actions, log.unused) == ((0, 1, 2, 3), (0, 1), 0)


@pytest.mark.parametrize("horizon", [1, 3, 5, 9])
def test_without_next_states_the_next_line_tells(horizon):
    lines = play(MODEL, 60, np.random.default_rng(2), ends=(3,))
    log = read(table(lines), next_state=None, truncated=True, states=range(N_STATES))
    assert seen_by(log, horizon) == counted(lines, horizon, N_STATES, next_states=False)
    assert log.unused == sum(line[1] == 4 for line in lines)


def test_a_step_of_which_only_the_endings_are_told_is_not_used():
    """Of the last step before a time limit it is known if it ended, and nothing else: that is a selection by outcome."""
    lines = play(MODEL, 60, np.random.default_rng(2), ends=(3,))
    ended = [line for line in lines if line[1] == 4 and line[6]]
    log = read(table(lines), next_state=None, truncated=True, states=range(N_STATES))
    assert ended
    assert seen_by(log) == pooled(counted([line for line in lines if line[1] < 4], 5, N_STATES))
    assert np.array_equal(np.sort(log.returns(5)), np.sort(read(table(lines)).returns(5)))


@pytest.mark.parametrize("told", [None, "next_state"])
def test_an_episode_that_was_cut_before_the_others_must_tell_where_it_went(told):
    columns = table(LINES)
    cut = np.flatnonzero(columns["truncated"] & (columns["step"] < 4))
    columns["next_state"] = np.where(columns["truncated"], np.nan, columns["next_state"])
    line = 1 + int(cut[0] if told is None else np.flatnonzero(columns["truncated"])[0])
    with pytest.raises(
        InvalidProblemError, match=rf"line {line} of dict, episode \d+: it was truncated after step \d, and the"
    ):
        read(columns, next_state=told, truncated=True if told is None else "truncated")


def test_the_order_of_the_lines_does_not_matter(tmp_path):
    shuffled = [LINES[i] for i in np.random.default_rng(1).permutation(len(LINES))]
    log = read(write_csv(tmp_path / "shuffled.csv", shuffled), states=range(N_STATES))
    assert seen_by(log, 5) == counted(LINES, 5, N_STATES)


def test_labels_may_be_of_any_type(tmp_path):
    times = np.array(["2024-01-01", "2024-02-01"], dtype="datetime64[s]")
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"e": ["x", "x", "y"], "t": [0, 1, 0], "r": [0.0, 1.0, 0.5], "over": [False, True, True]})
    frame["place"] = [(1, 2), (1, 3), (1, 2)]
    frame["when"] = times[[0, 1, 0]]
    roles = {"episode": "e", "step": "t", "reward": "r", "terminated": "over"}
    log = eb.Log.read(frame, state="place", action="when", **roles)
    assert log.states == ((1, 2), (1, 3))
    assert [str(action)[:10] for action in log.actions] == ["2024-01-01", "2024-02-01"]
    assert seen_by(log) == {(0, 0, 0, 1, 0.0): 1, (0, 1, 1, 2, 1.0): 1, (0, 0, 0, 2, 0.5): 1}


@pytest.mark.parametrize(
    ("written", "labels"),
    [(["10", "9", "2"], (2, 9, 10)), (["007", "7", "1"], ("007", "1", "7")), (["b", "a", "1.0"], ("1.0", "a", "b"))],
)
def test_labels_of_a_csv_file_are_numbers_only_if_all_of_them_are_written_so(written, labels, tmp_path):
    lines = [(e, 0, s, 0, 0.0, None, True, False) for e, s in enumerate(written)]
    assert read(write_csv(tmp_path / "log.csv", lines)).states == labels


def test_a_next_state_may_be_missing_where_the_episode_is_over():
    """In a frame such a column is one of floating-point numbers with NaN."""
    columns = table(LINES)
    columns["next_state"] = np.where(columns["terminated"], np.nan, columns["next_state"])
    log = read(columns, states=range(N_STATES))
    assert log.states == (0, 1, 2, 3)
    assert seen_by(log, 5) == counted(LINES, 5, N_STATES)


def test_what_follows_a_termination_is_not_a_state():
    lines = [(0, 0, "shore", "row", 1.0, "beyond", True, False)]
    assert read(table(lines)).states == ("shore",)


def test_declared_labels_are_numbered_in_their_order():
    log = read(table(LINES), states=[3, 2, 1, 0, 17], actions=[1, 0])
    assert log.states == (3, 2, 1, 0, 17)
    mirrored = Counter(
        {(h, 3 - s, 1 - a, 5 if y == 4 else 3 - y, r): n for (h, s, a, y, r), n in counted(LINES, 5, 4).items()}
    )
    assert seen_by(log, 5) == mirrored


def test_excluded_episodes_are_left_out_and_named():
    log = read(table(LINES), states=range(N_STATES), exclude="episode < 10 AND step = 0")
    assert seen_by(log, 5) == counted([line for line in LINES if line[0] >= 10], 5, N_STATES)
    assert log.excluded == "10 episodes with episode < 10 AND step = 0"
    assert log.episodes == 50


@pytest.mark.parametrize("beta", [-2.0, 0.0, 1e-12, 0.7])
@pytest.mark.parametrize("horizon", [2, 5])
def test_the_value_of_the_behaviour_is_that_of_the_whole_episodes(beta, horizon):
    log = read(table(LINES))
    assert log.value(beta, horizon) == pytest.approx(behaviour_value(LINES, beta, horizon), abs=1e-9)


def test_a_log_without_whole_episodes_has_no_value():
    assert math.isnan(read(table([(0, 0, 0, 0, 0.0, 1, False, True)])).value(1.0, 5))


# -- what is refused -----------------------------------------------------------------------------------------------

GOOD = [
    (0, 0, "a", "x", 0.0, "b", False, False),
    (0, 1, "b", "x", 1.0, "c", True, False),
    (1, 0, "a", "y", 0.0, "a", False, False),
    (1, 1, "a", "x", 0.0, "b", False, True),
]


def broken(line, column, value):
    lines = [list(each) for each in GOOD]
    lines[line - 1][list(ROLES).index(column)] = value
    return lines


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (broken(2, "state", ""), "line 2 of log.csv: state is missing"),
        (broken(3, "action", ""), "line 3 of log.csv: action is missing"),
        (broken(1, "reward", ""), "line 1 of log.csv: reward is missing"),
        (broken(1, "reward", "much"), "line 1 of log.csv: reward is 'much', not a finite number"),
        (broken(4, "reward", "inf"), "line 4 of log.csv: reward is 'inf', not a finite number"),
        (broken(4, "episode", ""), "line 4 of log.csv: episode is missing"),
        (broken(2, "step", "one"), "line 2 of log.csv: step is 'one', not an integer"),
        (broken(2, "step", 1.5), "line 2 of log.csv: step is '1.5', not an integer"),
        (broken(2, "step", 0), "line 2 of log.csv, episode '0': got step 0, expected step 1"),
        (broken(2, "step", 7), "line 2 of log.csv, episode '0': got step 7, expected step 1"),
        (broken(1, "step", -1), "line 1 of log.csv, episode '0': got step -1, expected step 0"),
        (
            broken(3, "next_state", "b"),
            "line 3 of log.csv, episode '1': next_state is 'b', but the episode continues in",
        ),
        (broken(4, "terminated", "maybe"), "line 4 of log.csv: terminated is 'maybe', neither true nor false"),
        (broken(1, "terminated", True), "line 1 of log.csv, episode '0': it continues after it terminated"),
        (broken(3, "truncated", True), "line 3 of log.csv, episode '1': it continues after it terminated or was"),
        (
            GOOD[:3] + [(1, 1, "a", "x", 0.0, "", False, False)],
            "line 4 of log.csv, episode '1': it stops after step 1 for an unknown reason",
        ),
        (broken(3, "state", "d"), "line 3 of log.csv: state is 'd', not among the declared states"),
        (broken(4, "next_state", "d"), "line 4 of log.csv: next_state is 'd', not among the declared states"),
        (broken(4, "action", "z"), "line 4 of log.csv: action is 'z', not among the declared actions"),
        ([], "log.csv has no episodes"),
    ],
)
def test_what_does_not_fit_is_named_with_its_line(lines, message, tmp_path):
    path = write_csv(tmp_path / "log.csv", lines)
    with pytest.raises(InvalidProblemError) as error:
        read(path, states=["a", "b", "c"], actions=["x", "y"])
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"state": "place"}, "state='place' is not a column of log.csv, which has episode, step"),
        ({"state": 3}, "state=3 is not a column"),
        ({"truncated": True, "terminated": True}, "terminated=True is not a column"),
        ({"states": []}, "states must list at least one label"),
        ({"states": ["a", None]}, "states must list at least one label, without None"),
        ({"states": "abc"}, "states must be a list"),
        ({"states": ["a", "b", "a"]}, "states lists 'a' twice"),
        ({"states": [object()]}, "cannot be read as a log"),
        ({"states": "ab"}, "states must be a list"),
        ({"states": ["a", "b", "c"], "max_states": 3}, "give states= or max_states=, not both"),
        ({"exclude": "no such column > 3"}, "cannot be read as a log"),
        (
            {"query": "SELECT episode FROM data"},
            "step='step' is not a column of the query of log.csv, which has episode",
        ),
    ],
)
def test_wrong_arguments_are_named(options, message, tmp_path):
    with pytest.raises(InvalidProblemError, match=message):
        read(write_csv(tmp_path / "log.csv", GOOD), **options)


@pytest.mark.parametrize(
    "data", [3, None, object(), [1, 2], "SELECT * FROM 'log.csv'", "nowhere.csv", "nowhere.parquet", "nowhere/*.csv"]
)
def test_what_is_no_table_is_refused(data):
    with pytest.raises(InvalidProblemError, match="cannot be read as a log"):
        read(data)


def test_an_episode_that_was_cut_must_be_said_to_be(tmp_path):
    path = write_csv(tmp_path / "log.csv", GOOD)
    with pytest.raises(InvalidProblemError, match=r"line 4 .* it stops after step 1 for an unknown reason"):
        read(path, next_state=None, truncated=None)
    log = read(path, next_state=None, truncated=True)
    assert (log.unused, log.states) == (2, ("a", "b"))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_file_makes_it_crash(data, tmp_path_factory):
    """A good file with some bytes changed, or any bytes: it is read, or refused with an error of ours."""
    path = tmp_path_factory.mktemp("fuzz") / "log.csv"
    content = bytearray(write_csv(path, GOOD).read_bytes())
    if data.draw(st.booleans()):
        for place in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=6)):
            content[place] = data.draw(st.sampled_from(b"0123456789,\"'\n\r\x00\xff -+eE.abxyTtrue;|\\\t"))
    else:
        content = bytearray(data.draw(st.binary(max_size=200)))
    path.write_bytes(content)
    try:
        log = read(path)
    except InvalidProblemError:
        return
    assert log.episodes >= 1
    assert sum(seen_by(log).values()) == log.lines - log.unused


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_parquet_file_makes_it_crash(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz") / "log.parquet"
    line = "SELECT * FROM (VALUES (0, 0, 'a', 'x', 0.0, 'b', true, false))"
    duckdb.from_query(f"{line} t({', '.join(ROLES)})").write_parquet(str(path))
    content = bytearray(path.read_bytes())
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=6)):
        content[place] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        assert read(path).episodes == 1
    except InvalidProblemError:
        return


@pytest.mark.slow
def test_ten_million_lines_take_less_than_a_minute(tmp_path):
    import time

    lines, horizon = 10_000_000, 20
    path = tmp_path / "log.csv"
    duckdb.execute(
        f"COPY (SELECT range // {horizon} AS episode, range % {horizon} AS step, 'state ' || hash(range) % 100 AS state, "
        f"hash(range + 7) % 4 AS action, (hash(range + 7) % 4)::DOUBLE AS reward, range % {horizon} = {horizon - 1} AS "
        f"terminated FROM range({lines})) TO '{path}'"
    )
    names = {name: name for name in ("episode", "step", "state", "action", "reward", "terminated")}
    began = time.process_time()  # of all threads: a busy machine does not count
    log = eb.Log.read(path, **names)
    seen = log.outcomes(pooled=True)
    seconds = time.process_time() - began
    print(f"{lines} lines in {seconds:.1f} s of computing")
    assert (log.lines, seen.times.sum()) == (lines, lines)
    assert seconds < 60


# -- nothing is misread ----------------------------------------------------------------------------------------------

LARGE = 2**53


def labelled(*labels, **columns):
    """One line for each label of a state, which ends its episode."""
    n = len(labels)
    parts = {"episode": np.arange(n), "step": np.zeros(n, dtype=int), "state": np.array(labels), "action": np.zeros(n)}
    return {**parts, "reward": np.zeros(n), "terminated": np.ones(n, dtype=bool), **columns}


def read_ends(data, **options):
    return read(data, **{"next_state": None, "truncated": None, **options})


@pytest.mark.parametrize(
    "data",
    [
        labelled(LARGE, LARGE + 1, next_state=np.array([0.5, 1.5]), terminated=np.zeros(2, dtype=bool)),
        labelled(2**24, 2**24 + 1, next_state=np.array([0.5, 1.5], np.float32), terminated=np.zeros(2, dtype=bool)),
        {**labelled(0, 1, 2), "state": np.array([LARGE, LARGE + 1, 0.5], dtype=object)},
        {**labelled(0, 1, 2), "state": np.array([1, "1", "a"], dtype=object)},
        {**labelled(0, 1), "state": np.array([(LARGE, 0.5), (LARGE + 1, 0.5), 0], dtype=object)[:2]},
        {**labelled(0, 1), "episode": np.array([7, "7"], dtype=object)},
    ],
    ids=["double", "float", "mixed numbers", "number and text", "tuples", "episodes"],
)
def test_labels_that_would_be_rounded_are_refused(data):
    options = {"next_state": "next_state", "truncated": True} if "next_state" in data else {}
    with pytest.raises(InvalidProblemError, match=r"would be rounded|different values that DuckDB"):
        read_ends(data, **options)


def test_a_large_label_may_stand_beside_a_column_with_gaps():
    """In a frame, a column of integers with a gap is one of floating-point numbers; the other one stays exact."""
    ends = np.array([True, False])
    data = labelled(10**18 + 1, 2, next_state=np.array([np.nan, 2.0]), terminated=ends)
    assert read_ends(data, next_state="next_state", truncated=True).states == (2, 10**18 + 1)
    fractions = pytest.importorskip("pandas").DataFrame(data)
    fractions["state"] = [Decimal("1.5"), Decimal("2.5")]
    assert read_ends(fractions, next_state="next_state", truncated=True).states == (Decimal("1.5"), 2, Decimal("2.5"))


def test_declared_labels_are_not_rounded():
    with pytest.raises(InvalidProblemError, match=f"states: {LARGE + 1} would be rounded"):
        read_ends(labelled(0.5), states=[LARGE + 1, 0.5])
    with pytest.raises(InvalidProblemError, match=f"states {LARGE + 1} of dict would be rounded"):
        read_ends(labelled(float(LARGE)), states=[LARGE + 1])


def test_labels_that_python_cannot_tell_apart_are_refused():
    times = np.array([1, 2], dtype="datetime64[ns]")  # of which Python's own type has microseconds
    with pytest.raises(InvalidProblemError, match="different states with the same text"):
        read_ends(labelled(*range(2), state=times))


def test_a_missing_episode_is_not_an_episode(tmp_path):
    path = tmp_path / "log.parquet"
    columns = "(VALUES (0::DOUBLE, 0, 'a', 'x', 0.0, true), ('nan'::DOUBLE, 0, 'a', 'x', 0.0, true))"
    names = "episode, step, state, action, reward, terminated"
    duckdb.sql(f"SELECT * FROM {columns} t({names})").write_parquet(str(path))
    with pytest.raises(InvalidProblemError, match=r"line 2 of log\.parquet: episode is missing"):
        read_ends(path)


def test_parquet_files_of_different_types_are_refused(tmp_path):
    """The labels of one were cast to the type of the other: 2.7 was the state 3."""
    for name, state in (("a", "1"), ("b", "2.7::DOUBLE")):
        query = f"SELECT {ord(name)} AS episode, 0 AS step, {state} AS state, 0 AS action, 0.0 AS reward, true AS terminated"
        duckdb.sql(query).write_parquet(str(tmp_path / f"{name}.parquet"))
    assert read_ends(tmp_path / "a.parquet").states == (1,)
    with pytest.raises(InvalidProblemError, match="columns of different types"):
        read_ends(str(tmp_path / "*.parquet"))


def test_parquet_numbers_that_duckdb_rounds_are_refused(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    long = pyarrow.array([Decimal(10**45), Decimal(10**45 + 1)], type=pyarrow.decimal256(50, 0))
    parquet.write_table(pyarrow.table({**labelled(0, 1), "state": long}), tmp_path / "log.parquet")
    with pytest.raises(InvalidProblemError, match="longer than DuckDB can read exactly"):
        read_ends(tmp_path / "log.parquet")


HEADER = "episode,step,state,action,reward,terminated\n"


def test_no_line_of_a_csv_file_is_skipped(tmp_path):
    """DuckDB looks for the table by itself, and takes lines with another number of columns for something else."""
    path = tmp_path / "log.csv"
    good = "".join(f"{e},0,a,x,0.0,true\n" for e in range(4000))
    path.write_text(HEADER + good)
    assert read_ends(path).episodes == 4000
    for lost in ("".join(f"{e},0,a,x,0.0,true,extra\n" for e in range(4000, 4300)), "a log of last year\n", "\n"):
        path.write_text((HEADER + lost if "true" in lost else lost + HEADER) + good)
        with pytest.raises(InvalidProblemError, match=r"cannot be read as a log|is not a column"):
            read_ends(path)


def test_the_lines_of_a_csv_file_are_counted_twice(tmp_path, monkeypatch):
    path = tmp_path / "log.csv"
    path.write_text(HEADER + '0,0,"a\nb",x,0.0,true\n\n1,0,"a\nb",x,0.0,true\n\n')
    assert (read_ends(path).episodes, read_ends(path).states) == (2, ("a\nb",))
    counted_lines = _tables._lines_of

    def one_more(path):
        names, lines = counted_lines(path)
        return names, lines + 1

    monkeypatch.setattr(_tables, "_lines_of", one_more)
    with pytest.raises(InvalidProblemError, match="it has 3 lines after the first, but 2 were read"):
        read_ends(path)


def test_quotes_that_come_late_are_quotes(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(HEADER + "".join(f"{e},0,x,go,0.0,true\n" for e in range(60_000)) + '60000,0,"x",go,0.0,true\n')
    assert read_ends(path).states == ("x",)


@pytest.mark.parametrize(
    "text", ["a;b\n1;2\n", "a,A\n1,2\n", "a,a\n1,2\n", "", 'a,b\n"x"y,2\n', "a,b\n1\n", "a,b\n1,2,3\n"]
)
def test_another_dialect_is_refused(text, tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(InvalidProblemError, match=r"log\.csv"):
        eb.Log.read(path, **dict.fromkeys(("episode", "step", "state", "action", "reward"), "b"))


def test_several_csv_files_are_one_log_if_their_columns_are_the_same(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text(HEADER + f"{name},0,x,go,0.0,true\n")
    assert read_ends(str(tmp_path / "*.csv")).episodes == 2
    (tmp_path / "b.csv").write_text("step,episode,state,action,reward,terminated\n0,b,x,go,0.0,true\n")
    with pytest.raises(InvalidProblemError, match="the same in all files"):
        read_ends(str(tmp_path / "*.csv"))


@pytest.mark.parametrize(
    "name", ["with love.csv", "from last week.csv", "select * from it.csv", "log [1].csv", "a=1.csv"]
)
def test_a_path_is_a_file_whatever_it_is_called(name, tmp_path, monkeypatch):
    (tmp_path / "log 1.csv").write_text(HEADER + "0,0,another,x,0.0,true\n")
    (tmp_path / name).write_text(HEADER + "0,0,this,x,0.0,true\n")
    monkeypatch.chdir(tmp_path)
    assert read_ends(name).states == ("this",)


# -- no other door ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [from_csv, from_parquet, from_arrays])
def test_a_query_chooses_among_the_data(source, tmp_path):
    query = "SELECT * REPLACE (action AS state), state AS place FROM data WHERE episode::INT >= 10;  -- of any kind"
    log = read(source(tmp_path), states=range(N_STATES), query=query, state="place")
    assert seen_by(log, 5) == counted([line for line in LINES if line[0] >= 10], 5, N_STATES)
    assert log.name.startswith("the query of ")


@pytest.mark.parametrize(
    "text",
    [
        "COPY data TO '{}'",
        "SELECT * FROM data; COPY data TO '{}'",
        "ATTACH '{}'",
        "INSERT INTO data SELECT * FROM data",
        "SET threads = 1",
        "EXPLAIN SELECT 1",
        "",
        3,
    ],
)
def test_a_query_is_one_select(text, tmp_path):
    written = tmp_path / "written"
    text = text.format(written) if isinstance(text, str) else text
    with pytest.raises(InvalidProblemError, match="query must be one SELECT over the table data"):
        read(table(LINES), query=text)
    assert not written.exists()


@pytest.mark.parametrize(
    "text",
    [
        "false; COPY data TO '{}'",
        "false) AS unwanted FROM data; COPY data TO '{}'; SELECT (true",
        "false) AS unwanted FROM source; COPY (SELECT 1) TO '{}'; SELECT (true",
        "false) AS other, (true",
        "false FROM data",
        "",
        3,
    ],
)
def test_what_is_excluded_is_one_condition(text, tmp_path):
    written = tmp_path / "written"
    text = text.format(written) if isinstance(text, str) else text
    with pytest.raises(InvalidProblemError, match=r"exclude must be one condition|cannot be read as a log"):
        read(table(LINES), exclude=text)
    assert not written.exists()


@pytest.mark.parametrize("there", ["FROM '{}'", "FROM read_csv('{}')", "FROM glob('{}')", "SELECT * FROM data, '{}'"])
def test_a_query_reaches_nothing_but_the_data(there, tmp_path):
    here = from_csv(tmp_path)
    with pytest.raises(InvalidProblemError, match="cannot be read as a log"):
        read(table(LINES), query=there.format(here))
    mine = table(LINES)  # which DuckDB would find by its name
    with pytest.raises(InvalidProblemError, match="cannot be read as a log"):
        read(here, query="FROM mine")
    with pytest.raises(InvalidProblemError, match="cannot be read as a log"):
        read(mine, exclude=f"(SELECT count(*) FROM '{here}') > 0")


@pytest.mark.parametrize("path", ["http://127.0.0.1:9/log.csv", "s3://bucket/log.parquet", "hf://datasets/log.csv"])
def test_nothing_is_fetched_and_no_extension_installed(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(InvalidProblemError, match="only local files are read"):
        read(path)
    log = read(table(LINES), states=range(N_STATES))
    settings = dict(log._connection.execute("SELECT name, value FROM duckdb_settings()").fetchall())
    assert not list(tmp_path.iterdir())
    closed = ("autoinstall_known_extensions", "autoload_known_extensions", "enable_external_access")
    assert [settings[name] for name in (*closed, "lock_configuration")] == ["false"] * 3 + ["true"]
    (tmp_path / path).parent.mkdir(parents=True)  # a folder may be called like a protocol
    write_csv(tmp_path / path, GOOD)
    if path.endswith(".csv"):
        assert read(path).episodes == 2


# -- Minari --------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::UserWarning:minari")
def test_a_minari_data_set_is_a_log_in_the_numbering_of_its_environment(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    pytest.importorskip("jax", reason="Minari needs it to record")
    import gymnasium
    import minari.data_collector.data_collector as collector

    # Minari leaves its folders to the garbage collector, which warns.
    folders = SimpleNamespace(TemporaryDirectory=lambda dir: SimpleNamespace(name=tempfile.mkdtemp(dir=dir)))
    monkeypatch.setattr(collector, "tempfile", folders)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    env = minari.DataCollector(gymnasium.make("FrozenLake-v1", max_episode_steps=6))
    env.action_space.seed(0)
    lines = []
    for episode in range(30):
        state, _ = env.reset(seed=episode)
        for step in range(6):
            action = int(env.action_space.sample())
            following, reward, terminated, truncated, _ = env.step(action)
            lines.append((episode, step, int(state), action, float(reward), int(following), terminated, truncated))
            state = following
            if terminated or truncated:
                break
    about = {"algorithm_name": "random", "code_permalink": "none", "author": "us", "author_email": "us@here"}
    dataset = env.create_dataset("frozen/random-v0", **about)
    for source in (dataset, "frozen/random-v0"):
        log = eb.Log.from_minari(source)
        assert (log.states, log.actions, log.episodes) == (tuple(range(16)), tuple(range(4)), 30)
        assert seen_by(log, 6) == counted(lines, 6, 16)
    env.close()
    with pytest.raises(InvalidProblemError, match="is not a Minari data set"):
        eb.Log.from_minari("frozen/nothing-v0")
