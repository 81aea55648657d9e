"""Model files of others: whatever is in them, loading is safe: our error or a valid model, and never much memory."""

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
from entropic_bpi.model.formats import own as _model_file

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


def peak_of_loading(path):
    tracemalloc.start()
    try:
        with pytest.raises(InvalidModelError) as caught:
            FiniteMDP.load(path)
        return tracemalloc.get_traced_memory()[1], str(caught.value)
    finally:
        tracemalloc.stop()


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


def test_a_field_that_unpacks_to_far_more_than_the_file_is_refused(saved):
    tampered(saved, rewards=np.zeros((5 * 10**6, 2)))
    peak, message = peak_of_loading(saved)
    assert peak < CONSTANT
    assert "would unpack to" in message


@pytest.mark.parametrize("shape", [(10**12,), (10**6, 10**6), (-1, 8), (8, 3), (2**62, 4)])
def test_a_header_that_claims_another_shape_is_refused_before_room_is_made(saved, shape):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f8", "fortran_order": False, "shape": shape})
    tampered(saved, rewards=stream.getvalue() + bytes(128))
    peak, message = peak_of_loading(saved)
    assert peak < CONSTANT
    assert "not a readable" in message


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_compression_that_cannot_be_read_in_pieces_is_refused(saved, method):
    with zipfile.ZipFile(saved) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(saved, "w", method) as archive:
        for name, content in held.items():
            archive.writestr(name, content)
    with pytest.raises(InvalidModelError, match="does not compress"):
        FiniteMDP.load(saved)


def test_one_long_word_among_numbers_takes_no_more_room_than_itself(tmp_path):
    models()[0].save(tmp_path / "model.json")
    fields = json.loads((tmp_path / "model.json").read_text())
    for name in ("rewards", "start"):
        (tmp_path / "model.json").write_text(json.dumps(fields | {name: ["x" * 10**6, *[0] * 10**5]}))
        assert peak_of_loading(tmp_path / "model.json")[0] < 20 * 2 * 10**6


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


def test_a_field_that_is_there_twice_is_refused(tmp_path, saved):
    models()[0].save(tmp_path / "model.json")
    text = (tmp_path / "model.json").read_text()
    (tmp_path / "model.json").write_text(text.replace('"horizon"', '"horizon": 4, "horizon"'))
    with pytest.raises(InvalidModelError, match="twice"):
        FiniteMDP.load(tmp_path / "model.json")
    with zipfile.ZipFile(saved, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("horizon.npy", archive.read("horizon.npy"))
    with pytest.raises(InvalidModelError, match="twice"):
        FiniteMDP.load(saved)


def test_sizes_that_contradict_the_arrays_are_refused(saved):
    with pytest.raises(InvalidModelError, match="sizes"):
        FiniteMDP.load(tampered(saved, sizes=np.array([7, 2])))


def test_a_json_file_that_is_too_large_is_not_read(tmp_path):
    (tmp_path / "model.json").write_bytes(b"[" * (_model_file._JSON_MAX_BYTES + 1))
    with pytest.raises(InvalidModelError, match=r"too many for \.json"):
        FiniteMDP.load(tmp_path / "model.json")


def test_a_model_too_large_to_be_compressed_comes_back_exactly(tmp_path, monkeypatch):
    monkeypatch.setattr(_model_file, "_SMALL", 10_000)
    mdp = eb.instances.river_swim(40, horizon=3)
    mdp.save(tmp_path / "model.npz")
    assert FiniteMDP.load(tmp_path / "model.npz") == mdp


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
    tracemalloc.start()
    try:
        for i in range(count):
            suffix, content = originals[i % len(originals)]
            inside = mutated_npz if suffix == ".npz" else mutated_json
            content = (mutated_bytes if rng.integers(3) == 0 else inside)(rng, content)
            path = folder / f"mutated{suffix}"
            path.write_bytes(content)
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            mdp = None
            try:
                with warnings.catch_warnings(action="ignore"):
                    mdp = FiniteMDP.load(path)
            except InvalidModelError:
                refused += 1
            assert tracemalloc.get_traced_memory()[1] - before < 20 * len(content) + CONSTANT
            if mdp is not None and mdp.horizon < 100:
                assert np.isfinite(eb.solve(mdp, -0.5).value)
    finally:
        tracemalloc.stop()
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
        with pytest.warns(UserWarning, match="has no key format"):
            assert FiniteMDP.load(path, horizon=2) == expected
        with (
            pytest.warns(UserWarning, match="format"),
            pytest.raises(InvalidModelError, match="no horizon: give horizon="),
        ):
            FiniteMDP.load(path)
