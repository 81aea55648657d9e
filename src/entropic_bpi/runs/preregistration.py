"""Preregistration: a run is committed to before its first episode, so that it cannot be thrown away without a trace.

Whoever starts many runs and shows the best has no guarantee: the claim holds with probability 1 - δ for *one* run. A
preregistration that was given away when the run began (mailed, committed, registered) shows a reader which run it was. The
certificate carries the SHA-256 of its bytes; a preregistration without a certificate is a run whose end was not shown.
"""

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path

from entropic_bpi._version import __version__
from entropic_bpi.errors import InvalidProblemError


def preregister(path: Path, facts: dict[str, str], *, seed: int, max_episodes: int | None) -> str:
    """Write the preregistration of a run that begins now, and return its digest; a file that exists is never replaced."""
    content = {
        "format": "entropic-bpi preregistration",
        "version": 1,
        "library": __version__,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "run": facts,
        "max_episodes": max_episodes,
        # Of the decimal digits: the seed is told with the result, and anybody can check that it is this one.
        "seed_sha256": hashlib.sha256(str(seed).encode()).hexdigest(),
    }
    text = (json.dumps(content, indent=1) + "\n").encode()
    try:
        with path.open("xb") as file:
            file.write(text)
    except FileExistsError:
        words = "exists and is of another run; only that run, taken up from its checkpoint, may use it"
        raise InvalidProblemError(f"preregister: {path} {words}") from None
    except OSError as error:
        raise InvalidProblemError(f"preregister: {path} cannot be written: {error}") from None
    return hashlib.sha256(text).hexdigest()


def check_preregistered(path: Path, digest: str | None) -> None:
    """Refuse ``path`` unless it is the preregistration with which the run that is taken up began."""
    found = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "of no file"
    if found != digest:
        words = f"is not the preregistration with which this run began (sha256 {found}, expected {digest or 'none'})"
        raise InvalidProblemError(f"preregister: {path} {words}")
