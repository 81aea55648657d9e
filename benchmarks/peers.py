"""The peers: environments of their own with pinned versions, and processes in them that do as they are told.

An environment is made once, in a folder named after what is in it, and found again by the next call.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

SERVER = Path(__file__).parent / "peer_side" / "serve.py"
PINS = {
    "rlberry": ("rlberry==0.7.3", "rlberry-scool==0.7.3", "gymnasium==0.29.1"),
    "solvers": ("quantecon==0.11.4", "gymnasium==1.4.0", "cvxpy==1.9.3", "clarabel==0.11.1"),
}
# The libraries below both sides are the same, so that a contest is not between two versions of NumPy.
SHARED = ("numpy", "scipy", "numba")


class PeerError(RuntimeError):
    """A peer could not be installed, or could not do a job."""


def pins(environment: str) -> tuple[str, ...]:
    return PINS[environment] + tuple(f"{name}=={version(name)}" for name in SHARED)


def named(package: str) -> str:
    """Name and version of a peer, for the table."""
    every = [pin for environment in PINS for pin in pins(environment)]
    return next(pin for pin in reversed(every) if pin.startswith(f"{package}==")).replace("==", " ")


def installed(environment: str, folder: Path, say: Callable[[str], None] = print) -> Path:
    """The interpreter of an environment, which is made if it is not there."""
    wanted = pins(environment)
    digest = hashlib.sha256(" ".join((sys.version, *wanted)).encode()).hexdigest()[:10]
    home = folder / f"{environment}-{digest}"
    python = home / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    ready = home / "ready"
    if not ready.exists():
        say(f"installing {' '.join(PINS[environment])} ...")
        venv.create(home, with_pip=True, clear=True)
        done = subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], capture_output=True, text=True)
        if done.returncode != 0:
            raise PeerError(f"cannot install {' '.join(wanted)}:\n{done.stderr.strip()[-2000:]}")
        ready.touch()
    return python


@dataclass(frozen=True)
class Job:
    """A job that a peer has prepared."""

    peer: Peer
    number: int

    def measure(self) -> float:
        """Seconds per unit, on the peer's own clock."""
        return self.peer.ask(do="measure", number=self.number)["seconds"]

    def answer(self) -> dict[str, np.ndarray]:
        """What it computed."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "answer.npz"
            self.peer.ask(do="answer", number=self.number, path=str(path))
            with np.load(path) as file:
                return dict(file)


class Peer:
    """A process in a peer's environment."""

    def __init__(self, python: Path) -> None:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen([python, SERVER], text=True, **pipes)

    def prepare(self, job: str, **arguments: Any) -> Job:
        return Job(self, self.ask(do="prepare", job=job, arguments=arguments)["number"])

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise PeerError(f"the peer's process ended (exit code {self.process.wait()})")
        reply = json.loads(line)
        if "error" in reply:
            raise PeerError(reply["error"])
        return reply

    def close(self) -> None:
        self.process.communicate()


class Peers(ExitStack):
    """Every peer, started when it is first needed."""

    def __init__(self, folder: Path, say: Callable[[str], None] = print) -> None:
        super().__init__()
        self.folder, self.say = folder, say
        self._running: dict[str, Peer] = {}

    def __getitem__(self, environment: str) -> Peer:
        if environment not in self._running:
            peer = Peer(installed(environment, self.folder, self.say))
            self.callback(peer.close)
            self._running[environment] = peer
        return self._running[environment]

    def once(self, environment: str, job: str, **arguments: Any) -> dict[str, float]:
        """Do a job in a fresh process; its seconds and the peak of its memory."""
        python = installed(environment, self.folder, self.say)
        done = subprocess.run([python, SERVER, job, json.dumps(arguments)], capture_output=True, text=True)
        if done.returncode != 0:
            raise PeerError(done.stderr.strip().splitlines()[-1] if done.stderr else f"exit code {done.returncode}")
        return json.loads(done.stdout.splitlines()[-1])
