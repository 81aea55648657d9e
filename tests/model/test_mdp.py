"""The model: bad input is an error that says where, good input is kept to the last bit."""

from __future__ import annotations

import copy
import json
import pickle
import warnings
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.models import Draw, draws, sparse_form
from scipy import sparse

import entropic_bpi as eb
from entropic_bpi import FiniteMDP, InvalidModelError, SparseTransitions

H, S, A = 4, 5, 3


def transitions(per_step=False) -> np.ndarray:
    rng = np.random.default_rng(0)
    weights = rng.random((H, S, A, S)) * (rng.random((H, S, A, S)) < 0.6)
    weights[..., 0] += 0.1
    kernel = weights / weights.sum(axis=-1, keepdims=True)
    return kernel if per_step else kernel[0]


REWARD_SHAPES = [(S, A), (S, A, S), (H, S, A), (H, S, A, S)]


def rewards(shape=(S, A)) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape)


def kinds() -> dict[str, FiniteMDP]:
    """A model of every kind."""
    models = {}
    for per_step in (False, True):
        for shape in REWARD_SHAPES:
            for form in (np.asarray, sparse_form):
                start = 2 if len(shape) % 2 else np.array([0.5, 0, 0.25, 0.125, 0.125])
                names = [f"état {s}" for s in range(S)] if form is sparse_form else None
                name = f"{'per-step' if per_step else 'stationary'}, {form.__name__}, rewards {len(shape)}"
                models[name] = FiniteMDP(
                    form(transitions(per_step)), rewards(shape), horizon=H, start=start, state_names=names
                )
    models["named actions"] = FiniteMDP(transitions(), rewards(), horizon=H, action_names=["left", "stay", "right"])
    models["one step"] = FiniteMDP([sparse_form(transitions())], rewards(), horizon=1)
    return models


every_kind = pytest.mark.parametrize("mdp", kinds().values(), ids=kinds().keys())


# -- what it says of itself ----------------------------------------------------------------------------------


def test_a_model_tells_its_sizes():
    mdp = FiniteMDP(transitions(), rewards(), horizon=H, start=2)
    assert (mdp.n_states, mdp.n_actions, mdp.horizon, mdp.start, mdp.stationary) == (S, A, H, 2, True)
    assert mdp.reward_range == (rewards().min(), rewards().max())
    assert mdp.state_names == ("0", "1", "2", "3", "4")
    assert not FiniteMDP(transitions(per_step=True), rewards(), horizon=H).stationary


def test_reward_range_counts_possible_transitions_only():
    mdp = FiniteMDP([[[1, 0]], [[0, 1]]], [[[1.0, 99.0]], [[-99.0, 2.0]]], horizon=2)
    assert mdp.reward_range == (1.0, 2.0)


@pytest.mark.parametrize("per_step", [False, True])
@pytest.mark.parametrize("shape", REWARD_SHAPES)
def test_rows_say_the_same_as_the_arrays(per_step, shape):
    kernel, given_rewards = transitions(per_step), rewards(shape)
    full_kernel = kernel if per_step else np.stack([kernel] * H)
    full_rewards = given_rewards if shape[0] == H else np.stack([given_rewards] * H)
    for form in (np.asarray, sparse_form):
        mdp = FiniteMDP(form(kernel), given_rewards, horizon=H)
        for h in range(H):
            rows = mdp.step_rows(h)
            dense = sparse.csr_array((rows.probabilities, rows.indices, rows.indptr), shape=(S * A, S)).toarray()
            np.testing.assert_array_equal(dense, full_kernel[h].reshape(S * A, S))
            if full_rewards.ndim == 4:
                row = np.repeat(np.arange(S * A), np.diff(rows.indptr))
                np.testing.assert_array_equal(rows.rewards, full_rewards[h].reshape(S * A, S)[row, rows.indices])
            else:
                assert rows.rewards is None
                np.testing.assert_array_equal(mdp.step_rewards(h), full_rewards[h])


def test_sparse_input_stays_sparse():
    n_states = 50_000  # dense, this would take 20 GB
    matrix = sparse.eye_array(n_states, format="csr")
    mdp = FiniteMDP([matrix], np.zeros((n_states, 1)), horizon=2)
    assert mdp.is_sparse
    assert len(mdp.rows.indices) == n_states
    assert isinstance(mdp.transitions, SparseTransitions)


@pytest.mark.parametrize("kind", ["csr_array", "csc_array", "coo_array", "lil_matrix", "dok_matrix", "bsr_array"])
def test_every_sparse_format_gives_the_same_model(kind):
    matrices = [getattr(sparse, kind)(transitions()[:, a]) for a in range(A)]
    assert FiniteMDP(matrices, rewards(), horizon=H) == FiniteMDP(transitions(), rewards(), horizon=H)


