"""Side by side with the peers: ``python -m benchmarks [--out DIR] [--quick] [--only PART,…] [--resume] [--docs DIR]``.

Ours and theirs solve the same problems in turns, in one go. The peers get environments of their own with pinned
versions, made once and kept. The results are printed, and written to DIR as ``benchmarks.csv``, ``benchmarks.md`` and
``benchmarks.png``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from benchmarks import (
    certify,
    compiling,
    floors,
    fresh,
    kl,
    learning,
    limits,
    machine,
    planning,
    scaling,
    simulating,
    table,
)
from benchmarks.bench import Bench
from benchmarks.peers import Peers
from benchmarks.table import Row

Part = Callable[[Bench], Iterator[Row]]

PARTS: dict[str, tuple[Part, str]] = {
    "learning": (
        learning.learning,
        'Time per episode: every learner, and `identify` with `replan="every"`, on the risky bridge with H = 7. rlberry\'s '
        "UCBVIAgent plans after every episode too; it minimises regret and certifies nothing.",
    ),
    "simulating": (
        simulating.simulating,
        "Simulating episodes: FrozenLake-v1 with one fixed policy. Steps after the end of an episode do not count.",
    ),
    "planning": (
        planning.planning,
        "Exact planning: values and a policy at every step, equal on both sides to nine digits. The peers know the "
        "expectation only, our β = 0.",
    ),
    "kl": (
        kl.kl,
        "KL balls and plans: single balls, on which all agree to 1e-6, and whole plans as the model grows.",
    ),
    "certify": (
        certify.certify,
        "Episodes to certify: until a policy is certified with ε = 0.2 and δ = 0.1, means over seeds. No peer has this job. "
        "Theirs is the paper's rule with its machine-checked constants, in this library.",
    ),
    "limits": (
        limits.limits,
        "Episodes over limit: the KL method with known successors, ε = 0.2 and δ = 0.1, beside a proved lower bound on the "
        "mean of every algorithm on the same model, for which a minute was spent each. Here the ratio is measured over "
        "limit, and part of it is the limit's.",
    ),
    "scaling": (
        scaling.scaling,
        "Scaling: the slope of the line through the logarithms; 1 means that time grows in proportion.",
    ),
    "memory": (fresh.memory, "Memory: peak of a fresh process that builds the model and does the job."),
    "start": (fresh.start, "First result: a fresh process that imports the library and identifies a policy."),
    "compiling": (
        compiling.compiling,
        "Compiling: seconds of the processor until a first identify on the risky bridge has all that it needs, once per "
        "installation.",
    ),
    "floors": (
        floors.floors,
        "Floors: the least time that the arithmetic can take at the rates measured on this machine. Here the ratio is "
        "measured over floor.",
    ),
}


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("benchmark-results"), help="folder for the results")
    parser.add_argument("--quick", action="store_true", help="small sizes and few rounds, under three minutes")
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts, separated by commas: {', '.join(PARTS)}")
    parser.add_argument("--no-peers", action="store_true", help="install and run nobody else")
    parser.add_argument("--resume", action="store_true", help="keep the parts that are finished in --out")
    parser.add_argument("--peers-folder", type=Path, help="where the peers' environments are kept; a temporary folder")
    parser.add_argument("--docs", type=Path, help="documentation folder to update as well")
    options = parser.parse_args(arguments)
    options.only = options.only.split(",")
    if unknown := [part for part in options.only if part not in PARTS]:
        parser.error(f"unknown part {unknown[0]!r}: expected some of {', '.join(PARTS)}")
    if options.docs and (options.no_peers or set(options.only) != set(PARTS)):
        parser.error("the documentation shows whole runs: --docs goes with all parts and all peers")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parsed(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    console = Console(width=None if sys.stdout.isatty() else 200)
    about = machine.description()
    for line in about:
        console.print(line, highlight=False)
    if hasattr(os, "getloadavg") and os.getloadavg()[0] > 0.5:
        console.print("[yellow]something else is running: the times below will be disturbed[/]")
    folder = options.peers_folder or Path(tempfile.gettempdir()) / "entropic-bpi-peers"
    began, rows = time.perf_counter(), table.read_csv(options.out / "benchmarks.csv") if options.resume else []
    finished = {row.part for row in rows}
    with Peers(folder, console.print) as peers:
        bench = Bench(options.quick, None if options.no_peers else peers)
        for part in PARTS:
            if part in options.only and part not in finished:
                rows += run_part(part, bench, console)
                minutes = (
                    f"{'quick' if options.quick else 'full'} run, {(time.perf_counter() - began) / 60:.1f} minutes"
                )
                write(options.out, [*about, minutes], rows, bench)
    if options.docs:
        update_docs(options.out, options.docs)
    console.print(
        f"written to {options.out}: {', '.join(sorted(path.name for path in options.out.glob('benchmarks.*')))}"
    )


def run_part(part: str, bench: Bench, console: Console) -> list[Row]:
    """Carry out one part; a line shows the latest row while it lasts, then its table is printed."""
    rows: list[Row] = []
    began = time.perf_counter()
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(part, total=None)
        for row in PARTS[part][0](bench):
            rows.append(row)
            progress.update(task, description=f"{part}: {row.what}")
    title = PARTS[part][1].partition(": ")[0]
    console.print(table.for_terminal(f"{title} ({time.perf_counter() - began:.0f} s)", rows))
    return rows


def write(out: Path, about: list[str], rows: list[Row], bench: Bench) -> None:
    """Write everything so far, in the order of the parts, so that what is interrupted is not lost."""
    rows.sort(key=lambda row: list(PARTS).index(row.part))
    table.write_csv(rows, out / "benchmarks.csv")
    figure = "benchmarks.png" if any(row.part == scaling.PART for row in rows) else None
    if bench.curves:
        scaling.draw(bench.curves, out / figure)
    titles = {part: title for part, (_, title) in PARTS.items()}
    (out / "benchmarks.md").write_text(table.markdown(about, titles, rows, figure), encoding="utf-8")


def update_docs(out: Path, docs: Path) -> None:
    """Copy the results into the documentation: its page, its data and its picture."""
    page = docs / "benchmarks.md"
    results = (out / "benchmarks.md").read_text(encoding="utf-8").replace("(benchmarks.png)", "(images/benchmarks.png)")
    results = f"As a table for programs: [benchmarks.csv](data/benchmarks.csv).\n\n{results}"
    page.write_text(table.insert(page.read_text(encoding="utf-8"), results), encoding="utf-8")
    for name, home in (("benchmarks.csv", docs / "data"), ("benchmarks.png", docs / "images")):
        home.mkdir(exist_ok=True)
        shutil.copyfile(out / name, home / name)


if __name__ == "__main__":
    main()
