"""Model files of others: whatever is in them, loading gives our error or a valid model."""

import io
import json
import tracemalloc
import warnings
import zipfile

import numpy as np
import pytest
from reference.models import mutated_bytes

import entropic_bpi as eb
from entropic_bpi import FiniteMDP, InvalidModelError

CONSTANT = 2_000_000  # bytes that loading may take whatever the file's size


def models():
    rng = np.random.default_rng(3)
    dense = rng.dirichlet(np.ones(3), (3, 2))
    by_step = rng.dirichlet(np.ones(2), (2, 2, 2))
    return [
        eb.instances.risky_bridge(horizon=3),
        eb.instances.garnet(4, 2, 2, horizon=3, seed=0),
        FiniteMDP(dense, rng.random((3, 2, 3)), horizon=2, start=[0.5, 0.25, 0.25], state_names=["é", "\x1b", "状態"]),
        FiniteMDP(by_step, rng.random((2, 2, 2, 2)), horizon=2),
        eb.tilted(eb.instances.garnet(3, 2, 2, horizon=2, seed=1), np.zeros((2, 3), dtype=int), 1.0),
    ]


def tampered(path, **members):
    """The archive with other bytes, or arrays, in place of some members."""
    with zipfile.ZipFile(path) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    for name, value in members.items():
        if isinstance(value, np.ndarray):
            stream = io.BytesIO()
            np.save(stream, value)
            value = stream.getvalue()
        held[f"{name}.npy"] = value
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in held.items():
            archive.writestr(name, content)
    return path


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.npz"
    models()[0].save(path)
    return path


def test_a_member_that_no_model_has_is_not_unpacked(saved):
    tampered(saved, unused=np.zeros(10**7))
    tracemalloc.start()
    assert FiniteMDP.load(saved) == models()[0]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < CONSTANT


def test_many_names_of_which_two_are_equal_are_refused_at_once(tmp_path):
    n = 100_000
    names = [str(i) for i in range(n - 1)] + ["0"]
    with pytest.raises(InvalidModelError, match="repeats '0'"):
        FiniteMDP(
            eb.SparseTransitions(np.arange(n + 1), np.arange(n), np.ones(n)),
            np.zeros((n, 1)),
            horizon=1,
            state_names=names,
        )


def test_sizes_that_contradict_the_arrays_are_refused(saved):
    with pytest.raises(InvalidModelError, match="sizes"):
        FiniteMDP.load(tampered(saved, sizes=np.array([7, 2])))


# -- mutations -----------------------------------------------------------------------------------------------------

JUNK = [
    None,
    True,
    "x",
    "",
    [],
    [[]],
    {},
    -1,
    0,
    1.5,
    float("nan"),
    float("inf"),
    2**31,
    2**63,
    10**400,
    [0.5] * 3,
    ["a"],
]


def mutated_array(rng, array):
    """The same array with other entries, another type or another shape."""
    kind = rng.integers(6)
    if kind == 0 and array.dtype.kind in "iuf":
        array = array.copy()
        array.flat[rng.integers(array.size)] = rng.choice([-1, 0, 1, 2, 7, 2**31 - 1])
    elif kind == 1 and array.dtype.kind == "f":
        array = array.copy()
        array.flat[rng.integers(array.size)] = rng.choice([np.nan, np.inf, -0.0, 1e308, 5e-324, 1 + 1e-10])
    elif kind == 2 and array.dtype.kind != "U":
        array = array.astype(rng.choice(["<f4", ">f8", "<i8", "|b1", "<U5", "<c16", ">i2"]))
    elif kind == 3:
        array = array.reshape(-1)[: rng.integers(array.size + 1)]
    elif kind == 4:
        array = array[None] if rng.integers(2) else array.T
    else:
        array = np.repeat(array, rng.integers(1, 4), axis=None)
    return array


def mutated_npz(rng, content):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    name = str(rng.choice(list(held)))
    kind = rng.integers(4)
    if kind == 0:
        del held[name]
    elif kind == 1:  # also inside the header, with a checksum that fits
        held[name] = mutated_bytes(rng, held[name])
    else:
        stream = io.BytesIO()
        with np.errstate(all="ignore"):
            np.save(stream, mutated_array(rng, np.load(io.BytesIO(held[name]))))
        held[name] = stream.getvalue()
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, member in held.items():
            archive.writestr(name, member)
    return stream.getvalue()