def test_repeated_entries_of_a_sparse_matrix_add_up_and_zeros_vanish():
    matrix = sparse.coo_array(([0.25, 0.25, 0.5, 0.0, 1.0], ([0, 0, 0, 1, 1], [0, 0, 1, 0, 1])), shape=(2, 2))
    expected = FiniteMDP([[[0.5, 0.5]], [[0, 1]]], np.zeros((2, 1)), horizon=1)
    assert FiniteMDP([matrix], np.zeros((2, 1)), horizon=1) == expected


def test_explicit_zeros_in_rows_are_not_possible_transitions():
    rows = SparseTransitions(
        np.array([0, 2, 4]), np.array([0, 1, 0, 1]), np.array([1.0, 0.0, 0.0, 1.0]), np.array([0, 9.0, 9.0, 1])
    )
    mdp = FiniteMDP(rows, (2, 1), horizon=2)
    assert mdp.rows.probabilities.tolist() == [1.0, 1.0]
    assert mdp.reward_range == (0.0, 1.0)
    assert eb.max_return(mdp) == 0.0


def test_next_state_rewards_are_read_at_the_entries_of_sparse_transitions():
    per_step = rewards((H, S, A, S))
    for kernel in (transitions(), transitions(per_step=True)):
        for paid in (rewards((S, A, S)), per_step):
            assert FiniteMDP(sparse_form(kernel), paid, horizon=H) == FiniteMDP(kernel, paid, horizon=H)


# -- rows that do not quite sum to 1 ---------------------------------------------------------------------------


@pytest.mark.parametrize("form", [np.asarray, sparse_form])
@pytest.mark.parametrize("error", [1e-9, -1e-9, 1e-11])
def test_rows_off_by_at_most_1e9_are_renormalised(form, error):
    kernel = transitions()
    kernel[1, 2, 0] += error
    mdp = FiniteMDP(form(kernel), rewards(), horizon=H)
    sums = np.add.reduceat(mdp.rows.probabilities, mdp.rows.indptr[:-1])
    np.testing.assert_allclose(sums, 1, rtol=0, atol=1e-15)
    assert mdp.rows.probabilities[mdp.rows.indptr[1 * A + 2]] == pytest.approx(kernel[1, 2, 0] / (1 + error), rel=1e-14)


@given(st.integers(2, 30), st.integers(0, 10**6), st.one_of(st.floats(-9e-10, 9e-10), st.floats(4e-15, 3e-14)))
def test_dense_and_sparse_forms_renormalise_to_the_same_bits(n_states, seed, error):
    rng = np.random.default_rng(seed)
    kernel = rng.dirichlet(np.full(n_states, 0.3), size=(n_states, 1))
    kernel[kernel < 0.02] = 0
    kernel *= (1 + error * rng.random((n_states, 1, 1))) / kernel.sum(axis=-1, keepdims=True)
    zeros = np.zeros((n_states, 1))
    dense, thin = (FiniteMDP(form(kernel), zeros, horizon=1) for form in (np.asarray, sparse_form))
    assert dense.content_hash == thin.content_hash
    assert FiniteMDP(dense.transitions, zeros, horizon=1) == dense


# -- identity ------------------------------------------------------------------------------------------------


@given(draws())
def test_dense_and_sparse_forms_are_equal(drawn):
    dense, thin = replace(drawn, sparse=False).mdp, replace(drawn, sparse=True).mdp
    assert not dense.is_sparse
    assert thin.is_sparse
    assert dense == thin
    assert hash(dense) == hash(thin)


def test_any_change_changes_the_hash():
    kernel, given_rewards = transitions(), rewards()
    other_kernel, other_rewards = kernel.copy(), given_rewards.copy()
    other_kernel[0, 0, :2] = other_kernel[0, 0, 1::-1]
    other_rewards[4, 2] = np.nextafter(other_rewards[4, 2], 9)
    variants = [
        FiniteMDP(kernel, given_rewards, horizon=H),
        FiniteMDP(other_kernel, given_rewards, horizon=H),
        FiniteMDP(kernel, other_rewards, horizon=H),
        FiniteMDP(kernel, np.stack([given_rewards] * A + [given_rewards], axis=0), horizon=H),
        FiniteMDP(kernel, rewards((S, A, S)), horizon=H),
        FiniteMDP(kernel, given_rewards, horizon=H + 1),
        FiniteMDP(np.stack([kernel] * H), given_rewards, horizon=H),
        FiniteMDP(kernel, given_rewards, horizon=H, start=1),
        FiniteMDP(kernel, given_rewards, horizon=H, start=np.full(S, 0.2)),
        FiniteMDP(kernel, given_rewards, horizon=H, state_names="abcde"),
        FiniteMDP(kernel, given_rewards, horizon=H, state_names="abcdf"),
        FiniteMDP(kernel, given_rewards, horizon=H, action_names="abc"),
    ]
    assert len({mdp.content_hash for mdp in variants}) == len(variants)
    assert len(set(variants)) == len(variants)
    assert variants[0] != "a model"


