"""Names of the files in the folder of a run."""

from pathlib import Path

from entropic_bpi.errors import InvalidProblemError

CERTIFICATE, CHECKPOINT, HISTORY = "certificate.json", "checkpoint.bin", "history.csv"


def certificate_in(run: Path) -> Path:
    """Return the certificate file, packed or not, of a run that is given by its folder or by this file."""
    if not run.is_dir():
        return run
    file, packed = run / CERTIFICATE, run / f"{CERTIFICATE}.gz"
    if not file.exists() and not packed.exists() and (run / CHECKPOINT).exists():
        raise InvalidProblemError(f"the run in {run} has not finished: continue it with identify --out {run} --resume")
    return packed if packed.exists() and not file.exists() else file
