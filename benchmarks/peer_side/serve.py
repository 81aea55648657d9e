"""The process that runs a peer: one JSON request a line on standard input, one reply a line on standard output."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from peer_side.jobs import JOBS
from peer_side.usage import peak_memory


def main() -> None:
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever the peer prints must not end up among the replies
    jobs: list = []
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply = _answer(request, jobs)
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(reply) + "\n")


def _answer(request: dict, jobs: list) -> dict:
    if request["do"] == "prepare":
        jobs.append(JOBS[request["job"]](**request["arguments"]))
        return {"number": len(jobs) - 1}
    job = jobs[request["number"]]
    if request["do"] == "measure":
        return {"seconds": job.measure()}
    np.savez(request["path"], **job.answer())
    return {}


def once(name: str, arguments: dict) -> None:
    """One job in this process, then its seconds and the peak of the memory; for a process of its own."""
    began = time.perf_counter()
    job = JOBS[name](**arguments)
    prepared = time.perf_counter() - began
    seconds = job.measure()
    print(json.dumps({"prepared": prepared, "seconds": seconds, "peak": peak_memory()}))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        once(sys.argv[1], json.loads(sys.argv[2]))
    else:
        main()