def test_the_sign_of_a_zero_reward_does_not_matter():
    zero = FiniteMDP(transitions(), np.zeros((S, A)), horizon=H)
    assert zero == FiniteMDP(transitions(), -np.zeros((S, A)), horizon=H)


@every_kind
def test_nothing_in_a_model_can_be_changed(mdp):
    for name in ("horizon", "n_states", "start", "stationary", "rows", "reward_range", "content_hash", "anything"):
        with pytest.raises(AttributeError):
            setattr(mdp, name, None)
    arrays = [mdp.rows.indptr, mdp.rows.indices, mdp.rows.probabilities]
    arrays += [array for array in (mdp.rows.rewards, mdp.rewards, mdp.start) if isinstance(array, np.ndarray)]
    arrays += [] if mdp.is_sparse else [mdp.transitions]
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


@pytest.mark.parametrize("order", ["C", "F"])
def test_changing_the_input_afterwards_changes_nothing(order):
    kernel, given_rewards = np.array(transitions(), order=order), np.array(rewards(), order=order)
    start = np.full(S, 0.2)
    thin = [sparse.csr_array(kernel[:, a]) for a in range(A)]
    rows = FiniteMDP(thin, rewards(), horizon=H).rows
    mine = SparseTransitions(rows.indptr.copy(), rows.indices.copy(), rows.probabilities.copy())
    models = [FiniteMDP(form, given_rewards, horizon=H, start=start) for form in (kernel, thin, mine)]
    kernel[:], given_rewards[:], start[:], mine.probabilities[:], mine.indices[:] = 0.2, 7, 0, 0, 0
    for matrix in thin:
        matrix.data[:] = 0
    expected = FiniteMDP(transitions(), rewards(), horizon=H, start=np.full(S, 0.2))
    assert all(model == expected for model in models)


@every_kind
def test_a_pickled_or_copied_model_is_equal_and_still_read_only(mdp):
    mdp.content_hash  # noqa: B018 -- caches must not travel as writeable arrays
    for twin in (pickle.loads(pickle.dumps(mdp)), copy.deepcopy(mdp)):
        assert twin == mdp
        assert twin.is_sparse == mdp.is_sparse
        assert not twin.rows.probabilities.flags.writeable


# -- files ---------------------------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("suffix", [".npz", ".json"])
def test_a_saved_model_comes_back_to_the_last_bit(mdp, suffix, tmp_path):
    path = tmp_path / f"model{suffix}"
    mdp.save(path)
    loaded = FiniteMDP.load(path)
    assert loaded == mdp
    assert (loaded.is_sparse, loaded.stationary, loaded.state_names) == (mdp.is_sparse, mdp.stationary, mdp.state_names)
    np.testing.assert_array_equal(loaded.start, mdp.start)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@given(draws())
def test_any_small_model_comes_back_to_the_last_bit(tmp_path_factory, drawn: Draw):
    path = tmp_path_factory.getbasetemp() / "round-trip.json"
    drawn.mdp.save(str(path))
    assert FiniteMDP.load(str(path)) == drawn.mdp


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.npz"
    FiniteMDP(transitions(), rewards(), horizon=H).save(path)
    return path


@pytest.fixture
def saved_json(tmp_path):
    path = tmp_path / "model.json"
    FiniteMDP(sparse_form(transitions()), rewards(), horizon=H).save(path)
    return path


def test_a_file_cut_short_anywhere_is_an_error(saved):
    content = saved.read_bytes()
    for length in np.linspace(0, len(content) - 1, 40).astype(int):
        saved.write_bytes(content[:length])
        with pytest.raises(InvalidModelError, match=r"model\.npz"):
            FiniteMDP.load(saved)


