"""Logs in every form that users have them: the same episodes are the same log, and what cannot be known is refused."""

import gzip
import json
import sys
from types import SimpleNamespace

import duckdb
import numpy as np
import pandas
import pytest

import entropic_bpi as eb
from entropic_bpi import InvalidProblemError, Log
from entropic_bpi.compile.decorators import compile_clock
from entropic_bpi.runs import certification

ROWS = [
    {"who": 7, "t": 0, "at": "08:00", "kind": "new", "month": 1, "did": "call", "paid": 0.5, "over": False},
    {"who": 7, "t": 1, "at": "09:30", "kind": "old", "month": 2, "did": "wait", "paid": 1.0, "over": True},
    {"who": 8, "t": 0, "at": "08:00", "kind": "new", "month": 1, "did": "wait", "paid": 0.0, "over": True},
]
for row in ROWS:
    row["at"] = f"2024-01-0{row['who'] - 6} {row['at']}"
COLUMNS = {name: [row[name] for row in ROWS] for name in ROWS[0]}
ROLES = {"episode": "who", "step": "t", "state": "kind", "action": "did", "reward": "paid", "terminated": "over"}
CSV = pandas.DataFrame(ROWS).to_csv(index=False)


class Arrow:
    """A frame of a library that has Arrow's protocol and nothing else."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


def written(folder, name, text):
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def parquet_folder(folder):
    (folder / "parts" / "deep").mkdir(parents=True)
    for name, rows in (("a.parquet", ROWS[:2]), ("deep/b.parquet", ROWS[2:])):
        frame = pandas.DataFrame(rows)
        duckdb.from_df(frame).write_parquet(str(folder / "parts" / name))
    return folder / "parts"


FORMS = {
    "lists": lambda _: COLUMNS,
    "rows": lambda _: ROWS,
    "pandas": lambda _: pandas.DataFrame(ROWS),
    "Arrow": lambda _: Arrow(pytest.importorskip("pyarrow").table(COLUMNS)),
    "polars": lambda _: pytest.importorskip("polars").DataFrame(ROWS),
    "structured": lambda _: (
        pandas.DataFrame(ROWS).astype({"kind": "U3", "did": "U4", "at": "U16"}).to_records(index=False)
    ),
    "csv": lambda folder: written(folder, "log.csv", CSV),
    "csv.gz": lambda folder: written(folder, "log.csv.gz", CSV),
    "jsonl": lambda folder: written(folder, "log.jsonl", "\n".join(map(json.dumps, ROWS)) + "\n"),
    "jsonl.gz": lambda folder: written(folder, "log.jsonl.gz", "\n".join(map(json.dumps, ROWS))),
    "json": lambda folder: written(folder, "log.json", json.dumps(ROWS, indent=1)),
    "folder": parquet_folder,
}


def content(log):
    found = log.outcomes(pooled=False)
    return log.states, log.actions, log.episodes, [np.asarray(part).tolist() for part in found]


def without_lines(log):
    states, actions, episodes, parts = content(log)
    return states, actions, episodes, parts[:-1]


EXPECTED = Log.read({name: np.array(values) for name, values in COLUMNS.items()}, **ROLES)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_the_same_log(form, tmp_path):
    data = FORMS[form](tmp_path)
    data = np.array(data) if form == "structured" else data
    assert content(Log.read(data, **ROLES)) == content(EXPECTED)
    by_time = {name: column for name, column in ROLES.items() if name != "step"}
    assert content(Log.read(data, **by_time, order_by="at")) == content(EXPECTED)
    joined = Log.read(data, **ROLES | {"state": ["kind", "month"]})
    assert joined.states == (("new", 1), ("old", 2))
    assert content(joined)[1:] == content(EXPECTED)[1:]


BAD = {
    "array": (np.zeros((2, 3)), "an array has no column names: give a dictionary"),
    "two axes": ({"who": np.zeros((2, 2))}, "column who must have one axis"),
    "no list": ({"who": 3}, "column who must be an array or a list, got 3"),
    "keys": ([ROWS[0], {"who": 1}], "row 2 has the keys who, the first has who, t"),
    "no dictionary": ([ROWS[0], 5], "row 2 must be a dictionary"),
    "no rows": ([], "it has no rows"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_wrong_in_a_table_is_named(what):
    data, message = BAD[what]
    with pytest.raises(InvalidProblemError, match=message):
        Log.read(data, **ROLES)


def test_what_is_wrong_in_a_json_file_is_named_with_its_line(tmp_path):
    path = written(tmp_path, "log.jsonl", json.dumps(ROWS[0]) + "\n\n{broken\n")
    with pytest.raises(InvalidProblemError, match=r"log\.jsonl cannot be read as a log: line 3 is not a JSON object"):
        Log.read(path, **ROLES)
    batch = written(tmp_path, "log.json", json.dumps({"type": "SampleBatch", "obs": [0]}))
    with pytest.raises(InvalidProblemError, match=r"line 1 is a batch of RLlib: read it with eb\.Log\.from_rllib"):
        Log.read(batch, **ROLES)


# -- the order of the steps --------------------------------------------------------------------------------------------


def ordered(values, **more):
    data = {"e": [0] * len(values), "at": values, "s": list(range(len(values))), "a": [0] * len(values)}
    data |= {"r": [0.0] * len(values), "end": [False] * len(values)}
    return Log.read(data, episode="e", state="s", action="a", reward="r", truncated=True, **{"order_by": "at"} | more)


@pytest.mark.parametrize(
    "values",
    [
        [9, 10, 100],
        ["9", "10", "100"],
        ["1704067200000000001", "1704067200000000002", "1704067200000000003"],
        ["1e3", "2.5e3", "1e4"],
        ["1.2", "1.4", "1.6"],
        [0.5, 1.5, 2.25],
        ["2024-01-31 23:59", "2024-02-01 00:00", "2024-02-01 00:00:00.000001"],
        ["2024-01-31T23:59:00Z", "2024-02-01T00:00:00Z", "2024-02-01T00:00:01Z"],
        pandas.to_datetime(["2024-01-31", "2024-02-01", "2024-02-02"]).to_numpy(),
    ],
)
def test_steps_are_numbered_in_the_order_of_numbers_and_times(values):
    shuffled = [values[i] for i in (2, 0, 1)]
    log = ordered(np.array(shuffled) if isinstance(values, np.ndarray) else shuffled)
    found = log.outcomes(pooled=False)
    assert np.asarray(found[1]).tolist()[:2] == [1, 2]  # the states of the first two steps, by their lines


def test_an_order_that_is_not_one_is_an_error():
    with pytest.raises(InvalidProblemError, match="line 3 of dict: at has '5' a second time in this episode"):
        ordered([5, 4, 5])
    with pytest.raises(InvalidProblemError, match="line 2 of dict: at is 'noon', expected a number or a time"):
        ordered(["2024-01-01", "noon"])
    with pytest.raises(InvalidProblemError, match="line 2 of dict: at is missing"):
        ordered(["2024-01-01", None])
    for values in ([1.0, float("nan")], ["1", "nan"]):
        with pytest.raises(InvalidProblemError, match=r"line [12] of dict: at is (missing|'1'|'nan')"):
            ordered(values)
    with pytest.raises(InvalidProblemError, match="several time zones"):
        ordered(["2024-01-01 08:00+01:00", "2024-01-01 08:30+02:00"])
    with pytest.raises(InvalidProblemError, match="has the type BOOLEAN"):
        ordered([True, False])
    with pytest.raises(InvalidProblemError, match="give either step="):
        ordered([1, 2], step="at")


# -- states of several columns -----------------------------------------------------------------------------------------


def test_several_columns_are_one_state_and_can_be_declared():
    states = [("old", 1), ("old", 2), ("new", 1)]
    log = Log.read(ROWS, **ROLES | {"state": ["kind", "month"]}, states=states)
    assert log.states == tuple(states)
    following = [dict(row, after="old", then=2) for row in ROWS]
    log = Log.read(following, **ROLES | {"state": ["kind", "month"], "next_state": ["after", "then"]})
    assert log.states == (("new", 1), ("old", 2))
    for roles, message in [
        ({"state": ["kind", "month"], "next_state": ["after"]}, "lists of the same number of columns"),
        ({"state": ["kind", "month"], "next_state": "after"}, "lists of the same number of columns"),
        ({"state": [], "next_state": None}, "lists of the same number of columns"),
        ({"action": ["did"]}, "action must be one column"),
        ({"state": ["kind", "year"]}, r"state\[1\]='year' is not a column"),
    ]:
        with pytest.raises(InvalidProblemError, match=message):
            Log.read(following, **ROLES | roles)
    with pytest.raises(InvalidProblemError, match="states must be tuples of 2 values"):
        Log.read(ROWS, **ROLES | {"state": ["kind", "month"]}, states=["old", "new"])
    missing = [ROWS[0] | {"kind": None}, *ROWS[1:]]
    with pytest.raises(InvalidProblemError, match="line 1 of list: state is missing"):
        Log.read(missing, **ROLES | {"state": ["kind", "month"]})


# -- certify -----------------------------------------------------------------------------------------------------------

GOAL = {"beta": -1.0, "delta": 0.1, "horizon": 2, "reward_range": (0, 1)}


def test_certify_says_that_it_compiles(monkeypatch, capsys):
    made = certification.methods.make

    def compiling(*arguments, **options):
        for _ in range(2):
            for observer in compile_clock.observers:
                observer()
        return made(*arguments, **options)

    monkeypatch.setattr(certification.methods, "make", compiling)
    for terminal, said in ((True, "compiling, which is done once …"), (False, "")):
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal, raising=False)
        eb.certify(EXPECTED, states="seen", **GOAL)
        shown = capsys.readouterr().err
        assert said in shown
        assert bool(shown) == terminal
    assert compile_clock.observers == []


# -- data sets of reinforcement learning ---------------------------------------------------------------------------------

ARRAYS = {
    "observations": np.array([0, 1, 0, 1]),
    "next_observations": np.array([1, 0, 1, 1]),
    "actions": np.array([0, 1, 1, 0]),
    "rewards": np.array([0.0, 1.0, 0.5, 0.25]),
    "terminals": np.array([False, True, False, False]),
    "timeouts": np.array([False, False, False, True]),
}
REPLAY = Log.read(
    {"e": [0, 0, 1, 1], "t": [0, 1, 0, 1], "s": [0, 1, 0, 1], "a": [0, 1, 1, 0], "r": [0.0, 1.0, 0.5, 0.25]}
    | {"n": [1, 0, 1, 1], "end": [False, True, False, False], "cut": [False, False, False, True]},
    episode="e",
    step="t",
    state="s",
    action="a",
    reward="r",
    next_state="n",
    terminated="end",
    truncated="cut",
)


def test_arrays_of_d4rl():
    log = Log.from_d4rl(ARRAYS)
    assert content(log) == content(REPLAY)
    vectors = ARRAYS | {
        name: np.stack([ARRAYS[name], 1 - ARRAYS[name]], axis=1) for name in ("observations", "next_observations")
    }
    assert Log.from_d4rl(vectors).states == ((0, 1), (1, 0))
    assert content(Log.from_d4rl(vectors))[1:] == content(REPLAY)[1:]
    open_end = ARRAYS | {"timeouts": np.zeros(4, dtype=bool)}
    assert content(Log.from_d4rl(open_end, truncated_end=True)) == content(REPLAY)
    for arrays, message in [
        (open_end, "neither terminals nor timeouts: .* pass truncated_end=True"),
        (
            {k: v for k, v in ARRAYS.items() if k != "timeouts"},
            "no 'timeouts', which say where an episode was truncated",
        ),
        ({k: v for k, v in ARRAYS.items() if k != "rewards"}, "no 'rewards'"),
        ({k: v for k, v in ARRAYS.items() if k != "next_observations"}, "row 3 of arrays was cut.*add 'next_obs"),
        (ARRAYS | {"rewards": np.zeros(3)}, "4 steps, but"),
        (5, "must be a mapping"),
    ]:
        with pytest.raises(InvalidProblemError, match=message):
            Log.from_d4rl(arrays)


def test_a_data_set_with_the_interface_of_minari(monkeypatch):
    spaces = pytest.importorskip("gymnasium").spaces
    parts = [slice(2), slice(2, 4)]
    episodes = [
        SimpleNamespace(
            observations=np.append(ARRAYS["observations"][part], ARRAYS["next_observations"][part][-1]),
            actions=ARRAYS["actions"][part],
            rewards=ARRAYS["rewards"][part],
            terminations=ARRAYS["terminals"][part],
            truncations=ARRAYS["timeouts"][part],
        )
        for part in parts
    ]

    def data_set(episodes, observation_space):
        made = SimpleNamespace(observation_space=observation_space, action_space=spaces.Discrete(2), id="two/bits-v0")
        made.iterate_episodes = lambda: iter(episodes)
        return made

    sets = {"two/bits-v0": data_set(episodes, spaces.Discrete(2))}
    monkeypatch.setitem(sys.modules, "minari", SimpleNamespace(load_dataset=sets.__getitem__))
    log = Log.from_minari("two/bits-v0")
    assert content(log) == content(REPLAY)
    assert (log.name, log.declared.labels) == ("two/bits-v0", (0, 1))
    wide = Log.from_minari(data_set(episodes, spaces.Discrete(3)))
    assert (wide.states, wide.episodes) == ((0, 1, 2), 2)
    pairs = [SimpleNamespace(**vars(each)) for each in episodes]
    for each in pairs:
        each.observations = (each.observations, 1 - each.observations)
    both = spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)])
    assert Log.from_minari(data_set(pairs, both)).states == ((0, 0), (0, 1), (1, 0), (1, 1))
    longer = SimpleNamespace(**vars(episodes[0]) | {"terminations": np.array([True, False])})
    for bad, message in [
        (data_set([], spaces.Discrete(2)), "has no episodes"),
        (data_set(episodes, spaces.Discrete(1)), "episode 0 of the data set is empty, or has observations"),
        (data_set(episodes, spaces.Box(0, 1)), "does not consist of finitely many integers"),
        (data_set([longer], spaces.Discrete(2)), "episode 0 of the data set continues after it terminated"),
        (5, "5 is not a Minari data set"),
    ]:
        with pytest.raises(InvalidProblemError, match=message):
            Log.from_minari(bad)


def sb3_buffer(**changes):
    """The fields of a ReplayBuffer of Stable-Baselines3 with room for six steps of one environment; four are used."""

    def field(values, shape=()):
        array = np.zeros((6, 1, *shape))
        array[:4, 0] = np.reshape(values, (4, *shape))
        return array

    fields = {
        "observations": field(ARRAYS["observations"], (1,)),
        "next_observations": field(ARRAYS["next_observations"], (1,)),
        "actions": field(ARRAYS["actions"], (1,)),
        "rewards": field(ARRAYS["rewards"]),
        "dones": field(ARRAYS["terminals"] | ARRAYS["timeouts"]),
        "timeouts": field(ARRAYS["timeouts"]),
    }
    options = {"pos": 4, "full": False, "handle_timeout_termination": True}
    return SimpleNamespace(**fields | options | changes)


def test_a_replay_buffer_of_stable_baselines():
    assert content(Log.from_sb3(sb3_buffer())) == content(REPLAY)
    running = sb3_buffer(dones=np.where(np.arange(6)[:, None] == 1, 1.0, 0.0), timeouts=np.zeros((6, 1)))
    assert content(Log.from_sb3(running)) == content(REPLAY)  # the last episode goes on
    for changes, message in [
        ({"full": True}, "larger buffer_size"),
        ({"handle_timeout_termination": False}, "handle_timeout_termination=True"),
        ({"next_observations": None}, "optimize_memory_usage=False"),
        ({"pos": 0}, "empty"),
        ({"observations": {}}, "dictionaries as observations"),
    ]:
        with pytest.raises(InvalidProblemError, match=message):
            Log.from_sb3(sb3_buffer(**changes))
    with pytest.raises(InvalidProblemError, match="must be a ReplayBuffer"):
        Log.from_sb3(5)


def test_a_real_replay_buffer():
    buffers = pytest.importorskip("stable_baselines3.common.buffers")
    spaces = pytest.importorskip("gymnasium").spaces
    buffer = buffers.ReplayBuffer(6, spaces.Discrete(2), spaces.Discrete(2), device="cpu")
    for i in range(4):
        state, after = ARRAYS["observations"][i : i + 1], ARRAYS["next_observations"][i : i + 1]
        done = ARRAYS["terminals"][i : i + 1] | ARRAYS["timeouts"][i : i + 1]
        info = [{"TimeLimit.truncated": bool(ARRAYS["timeouts"][i])}]
        buffer.add(state, after, ARRAYS["actions"][i : i + 1], ARRAYS["rewards"][i : i + 1], done, info)
    assert content(Log.from_sb3(buffer)) == content(REPLAY)


def batch(rows, **changes):
    names = {"obs": "observations", "new_obs": "next_observations", "actions": "actions", "rewards": "rewards"}
    names |= {"terminateds": "terminals", "truncateds": "timeouts"}
    columns = {name: ARRAYS[key][rows].tolist() for name, key in names.items()}
    return {"type": "SampleBatch", "t": [0, 1, 0, 1][rows], **columns, **changes}


def test_json_files_of_rllib(tmp_path):
    whole, first, last = slice(None), slice(2), slice(2, None)
    path = written(tmp_path, "output-1.json", "\n".join(json.dumps(batch(part)) for part in (first, last)))
    assert content(Log.from_rllib(path)) == content(REPLAY)
    assert content(Log.from_rllib(tmp_path)) == content(REPLAY)
    old = {name: values for name, values in batch(first).items() if not name.endswith("ateds")} | {
        "dones": [False, True]
    }
    written(tmp_path, "old.json", json.dumps(old))
    for bad, message in [
        (old, "line 1: 'terminateds' is missing, which says how"),
        (batch(first, t=[3, 4]), "an episode begins in the middle .*complete_episodes"),
        (batch(first, t=None), "expected a batch of RLlib with a list 't'"),
        (batch(slice(1)), "stops in the middle of an episode: .*complete_episodes"),
        (batch(whole, obs="BCJNGKB"), r"'obs' is compressed: write it with output_compress_columns=\[\]"),
        ({"type": "MultiAgentBatch"}, "several agents"),
        ([1], "expected a batch of RLlib"),
        (batch(whole, rewards=[1.0]), "4 steps, but"),
    ]:
        written(tmp_path, "bad.json", json.dumps(bad) if bad != [1] else "5")
        with pytest.raises(InvalidProblemError, match=message):
            Log.from_rllib(tmp_path / "bad.json")
    with pytest.raises(InvalidProblemError, match="there is no JSON file"):
        Log.from_rllib(tmp_path / "none.json")
