r"""The loop: plan, test, play, until the policy is certified.

.. code-block:: text

    plan   bounds and a candidate policy from the counts so far        (a method)
    test   is the certified gap at most ε? then stop                    (valid at any time: theory, anytime events)
    play   some more episodes of what the plan asks for                 (a simulator)

Testing times, batch sizes and what is played may depend on the data in any way: all confidence events hold for all sample
sizes at once. ``replan="every"`` is Algorithm 1 of the paper to the letter; with a ratio :math:`\eta` the loop plays
:math:`\lceil\eta t\rceil` episodes after the first :math:`t` before it plans again, which costs at most a factor
:math:`1+\eta` in the grid of testing times. What is *not* proved for such batches is a bound on the number of episodes:
a stale policy may revisit an under-sampled pair for a whole batch.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from entropic_bpi._checks import check_choice, check_finite, check_integer, check_path, check_seed
from entropic_bpi._files import write_atomically
from entropic_bpi._interrupts import deferred_interrupt
from entropic_bpi._progress import Progress
from entropic_bpi._text import shown
from entropic_bpi.certificate import Certificate, assumptions_of, finite_gap
from entropic_bpi.counts import Counts, Transitions
from entropic_bpi.errors import EntropicBPIError, InvalidProblemError
from entropic_bpi.mdp import FiniteMDP
from entropic_bpi.methods.bernstein import Bernstein
from entropic_bpi.methods.kl import KL
from entropic_bpi.methods.plan import Plan
from entropic_bpi.problem import Problem
from entropic_bpi.sampling.environment import Environment, Player, check_black_box, open_environment
from entropic_bpi.sampling.simulator import Simulator

__all__ = ["Identification", "identify"]

DEFAULT_REPLAN = 0.01
CHECKPOINT_SECONDS = 2.0
# Episodes that the compiled plan-test-play loop handles before it returns to Python.
EVERY_CHUNK = 2_000
# Beyond this many plans, replan="every" keeps only one in about a thousandth of the episodes so far.
FULL_HISTORY = 10_000
HISTORY_DTYPE = np.dtype([("episodes", np.int64), ("lower", float), ("upper", float), ("gap", float)])


@dataclass(frozen=True, eq=False)
class Identification:
    """The outcome of :func:`identify`.

    Attributes
    ----------
    policy : int array ``(H, S)``
        The certified policy.
    episodes : int
        Episodes played.
    stopped : bool
        Whether the gap of ε was reached (otherwise the budget was spent).
    certificate : Certificate
        The claim about ``policy`` and the counts it follows from: those at the stop or, when the budget was spent, those
        of the plan with the smallest gap.
    history : structured array ``episodes, lower, upper, gap``
        One row per plan (thinned beyond ten thousand plans with ``replan="every"``).
    seconds : float
        Time spent, over all parts of a resumed run.
    seed : int
        The seed; passing it again repeats the run.
    """

    policy: np.ndarray
    episodes: int
    stopped: bool
    certificate: Certificate
    history: np.ndarray
    seconds: float
    seed: int

    def __repr__(self) -> str:
        claim = self.certificate
        return (
            f"Identification(stopped={self.stopped}, episodes={self.episodes}, gap={claim.gap:.6g}, "
            f"lower={claim.lower:.6g}, upper={claim.upper:.6g}, seconds={self.seconds:.2f})"
        )


def identify(
    source: Any,
    *,
    beta: float,
    eps: float,
    delta: float,
    method: str = "kl",
    constants: str | None = None,
    horizon: int | None = None,
    stationary: bool | None = None,
    successors: Any = None,
    replan: str | float | None = None,
    sampling: str | None = None,
    reward_range: tuple[float, float] | None = None,
    max_episodes: int | None = None,
    seed: int | None = None,
    ties: str = "random",
    checkpoint: str | Path | None = None,
    progress: bool = False,
    num_envs: int = 1,
) -> Identification:
    r"""Learn a policy from episodes and stop with a certificate that it is ε-optimal with probability 1 - δ.

    Parameters
    ----------
    source : FiniteMDP, Gymnasium environment or environment id
        The model to simulate: the learner sees its rewards and sampled transitions, never its probabilities. Or an
        environment with finitely many observations and actions, used through ``reset`` and ``step`` alone; see
        :mod:`entropic_bpi.sampling.environment` for what is assumed of it.
    beta : float
        Risk parameter: positive is risk-seeking, negative risk-averse, 0 the expectation.
    eps, delta : float
        Accuracy, in the reward's own units, and the probability with which the claim may fail.
    method : {"kl", "bernstein"}
        ``"kl"`` certifies with orders of magnitude fewer episodes; ``"bernstein"`` is the paper's algorithm.
    constants : {"verified", "sharp"}, optional
        For ``"bernstein"``: the machine-checked constants (default), or smaller ones with a proof on paper.
    horizon : int, optional
        Number of steps, required for an environment. For a FiniteMDP, only a check: it must equal the model's.
    stationary : bool, optional
        Declare that transitions are the same at every step, so that counts are pooled. Default: False for a FiniteMDP,
        True for an environment.
    successors : None, "model" or boolean mask ``(S, A, S)``
        Which next states are possible: unknown, read from the model's support, or declared.
    replan : "every" or float, optional
        Plan and test after every episode, or after t episodes play this fraction of t more; default 0.01.
    sampling : {"challenger", "optimistic"}, optional
        What ``"kl"`` plays: alternately the optimistic policy and the challenger of the candidate (default), or the
        optimistic policy alone, as the paper's method always does.
    reward_range : (float, float), optional
        Required for an environment: a reward that was not seen yet may be anything in it.
    max_episodes : int, optional
        Stop anyway after this many episodes; the certificate then states the smallest gap that was certified.
    seed : int, optional
        Repeats a run exactly.
    ties : {"random", "lowest"}
        Between equally good actions: a preference drawn once per run and place, or the lowest index.
    checkpoint : path, optional
        Save the state there every few seconds; if the file exists the run goes on from it, to exactly the result that
        it would have had uninterrupted.
    progress : bool
        Show a progress line on stderr.
    num_envs : int
        Copies of an environment, given by its id, that are stepped together (``gymnasium.vector``) and share the episodes.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> result = eb.identify(bridge, beta=-1.0, eps=0.2, delta=0.1, successors="model", seed=1)
    >>> result.stopped, bool(result.certificate.gap <= 0.2)
    (True, True)
    >>> true_gap = eb.solve(bridge, -1.0).value - eb.evaluate(bridge, result.policy, -1.0).value
    >>> bool(true_gap <= result.certificate.gap)
    True
    """
    loop = start(
        source, beta=beta, eps=eps, delta=delta, method=method, constants=constants, horizon=horizon,
        stationary=stationary, successors=successors, replan=replan, sampling=sampling, reward_range=reward_range,
        max_episodes=max_episodes, seed=seed, ties=ties, num_envs=num_envs,
    )  # fmt: skip
    path = _check_checkpoint(checkpoint)
    store = None if path is None else _Checkpoint(path, loop, seeded=seed is not None)
    with Progress(progress, loop.problem.eps) as line, deferred_interrupt() as check_interrupt:

        def observe(plan: Plan) -> None:
            line.update(loop.counts.episodes, plan.gap)
            if store is not None:
                store.save_if_due()
            check_interrupt()

        try:
            loop.go(observe)
        finally:
            if store is not None:
                store.save()
            if isinstance(loop.source, Environment):
                loop.source.close()
    return loop.result()


def start(
    source: Any,
    *,
    beta: float,
    eps: float,
    delta: float,
    method: str = "kl",
    constants: str | None = None,
    horizon: int | None = None,
    stationary: bool | None = None,
    successors: Any = None,
    replan: str | float | None = None,
    sampling: str | None = None,
    reward_range: tuple[float, float] | None = None,
    max_episodes: int | None = None,
    seed: int | None = None,
    ties: str = "random",
    num_envs: int = 1,
) -> Loop:
    """The loop of :func:`identify`, ready to go; for those who want to watch it plan by plan."""
    method = check_choice("method", method, ("kl", "bernstein"))
    constants, sampling = _check_options(method, constants, sampling)
    ratio = _check_replan(replan)
    check_choice("ties", ties, ("random", "lowest"))
    budget = None if max_episodes is None else check_integer("max_episodes", max_episodes)
    pooled = _check_stationary(stationary, default=not isinstance(source, FiniteMDP))
    notes: tuple[str, ...] = ()
    goal: dict[str, Any] = {"beta": beta, "eps": eps, "delta": delta}
    if isinstance(source, FiniteMDP):
        _check_model(source, horizon, reward_range)
        problem = Problem.from_mdp(source, **goal, stationary=pooled, successors=successors)
        if constants == "verified":
            notes = _verified_notes(source, ratio, pooled, successors)
            if pooled or successors is not None:
                problem = Problem.from_mdp(source, **goal)
    else:
        steps, rewards = check_black_box(horizon, reward_range, successors)
        source = open_environment(source, check_integer("num_envs", num_envs))
        problem = source.problem(horizon=steps, reward_range=rewards, stationary=pooled, **goal)
    options = {"method": method, "constants": constants, "replan": ratio, "sampling": sampling, "ties": ties}
    return Loop(source, problem, options, budget, _check_seed(seed), notes)


# -- arguments -----------------------------------------------------------------------------------------------


def _check_model(source: FiniteMDP, horizon: int | None, reward_range: Any) -> None:
    if horizon is not None and check_integer("horizon", horizon) != source.horizon:
        raise InvalidProblemError(f"horizon is {horizon}, but the model's is {source.horizon}")
    if reward_range is not None:
        raise InvalidProblemError("reward_range is for environments with unknown rewards; a FiniteMDP's are known")


def _check_options(method: str, constants: str | None, sampling: str | None) -> tuple[str | None, str]:
    if method == "bernstein":
        constants = check_choice("constants", "verified" if constants is None else constants, ("verified", "sharp"))
        sampling = "optimistic" if sampling is None else sampling
        return constants, check_choice("sampling for method='bernstein'", sampling, ("optimistic",))
    if constants is not None:
        raise InvalidProblemError(f"constants={shown(constants)} belongs to method='bernstein'; method='kl' has none")
    sampling = "challenger" if sampling is None else sampling
    return None, check_choice("sampling", sampling, ("challenger", "optimistic"))


def _check_replan(replan: Any) -> float:
    """The batch ratio; 0 means after every episode."""
    if isinstance(replan, str):
        if replan == "every":
            return 0.0
        raise InvalidProblemError(f"replan must be 'every' or a positive ratio such as 0.01, got {shown(replan)}")
    ratio = DEFAULT_REPLAN if replan is None else check_finite("replan", replan)
    if not 0 < ratio <= 1:
        raise InvalidProblemError(f"replan must be 'every' or a ratio in (0, 1], got {ratio}")
    return ratio


def _check_stationary(stationary: Any, *, default: bool) -> bool:
    if stationary is None:
        return default
    if not isinstance(stationary, (bool, np.bool_)):
        raise InvalidProblemError(f"stationary must be True, False or None, got {shown(stationary)}")
    return bool(stationary)


def _check_checkpoint(checkpoint: Any) -> Path | None:
    return None if checkpoint is None else check_path("checkpoint", checkpoint)


def _check_seed(seed: int | None) -> int:
    if seed is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0] >> 1)
    return check_seed("seed", seed)


def _verified_notes(mdp: FiniteMDP, ratio: float, pooled: bool, successors: Any) -> tuple[str, ...]:
    """How this run differs from the statement that is machine-checked."""
    low, high = (0.0, 1.0) if mdp.next_state_rewards else mdp.reward_range
    ignored = [name for name, given in (("stationary", pooled), ("successors", successors is not None)) if given]
    differs = [
        ("plans and tests in batches", ratio > 0),
        ("rewards are rescaled to [0, 1]", low < 0 or high > 1),
        ("the start is random", not isinstance(mdp.start, int)),
    ]
    notes = []
    if ignored:
        notes.append(f"constants='verified' ignores {' and '.join(ignored)}")
    parts = [words for words, holds in differs if holds]
    if parts:
        notes.append(
            f"the machine-checked theorem is about the run without: {', '.join(parts)}; "
            "here the guarantee rests on the proof on paper"
        )
    return tuple(notes)


# -- the loop ------------------------------------------------------------------------------------------------


@dataclass
class Loop:
    """One run: its state, and the loop that advances it."""

    source: FiniteMDP | Environment
    problem: Problem
    options: dict[str, Any]
    budget: int | None
    seed: int
    notes: tuple[str, ...]
    round: int = 0
    seconds: float = 0.0
    history: list[np.ndarray] = field(default_factory=list)
    best: tuple[Plan, int, Transitions] | None = None

    def __post_init__(self) -> None:
        draws, ties = np.random.SeedSequence(self.seed).spawn(2)
        self.rng = np.random.Generator(np.random.PCG64(draws))
        # A positive 63-bit number; 0 stands for "lowest index".
        tie_seed = int(ties.generate_state(1, np.uint64)[0] >> 2) + 1 if self.options["ties"] == "random" else 0
        if self.options["method"] == "kl":
            self.method: KL | Bernstein = KL(self.problem, self.options["sampling"], tie_seed)
        else:
            self.method = Bernstein(self.problem, self.options["constants"], tie_seed)
        self.counts = Counts(self.problem)
        self.sampler: Simulator | Player
        if isinstance(self.source, FiniteMDP):
            self.sampler = Simulator(self.source, self.problem, self.rng)
        else:
            self.sampler = Player(self.source, self.problem, self.seed)
        self.began = time.perf_counter()

    def go(self, observe: Any) -> None:
        """Plan, test, play. ``observe`` is told of every plan; it changes nothing."""
        while True:
            plan = self.method.plan(self.counts, self.round)
            self._note(plan)
            observe(plan)
            if plan.gap <= self.problem.eps or self._left() <= 0:
                return
            self._play(plan)

    def _left(self) -> float:
        return math.inf if self.budget is None else self.budget - self.counts.episodes

    def _play(self, plan: Plan) -> None:
        """Play what the plan asks for, wholly or, when interrupted, not at all."""
        before, rng, round = self.counts.state(), self.rng.bit_generator.state, self.round
        try:
            if self.options["replan"] == 0 and isinstance(self.sampler, Simulator):
                self._play_chunk(plan, self.sampler)
            else:
                self._play_batch(plan)
        except BaseException as error:
            reached = self.counts.episodes
            self.counts.restore(before)
            self.rng.bit_generator.state, self.round = rng, round
            # The whole episodes before one that contradicts the problem are kept: play them again.
            while isinstance(error, InvalidProblemError) and self.counts.episodes < reached:
                assert isinstance(self.sampler, Simulator)
                plan, left = self.method.plan(self.counts, self.round), reached - self.counts.episodes
                self.method.play_every(plan, self.counts, self.sampler, self.round, left)
                self.round = round + self.counts.episodes - int(before["episodes"])
            raise

    def _play_batch(self, plan: Plan) -> None:
        batch = max(1, math.ceil(self.options["replan"] * self.counts.episodes))
        self.sampler.play(plan.behaviour, int(min(batch, self._left())), self.counts, self.round)
        self.round += 1

    def _play_chunk(self, plan: Plan, simulator: Simulator) -> None:
        """Plan, test and play after each episode; the same episodes whatever room the counts have left."""
        last = self.counts.episodes + int(min(EVERY_CHUNK, self._left()))
        while True:
            before = self.counts.episodes
            bounds = self.method.play_every(plan, self.counts, simulator, self.round, last - before)
            played = self.counts.episodes - before
            self.round += played
            rows = np.empty(played, dtype=HISTORY_DTYPE)
            rows["episodes"] = before + 1 + np.arange(played)
            rows["lower"], rows["upper"], rows["gap"] = bounds
            if self.counts.episodes == last or (played and rows["gap"][-1] <= self.problem.eps):
                self.history.append(_thinned(rows[:-1]))  # the last one is planned again, and noted then
                return
            self.history.append(_thinned(rows))
            plan = self.method.plan(self.counts, self.round)

    def _note(self, plan: Plan) -> None:
        self.history.append(np.array([(self.counts.episodes, plan.lower, plan.upper, plan.gap)], dtype=HISTORY_DTYPE))
        passed = plan.gap <= self.problem.eps
        if passed or (self.budget is not None and (self.best is None or _claimed(plan) < _claimed(self.best[0]))):
            self.best = (plan, self.counts.episodes, self.counts.transitions())

    def elapsed(self) -> float:
        return self.seconds + time.perf_counter() - self.began

    def result(self) -> Identification:
        assert self.best is not None
        plan, episodes, transitions = self.best
        lower, upper, gap = float(plan.lower), float(plan.upper), float(_claimed(plan))
        if isinstance(self.method, KL):
            lower, upper, gap = self.method.claim(Counts.of(self.problem, transitions, episodes), plan.policy)
        certificate = Certificate(
            policy=plan.policy[int(self.problem.artificial) :],
            episodes=episodes,
            lower=lower,
            upper=upper,
            gap=gap,
            method=self.options["method"],
            constants=self.options["constants"],
            assumptions=assumptions_of(self.problem) + self.notes,
            problem=self.problem,
            transitions=transitions,
        )
        return Identification(
            policy=certificate.policy,
            episodes=self.counts.episodes,
            stopped=bool(plan.gap <= self.problem.eps),
            certificate=certificate,
            history=np.concatenate(self.history),
            seconds=self.elapsed(),
            seed=self.seed,
        )


def _claimed(plan: Plan) -> float:
    return finite_gap(plan.lower, plan.upper, plan.gap)


def _thinned(rows: np.ndarray) -> np.ndarray:
    """Every plan at first; later those that pass another thousandth of the episodes."""
    episodes = rows["episodes"]
    late = episodes > FULL_HISTORY
    passed = np.floor(1000 * np.log(episodes)) > np.floor(1000 * np.log(np.maximum(episodes - 1, 1)))
    return rows[~late | passed]


# -- checkpoints ---------------------------------------------------------------------------------------------


class _Checkpoint:
    """Saves the state of a run between plans, and takes it up again if the file is there."""

    def __init__(self, path: Path, run: Loop, *, seeded: bool) -> None:
        if not path.parent.is_dir():
            raise InvalidProblemError(f"checkpoint: {path.parent} is not an existing folder")
        self.path, self.run, self.saved = path, run, time.monotonic()
        self.identity = self._identity()
        if path.exists():
            self._resume(seeded)

    def _identity(self) -> str:
        """What must be the same for a run to go on: the problem and the options, but not the budget."""
        problem = self.run.problem
        digest = hashlib.sha256()
        numbers = [
            problem.beta,
            problem.eps,
            problem.delta,
            problem.stationary,
            problem.successors,
            problem.source_hash,
        ]
        digest.update(json.dumps([numbers, self.run.options]).encode())
        for array in (problem.slots.begin, problem.slots.successor):
            digest.update(array.tobytes())
        return digest.hexdigest()

    def save_if_due(self) -> None:
        if time.monotonic() - self.saved >= CHECKPOINT_SECONDS:
            self.save()

    def save(self) -> None:
        run = self.run
        header = {
            "identity": self.identity,
            "seed": run.seed,
            "round": run.round,
            "seconds": run.elapsed(),
            "rng": run.rng.bit_generator.state,
            "best": None if run.best is None else [*map(float, run.best[0][1:4]), run.best[1]],
        }
        arrays = {f"counts_{name}": value for name, value in run.counts.state().items()}
        if run.best is not None:
            arrays["best_policy"] = run.best[0].policy
            arrays |= {f"best_{name}": value for name, value in run.best[2]._asdict().items()}
        history = np.concatenate(run.history) if run.history else np.empty(0, dtype=HISTORY_DTYPE)
        # The row of the plan that comes next is noted when the run goes on.
        history = history[history["episodes"] < run.counts.episodes]
        write_atomically(self.path, lambda file: np.savez(file, header=json.dumps(header), history=history, **arrays))
        self.saved = time.monotonic()

    def _resume(self, seeded: bool) -> None:
        run = self.run
        try:
            with self.path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
                arrays = dict(file)
            header = json.loads(str(arrays["header"]))
            identity, seed = header["identity"], header["seed"]
        except (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise InvalidProblemError(f"{self.path} is not a checkpoint of entropic-bpi: {error}") from None
        if identity != self.identity or (seeded and seed != run.seed):
            raise InvalidProblemError(
                f"{self.path} belongs to another run (another model, problem, option or seed): "
                "remove it or give another checkpoint"
            )
        if seed != run.seed:
            run.seed = seed
            run.__post_init__()
        run.counts.restore({name: arrays[f"counts_{name}"] for name in run.counts.state()})
        run.rng.bit_generator.state = header["rng"]
        run.round, run.seconds = header["round"], header["seconds"]
        run.history = [arrays["history"]]
        if header["best"] is not None and run.budget is not None:
            lower, upper, gap, episodes = header["best"]
            policy = arrays["best_policy"]
            transitions = Transitions(*(arrays[f"best_{name}"] for name in Transitions._fields))
            run.best = (Plan(policy, lower, upper, gap, None), int(episodes), transitions)  # type: ignore[arg-type]


def remove_checkpoint(path: str | Path) -> None:
    """Delete a checkpoint that is no longer needed."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise EntropicBPIError(f"cannot remove {path}: {error}") from None