def test_a_file_with_a_flipped_bit_never_gives_another_model(saved):
    original, content = FiniteMDP.load(saved), saved.read_bytes()
    errors = 0
    for position in np.linspace(0, len(content) - 1, 150).astype(int):
        saved.write_bytes(content[:position] + bytes([content[position] ^ 4]) + content[position + 1 :])
        try:
            with warnings.catch_warnings(action="ignore"):  # the key "format" may be another now
                assert FiniteMDP.load(saved) == original  # a bit that carries nothing
        except InvalidModelError:
            errors += 1
    assert errors > 75


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("text.npz", b"hello", "is not a readable .npz file"),
        ("empty.npz", b"", "is not a readable .npz file"),
        ("text.json", b"hello", "is not a readable .json file"),
        ("bytes.json", b"\xff\xfe\x00", "is not a readable .json file"),
        ("list.json", b"[1, 2]", "lacks transitions, rewards"),
        ("other.json", b'{"format": "something else"}', "not a model saved by entropic-bpi"),
        ("deep.json", b"[" * 100_000, "is not a readable .json file"),
        ("model.txt", b"", "expected a model file"),
    ],
)
def test_a_foreign_file_is_an_error(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InvalidModelError, match=message):
        FiniteMDP.load(path)


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(InvalidModelError, match=r"no such file: .*missing\.npz"):
        FiniteMDP.load(tmp_path / "missing.npz")
    with pytest.raises(InvalidModelError, match=r"must end in one of \.npz, \.json"):
        FiniteMDP(transitions(), rewards(), horizon=H).save(tmp_path / "model.txt")


@pytest.mark.parametrize("name", ["model.npz", "model.json"])
def test_saving_into_a_folder_that_is_not_there_is_an_error(tmp_path, name):
    with pytest.raises(InvalidModelError, match=r"cannot save to .*model.*: .*missing is not an existing folder"):
        FiniteMDP(transitions(), rewards(), horizon=H).save(tmp_path / "missing" / name)


def test_numpy_files_of_other_programs_are_errors(tmp_path):
    array, archive, evil = tmp_path / "array.npz", tmp_path / "archive.npz", tmp_path / "evil.npz"
    with array.open("wb") as file:
        np.save(file, np.zeros(3))
    np.savez(archive, weights=np.zeros(3))
    np.savez(evil, format=np.array({"pickled": 1}, dtype=object), allow_pickle=True)
    for path in (array, evil):
        with pytest.raises(InvalidModelError, match="is not a readable"):
            FiniteMDP.load(path)
    with pytest.raises(InvalidModelError, match="lacks transitions, rewards: a model file has the keys"):
        FiniteMDP.load(archive)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 3}, "model version 3; this library reads versions 1 and 2"),
        ({"version": None}, "model version None"),
        ({"horizon": 4.5}, "horizon must be an integer"),
        ({"horizon": "4"}, "horizon must be an integer"),
        ({"start": 5}, "start is state 5, expected 0 to 4"),
        ({"start": 0.5}, "start must be a state or a distribution"),
        ({"indices": None}, "indices must be an array of integers"),
        ({"probabilities": [0.5]}, "indptr does not partition the entries"),
        ({"indptr": "x"}, "indptr must be an array of integers"),
        ({"rewards": [[1.0]]}, "rows do not fit"),
        ({"rewards": None}, "rewards must"),
        ({"state_names": 7}, "state_names must be a sequence of 5 names"),
    ],
)
def test_a_garbled_field_is_an_error_that_names_file_and_field(saved_json, change, message):
    fields = json.loads(saved_json.read_text()) | change
    saved_json.write_text(json.dumps(fields))
    with pytest.raises(InvalidModelError, match=f"model.json.*{message}"):
        FiniteMDP.load(saved_json)


@pytest.mark.parametrize("field", ["horizon", "sizes", "indptr", "indices", "probabilities", "rewards"])
def test_a_missing_field_is_an_error(saved_json, field):
    fields = json.loads(saved_json.read_text())
    del fields[field]
    saved_json.write_text(json.dumps(fields))
    with pytest.raises(InvalidModelError, match=r"model\.json"):
        FiniteMDP.load(saved_json)


def test_a_missing_member_of_the_archive_is_an_error(saved, tmp_path):
    other = tmp_path / "other.npz"
    with zipfile.ZipFile(saved) as source, zipfile.ZipFile(other, "w") as target:
        for name in source.namelist():
            if name != "transitions.npy":
                target.writestr(name, source.read(name))
    with pytest.raises(InvalidModelError, match=r"other\.npz.*transitions"):
        FiniteMDP.load(other)


# -- bad input -----------------------------------------------------------------------------------------------


def changed(array: np.ndarray, index, value) -> np.ndarray:
    result = array.copy()
    result[index] = value
    return result


