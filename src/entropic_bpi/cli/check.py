"""Commands that check and show: ``verify``, ``report`` and ``doctor``."""

from __future__ import annotations

import math
import os
import platform
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from entropic_bpi._version import __version__
from entropic_bpi.cli.common.app import CLAIM_FAILED
from entropic_bpi.cli.common.show import Fact, data, line, present, several
from entropic_bpi.cli.identify import CERTIFICATE
from entropic_bpi.errors import CertificateError, InvalidProblemError
from entropic_bpi.model.formats.registry import FORMATS, OBJECTS
from entropic_bpi.show.words import Rounding, ascii_minus
from entropic_bpi.tools.files import read_unpacked
from entropic_bpi.tools.workers import processors

if TYPE_CHECKING:
    from entropic_bpi.verification import Verification

_PACKAGES = ("numpy", "scipy", "numba", "gymnasium", "matplotlib", "typer", "rich")
# What comes with an extra, by the extra's name.
_EXTRAS = {"logs": "duckdb", "report": "jinja2", "gpu": "numba-cuda", "minari": "minari", "cluster": "distributed"}
_EXTRAS |= {"prism": "stormpy"}
_FIRST_RUN = ("identify", "risky-bridge", "--beta", "-1", "--eps", "0.2", "--delta", "0.1", "--successors", "model")


def verify(certificate: Path, *, rigorous: bool = False, as_json: bool = False) -> int:
    """Recompute the bounds of a certificate from its counts and compare them with its claim.

    Exit code 1 if the file is invalid or its counts do not imply the claim.

    Examples:

        entropic-bpi verify run/certificate.json

        entropic-bpi verify run/certificate.json --rigorous

        entropic-bpi verify run/certificate.json --json

    Parameters
    ----------
    certificate : CERTIFICATE
        The file that identify or certify wrote (.json or .json.gz), or its folder.
    rigorous
        Prove the bounds in ball arithmetic, without any tolerance (extra rigorous).
    """
    from entropic_bpi.runs.progress import Progress
    from entropic_bpi.verification import verify as check

    path = certificate / CERTIFICATE if certificate.is_dir() else certificate
    if certificate.is_dir() and not path.exists():
        path = path.with_suffix(".json.gz")
    if not path.exists():
        raise CertificateError(f"no such file: {path}")
    with Progress(None) as shown:
        result = check(
            path,
            rigorous=rigorous,
            progress=lambda done, total: shown.update(lambda: "checking the bounds", done / total),
        )
    known = not any(map(math.isnan, (result.lower, result.upper, result.gap)))
    to = Rounding()
    bounds = [
        Fact("lower", result.lower, "value of the policy", f"at least {ascii_minus(to.at_least(result.lower, 6))}"),
        Fact("upper", result.upper, "optimal value", f"at most {ascii_minus(to.at_most(result.upper, 6))}"),
        Fact("gap", result.gap, "gap", f"at most {to.at_most(result.gap, 6)}"),
    ]
    facts = [
        Fact("ok", result.ok, "verdict", _verdict(result)),
        *data(proved=result.proved),
        *(bounds if known else data(lower=None, upper=None, gap=None)),
        *several("problems", result.problems, "problem"),
    ]
    appraised = b'"entropic-bpi appraisal"' in read_unpacked(path)[:100]
    then = ("verify", path, "--json") if appraised else ("report", certificate, "-o", "report.html")
    present(facts, as_json, then)
    return 0 if result.ok else CLAIM_FAILED


def _verdict(result: Verification) -> str:
    verdict = "the counts imply the claim" if result.ok else "NOT verified"
    return f"{verdict}: proved up to the assumptions" if result.proved else verdict


