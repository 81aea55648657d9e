import contextlib
import functools
import hashlib
import os
import re
import tempfile
from pathlib import Path

from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("repeatable")


def _kernel_sources() -> set[Path]:
    """The files with kernels, those that they import directly, and all of ``compile``."""
    package = Path(__file__).parents[1] / "src" / "entropic_bpi"
    found = set((package / "compile").glob("*.py"))
    for path in package.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if re.search(r"^@(compiled|allocating|helper|inlined|inner|parallel|serial)\b", text, re.MULTILINE):
            found.add(path)
            for name in re.findall(r"^ *from entropic_bpi\.([\w.]+) import", text, re.MULTILINE):
                found.add(package / (name.replace(".", "/") + ".py"))
    return {path for path in found if path.exists()}


def _kernel_cache() -> str:
    """A folder for compiled kernels that changes with their sources: numba does not notice a change in another file."""
    digest = hashlib.sha256()
    for path in sorted(_kernel_sources()):
        digest.update(path.read_bytes())
    return str(Path(tempfile.gettempdir()) / f"entropic-bpi-kernels-{digest.hexdigest()[:12]}")


os.environ.setdefault("NUMBA_CACHE_DIR", _kernel_cache())


@contextlib.contextmanager
def _alone(path: Path):
    """Wait until no other process is in here with the same file."""
    import fcntl

    with open(path, "w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        yield


def _compile_once() -> None:
    """Of several processes that need a kernel at the same moment, one compiles it, and the others read what it has kept."""
    from entropic_bpi.compile.linking import Entry

    compile_now, locks = Entry.compile, Path(os.environ["NUMBA_CACHE_DIR"]) / "locks"
    locks.mkdir(parents=True, exist_ok=True)

    @functools.wraps(compile_now)
    def compile_in_turn(self, signature):
        with _alone(locks / f"{self.py_func.__module__}.{self.py_func.__qualname__}"):
            return compile_now(self, signature)

    Entry.compile = compile_in_turn


def pytest_configure(config):
    if hasattr(config, "workerinput") and os.name == "posix":
        _compile_once()