def mutated_json(rng, content):
    fields = json.loads(content)
    name = rng.choice(list(fields))
    parent, key = fields, name
    while isinstance(parent[key], list) and parent[key] and rng.integers(3):
        parent, key = parent[key], int(rng.integers(len(parent[key])))
    parent[key] = JUNK[rng.integers(len(JUNK))]
    if rng.integers(8) == 0:
        del fields[name]
    return json.dumps(fields).encode()


def load_mutated(folder, count, seed):
    """Mutate and load; how many files were refused."""
    rng = np.random.default_rng(seed)
    originals = []
    for i, mdp in enumerate(models()):
        for suffix in (".npz", ".json"):
            mdp.save(folder / f"{i}{suffix}")
            originals.append((suffix, (folder / f"{i}{suffix}").read_bytes()))
    refused = 0
    for i in range(count):
        suffix, content = originals[i % len(originals)]
        inside = mutated_npz if suffix == ".npz" else mutated_json
        content = (mutated_bytes if rng.integers(3) == 0 else inside)(rng, content)
        path = folder / f"mutated{suffix}"
        path.write_bytes(content)
        mdp = None
        try:
            with warnings.catch_warnings(action="ignore"):
                mdp = FiniteMDP.load(path)
        except InvalidModelError:
            refused += 1
        if mdp is not None and mdp.horizon < 100:
            assert np.isfinite(eb.solve(mdp, -0.5).value)
    return refused


def test_mutated_files_are_refused_or_valid(tmp_path):
    assert 200 < load_mutated(tmp_path, 300, seed=0) < 300


@pytest.mark.slow
def test_thousands_of_mutated_files_are_refused_or_valid(tmp_path):
    assert load_mutated(tmp_path, 24_000, seed=1) > 15_000


# -- files that other programs write ---------------------------------------------------------------------------------


COIN = {
    "format": "entropic-bpi model",
    "version": 1,
    "horizon": 2,
    "transitions": [[[0.5, 0.5]], [[0.0, 1.0]]],
    "rewards": [[0.0], [1.0]],
}


def test_a_model_needs_no_more_than_the_documented_keys(tmp_path):
    path = tmp_path / "coin.json"
    path.write_text(json.dumps(COIN))
    expected = FiniteMDP(COIN["transitions"], COIN["rewards"], horizon=2)
    assert FiniteMDP.load(path) == expected
    np.savez(tmp_path / "coin.npz", **COIN)
    assert FiniteMDP.load(tmp_path / "coin.npz") == expected
    sparse = {key: COIN[key] for key in ("format", "version", "horizon", "rewards")}
    sparse |= {"sizes": [2, 1], "indptr": [0, 2, 3], "indices": [0, 1, 1], "probabilities": [0.5, 0.5, 1.0]}
    path.write_text(json.dumps(sparse))
    assert FiniteMDP.load(path) == expected


@pytest.mark.parametrize("missing", ["transitions", "rewards"])
def test_what_a_file_lacks_is_named_with_all_keys(missing, tmp_path):
    path = tmp_path / "coin.json"
    path.write_text(json.dumps({key: value for key, value in COIN.items() if key != missing}))
    reason = f"lacks {missing}"
    with pytest.raises(InvalidModelError, match=rf"{reason}: a model file has the keys format .* horizon, transitions"):
        FiniteMDP.load(path)


def test_a_file_without_our_format_or_horizon_is_read_with_a_note(tmp_path):
    arrays = {key: COIN[key] for key in ("transitions", "rewards")}
    (tmp_path / "coin.json").write_text(json.dumps(arrays))
    np.savez(tmp_path / "coin.npz", **arrays)
    expected = FiniteMDP(**arrays, horizon=2)
    for path in (tmp_path / "coin.json", tmp_path / "coin.npz"):
        with pytest.warns(UserWarning, match="has no key 'format'"):
            assert FiniteMDP.load(path, horizon=2) == expected
        with (
            pytest.warns(UserWarning, match="format"),
            pytest.raises(InvalidModelError, match="no horizon: pass horizon="),
        ):
            FiniteMDP.load(path)
