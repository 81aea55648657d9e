r"""Learners side by side: regret over seeds, or episodes until a certificate.

Every run is one task of a pool of processes; its seed is fixed in advance, so results do not depend on the number of
workers. Kernels are compiled before a run is timed. The number of seeds is yours to choose, or found on the way by
:func:`compare_sequentially`, which stops when the learners can be told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import Any, NoReturn, TypeVar

import numpy as np

from entropic_bpi import methods
from entropic_bpi.errors import EntropicBPIError
from entropic_bpi.lab.learners import Run, Stop, names, run, run_until
from entropic_bpi.lab.learners.stopping import STOPPABLE
from entropic_bpi.lab.sequential import SequentialTest, Verdict
from entropic_bpi.model.mdp import FiniteMDP, check_model
from entropic_bpi.runs.identification import start
from entropic_bpi.runs.settings import Settings
from entropic_bpi.tools.checks import check_choice, check_finite, check_integer, check_list, check_memory
from entropic_bpi.tools.workers import after_importing, compute, import_modules, processors

__all__ = [
    "CERTIFYING",
    "SequentialTest",
    "Verdict",
    "compare_regret",
    "compare_sequentially",
    "compare_stopping",
    "confidence",
    "playable",
    "stoppable",
]

CERTIFYING = {f"identify_{name}": name for name in methods.names()}
"""Our own entries in :func:`compare_stopping`, and the method of ``identify`` behind each."""

# Learners whose tables hold e^{βV} itself, which has no limit at β = 0.
_NOT_AT_ZERO = ("entropic_bpi", "ucb_advantage")

_R = TypeVar("_R")
_Task = tuple[str, int]  # a learner and a seed
_Done = Callable[[str], object]


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
    done: _Done | None = None,
) -> dict[str, list[Run]]:
    """Play every learner with the seeds 0, …, ``seeds`` - 1 and keep the exact regret of each run.

    Parameters
    ----------
    mdp, beta, episodes, delta, scale
        As in :func:`entropic_bpi.run`; positive ``beta`` is risk-seeking.
    learners
        Names from :func:`entropic_bpi.lab.learners.names`.
    workers
        Processes, by default one per core; 1 stays in this process.
    imports
        Modules that are imported first, here and by every worker: those that register learners of your own.
    done
        Called with the learner's name after each run.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge()
    >>> runs = compare_regret(bridge, ["rsvi2", "rovi"], beta=1.0, episodes=100, seeds=2, workers=1)
    >>> [len(runs[name]) for name in runs]
    [2, 2]
    """
    play = _regret_of(mdp, imports, episodes, {"beta": beta, "delta": delta, "scale": scale})
    return _over_seeds(play, _check_learners(learners), seeds, workers, done)


def compare_sequentially(
    mdp: FiniteMDP,
    learners: Sequence[str],
    *,
    beta: float,
    episodes: int,
    seeds: int = 30,
    batch: int = 6,
    level: float = 0.05,
    delta: float = 0.1,
    scale: float = 1.0,
    workers: int | None = None,
    imports: Sequence[str] = (),
    done: _Done | None = None,
) -> tuple[dict[str, list[Run]], list[Verdict]]:
    """Play learners until their regret tells them apart, and return the runs and what is known about each pair.

    All play ``batch`` runs, then those of pairs that are not told apart another batch, up to ``seeds`` runs of each. With
    probability at least 1 - ``level``, no two learners are told apart whose regret has the same law
    (:class:`SequentialTest`). No two runs share a seed: run r of learner i of n has the seed i + n r.

    Parameters
    ----------
    mdp, learners, beta, episodes, delta, scale, workers, imports, done
        As in :func:`compare_regret`.
    seeds, batch, level
        Largest number of runs of a learner; runs between two tests; probability of any wrong difference.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge()
    >>> runs, verdicts = compare_sequentially(
    ...     bridge, ["rsvi2", "rovi"], beta=1.0, episodes=2000, scale=0.1, workers=1
    ... )
    >>> [(verdict.lower, verdict.runs) for verdict in verdicts], len(runs["rovi"])
    ([('rovi', 6)], 6)
    """
    play = _regret_of(mdp, imports, episodes, {"beta": beta, "delta": delta, "scale": scale})
    batches = check_integer("seeds", seeds) // check_integer("batch", batch)
    test = SequentialTest(_check_learners(learners), level=level, batch=batch, batches=batches)
    runs: dict[str, list[Run]] = {name: [] for name in test.names}
    while test.wanted:
        seeds_of = {
            name: [test.names.index(name) + len(test.names) * (len(runs[name]) + i) for i in range(batch)]
            for name in test.wanted
        }
        tasks = [(name, mine[i]) for i in range(batch) for name, mine in seeds_of.items()]
        results = _carry_out(play, tasks, workers, done)
        for name, mine in seeds_of.items():
            runs[name] += [results[name, seed] for seed in mine]
        test.add({name: [run.regret[-1] for run in runs[name][-batch:]] for name in test.wanted})
    return runs, test.verdicts


def compare_stopping(
    mdp: FiniteMDP,
    learners: Sequence[str],
    *,
    beta: float,
    eps: float,
    max_episodes: int,
    seeds: int,
    delta: float = 0.1,
    scale: float = 1.0,
    workers: int | None = None,
    imports: Sequence[str] = (),
    done: _Done | None = None,
) -> dict[str, list[Stop]]:
    """Play until a certificate of ``eps`` or ``max_episodes``, for every learner and seed.

    ``learners`` may name those with a stopping rule (:func:`stoppable`) and our own, ``identify_kl`` and
    ``identify_bernstein``, which assume nothing about the transitions and take no ``scale``. The latter has verified
    constants, or sharp ones at β = 0, which the verified exclude. The other arguments are those of
    :func:`compare_regret` and :func:`entropic_bpi.lab.learners.run_until`.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> mdp = eb.instances.garnet(3, 2, 2, horizon=3, seed=0)
    >>> found = compare_stopping(
    ...     mdp, ["rovi", "identify_kl"], beta=-0.5, eps=0.5, max_episodes=10**5, seeds=1, workers=1
    ... )
    >>> found["identify_kl"][0].episodes < found["rovi"][0].episodes
    True
    """
    import_modules(imports)
    able = (*stoppable(check_finite("beta", beta)), *CERTIFYING)
    learners = [check_choice("learner", learner, able) for learner in check_list("learners", learners)]
    settings = {"beta": beta, "eps": eps, "delta": delta}
    play = partial(_stopping_task, check_model(mdp), check_integer("max_episodes", max_episodes), settings, scale)
    return _over_seeds(after_importing(imports, play), learners, seeds, workers, done)


def playable(beta: float) -> list[str]:
    """The learners that are defined at this ``beta``."""
    return [name for name in names() if beta != 0 or name not in _NOT_AT_ZERO]


def stoppable(beta: float) -> list[str]:
    """The learners that have a stopping rule at this ``beta``; BPI-UCBVI's is for the expectation."""
    return [name for name in STOPPABLE if name != "bpi_ucbvi" or beta == 0]


