"""The command line: thin commands over the library, one module for each.

Modules that take time to import are imported inside the commands, so that ``--help`` answers at once.
"""

from __future__ import annotations

from entropic_bpi.cli import (
    bounds,
    certify,
    compare,
    doctor,
    experiments,
    front,
    identify,
    plan,
    report,
    solve,
    spectrum,
    validate,
    verify,
)
from entropic_bpi.cli._app import app, main

__all__ = [
    "app",
    "bounds",
    "certify",
    "compare",
    "doctor",
    "experiments",
    "front",
    "identify",
    "main",
    "plan",
    "report",
    "solve",
    "spectrum",
    "validate",
    "verify",
]

app.command("instances")(solve.instances)
app.command("solve")(solve.solve)
app.command("front")(front.front)
app.command("plan")(plan.plan)
app.command("identify")(identify.identify)
app.command("certify")(certify.certify)
app.command("spectrum")(spectrum.spectrum)
app.command("compare")(compare.compare)
app.command("verify")(verify.verify)
app.command("report")(report.report)
app.command("bounds")(bounds.bounds)
app.command("reproduce")(experiments.reproduce)
app.command("sweep")(experiments.sweep)
app.command("validate")(validate.validate)
app.command("export")(experiments.export)
app.command("doctor")(doctor.doctor)
