"""Checkpoints: a run in one file, from which it goes on to exactly the result that it would have had uninterrupted.

The file is a line with the format, the SHA-256 of the rest, and an archive of NumPy with the arrays and a header in JSON. A
file that is damaged, of another format or of another run is refused. The digest detects accidental damage and not forgery,
so resume only from checkpoints that you trust.
"""

import hashlib
import io
import json
import time
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from entropic_bpi.certificate.provenance import LogSummary, Provenance
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.runs.state import BestPlan, RunState
from entropic_bpi.tools.facts import differences
from entropic_bpi.tools.files import write_atomically
from entropic_bpi.types import Bounds, Plan, Transitions

FIRST_LINE = b"entropic-bpi checkpoint 6\n"
# Fields of a run that are written as they are.
_PLAIN = ("round", "seconds", "error", "contradiction", "discovered_states")


class Saved(NamedTuple):
    """The content of a checkpoint."""

    header: dict[str, Any]
    arrays: dict[str, np.ndarray]

    def state(self, problem: Problem, provenance: Provenance) -> RunState:
        """Return the run as it was saved."""
        header = self.header
        if problem.allowed is not None and problem.allowed.offered:
            problem.allowed.table[:] = self.arrays["masks"]
        log = None if header["log"] is None else LogSummary(*header["log"])
        provenance = provenance._replace(errors=header["errors"], preregistration=header["preregistration"], log=log)
        counts = Counts.of(problem, Transitions(**self._group("seen")), header["episodes"])
        state = RunState.new(problem, header["seed"], provenance, counts)
        state.rng.bit_generator.state = header["rng"]
        state.history, state.best, state.memory = [self.arrays["history"]], self._best(), self._group("memory")
        if state.tests is not None:
            state.tests.restore(self._group("tests"))
        return replace(state, **{name: header[name] for name in _PLAIN})

    def _best(self) -> BestPlan | None:
        if self.header["best"] is None:
            return None
        *bounds, episodes = self.header["best"]
        # The best plan has no behaviour: what it would play next was played, or is planned again.
        plan = Plan(self.arrays["best_policy"], Bounds(*bounds), None)  # type: ignore[arg-type]
        return BestPlan(plan, episodes, Transitions(**self._group("best")))

    def _group(self, prefix: str) -> dict[str, np.ndarray]:
        return {name[len(prefix) + 1 :]: self.arrays[name] for name in self.arrays if name.startswith(f"{prefix}.")}


class Checkpoint:
    """The file of one run, whose ``facts`` must be the same whenever it is resumed; ``seed=None`` accepts any seed."""

    def __init__(self, path: Path, facts: dict[str, str], seed: int | None) -> None:
        if not path.parent.is_dir():
            raise InvalidProblemError(f"checkpoint: {path.parent} is not an existing folder")
        self.path, self.facts, self.seed = path, facts, seed
        self.saved, self.warned = time.monotonic(), False

    def read(self) -> Saved | None:
        """Return what was saved of this run; None if there is no file yet."""
        try:
            saved = _read(self.path) if self.path.exists() else None
        except (OSError, ValueError) as error:
            raise InvalidProblemError(f"{self.path} is not a checkpoint of entropic-bpi: {error}") from None
        if saved is not None:
            seed = saved.header["seed"]
            then = {"seed": str(seed), **saved.header["facts"]}
            now = {"seed": str(seed if self.seed is None else self.seed), **self.facts}
            if changed := differences(then, now):
                raise InvalidProblemError(
                    f"{self.path} belongs to another run: {changed}. Remove it or give another path"
                )
        return saved

    def age(self) -> float:
        """Return the seconds since the file was last written, or since the run began."""
        return time.monotonic() - self.saved

    def save(self, state: RunState) -> None:
        """Write the file. If that fails, warn once and go on without it."""
        best = state.best
        header = {
            "facts": self.facts,
            "seed": state.seed,
            "rng": state.rng.bit_generator.state,
            "episodes": state.counts.episodes,
            "best": None if best is None else [*map(float, best.plan.bounds), best.episodes],
            **{name: getattr(state, name) for name in _PLAIN},
            **{name: getattr(state.provenance, name) for name in ("errors", "preregistration", "log")},
        }
        groups: dict[str, Mapping[str, Any]] = {"seen": state.counts.seen()._asdict(), "memory": state.memory}
        groups["tests"] = {} if state.tests is None else state.tests.state()
        groups["best"] = {} if best is None else best.transitions._asdict()
        arrays = {"history": np.concatenate(state.history)}
        arrays |= {f"{group}.{name}": np.asarray(array) for group in groups for name, array in groups[group].items()}
        if best is not None:
            arrays["best_policy"] = best.plan.policy
        masks = state.problem.allowed
        if masks is not None and masks.offered:
            arrays["masks"] = masks.table
        self.saved = time.monotonic()
        try:
            write_atomically(self.path, lambda file: _write(file, header, arrays))
            self.warned = False
        except OSError as error:
            if not self.warned:
                warnings.warn(f"the checkpoint {self.path} could not be written: {error}", stacklevel=2)
            self.warned = True


def read_summary(path: Path) -> dict[str, Any] | None:
    """Return what a checkpoint says about its run, ``seed``, ``seconds``, ``episodes``, ``facts`` and more; or None."""
    try:
        return _read(path).header
    except (OSError, ValueError):
        return None


# -- the file ------------------------------------------------------------------------------------------------------


def _write(file: BinaryIO, header: dict[str, Any], arrays: dict[str, Any]) -> None:
    content = io.BytesIO()
    np.savez(content, header=np.array(json.dumps(header)), **arrays)
    file.write(FIRST_LINE + hashlib.sha256(content.getbuffer()).digest())
    file.write(content.getbuffer())


def _read(path: Path) -> Saved:
    """Return the content of a checkpoint, or raise ValueError."""
    with path.open("rb") as file:
        if file.read(len(FIRST_LINE)) != FIRST_LINE:
            raise ValueError(
                f"it does not begin with {FIRST_LINE.decode().strip()!r}; other releases have other formats"
            )
        digest, content = file.read(hashlib.sha256().digest_size), file.read()
    if hashlib.sha256(content).digest() != digest:
        raise ValueError("it is incomplete or was changed")
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        arrays = dict(archive)
    return Saved(json.loads(str(arrays.pop("header"))), arrays)
