"""Files that are written completely or not at all, and folders that only one process uses at a time."""

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
# The characters at the beginning of a cell that make a spreadsheet evaluate it as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_TEMPORARY = re.compile(r"\..+\.entropic-bpi-(?P<pid>\d{1,9})-\d+")


def write_atomically(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> None:
    """Call ``write`` on a temporary file beside ``path``, flush it to disk, then rename it over ``path``."""
    target = Path(path)
    _remove_leftovers(target.parent.absolute())
    # The name contains the process, so that _remove_leftovers recognises the files of killed processes.
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
        data = gzip.compress(data, compresslevel=6, mtime=0)  # without the time, equal texts give equal files
    write_atomically(path, lambda file: file.write(data))


@cache  # only once for each folder, since listing a large folder takes long
def _remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of processes that were killed while they wrote into ``folder``."""
    with suppress(OSError):
        for entry in list(os.scandir(folder)):
            name = _TEMPORARY.fullmatch(entry.name)
            if name is not None and _is_dead(int(name["pid"])):
                os.unlink(entry.path)


def _is_dead(pid: int) -> bool:
    try:
        if os.name == "posix":  # on Windows os.kill would end the process, even with signal 0
            os.kill(pid, 0)
    except OSError as error:  # PermissionError if the process exists and belongs to another user
        return isinstance(error, ProcessLookupError)
    return False


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock ``folder`` for the duration of the block, or raise BlockingIOError if another process has locked it.

    The system releases the lock of a process that dies. Without file locks (Windows, some file systems) nothing is locked.
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
        file.close()  # the previous owner removed the file after this process opened it


def write_csv(path: str | os.PathLike[str], columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a CSV file atomically. Floats keep all digits; text that a spreadsheet would evaluate is escaped."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell_of(value) for value in row] for row in rows)
    write_text_atomically(path, text.getvalue())


@contextmanager
def reading(path: str | Path, message: str) -> Iterator[None]:
    """Turn exceptions while a file is read into errors that begin with ``message``, or say that there is no such file."""
    try:
        yield
    except FileNotFoundError:
        raise InvalidProblemError(f"no such file: {path}") from None
    except (OSError, ValueError, EOFError, RecursionError, csv.Error) as error:
        raise InvalidProblemError(f"{message}: {error}") from None


def read_csv(path: Path, *columns: str) -> list[dict[str, str]]:
    """Return the rows of a CSV file, which must have these ``columns``; the escapes of :func:`write_csv` are undone."""
    with reading(path, f"{path} cannot be read"):
        text = io.StringIO(path.read_bytes().decode("utf-8-sig"), newline="")
        reader = csv.DictReader(text, restkey="", restval="")
        lines = [{name: text_of_cell(str(cell)) for name, cell in line.items()} for line in reader]
    for name in columns:
        if name not in (reader.fieldnames or ()):
            raise InvalidProblemError(f"{path} has no column {name!r}; it needs {', '.join(columns)}")
    return lines


def _cell_of(value: Any) -> Any:
    """Return a value as a cell; an apostrophe before text like a formula makes spreadsheets show it as text."""
    if not isinstance(value, str) or not value.lstrip("'").startswith(_FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def text_of_cell(cell: str) -> str:
    """Return the text that :func:`write_csv` wrote as ``cell``.

    >>> text_of_cell("'=1+1"), text_of_cell("-1"), text_of_cell("'quoted'")
    ('=1+1', '-1', "'quoted'")
    """
    return cell[1:] if cell.startswith("'") and cell.lstrip("'").startswith(_FORMULA) else cell
