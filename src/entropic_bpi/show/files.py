"""The files of a run in its folder."""

from pathlib import Path

from entropic_bpi.errors import InvalidProblemError

CERTIFICATE, CHECKPOINT, HISTORY = "certificate.json", "checkpoint.bin", "history.csv"


def certificate_in(run: Path) -> Path:
    """Return the file of the certificate of a run, packed or not, which is given by this file or by its folder."""
    if not run.is_dir():
        return run
    file, packed = run / CERTIFICATE, run / f"{CERTIFICATE}.gz"
    if not file.exists() and not packed.exists() and (run / CHECKPOINT).exists():
        raise InvalidProblemError(f"the run in {run} has not finished: continue it with identify --out {run} --resume")
    return packed if packed.exists() and not file.exists() else file