@pytest.mark.parametrize("form", [np.asarray, sparse_form])
@pytest.mark.parametrize(
    ("per_step", "index", "value", "message"),
    [
        (True, (2, 3, 0, 0), 0.8, r"transitions\[h=2, s=3, a=0\] sums to 1\.\d+, expected 1"),
        (False, (3, 1, 0), 2.0, r"transitions\[s=3, a=1\] sums to 2\.\d+, expected 1"),
        (False, (3, 1), 0.0, r"transitions\[s=3, a=1\] sums to 0, expected 1"),
        (True, (3, 4, 2), 0.0, r"transitions\[h=3, s=4, a=2\] sums to 0, expected 1"),
        (True, (3, 4, 2, 4), np.nan, r"transitions\[h=3, s=4, a=2\] holds nan, expected probabilities"),
        (False, (0, 0, 4), np.inf, r"transitions\[s=0, a=0\] holds inf"),
        (False, (4, 2, 1), -0.25, r"transitions\[s=4, a=2\] holds -0.25"),
        (False, (1, 1), 1e308, r"transitions\[s=1, a=1\] sums to inf"),
    ],
)
def test_a_bad_probability_is_an_error_that_says_where(form, per_step, index, value, message):
    kernel = changed(transitions(per_step), index, value)
    with pytest.raises(InvalidModelError, match=message):
        FiniteMDP(form(kernel), rewards(), horizon=H)


def test_a_sum_off_by_more_than_1e9_is_an_error():
    for error in (1.1e-9, -1.1e-9):
        kernel = transitions()
        kernel[1, 2, 0] += error
        with pytest.raises(InvalidModelError, match=r"transitions\[s=1, a=2\] sums to"):
            FiniteMDP(kernel, rewards(), horizon=H)


@pytest.mark.parametrize(
    "bad",
    [
        np.zeros((S, A)),
        np.zeros((S, A, S + 1)),
        np.zeros((0, A, 0)),
        np.zeros((S, 0, S)),
        np.zeros((0, S, A, S)),
        np.zeros((1, H, S, A, S)),
        3.0,
        [],
    ],
)
def test_transitions_of_a_wrong_shape_are_an_error(bad):
    with pytest.raises(InvalidModelError, match=r"\(S, A, S\) or \(H, S, A, S\).*got \("):
        FiniteMDP(bad, rewards(), horizon=H)


@pytest.mark.parametrize("bad", [None, "transitions", [[1.0, 2.0], [1.0]], np.full((S, A, S), 0.2 + 0j), {"p": 1}])
@pytest.mark.parametrize("argument", ["transitions", "rewards", "start"])
def test_what_is_not_an_array_of_real_numbers_is_an_error(argument, bad):
    arguments = {"transitions": transitions(), "rewards": rewards(), "horizon": H, "start": 0}
    with pytest.raises(InvalidModelError, match=f"{argument} must be an array of real numbers"):
        FiniteMDP(**(arguments | {argument: bad}))


def test_a_number_of_steps_other_than_the_horizon_is_an_error():
    for form in (np.asarray, sparse_form):
        with pytest.raises(InvalidModelError, match="transitions have 4 steps but the horizon is 7"):
            FiniteMDP(form(transitions(per_step=True)), rewards(), horizon=7)


@pytest.mark.parametrize("shape", [(A, S), (S, A, A), (H + 1, S, A), (H, S, A, A), ()])
def test_rewards_of_a_wrong_shape_are_an_error(shape):
    with pytest.raises(InvalidModelError, match=r"rewards have shape \(.*expected one of \(5, 3\), \(5, 3, 5\)"):
        FiniteMDP(transitions(), np.zeros(shape), horizon=H)


def test_three_equal_axes_of_rewards_are_ambiguous_unless_spelled_out():
    kernel = np.full((2, 2, 2), 0.5)
    with pytest.raises(InvalidModelError, match="could mean"):
        FiniteMDP(kernel, np.zeros((2, 2, 2)), horizon=2)
    assert FiniteMDP(kernel, np.zeros((2, 2, 2, 2)), horizon=2).next_state_rewards
    rows = FiniteMDP(kernel, np.zeros((2, 2)), horizon=2).rows  # with Rows an array can only mean (H, S, A)
    assert not FiniteMDP(rows, np.zeros((2, 2, 2)), horizon=2).next_state_rewards