def confidence(samples: Any, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Mean over the first axis and half the width of Student's t interval for it; NaN when there is one sample.

    Examples
    --------
    >>> mean, half = confidence([1.0, 2.0, 3.0])
    >>> float(mean), round(float(half), 4)
    (2.0, 2.4841)
    """
    from scipy.stats import t

    values = np.asarray(samples, dtype=float)
    n, mean = len(values), values.mean(axis=0)
    if n < 2:
        return mean, np.full_like(mean, np.nan)
    return mean, t.ppf((1 + level) / 2, n - 1) * values.std(axis=0, ddof=1) / np.sqrt(n)


# -- tasks, run in the workers -------------------------------------------------------------------------------


def _check_learners(learners: Any) -> list[str]:
    return [check_choice("learner", learner, names()) for learner in check_list("learners", learners)]


def _regret_of(mdp: Any, imports: Sequence[str], episodes: int, settings: dict[str, Any]) -> Callable[[_Task], Run]:
    import_modules(imports)
    play = partial(_regret_task, check_model(mdp), check_integer("episodes", episodes), settings)
    return after_importing(imports, play)


def _regret_task(mdp: FiniteMDP, episodes: int, settings: dict[str, Any], task: _Task) -> Run:
    learner, seed = task
    run(learner, mdp, episodes=1, seed=seed, **settings)  # compiles
    return run(learner, mdp, episodes=episodes, seed=seed, **settings)


def _stopping_task(mdp: FiniteMDP, max_episodes: int, settings: dict[str, Any], scale: float, task: _Task) -> Stop:
    import entropic_bpi as eb

    learner, seed = task
    play: Callable[..., Any]
    if learner in CERTIFYING:
        play = partial(eb.identify, mdp, seed=seed, **_accepted(mdp, CERTIFYING[learner], settings), **settings)
    else:
        play = partial(run_until, learner, mdp, scale=scale, seed=seed, **settings)
    play(max_episodes=1)  # compiles
    outcome = play(max_episodes=max_episodes)
    if isinstance(outcome, Stop):
        return outcome
    certificate = outcome.certificate
    return Stop(
        learner=learner,
        seed=seed,
        episodes=outcome.episodes,
        stopped=outcome.stopped,
        policy=outcome.policy,
        lower=certificate.lower,
        upper=certificate.upper,
        gap=certificate.gap,
        seconds=outcome.seconds,
    )


def _accepted(mdp: FiniteMDP, method: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The method with the first of its constants that the problem allows: the verified ones exclude β = 0."""
    choices = [{"method": method, "constants": name} for name in methods.find(method).options.get("constants", (None,))]
    for choice in choices[:-1]:
        try:
            start(mdp, Settings.of(**settings, **choice))
        except EntropicBPIError:
            continue
        return choice
    return choices[-1]


def _over_seeds(
    play: Callable[[_Task], _R], learners: Sequence[str], seeds: int, workers: int | None, done: _Done | None
) -> dict[str, list[_R]]:
    check_memory(f"{check_integer('seeds', seeds)} runs of every learner", 10 * seeds)
    # One seed of every learner comes first, so that a learner that refuses the problem does so at once.
    tasks = [(learner, seed) for seed in range(seeds) for learner in dict.fromkeys(learners)]
    results = _carry_out(play, tasks, workers, done)
    return {learner: [results[learner, seed] for seed in range(seeds)] for learner in dict.fromkeys(learners)}


def _carry_out(
    play: Callable[[_Task], _R], tasks: Sequence[_Task], workers: int | None, done: _Done | None
) -> dict[_Task, _R]:
    workers = min(processors() if workers is None else check_integer("workers", workers), len(tasks))
    results: dict[_Task, _R] = {}
    with closing(compute(play, tasks, workers if workers > 1 else 0, died=_died)) as finished:
        for task, result in finished:
            results[task] = result
            if done is not None:
                done(task[0])
    return results


def _died(exit_code: int) -> NoReturn:
    raise EntropicBPIError(
        f"two worker processes died at the same run (exit code {exit_code}); was there enough memory?"
    )
