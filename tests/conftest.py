import hashlib
import os
import tempfile
from pathlib import Path

from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("repeatable")


def _kernel_cache() -> str:
    """A folder for compiled kernels that changes with the sources: numba does not notice a change in another file."""
    digest = hashlib.sha256()
    for path in sorted((Path(__file__).parents[1] / "src").rglob("*.py")):
        digest.update(path.read_bytes())
    return str(Path(tempfile.gettempdir()) / f"entropic-bpi-kernels-{digest.hexdigest()[:12]}")


os.environ.setdefault("NUMBA_CACHE_DIR", _kernel_cache())