def test_three_equal_axes_of_rewards_are_per_step_with_rows_which_take_no_other(tmp_path):
    kernel, given_rewards = np.full((3, 3, 3), 1 / 3), rewards((3, 3, 3))
    rows = FiniteMDP(kernel, np.zeros((3, 3)), horizon=3).rows
    mdp = FiniteMDP(rows, given_rewards, horizon=3)
    np.testing.assert_array_equal([mdp.step_rewards(h) for h in range(3)], given_rewards)
    mdp.save(tmp_path / "model.npz")
    assert FiniteMDP.load(tmp_path / "model.npz") == pickle.loads(pickle.dumps(mdp)) == mdp
    with pytest.raises(InvalidModelError, match=r"expected one of \(3, 3\), \(4, 3, 3\)$"):
        FiniteMDP(rows, given_rewards, horizon=4)
    with pytest.raises(InvalidModelError, match="could mean"):
        FiniteMDP(sparse_form(kernel), given_rewards, horizon=3)


@pytest.mark.parametrize(
    ("shape", "index", "where"),
    [
        ((S, A), (2, 1), r"\[s=2, a=1\]"),
        ((S, A, S), (2, 1, 4), r"\[s=2, a=1, s'=4\]"),
        ((H, S, A), (3, 2, 1), r"\[h=3, s=2, a=1\]"),
        ((H, S, A, S), (3, 2, 1, 0), r"\[h=3, s=2, a=1, s'=0\]"),
    ],
)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_reward_that_is_not_finite_is_an_error_that_says_where(shape, index, where, value):
    bad = changed(rewards(shape), index, value)
    for kernel in (transitions(), sparse_form(transitions())):
        with pytest.raises(InvalidModelError, match=rf"rewards{where} is -?(nan|inf), expected a finite number"):
            FiniteMDP(kernel, bad, horizon=H)


def test_rewards_whose_sum_overflows_are_an_error():
    with pytest.raises(
        InvalidModelError, match=r"rewards\[s=0, a=0\] is 1e\+308, expected a reward whose sum .* is finite"
    ):
        FiniteMDP(transitions(), np.full((S, A), 1e308), horizon=H)


@pytest.mark.parametrize("horizon", [0, -1, 2.0, True, None, "4", np.nan])
def test_a_horizon_that_is_not_a_positive_integer_is_an_error(horizon):
    with pytest.raises(InvalidModelError, match="horizon must be an integer of at least 1, got"):
        FiniteMDP(transitions(), rewards(), horizon=horizon)


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (S, "start is state 5, expected 0 to 4"),
        (-1, "start is state -1, expected 0 to 4"),
        (True, "start must be a state or a distribution"),
        (1.0, r"start must be a state or a distribution over the 5 states, got shape \(\)"),
        ([0.5, 0.5], r"got shape \(2,\)"),
        ([0.5, 0.5, 0.5, 0, 0], "start sums to 1.5, expected 1"),
        ([1.5, -0.5, 0, 0, 0], r"start\[1\] is -0.5"),
        ([np.nan, 1, 0, 0, 0], r"start\[0\] is nan"),
        ([0, 0, np.inf, 0, 0], r"start\[2\] is inf"),
    ],
)
def test_a_bad_start_is_an_error(start, message):
    with pytest.raises(InvalidModelError, match=message):
        FiniteMDP(transitions(), rewards(), horizon=H, start=start)


def test_a_start_that_was_read_is_read_again_to_the_last_bit():
    for seed in range(50):
        start = np.random.default_rng(seed).random(S)
        mdp = FiniteMDP(transitions(), rewards(), horizon=H, start=start / start.sum())
        assert mdp.start.sum() == pytest.approx(1.0, abs=1e-14)
        assert pickle.loads(pickle.dumps(mdp)) == mdp


@pytest.mark.parametrize(("label", "count"), [("state_names", S), ("action_names", A)])
def test_bad_names_are_an_error(label, count):
    for names, message in [
        (["x"] * (count - 1), f"{label} must be a sequence of {count} names, got"),
        (["x"] * count, f"{label} repeats 'x'"),
        (7, f"{label} must be a sequence"),
    ]:
        with pytest.raises(InvalidModelError, match=message):
            FiniteMDP(transitions(), rewards(), horizon=H, **{label: names})


