"""Folders that commands write to."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from entropic_bpi.cli.facts import Fact, line
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.show.files import CERTIFICATE, CHECKPOINT, HISTORY
from entropic_bpi.tools.files import locked

PLOT = "interval.png"


def written(*paths: Path | None, files: Iterable[str] = ()) -> list[Fact]:
    """Return a line for each path that was written; ``files`` are those in the folder."""
    inside = f": {', '.join(files)}" if files else ""
    return [line(f"written  {path}{inside}") for path in paths if path is not None]


def new_folder(folder: Path, files: Iterable[str], advice: str = "give another --out") -> None:
    """Make sure that ``folder`` exists and holds none of ``files`` yet."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InvalidProblemError(f"--out: {folder} is not a folder") from None
    held = [name for name in files if (folder / name).exists()]
    if held:
        raise InvalidProblemError(f"{folder} already holds {', '.join(held)}, and nothing is overwritten: {advice}")


@contextmanager
def run_folder(out: Path | None, resume: bool) -> Iterator[None]:
    """Lock the folder for this run, and check which files it has."""
    if out is None:
        if resume:
            raise InvalidProblemError("--resume needs --out: the folder of the run to continue")
        yield
        return
    new_folder(out, ())
    with locked(out):
        if not resume:
            new_folder(out, (CERTIFICATE, CHECKPOINT, HISTORY, PLOT), "give another --out, or continue with --resume")
        elif not (out / CHECKPOINT).exists():
            new_folder(out, (CERTIFICATE, HISTORY, PLOT), f"without {CHECKPOINT} the run cannot be continued")
        yield
