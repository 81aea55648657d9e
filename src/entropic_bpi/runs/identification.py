r"""The loop: plan, test, play, until the policy is certified.

.. code-block:: text

    plan   bounds and a candidate policy from the counts so far        (a method)
    test   is the certified gap at most ε? then stop                    (valid at any time: theory, anytime events)
    play   some more episodes of what the plan asks for                 (a simulator)

Testing times, batch sizes and what is played may depend on the data in any way: all confidence events hold for all sample
sizes at once. ``replan="every"`` is Algorithm 1 of the paper to the letter; with a ratio :math:`\eta` the loop plays
:math:`\lceil\eta t\rceil` episodes after the first :math:`t` before it plans again, which costs at most a factor
:math:`1+\eta` in the grid of testing times. By default :math:`\eta` is 1 %, and more for large models and where a plan
takes longer than the episodes that it decides. What is *not* proved for such batches is a bound on the number of episodes:
a stale policy may revisit an under-sampled pair for a whole batch.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from entropic_bpi import methods
from entropic_bpi.certificate.provenance import LogSummary, Provenance
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.discounting import horizon_for, repeated, tail_of
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.risk import Risk
from entropic_bpi.runs.checkpoint import Checkpoint
from entropic_bpi.runs.loop import Identification, Loop
from entropic_bpi.runs.preregistration import check_preregistered
from entropic_bpi.runs.preregistration import preregister as preregister_run
from entropic_bpi.runs.progress import RunProgress
from entropic_bpi.runs.settings import EVERY, Settings, refuse_renamed
from entropic_bpi.runs.state import RunState
from entropic_bpi.sources.environment import Environment, check_black_box, open_environment
from entropic_bpi.sources.log import Log
from entropic_bpi.sources.logs.lines import Projection
from entropic_bpi.tools.checks import check_path
from entropic_bpi.tools.facts import facts_of, problem_facts
from entropic_bpi.tools.interrupts import deferred_interrupt
from entropic_bpi.tools.text import shown
from entropic_bpi.types import Plan

CHECKPOINT_SECONDS = 2.0


def identify(
    source: Any,
    *,
    beta: float | None = None,
    risk: Risk | None = None,
    eps: float | None = None,
    delta: float | None = None,
    method: str = "kl",
    constants: str | None = None,
    horizon: int | None = None,
    start: Any = None,
    stationary: bool | None = None,
    successors: Any = None,
    max_successors: int | None = None,
    replan: str | float | None = None,
    sampling: str | None = None,
    reward_range: tuple[float, float] | None = None,
    reward_law: str | None = None,
    return_range: tuple[float, float] | None = None,
    noise: Any = None,
    discount: float | None = None,
    data: Log | None = None,
    max_episodes: int | None = None,
    max_seconds: float | None = None,
    seed: int | None = None,
    ties: str = "random",
    checkpoint: str | Path | None = None,
    accept_errors: bool = False,
    preregister: str | Path | None = None,
    progress: bool = False,
    num_envs: int = 1,
    max_states: int | None = None,
    reward: Any = None,
    allowed: Any = None,
    state_names: Sequence[str] | None = None,
    action_names: Sequence[str] | None = None,
    unit: str | None = None,
    title: str | None = None,
    device: str = "cpu",
    **renamed: Any,
) -> Identification:
    r"""Learn a policy from episodes and stop with a certificate that it is ε-optimal with probability 1 - δ.

    Parameters
    ----------
    source : FiniteMDP, Gymnasium environment, vector environment, environment id, class, factory or problem file
        The model to simulate: the learner sees its rewards and sampled transitions, never its probabilities. Or an
        environment with finitely many observations and actions, used through ``reset`` and ``step`` alone; see
        :mod:`entropic_bpi.sources.environment` for what is assumed of it. Spaces may be any of
        :mod:`entropic_bpi.sources.spaces`. Or a problem file (``"problem.toml"``, or what
        :meth:`entropic_bpi.Declarations.load` returns): the source that it names, with its risk and its declarations, all
        of which must be confirmed. Arguments that are given here are used instead of those of the file.
    beta : float
        Risk parameter: positive is risk-seeking, negative risk-averse, 0 the expectation.
    risk : Entropic or EVaR, instead of ``beta``
        Find the policy with the largest entropic value at risk of a level: ``EVaR(0.05)`` is a lower bound on the mean of
        the worst 5 % of the returns (CVaR) and not that mean; a policy with the largest EVaR need not have the largest CVaR.
        Needs ``method="kl"``. See :mod:`entropic_bpi.methods.kl.evar`.
    eps, delta : float
        Accuracy, in the reward's own units, and the probability with which the claim may fail. Required, here or in the
        problem file.
    method : {"kl", "bernstein"}
        ``"kl"`` certifies with orders of magnitude fewer episodes; ``"bernstein"`` is the paper's algorithm.
    constants : {"verified", "sharp", "printed"}, optional
        For ``"bernstein"``: the machine-checked constants (default), smaller ones with a proof on paper, or those that the
        paper prints, which are refused where nobody has proved them (more than 12 steps and S > 16H/(H - 12) states).
    horizon : int, optional
        Number of steps, required for an environment. For a FiniteMDP, only a check: it must equal the model's.
    start : state, list of states or "fixed", optional
        Declare where episodes start: in one state, in one of a list, or always where the first episode does (``"fixed"``).
        States are elements of the environment's observation space; one that is a list itself is given in a list. Without
        it the distribution of the first state is learned, which may take most of the episodes. An episode that starts
        elsewhere ends the run with an error. For a FiniteMDP, states are numbers or names, and the declaration must be
        true of the model; it helps if the model's start is random.
    stationary : bool, optional
        Declare that transitions are the same at every step, so that counts are pooled. Default: False for a FiniteMDP,
        True for an environment. There it is tested while playing, and so is that transitions do not depend on the
        previous state and that nothing changes over the episodes (:mod:`entropic_bpi.runs.verdicts`); an error ends
        the run if what is seen speaks against it.
    successors : None, "model", boolean mask, dict or function
        Which next states are possible: unknown, read from the model's support, or declared. For a model a mask
        ``(S, A, S)``. For an environment a mask ``(S, A, S + 1)`` whose last column is the end of the episode, a dict
        ``{(state, action): [next state, …]}``, or a function ``(state, action)`` that returns the next states: elements of
        the environment's spaces, and :data:`entropic_bpi.END` for the end. A next state that may come with several rewards
        is listed once for each of them: ``[END, END, END]`` if an episode can be won, drawn or lost. Any other next state
        ends the run with an error.
    max_successors : int, optional
        Declare that every state and action has at most so many outcomes, without saying which; 1 for a deterministic model
        or environment. In an environment with fixed rewards the reward is part of the outcome: an end with another reward
        is another outcome. The declaration is not about the first state, which may still be random. One outcome more ends
        the run with an error.
    replan : "every" or float, optional
        ``"every"``: plan and test after every episode. A number: after t episodes, play this fraction of t more before the
        next plan. Default: 0.01, and more if a plan takes long: a rule from the numbers of states, actions and steps and
        from the gap, without a clock.
        For a large model, after each doubling until there were as many episodes as rows, then after 30 % more, and less as
        the gap comes near ε; the smaller the model, the smaller the fraction. For an environment, as many episodes as take
        about the time of a plan (but at most t). For a slow environment, give 0.01.
    sampling : {"challenger", "optimistic"}, optional
        What ``"kl"`` plays: alternately the optimistic policy and the challenger of the candidate (default), or the
        optimistic policy alone, as the paper's method always does.
    reward_range : (float, float), optional
        Required for an environment: a reward that was not seen yet may be anything in it.
    reward_law : {"fixed", "random", "random-pair"}, optional
        What the reward of an environment is, given state, action and next state: a number (``"fixed"``; values that differ
        by at most 1e-9 of the range are one, up to rounding), or random and independent from visit to visit
        (``"random"``); ``"random-pair"`` declares that its law does not depend on the next state either. Random rewards
        need ``method="kl"`` and half of δ, and their certificate is for this β alone; that of ``risk=EVaR`` is for any
        level, with bounds at λ that are declared before the first episode.
    return_range : (float, float), optional
        Declare, for an environment, that the return of every episode lies in this range, whatever is played: often much
        narrower than what the rewards allow. An episode outside ends the run with an error; at least one episode is played.
    noise : Noise or "model", optional
        Declare the mechanics: the outcome is a known function of state, action and a random label with one unknown law for
        many state-action pairs (:class:`entropic_bpi.Noise`), whose visits are then counted together. ``"model"``: the
        mechanics of a model that was made by :meth:`entropic_bpi.FiniteMDP.from_noise`, without its probabilities. An
        outcome that no label explains ends the run with an error. Needs ``method="kl"``.
    discount : float, optional
        γ between 0 and 1: the return is discounted by γ a step and never ends, and so is the claim: what comes after the
        horizon is part of the bounds (:mod:`entropic_bpi.model.discounting`). Unless given, the horizon is the smallest
        one that leaves at most ε/10 to either side; a FiniteMDP's own is ignored, its transitions and rewards must be the
        same at every step, and ``stationary`` defaults to True. Needs ``method="kl"``.
    data : Log, optional
        Start from this log of the same environment, whose states and actions are labelled by observations and actions, and
        play on. Its episodes count as played; steps beyond the horizon are not used. Which states exist must be declared,
        by ``max_states`` or when the log is read. Needs ``method="kl"``, whose certificate holds whoever made the
        decisions.
    max_episodes : int, optional
        Stop after this many episodes also if ε is not reached; the certificate then states the smallest gap that was
        certified.
    max_seconds : float, optional
        Stop after about so much time of this call, compiling not included, also if ε is not reached. How long the last
        episodes, their plan and the claim take is estimated from earlier ones, so a run may take slightly longer. It takes
        at least one plan and the claim. A run that is resumed from a checkpoint has the whole time again.
    seed : int, optional
        The same seed repeats a run exactly.
    ties : {"random", "lowest"}
        Between equally good actions: a preference drawn once per run, step and state, or the lowest index.
    checkpoint : path, optional
        Save the state there every few seconds; if the file exists the run goes on from it, to exactly the result that
        it would have had uninterrupted. The file of a run with other arguments, another model or environment is refused;
        only ``max_episodes`` may change.
    accept_errors : bool
        Resume a run that ended because the environment's ``reset`` or ``step`` raised an error. The episodes in progress
        are lost. If such errors are more likely in bad episodes than in good ones, the other episodes are a biased sample:
        the certificate counts the errors and states the assumption that they are not.
    preregister : path, optional
        Write a commitment to this run there before its first episode: all settings, a digest of the seed, the time. The
        certificate carries the file's SHA-256. An existing file is refused, unless the run goes on from a checkpoint
        and began with it. See :mod:`entropic_bpi.runs.preregistration`.
    progress : bool
        Show a progress line on stderr. Ctrl-C raises KeyboardInterrupt after the plan in progress; its attribute ``result``
        is the Identification with what is certified so far.
    num_envs : int
        Copies of an environment, given by its id, class or factory, that are stepped together (``gymnasium.vector``) and
        share the episodes.
    max_states : int, optional
        Upper bound on the number of distinct observations of an environment, whatever its observation space: arrays,
        strings, tuples, dicts or anything with a ``repr`` of its own. They are numbered as they are first seen, and one
        more is an error. Only this bound enters the certificate, so a tight one helps.
    reward : function, table or array, optional
        Declare the rewards of an environment: a function ``(state, action, next_state)``, a dict
        ``{(state, action): reward}`` or ``{(state, action, next_state): reward}``, or an array ``(S, A)`` or ``(S, A, S)``.
        The next state is the observation that ``step`` returned, also when the episode terminates. Rewards are then not
        learned, ``reward_range`` is not needed, and an observed reward that differs is an error.
    allowed : bool array, function or "info", optional
        The actions that may be played, ``(S, A)`` or ``(H, S, A)``, or a function ``state -> actions``; the masks of a
        FiniteMDP are known. ``"info"``: the environment's ``info["action_mask"]``, which must come with every observation
        and be the same at every visit of a state; where it was not seen yet, every action counts as allowed. No policy with
        forbidden actions is played or compared with.
    state_names, action_names : sequence of str, optional
        Names for tables, plots, reports and files, in the order of the states and of the actions; the end of an episode has
        none. A policy still takes observations. The proof of the claim does not depend on names. Default: those of a
        FiniteMDP, or the observations and actions themselves.
    unit, title : str, optional
        The unit of the rewards, such as ``"€"``, and a title, for tables and reports. Default: those of a FiniteMDP.
    device : {"cpu", "gpu"}
        Where ``"kl"`` makes its plans: ``"gpu"`` is for models of thousands of states and more whose successors are
        declared, at most 32 of each state and action. It needs an NVIDIA GPU and the extra ``gpu``.
    **renamed
        Former names of arguments; the error names the new ones.

    Returns
    -------
    Identification
        The policy, its certificate and the history of the run.

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

    The entropic value at risk instead of a β:

    >>> result = eb.identify(bridge, risk=eb.EVaR(0.1), eps=0.2, delta=0.1, successors="model", seed=1)
    >>> print(result.certificate.statement)  # doctest: +ELLIPSIS
    With probability at least 90 %: The policy has an EVaR of at least ..., and no policy has an EVaR above ...

    An environment that is deterministic is known after one visit of each state and action, except for its first state,
    which may be random. All that is declared is printed with the assumptions:

    >>> import gymnasium
    >>> lake = gymnasium.make("FrozenLake-v1", is_slippery=False)
    >>> declared = {"reward_range": (0, 1), "return_range": (0, 1), "max_successors": 1}
    >>> result = eb.identify(lake, horizon=8, beta=-1.0, eps=0.2, delta=0.1, seed=1, **declared)
    >>> result.stopped, result.episodes < 500
    (True, True)
    >>> print(*result.certificate.assumptions[3:5], sep="\n")
    every action in every state has at most 1 different outcomes (next state and reward)
    the return of every episode lies in [0, 1], whatever is played
    """
    given = dict(locals())  # all arguments by name
    refuse_renamed("identify", given.pop("renamed"))
    how = {name: given.pop(name) for name in ("checkpoint", "accept_errors", "preregister", "progress")}
    source, settings = Settings.read(given.pop("source"), **given)
    return run_to_end(source, settings, **how)


def run_to_end(
    source: Any, settings: Settings, *, checkpoint: Any, accept_errors: bool, progress: bool, preregister: Any = None
) -> Identification:
    """Run until the goal or the end of the budget, from the checkpoint if there is one; see :func:`identify`."""
    path = None if checkpoint is None else check_path("checkpoint", checkpoint)
    preregistered = None if preregister is None else check_path("preregister", preregister)
    with closing(Setup(source, settings)) as setup:
        facts = setup.facts() if path or preregistered else {}
        store = None if path is None else Checkpoint(path, facts, settings.seed)
        saved = None if store is None else setup.saved(store, accept_errors=accept_errors)
        loop = setup.loop(saved)
        if preregistered is not None and saved is not None:
            check_preregistered(preregistered, saved.provenance.preregistration)
        elif preregistered is not None:
            digest = preregister_run(preregistered, facts, seed=loop.state.seed, max_episodes=settings.max_episodes)
            loop.state.provenance = loop.state.provenance._replace(preregistration=digest)
            if store is not None:
                store.save(loop.snapshot())  # from now on it can be taken up, whatever happens
        _watch(loop, store, progress)
        return loop.result()


def _watch(loop: Loop, store: Checkpoint | None, progress: bool) -> None:
    """Run the loop to its end, with its progress shown and its state saved."""
    with RunProgress(progress, loop.state.problem.eps) as line, deferred_interrupt() as check_interrupt:

        def observe(plan: Plan) -> None:
            line.update_run(loop.state.counts.episodes, plan.bounds.gap, loop.forecast)
            if store is not None and store.age() >= CHECKPOINT_SECONDS:
                store.save(loop.snapshot())
            try:
                check_interrupt()
            except KeyboardInterrupt as interrupt:
                interrupt.result = loop.result_so_far(plan)  # type: ignore[attr-defined]
                raise

        try:
            loop.go(observe)
        finally:
            if store is not None:
                store.save(loop.snapshot())


def start_run(source: Any, settings: Settings) -> Loop:
    """Return the loop of :func:`identify` before its first plan, for callers that observe it plan by plan.

    The caller closes the environment.
    """
    return Setup(source, settings).loop()


class Setup:
    """A source that is ready to be played, its problem, and the state in which a run of it begins."""

    def __init__(self, source: Any, settings: Settings) -> None:
        if settings.declared.discount is not None:
            source, settings = _truncate_discounted(source, settings, settings.declared.discount)
        self.source, self.settings = source, settings
        if not isinstance(source, FiniteMDP):
            check_black_box(
                settings.declared, f"environment {source!r}" if isinstance(source, str) else "an environment"
            )
            if settings.data is not None and settings.declared.max_states is None:
                settings.data.all_states()  # raises an error if they were not declared
            self.source = open_environment(source, settings.num_envs, settings.declared.max_states)

    def close(self) -> None:
        if isinstance(self.source, Environment):
            self.source.close()

    @cached_property
    def _problem(self) -> tuple[Problem, Provenance]:
        problem, ignored = _problem_of(self.source, self.settings)
        batches, accepted = self.settings.replan != EVERY, self.settings.accepted
        return problem, Provenance(batches=batches, accepted=accepted, ignored=ignored)

    def loop(self, saved: RunState | None = None) -> Loop:
        """Return the loop of the run, from its beginning or from the state that was saved of it."""
        return Loop(self.source, self.settings, self._new_state() if saved is None else saved)

    def _new_state(self) -> RunState:
        """Return the state before the first episode, or after those of a log."""
        (problem, provenance), data, seed = self._problem, self.settings.data, self.settings.seed
        if seed is None:
            seed = int(np.random.SeedSequence().generate_state(1, np.uint64)[0]) >> 1
        if data is None:
            return RunState.new(problem, seed, provenance, Counts(problem))
        projection = _projection(data, self.source, problem)
        provenance = provenance._replace(log=LogSummary(*projection.facts()))
        state = RunState.new(problem, seed, provenance, projection.counts())
        assert state.tests is not None
        state.tests.add(projection.batch(), *projection.over_time())
        return state

    def facts(self) -> dict[str, str]:
        """Return everything that identifies the run, except its seed and its budget."""
        problem, provenance = self._problem
        source = self.source.facts() if isinstance(self.source, Environment) else {}
        return facts_of({**self.settings.facts(), "ignored": provenance.ignored, **problem_facts(problem), **source})

    def saved(self, store: Checkpoint, *, accept_errors: bool) -> RunState | None:
        """Return the state that was saved of this run; None if there is none."""
        saved = store.read()
        if saved is None:
            return None
        state = saved.state(*self._problem)
        _check_end(state, accept_errors)
        if not self.settings.limited:
            state.best = None
        return state


def _check_end(state: RunState, accept_errors: bool) -> None:
    """Refuse to resume after a contradiction, and after an error unless errors are accepted."""
    if state.contradiction is not None:
        raise InvalidProblemError(
            f"this run ended because the environment contradicted what is assumed of it ({state.contradiction!r}): "
            "resuming it would discard the contradiction; start another run"
        )
    if state.error is None:
        return
    if accept_errors is not True:
        raise InvalidProblemError(
            f"this run ended in an error of the environment ({state.error!r}), and the episodes in progress are lost: "
            "accept_errors=True (--accept-errors) resumes the run, and its certificate counts the error"
        )
    state.error, state.provenance = None, state.provenance._replace(errors=state.provenance.errors + 1)


def _truncate_discounted(source: Any, settings: Settings, discount: float) -> tuple[Any, Settings]:
    """Return a discounted problem, which never ends, cut after so many steps that what follows matters little."""
    if settings.data is not None:
        raise InvalidProblemError("discount and data: the returns of a log are not discounted; give one of them")
    simulated, declared = isinstance(source, FiniteMDP), settings.declared
    ends = source.reward_range if simulated else declared.reward_range
    if ends is None:
        return source, settings  # check_black_box refuses it
    ends = ends if simulated else (min(ends[0], 0.0), max(ends[1], 0.0))  # an episode that has ended pays nothing
    horizon = horizon_for(discount, ends, settings.goal.eps) if declared.horizon is None else declared.horizon
    low, high = tail_of(discount, horizon, ends)
    if not high - low < settings.goal.eps:
        raise InvalidProblemError(
            f"what comes after {horizon} steps can still differ by {high - low:.3g}, and eps is {settings.goal.eps:g}: "
            "give a longer horizon=, or leave it out for one that is long enough"
        )
    declared = replace(declared, horizon=horizon, stationary=declared.stationary is not False)
    return repeated(source, horizon) if simulated else source, replace(settings, declared=declared)


def _problem_of(source: FiniteMDP | Environment, settings: Settings) -> tuple[Problem, tuple[str, ...]]:
    """Return the problem of a source, and which declarations about a model the method does not use."""
    goal, declared = settings.goal._asdict(), settings.declared.given()
    if isinstance(source, Environment):
        return source.problem(**goal, **declared), ()
    if settings.data is not None:
        raise InvalidProblemError("data is for environments, whose rewards are learned; a FiniteMDP's are known")
    unused = methods.find(settings.method).unused
    names = [name for choice in settings.options.values() for name in unused.get(choice, ())]
    ignored = tuple(name for name in names if declared.get(name) is not None and declared[name] is not False)
    problem = Problem.from_mdp(source, **goal, **declared)
    if ignored:
        used = {name: value for name, value in declared.items() if name not in ignored}
        problem = Problem.from_mdp(source, **goal, **used)
    return problem, ignored


def _projection(log: Log, environment: Environment, problem: Problem) -> Projection:
    """Return the log as data about the problem of an environment, with the environment's numbers for its labels."""
    numbers = []
    for labels, space, kind in (
        (log.states, environment.states, "state {} is not an observation"),
        (log.actions, environment.actions, "action {} is not an action"),
    ):
        numbers.append([space.index(label) for label in labels])
        if -1 in numbers[-1]:
            unknown = kind.format(shown(labels[numbers[-1].index(-1)]))
            raise InvalidProblemError(f"the log's {unknown} of {environment.name}")
    return log.project(problem, (numbers[0], numbers[1]), playing=True)
