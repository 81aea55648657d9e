r"""Compare learners: their regret over seeds, or the episodes that they need until a certificate.

The runs are carried out by the engine of the sweeps (``entropic_bpi.lab.experiments.engine``). The seed of every run is
fixed in advance, so results do not depend on the number of processes. Kernels are compiled before a run is timed.

Both functions take the same options:

- ``delta``, ``scale``: as in :func:`entropic_bpi.run`, by default 0.1 and 1;
- ``workers``: number of processes, by default one per core; 1 computes in this process;
- ``imports``: modules to import first, here and in every process, such as those that register your own learners;
- ``progress``: whether to show progress on stderr, by default if that is a terminal;
- ``done``: function that is called with the learner's name after each run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from entropic_bpi import methods
from entropic_bpi.errors import EntropicBPIError
from entropic_bpi.lab.experiments.engine import new_engine
from entropic_bpi.lab.experiments.spec import RunSpec
from entropic_bpi.lab.experiments.statistics import confidence
from entropic_bpi.lab.experiments.workers import import_modules
from entropic_bpi.lab.learners import Run, Stop, names, run, run_until
from entropic_bpi.lab.learners.stopping import STOPPABLE
from entropic_bpi.model.mdp import FiniteMDP, check_model
from entropic_bpi.tools.checks import check_choice, check_finite, check_integer, check_list, check_memory, processors

__all__ = [
    "CERTIFYING",
    "compare_regret",
    "compare_stopping",
    "confidence",
    "playable",
    "stoppable",
]

CERTIFYING = {f"identify_{name}": name for name in methods.names()}
"""The entries of :func:`compare_stopping` that call ``identify``, and the method of each."""

# Learners whose tables hold e^{βV} itself, which has no limit at β = 0.
_NOT_AT_ZERO = ("entropic_bpi", "ucb_advantage")


def compare_regret(
    mdp: FiniteMDP, learners: Sequence[str], *, beta: float, episodes: int, seeds: int, **options: Any
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
    **options
        ``delta``, ``scale``, ``workers``, ``imports``, ``progress``, ``done``: see the module.

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
    comparison = _Comparison(_regret, mdp, beta, {"episodes": check_integer("episodes", episodes)}, **options)
    return comparison.over_seeds(_check_learners(learners), seeds)


def compare_stopping(
    mdp: FiniteMDP,
    learners: Sequence[str],
    *,
    beta: float,
    eps: float,
    max_episodes: int,
    seeds: int,
    **options: Any,
) -> dict[str, list[Stop]]:
    """Run every learner with every seed until a certificate of ``eps`` or until ``max_episodes``.

    Parameters
    ----------
    mdp, beta, seeds, **options
        As in :func:`compare_regret`.
    learners : list of str
        Names of :func:`stoppable`, and ``identify_kl`` and ``identify_bernstein``, which call ``identify`` without any
        declaration and ignore ``scale``. The latter has the verified constants, or the sharp ones at β = 0.
    eps : float
        Accuracy, in the units of the reward.
    max_episodes : int
        Largest number of episodes of a run.

    Returns
    -------
    dict of list of Stop
        The runs of each learner, by seed.

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
    settings = {"eps": eps, "max_episodes": check_integer("max_episodes", max_episodes)}
    comparison = _Comparison(_stop, mdp, beta, settings, **options)
    able = (*stoppable(check_finite("beta", beta)), *CERTIFYING)
    return comparison.over_seeds(
        [check_choice("learner", name, able) for name in check_list("learners", learners)], seeds
    )


def playable(beta: float) -> list[str]:
    """Return the names of the learners that are defined at ``beta``.

    Parameters
    ----------
    beta : float
        Risk parameter.

    Returns
    -------
    list of str

    Examples
    --------
    >>> set(playable(1.0)) - set(playable(0.0)) == {"entropic_bpi", "ucb_advantage"}
    True
    """
    return [name for name in names() if beta != 0 or name not in _NOT_AT_ZERO]


