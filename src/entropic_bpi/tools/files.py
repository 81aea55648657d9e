"""Files that are written whole or not at all, and folders that one process uses at a time."""

import csv
import gzip
import io
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from entropic_bpi.errors import InvalidProblemError

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

_LOCK = ".entropic-bpi.lock"
# What a spreadsheet takes for the beginning of a formula, and may run.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_TEMPORARY = re.compile(r"\..+\.entropic-bpi-(?P<pid>\d{1,9})-\d+")


def write_atomically(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> None:
    """Call ``write`` on a temporary file beside ``path``, flush it to disk, then rename it over ``path``."""
    target = Path(path)
    _remove_leftovers(target.parent.absolute())
    # Named after its writer, so that it can be told from what a killed process left behind.
    temporary = target.with_name(f".{target.name}.entropic-bpi-{os.getpid()}-{threading.get_native_id()}")
    try:
        temporary.unlink(missing_ok=True)
        with open(temporary, "xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and error.filename:  # the user knows the name of the file itself
            error.filename = os.fspath(path)
        raise


def write_text_atomically(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file, compressed if its name ends in ``.gz``."""
    data = text.encode()
    if os.fspath(path).endswith(".gz"):
        data = gzip.compress(data, compresslevel=6, mtime=0)  # the same text makes the same file
    write_atomically(path, lambda file: file.write(data))


@cache  # once for each folder, which may be a large one
def _remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of processes that were killed while they wrote into ``folder``."""
    with suppress(OSError):
        for entry in list(os.scandir(folder)):
            name = _TEMPORARY.fullmatch(entry.name)
            if name is not None and _is_dead(int(name["pid"])):
                os.unlink(entry.path)


def _is_dead(pid: int) -> bool:
    try:
        if os.name == "posix":  # elsewhere signal 0 is not a question
            os.kill(pid, 0)
    except OSError as error:  # of another kind if it lives, but is not ours
        return isinstance(error, ProcessLookupError)
    return False


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep ``folder`` to oneself for the block; BlockingIOError at once where another process has it.

    The system frees the lock of a process that dies. Where it has no locks for files, the block runs without one.
    """
    if fcntl is None:
        yield
        return
    path = folder / _LOCK
    with _locked_file(path):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _locked_file(path: Path) -> BinaryIO:
    while True:
        file = open(path, "ab")  # noqa: SIM115
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.close()
            raise BlockingIOError(error.errno, "another process is using this folder", str(path.parent)) from None
        except OSError:  # a file system without locks
            return file
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return file
        file.close()  # its last holder removed it after we opened it


def write_csv(path: str | os.PathLike[str], columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table in one go; floats keep all their digits, and no text is a formula (:func:`text_of_cell`)."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell_of(value) for value in row] for row in rows)
    write_text_atomically(path, text.getvalue())


@contextmanager
def reading(path: str | Path, wrong: str) -> Iterator[None]:
    """Turn the errors of reading a file into one that names it; ``wrong`` is what is said of one that is there."""
    try:
        yield
    except FileNotFoundError:
        raise InvalidProblemError(f"no such file: {path}") from None
    except (OSError, ValueError, EOFError, RecursionError, csv.Error) as error:
        raise InvalidProblemError(f"{wrong}: {error}") from None


def read_csv(path: Path, *columns: str) -> list[dict[str, str]]:
    """Return the lines of a table that has these columns, with the texts that :func:`write_csv` wrote."""
    with reading(path, f"{path} cannot be read"):
        text = io.StringIO(path.read_bytes().decode("utf-8-sig"), newline="")
        reader = csv.DictReader(text, restkey="", restval="")
        lines = [{name: text_of_cell(str(cell)) for name, cell in line.items()} for line in reader]
    for name in columns:
        if name not in (reader.fieldnames or ()):
            raise InvalidProblemError(f"{path} has no column {name!r}; it needs {', '.join(columns)}")
    return lines


def _cell_of(value: Any) -> Any:
    """A value as a cell: text that a spreadsheet would run has an apostrophe in front, which makes it text there."""
    if not isinstance(value, str) or not value.lstrip("'").startswith(_FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def text_of_cell(cell: str) -> str:
    """The text that :func:`write_csv` wrote as ``cell``.

    >>> text_of_cell("'=1+1"), text_of_cell("-1"), text_of_cell("'quoted'")
    ('=1+1', '-1', "'quoted'")
    """
    return cell[1:] if cell.startswith("'") and cell.lstrip("'").startswith(_FORMULA) else cell