def report(run: Path, *, out: Path, grid: str | None = None, actions: str | None = None, as_json: bool = False) -> int:
    """Write a report: one HTML file with the claim, its assumptions, the policy, and how to check it.

    The page needs only a browser. The certificate is verified; if that fails, the page has a red header that says so, and
    the exit code is 1. The folder of a run also contains the seed, the settings and the history of the gap; a certificate
    alone does not. Needs the extra report: pip install 'entropic-bpi[report]'.

    Examples:

        entropic-bpi report run -o report.html

        entropic-bpi report run/certificate.json -o report.html --grid 4x4 --actions left,down,right,up

    Parameters
    ----------
    run : RUN_OR_CERTIFICATE
        Folder that identify or certify wrote, or a certificate file.
    out : FILE.html, --out, -o
        The page to write.
    grid : ROWSxCOLUMNS
        Draw a map: the first states are its cells, row by row.
    actions : A,B,...
        Names for the actions, in their order.
    """
    import entropic_bpi as eb

    if out.suffix.lower() not in (".html", ".htm"):
        raise InvalidProblemError(f"--out must be an .html file, got {out}")
    names = None if actions is None else [part.strip() for part in actions.split(",")]
    checked = eb.report.write(run, out, grid=_shape(grid), actions=names)

    facts = [
        Fact("ok", checked.ok, "verdict", _verdict(checked)),
        *several("problems", checked.problems, "problem"),
        Fact("report", str(out)),
        line(f"written  {out}: open it in a browser"),
    ]
    present(facts, as_json, ("verify", run / CERTIFICATE if run.is_dir() else run))
    return 0 if checked.ok else CLAIM_FAILED


def _shape(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    sides = re.fullmatch(r"(\d{1,6})[x×](\d{1,6})", text.strip())
    if sides is None:
        raise InvalidProblemError(f"--grid must be ROWSxCOLUMNS such as 4x4, got {text!r}")
    return int(sides[1]), int(sides[2])


def doctor(*, compile: bool = False, as_json: bool = False) -> int:
    """Print versions, cores, the cache of compiled code, and whether there is a GPU.

    Exit code 1 if a required package is missing.

    Examples:

        entropic-bpi doctor

        entropic-bpi doctor --compile

        entropic-bpi doctor --json

    Parameters
    ----------
    compile
        Compile now what a first run needs, for example when an image of a container is built.
    """
    found = _findings() | ({"compiled now": _compile()} if compile else {})
    facts = [
        Fact(
            name,
            value,
            name,
            value if isinstance(value, str) else ", ".join(f"{key} {item}" for key, item in value.items()),
        )
        for name, value in found.items()
    ]
    present(facts, as_json, _FIRST_RUN)
    return CLAIM_FAILED if "missing" in found["packages"].values() else 0


def _findings() -> dict[str, Any]:
    return {
        "entropic-bpi": f"{__version__}, in {Path(__file__).parents[1]}",
        "python": f"{sys.version.split()[0]}, {sys.executable}",
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "cores": str(processors()),
        "packages": {name: _version(name) for name in _PACKAGES},
        "extras": {extra: _version(name) for extra, name in _EXTRAS.items()},
        "model files": {form.name: " ".join(form.suffixes) for form in FORMATS},
        "model objects": OBJECTS,
        "compiled code": _cache(),
        "GPU": _gpu(),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def _cache() -> str:
    """Return where compiled code is stored; if nowhere, every start compiles again."""
    folder = Path(os.environ.get("NUMBA_CACHE_DIR") or Path(__file__).parents[1] / "__pycache__")
    place = next((parent for parent in (folder, *folder.parents) if parent.exists()), folder)
    if os.access(place, os.W_OK):
        return f"kept in {folder}"
    return f"{folder} cannot be written: every start may compile again; set NUMBA_CACHE_DIR to a folder that can be"


def _compile() -> str:
    """Make short runs of what most users run first, and return what compiling took; what is on disk is only read."""
    import entropic_bpi as eb
    from entropic_bpi.compile.decorators import compile_clock

    goal: dict[str, Any] = {"beta": -1.0, "eps": 0.2, "delta": 0.1, "seed": 0, "max_episodes": 4}
    bridge, before = eb.instances.risky_bridge(), compile_clock.seconds
    for declared in ({}, {"successors": "model"}, {"successors": "model", "stationary": True}):
        eb.identify(bridge, **goal, **declared)
    eb.identify("FrozenLake-v1", horizon=4, reward_range=(0, 1), **goal)
    eb.solve(bridge, -1.0)
    return f"identify (models, environments) and solve, in {compile_clock.seconds - before:.1f} s"


def _gpu() -> str:
    if find_spec("numba_cuda") is None:
        return "not looked for: numba-cuda is missing (pip install 'entropic-bpi[gpu]')"
    from importlib import import_module

    cuda: Any = import_module("numba.cuda")
    return "found" if cuda.is_available() else "none that numba-cuda can use"