@pytest.mark.parametrize(
    ("matrices", "message"),
    [
        ([sparse.eye_array(3), sparse.eye_array(4)], "step 0, action 1 must be sparse (3, 3), got .* (4, 4)"),
        ([sparse.eye_array(3), np.eye(3)], "step 0, action 1 must be sparse (3, 3), got ndarray"),
        ([[sparse.eye_array(3)], [sparse.eye_array(3)] * 2], "h=1. has 2 matrices, expected one per action: 1"),
        ([sparse.csr_array((3, 4))], "step 0, action 0 must be sparse"),
        ([sparse.csr_array((0, 0))], "S of at least 1"),
        (sparse.eye_array(3), "transitions must be an array of real numbers"),
    ],
)
def test_sparse_matrices_that_do_not_fit_are_an_error(matrices, message):
    with pytest.raises(InvalidModelError, match=message.replace("(", r"\(").replace(")", r"\)")):
        FiniteMDP(matrices, np.zeros((3, 1)), horizon=2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"indptr": [0, 1, 4]}, "indptr does not partition the entries"),
        ({"indptr": [0, 2, 1]}, "indptr does not partition the entries"),
        ({"indptr": [1, 2, 3]}, "indptr does not partition the entries"),
        ({"indptr": [0, 0, 3]}, r"transitions\[s=0, a=0\] sums to 0"),
        ({"indptr": [0, 1, 2, 3]}, "3 rows do not fit 2 states and 1 actions"),
        ({"indptr": [0.0, 1.0, 3.0]}, "indptr must be an array of integers, got dtype float64"),
        ({"indices": [0, 0, 2]}, r"transitions\[s=1, a=0\] goes to state 2, expected 0 to 1"),
        ({"indices": [-1, 0, 1]}, r"transitions\[s=0, a=0\] goes to state -1"),
        ({"indices": [0, 1, 0]}, r"transitions\[s=1, a=0\]: next states must be increasing"),
        ({"indices": [0, 1, 1]}, r"transitions\[s=1, a=0\]: next states must be increasing"),
        ({"indices": [[0, 0, 1]]}, r"indices must have one axis, got shape \(1, 3\)"),
        ({"indices": [0, 0, 2**32 + 1]}, "goes to state 4294967297"),
        ({"probabilities": [1.0, 0.5, 0.6]}, r"transitions\[s=1, a=0\] sums to 1.1"),
        ({"rewards": [1.0, 2.0]}, r"row rewards must align with the 3 entries, got \(1, 2\)"),
        ({"rewards": [1.0, 2.0, np.nan]}, r"row rewards\[s=1, a=0\] is nan"),
    ],
)
def test_rows_that_do_not_fit_are_an_error(change, message):
    fields = {"indptr": [0, 1, 3], "indices": [0, 0, 1], "probabilities": [1.0, 0.5, 0.5], "rewards": [0.0, 0.0, 1.0]}
    with pytest.raises(InvalidModelError, match=message):
        FiniteMDP(SparseTransitions(**(fields | change)), (2, 1), horizon=5)


def test_every_misplaced_entry_is_found_where_it_is():
    rows = FiniteMDP(transitions(per_step=True), rewards(), horizon=H).rows
    for row, (begin, end) in enumerate(zip(rows.indptr, rows.indptr[1:], strict=False)):
        place = rf"\[h={row // (S * A)}, s={row // A % S}, a={row % A}\]"
        for entry in range(begin, end):
            bad = changed(rows.indices, entry, S)
            with pytest.raises(InvalidModelError, match=rf"{place} goes to state {S}"):
                FiniteMDP(replace(rows, indices=bad), rewards(), horizon=H)
        for entry in range(begin + 1, end):
            bad = changed(rows.indices, entry, rows.indices[entry - 1])
            with pytest.raises(InvalidModelError, match=rf"{place}: next states must be increasing"):
                FiniteMDP(replace(rows, indices=bad), rewards(), horizon=H)


@every_kind
def test_rows_off_by_rounding_are_renormalised(mdp):
    off = replace(mdp.rows, probabilities=mdp.rows.probabilities * (1 + 1e-10), rewards=None)
    if mdp.horizon == H:
        probabilities = FiniteMDP(off, rewards(), horizon=H).rows.probabilities
        np.testing.assert_allclose(np.add.reduceat(probabilities, off.indptr[:-1]), 1.0, rtol=1e-14)
    assert pickle.loads(pickle.dumps(mdp)) == mdp


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.int64, np.uint64])
def test_rows_of_any_integer_and_float_type_and_stride_are_copied(dtype):
    rows = FiniteMDP(transitions(), rewards(), horizon=H).rows
    strided = np.empty((len(rows.indices), 2), dtype=dtype)
    strided[:, 0] = rows.indices
    probabilities = np.repeat(rows.probabilities, 2)[::2]
    given = SparseTransitions(rows.indptr.astype(dtype)[::-1].copy()[::-1], strided[:, 0], probabilities)
    model = FiniteMDP(given, rewards(), horizon=H)
    strided[:], probabilities[:] = 0, 0
    np.testing.assert_array_equal(model.rows.indices, rows.indices)
    np.testing.assert_array_equal(model.rows.probabilities, rows.probabilities)
    np.testing.assert_array_equal(model.rows.indptr, rows.indptr)
    assert (model.rows.indptr.dtype, model.rows.indices.dtype) == (np.int64, np.int32)
    for array in (model.rows.indptr, model.rows.indices, model.rows.probabilities):
        assert array.flags.c_contiguous
        assert not array.flags.writeable


