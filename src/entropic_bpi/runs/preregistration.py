"""Preregistration: a commitment to a run before its first episode, so that the run cannot be discarded unnoticed.

The best of many runs has no guarantee: a claim holds with probability 1 - δ for *one* run. A preregistration that was
published when the run began (mailed, committed, registered) shows a reader which run it was. The certificate contains the
SHA-256 of the file. A preregistration without a certificate is a run whose result was not published.
"""

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path

from entropic_bpi._version import __version__
from entropic_bpi.errors import InvalidProblemError


def preregister(path: Path, facts: dict[str, str], *, seed: int, max_episodes: int | None) -> str:
    """Write the preregistration of a run that begins now and return its digest; an existing file is never replaced."""
    content = {
        "format": "entropic-bpi preregistration",
        "version": 1,
        "library": __version__,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "run": facts,
        "max_episodes": max_episodes,
        # The digest of the seed's decimal digits: the seed is published with the result, and can then be compared.
        "seed_sha256": hashlib.sha256(str(seed).encode()).hexdigest(),
    }
    text = (json.dumps(content, indent=1) + "\n").encode()
    try:
        with path.open("xb") as file:
            file.write(text)
    except FileExistsError:
        words = "belongs to another run: resume that run from its checkpoint, or give another path"
        raise InvalidProblemError(f"preregister: {path} {words}") from None
    except OSError as error:
        raise InvalidProblemError(f"preregister: {path} cannot be written: {error}") from None
    return hashlib.sha256(text).hexdigest()


def check_preregistered(path: Path, digest: str | None) -> None:
    """Refuse ``path`` unless it is the preregistration with which the resumed run began."""
    found = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "missing"
    if found != digest:
        words = f"is not the preregistration with which this run began (sha256: {found}, expected: {digest or 'none'})"
        raise InvalidProblemError(f"preregister: {path} {words}")