def stoppable(beta: float) -> list[str]:
    """Return the names of the learners that have a stopping rule at ``beta``.

    Parameters
    ----------
    beta : float
        Risk parameter. BPI-UCBVI has a stopping rule for the expectation only.

    Returns
    -------
    list of str

    Examples
    --------
    >>> stoppable(1.0)
    ['rsvi', 'rsvi2', 'rodi_otp', 'rodi_pto', 'rovi']
    """
    return [name for name in STOPPABLE if name != "bpi_ucbvi" or beta == 0]


def _check_learners(learners: Any) -> list[str]:
    return [check_choice("learner", learner, names()) for learner in check_list("learners", learners)]


@dataclass(frozen=True, eq=False)
class _Comparison:
    """What all runs share; the options are those of the module's docstring."""

    play: Callable[[RunSpec], Any]
    mdp: FiniteMDP
    beta: float
    settings: dict[str, Any]
    delta: float = 0.1
    scale: float = 1.0
    workers: int | None = None
    imports: Sequence[str] = ()
    progress: bool | None = None
    done: Callable[[str], object] | None = None

    def __post_init__(self) -> None:
        check_model(self.mdp)
        import_modules(self.imports)  # they may register the learners that are asked for

    def over_seeds(self, learners: Sequence[str], seeds: int) -> dict[str, list[Any]]:
        check_memory(f"{check_integer('seeds', seeds)} runs of every learner", 10 * seeds)
        learners = list(dict.fromkeys(learners))
        # One seed of every learner comes first, so that a learner that refuses the problem does so at once.
        tasks = [(learner, seed) for seed in range(seeds) for learner in learners]
        options = {**self.settings, "delta": self.delta, "scale": self.scale}
        specs = [RunSpec("model", {}, "learner", name, self.beta, options, seed, self.mdp) for name, seed in tasks]
        workers = min(processors() if self.workers is None else check_integer("workers", self.workers), len(tasks))
        workers = workers if workers > 1 else 0
        engine = new_engine(self.play, _failed, workers=workers, imports=self.imports, progress=self.progress)
        results = {}
        with closing(engine(specs, 0)) as finished:
            for spec, result in finished:
                results[spec.algorithm, spec.seed] = result
                if self.done is not None:
                    self.done(spec.algorithm)
        return {learner: [results[learner, seed] for seed in range(seeds)] for learner in learners}


def _failed(reason: str) -> NoReturn:
    raise EntropicBPIError(f"{reason}; was there enough memory?")


# -- runs, carried out in the workers --------------------------------------------------------------------------------


def _regret(spec: RunSpec) -> Run:
    play = partial(run, spec.algorithm, spec.mdp, beta=spec.beta, seed=spec.seed)
    play(**{**spec.options, "episodes": 1})  # compiles
    return play(**spec.options)


def _stop(spec: RunSpec) -> Stop:
    settings = {**spec.options, "beta": spec.beta, "seed": spec.seed}
    play: Callable[..., Stop] = partial(run_until, spec.algorithm, spec.mdp)
    if spec.algorithm in CERTIFYING:
        settings.pop("scale")
        play = partial(_identify, spec)
    play(**{**settings, "max_episodes": 1})  # compiles
    return play(**settings)


def _identify(spec: RunSpec, **settings: Any) -> Stop:
    from entropic_bpi.runs.identification import identify

    method = CERTIFYING[spec.algorithm]
    if method == "bernstein" and spec.beta == 0:  # which the verified constants exclude
        settings["constants"] = "sharp"
    found = identify(spec.mdp, method=method, **settings)
    claim = found.certificate
    return Stop(
        learner=spec.algorithm,
        seed=spec.seed,
        episodes=found.episodes,
        stopped=found.stopped,
        policy=found.policy,
        lower=claim.lower,
        upper=claim.upper,
        gap=claim.gap,
        seconds=found.seconds,
    )