def test_rewards_of_per_step_rows_have_one_axis_of_entries():
    rows = FiniteMDP(transitions(per_step=True), rewards((H, S, A, S)), horizon=H).rows
    with pytest.raises(InvalidModelError, match="row rewards must align"):
        FiniteMDP(replace(rows, rewards=np.zeros((H, len(rows.indices)))), (S, A), horizon=H)


def test_rows_with_rewards_need_the_sizes():
    rows = FiniteMDP(sparse_form(transitions()), rewards((S, A, S)), horizon=H).rows
    assert FiniteMDP(rows, (S, A), horizon=H).n_actions == A
    for sizes in (None, S, (S,), (S, 2.5), np.zeros((S, A))):
        with pytest.raises(InvalidModelError, match=r"pass rewards=\(n_states, n_actions\)"):
            FiniteMDP(rows, sizes, horizon=H)


def test_every_error_of_the_library_is_one_family_and_a_value_error():
    for error in (eb.InvalidModelError, eb.InvalidProblemError, eb.CertificateError):
        assert issubclass(error, eb.EntropicBPIError)
        assert issubclass(error, ValueError)


# -- arrays as others have them ----------------------------------------------------------------------------------------


def test_rounding_below_zero_is_put_right():
    third = 1 / 3
    transitions = np.array([[[third, third, 1 - 2 * third]], [[1 + 5.6e-17, -5.6e-17, 0]], [[0, 1 + 1e-10, -1e-10]]])
    mdp = FiniteMDP(transitions, np.zeros((3, 1)), horizon=2, start=[-1e-17, 0.5, 0.5])
    assert mdp.transitions.min() == 0.0
    assert mdp.transitions.sum(axis=2) == pytest.approx(1.0, abs=1e-15)
    assert mdp.start.tolist() == [0.0, 0.5, 0.5]
    matrices = [sparse.csr_array(transitions[:, 0])]
    assert FiniteMDP(matrices, np.zeros((3, 1)), horizon=2, start=mdp.start) == mdp
    for wrong in (-2e-9, -0.1, np.nan):
        transitions[1, 0] = [1 - wrong, wrong, 0]
        with pytest.raises(
            InvalidModelError, match=r"transitions\[s=1, a=0\] holds .*, expected probabilities of at least 0"
        ):
            FiniteMDP(transitions, np.zeros((3, 1)), horizon=2)


def test_probabilities_in_single_precision_are_put_right():
    rng = np.random.default_rng(1)
    double = rng.dirichlet(np.ones(50), (50, 2))
    single = double.astype(np.float32)
    assert abs(single.sum(axis=2, dtype=float) - 1).max() > 1e-9
    rewards = np.zeros((50, 2))
    for transitions, start in [
        (single, np.full(50, 0.02, np.float32)),
        ([sparse.csr_array(single[:, a]) for a in range(2)], 0),
    ]:
        mdp = FiniteMDP(transitions, rewards, horizon=2, start=start)
        rows = mdp.rows
        assert np.add.reduceat(rows.probabilities, rows.indptr[:-1]) == pytest.approx(1.0, abs=1e-14)
        assert rows.probabilities == pytest.approx(double.ravel(), rel=1e-6)
    single[3, 1, 0] += 1e-4
    with pytest.raises(InvalidModelError, match=r"transitions\[s=3, a=1\] sums to"):
        FiniteMDP(single, rewards, horizon=2)
    with pytest.raises(InvalidModelError, match="sums to"):
        FiniteMDP(double + 1e-9, rewards, horizon=2)


def test_arrays_that_begin_with_the_action_are_refused_with_the_remedy():
    kernel = np.full((2, 3, 3), 1 / 3)
    with pytest.raises(InvalidModelError, match=r"shape \(S, A, S\) .*got \(2, 3, 3\): .*pass np.swapaxes"):
        FiniteMDP(kernel, np.zeros((3, 2)), horizon=2)
    assert FiniteMDP(np.swapaxes(kernel, -3, -2), np.zeros((3, 2)), horizon=2).n_actions == 2
