"""Progress of a sweep on stderr: all of it with the time left, and the runs that are on their way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from entropic_bpi.lab.experiments.spec import RunSpec
from entropic_bpi.lab.experiments.store import Outcome
from entropic_bpi.tools.text import printable

__all__ = ["SweepProgress"]


class SweepProgress:
    """A bar for the sweep and a line for each run in flight; nothing where stderr is not a terminal."""

    def __init__(self, specs: Sequence[RunSpec], missing: Sequence[RunSpec], *, shown: bool | None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        console = Console(stderr=True)
        shown = console.is_terminal if shown is None else shown
        console.quiet = not shown  # older versions of Rich end a disabled bar with an empty line
        self.bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            TextColumn("elapsed,"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            disable=not shown,
        )
        self.count, self.done, self.failed = len(specs), len(specs) - len(missing), 0
        self.flying: dict[str, Any] = {}
        self.whole = self.bars.add_task("", total=sum(spec.cost for spec in missing))
        self._describe()

    def __enter__(self) -> SweepProgress:
        self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        for task in self.flying.values():
            self.bars.remove_task(task)
        self.bars.stop()

    def started(self, spec: RunSpec) -> None:
        if spec.hash not in self.flying:
            self.flying[spec.hash] = self.bars.add_task(f"  {printable(spec.id)}", total=None)

    def finished(self, spec: RunSpec, outcome: Outcome) -> None:
        self.done += 1
        self.failed += outcome.error is not None
        if spec.hash in self.flying:
            self.bars.remove_task(self.flying.pop(spec.hash))
        self.bars.advance(self.whole, spec.cost)
        self._describe()

    def _describe(self) -> None:
        failures = f", {self.failed} failed" if self.failed else ""
        self.bars.update(self.whole, description=f"{self.done} of {self.count} runs{failures}")
