"""What a report is made from: the result of a run, a certificate, its file, or the folder of a run."""

from __future__ import annotations

import csv
import hashlib
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from entropic_bpi._version import __version__
from entropic_bpi.certificate.certificate import Certificate
from entropic_bpi.errors import CertificateError, InvalidProblemError
from entropic_bpi.runs.appraisal import Appraisal
from entropic_bpi.runs.checkpoint import read_summary
from entropic_bpi.runs.loop import Identification
from entropic_bpi.runs.state import HISTORY
from entropic_bpi.verification import Verification, verify

_CERTIFICATE, _CHECKPOINT, _HISTORY = "certificate.json", "checkpoint.bin", "history.csv"
_APPRAISAL = "appraisal.json"


class ReportInputs(NamedTuple):
    """All that a report tells.

    Attributes
    ----------
    certificate : Certificate or None
        None if the file is none.
    verification : Verification
    file, sha256 : str
        Name and digest of the certificate's file.
    library : str
        The version that wrote it.
    history : structured array or None
        Where the run is known: what was certified after how many episodes.
    run : dict
        ``seed``, ``seconds``, ``episodes`` and ``facts`` of the run, as far as they are known.
    appraisal : Appraisal or None
        What the page is about, unless it is the certificate.
    """

    certificate: Certificate | None
    verification: Verification
    file: str
    sha256: str
    library: str
    history: np.ndarray | None
    run: dict[str, Any]
    appraisal: Appraisal | None = None


def inputs_of(source: Any) -> ReportInputs:
    """Collect what ``source`` tells, and check the certificate again."""
    inputs = _inputs_of(source)
    if inputs.certificate is not None and inputs.certificate.risk == "any reward":
        raise InvalidProblemError(
            "an exploration has no policy to report on: report what its solve(rewards, beta) returns"
        )
    return inputs


def _inputs_of(source: Any) -> ReportInputs:
    if isinstance(source, (str, Path)):
        return _from_path(Path(source))
    if isinstance(source, Appraisal):
        return _from_appraisal(source)
    certificate, history, run = source, None, {}
    if isinstance(source, Identification):
        certificate, history = source.certificate, source.history
        run = {"seed": source.seed, "seconds": source.seconds, "episodes": source.episodes}
    if not isinstance(certificate, Certificate):
        raise InvalidProblemError(
            "a report needs the result of identify or appraise, a certificate or the path of one; got "
            f"{type(source).__name__}"
        )
    digest = hashlib.sha256(certificate._text().encode()).hexdigest()
    return ReportInputs(certificate, verify(certificate), _CERTIFICATE, digest, __version__, history, run)


def _from_appraisal(appraisal: Appraisal) -> ReportInputs:
    if appraisal.certificate is None:
        return ReportInputs(
            None, Verification(True, math.nan, math.nan, math.nan), "", "", __version__, None, {}, appraisal
        )
    digest = hashlib.sha256(appraisal._text().encode()).hexdigest()
    checked = verify(appraisal)
    history = appraisal.history
    return ReportInputs(appraisal.certificate, checked, _APPRAISAL, digest, __version__, history, {}, appraisal)


def _from_path(path: Path) -> ReportInputs:
    folder, file = (path, path / _CERTIFICATE) if path.is_dir() else (None, path)
    if not file.is_file():
        if folder is not None and (folder / _CHECKPOINT).exists():
            raise InvalidProblemError(
                f"the run in {path} has not finished: continue it with identify --out {path} --resume"
            )
        raise CertificateError(f"no such file: {file}")
    content, verification, certificate = file.read_bytes(), verify(file), None
    try:
        certificate = Certificate.load(file)
    except CertificateError as error:
        if verification.ok:
            verification = replace(verification, ok=False, problems=[str(error)])
    return ReportInputs(
        certificate=certificate,
        verification=verification,
        file=file.name,
        sha256=hashlib.sha256(content).hexdigest(),
        library="unknown" if certificate is None else json.loads(content)["library"],
        history=None if folder is None else _read_history(folder / _HISTORY),
        run=(None if folder is None else read_summary(folder / _CHECKPOINT)) or {},
    )


def _read_history(path: Path) -> np.ndarray | None:
    if not path.exists():
        return None
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = [tuple(float(line[name]) for name in HISTORY.fields or ()) for line in csv.DictReader(file)]
        return np.array(rows, dtype=HISTORY)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InvalidProblemError(
            f"{path} is not the history of a run, a table of {', '.join(HISTORY.fields or ())}: {error}"
        ) from None
