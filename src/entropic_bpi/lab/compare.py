r"""Compare the regret of learners over seeds.

The runs are carried out by the engine of the sweeps (``entropic_bpi.lab.experiments.engine``). The seed of every run is
fixed in advance, so results do not depend on the number of processes. Kernels are compiled before a run is timed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import NoReturn

from entropic_bpi.errors import EntropicBPIError
from entropic_bpi.lab.experiments.engine import new_engine
from entropic_bpi.lab.experiments.spec import RunSpec
from entropic_bpi.lab.experiments.statistics import confidence
from entropic_bpi.lab.experiments.workers import import_modules
from entropic_bpi.lab.learners import Run, names, run
from entropic_bpi.model.mdp import FiniteMDP, check_model
from entropic_bpi.tools.checks import check_choice, check_integer, check_list, check_memory, processors

__all__ = ["compare_regret", "confidence", "playable"]

# Learners with tables of e^{βV}, whose algorithm has no limit at β = 0.
_NOT_AT_ZERO = ("entropic_bpi", "ucb_advantage")


def compare_regret(
    mdp: FiniteMDP,
    learners: Sequence[str],
    *,
    beta: float,
    episodes: int,
    seeds: int,
    delta: float = 0.1,
    scale: float = 1.0,
    workers: int | None = None,
    imports: Sequence[str] = (),
    progress: bool | None = None,
) -> dict[str, list[Run]]:
    """Run every learner with the seeds 0, …, ``seeds`` - 1 and compute the exact regret of each run.

    Parameters
    ----------
    mdp : FiniteMDP
        The true model, which the learners sample.
    learners : list of str
        Names from :func:`entropic_bpi.lab.learners.names`.
    beta : float
        Risk parameter; positive is risk-seeking.
    episodes : int
        Length of each run.
    seeds : int
        Number of runs of each learner.
    delta, scale : float
        As in :func:`entropic_bpi.run`.
    workers : int, optional
        Number of processes, by default one per core; 1 computes in this process.
    imports : list of str
        Modules to import first, here and in every process, such as those that register your own learners.
    progress : bool, optional
        Show progress on stderr; by default if that is a terminal.

    Returns
    -------
    dict of list of Run
        The runs of each learner, by seed.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge()
    >>> runs = compare_regret(bridge, ["rsvi2", "rovi"], beta=1.0, episodes=100, seeds=2, workers=1)
    >>> [len(runs[name]) for name in runs]
    [2, 2]
    """
    check_model(mdp)
    import_modules(imports)  # they may register the learners that are asked for
    chosen = list(dict.fromkeys(check_choice("learner", name, names()) for name in check_list("learners", learners)))
    check_memory(f"{check_integer('seeds', seeds)} runs of every learner", 10 * seeds)
    # One seed of every learner comes first, so that a learner that refuses the problem does so at once.
    tasks = [(learner, seed) for seed in range(seeds) for learner in chosen]
    settings = {"episodes": check_integer("episodes", episodes), "delta": delta, "scale": scale}
    specs = [RunSpec("model", {}, "learner", name, beta, settings, seed, mdp) for name, seed in tasks]
    workers = min(processors() if workers is None else check_integer("workers", workers), len(tasks))
    workers = workers if workers > 1 else 0
    engine = new_engine(_regret, _failed, workers=workers, imports=imports, progress=progress)
    results = {}
    with closing(engine(specs, 0)) as finished:
        for spec, result in finished:
            results[spec.algorithm, spec.seed] = result
    return {learner: [results[learner, seed] for seed in range(seeds)] for learner in chosen}


def playable(beta: float) -> list[str]:
    """Return the names of the learners that are defined at ``beta``.

    Parameters
    ----------
    beta : float
        Risk parameter.

    Returns
    -------
    list of str
        Their names.

    Examples
    --------
    >>> set(playable(1.0)) - set(playable(0.0)) == {"entropic_bpi", "ucb_advantage"}
    True
    """
    return [name for name in names() if beta != 0 or name not in _NOT_AT_ZERO]


def _failed(reason: str) -> NoReturn:
    raise EntropicBPIError(f"{reason}; was there enough memory?")


def _regret(spec: RunSpec) -> Run:
    """Carry out a run; called in a worker."""
    play = partial(run, spec.algorithm, spec.mdp, beta=spec.beta, seed=spec.seed)
    play(**{**spec.options, "episodes": 1})  # compiles
    return play(**spec.options)
