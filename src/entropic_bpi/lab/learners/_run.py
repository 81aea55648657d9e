"""``run``: play a learner for a number of episodes on a known model and compute its exact regret."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.lab.learners.game import Game, Play, new_game
from entropic_bpi.lab.learners.kernels import action
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.tools.checks import check_choice
from entropic_bpi.tools.text import shown

Learner = Callable[..., Play]

# For each name: the name in papers, and the module.
_BUILT_IN = {
    "entropic_bpi": ("Entropic-BPI", "bernstein"),
    "rsvi": ("RSVI", "value_iteration"),
    "rsq": ("RSQ", "rsq"),
    "rsvi2": ("RSVI2", "value_iteration"),
    "rsq2": ("RSQ2", "rsq"),
    "ucb_advantage": ("UCB-Advantage", "ucb_advantage"),
    "rodi_otp": ("RODI-OTP", "value_iteration"),
    "rodi_pto": ("RODI-PTO", "value_iteration"),
    "rovi": ("ROVI", "value_iteration"),
    "bpi_ucbvi": ("BPI-UCBVI", "bernstein"),
    "kl_bpi": ("KL-BPI", "value_iteration"),
    "generative": ("generative model", "generative"),
}
_REGISTERED: dict[str, Learner] = {}

# Ctrl-C is handled between two calls of the compiled loop.
EPISODES_PER_CALL = 100_000


@dataclass(frozen=True, eq=False)
class Run:
    """The result of a run of a learner.

    Attributes
    ----------
    learner : str
        Name of the learner.
    grid : int array
        Numbers of episodes, evenly spaced in logarithm, at most 2000 of them; the last is the length of the run.
    regret : float array
        ``regret[i]`` is the sum of V* - V^π over the policies of the first ``grid[i]`` episodes, each value exact, in
        the unit of the rewards.
    policy_changes : int
        Episodes whose policy differs from the one before at a state it can reach.
    policy : int array ``(H, S)``
        The policy that the next episode would play.
    seconds : float
        Time of the run.
    settings : dict
        ``beta``, ``episodes``, ``delta``, ``seed``, ``scale``, ``ties`` and the learner's own parameters.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> result = eb.run("rovi", bridge, beta=1.0, episodes=100, seed=0)
    >>> int(result.grid[-1]), len(result.regret) == len(result.grid)
    (100, True)
    """

    learner: str
    grid: np.ndarray
    regret: np.ndarray
    policy_changes: int
    policy: np.ndarray
    seconds: float
    settings: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Run({self.learner}, {self.grid[-1]} episodes, regret={self.regret[-1]:.6g})"


def names() -> list[str]:
    """Return the names of the learners that :func:`entropic_bpi.run` accepts.

    Returns
    -------
    list of str
        Built-in names, then registered ones.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> "rsvi2" in eb.learners.names()
    True
    """
    return [*_BUILT_IN, *_REGISTERED]


def title(name: str) -> str:
    """Return the name of a learner as papers write it.

    Parameters
    ----------
    name : str
        Name of a learner.

    Returns
    -------
    str
        The name in papers; for a registered learner, ``name``.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> eb.learners.title("ucb_advantage"), eb.learners.title("mine")
    ('UCB-Advantage', 'mine')
    """
    return _BUILT_IN[name][0] if name in _BUILT_IN else name


def register(name: str, learner: Learner) -> None:
    """Make a learner of your own available to :func:`entropic_bpi.run`; see the page "Write your own learner".

    Parameters
    ----------
    name : str
        Name of the learner. Built-in names are refused.
    learner : callable
        A function of a ``Game`` and the learner's own parameters that returns a function ``play(first, last)``.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> def idle(game):
    ...     return lambda first, last: None
    >>> eb.learners.register("idle", idle)
    >>> "idle" in eb.learners.names()
    True
    """
    if not isinstance(name, str) or not callable(learner):
        raise InvalidProblemError(f"register takes a name and a function, got {shown(name)} and {shown(learner)}")
    if name in _BUILT_IN:
        raise InvalidProblemError(f"{name!r} is the name of a built-in learner")
    _REGISTERED[name] = learner


def find(name: str) -> Learner:
    check_choice("learner", name, names())
    if name in _REGISTERED:
        return _REGISTERED[name]
    found: Learner = getattr(import_module(f"entropic_bpi.lab.learners.{_BUILT_IN[name][1]}"), name)
    return found


def run(
    learner: str,
    mdp: FiniteMDP,
    *,
    beta: float,
    episodes: int,
    delta: float = 0.1,
    seed: Any = None,
    scale: float = 1.0,
    ties: str = "random",
    **params: Any,
) -> Run:
    r"""Play a learner and compute its regret :math:`\sum_k V^* - V^{\pi_k}`, each value by exact evaluation.

    Parameters
    ----------
    learner : str
        One of :func:`entropic_bpi.lab.learners.names`.
    mdp : FiniteMDP
        The true model, which the learner samples. Rewards must be functions of (h, s, a), known to the learner; rewards
        outside [0, 1] are rescaled to it (and β with them), the regret is given in their own units. A start
        distribution becomes an artificial first step, so that the learner's horizon is H + 1.
    beta : float
        Risk parameter: positive is risk-seeking, negative risk-averse.
    episodes : int
        Length K of the run; most learners use it in their bonus.
    delta : float
        Failure probability of the learner's bonus.
    seed : object
        Anything that ``numpy.random.default_rng`` takes. The same seed gives the same run,
        on another kind of processor up to the last digits and to ties between actions that these decide.
    scale : float
        Factor of the bonus or the radius of the learner; 1 is the published constant.
    ties : {"random", "lowest"}
        ``"random"``: uniform among the maximisers, one draw per step, state and episode; ``"lowest"``: lowest index.
        While bonuses are clipped, all actions are tied, so that this decides short runs.
    **params
        The learner's own parameters, for example ``c`` of ``rsvi2``.

    Returns
    -------
    Run
        The regret and the last policy.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> result = eb.run("rsvi2", bridge, beta=1.5, episodes=2000, seed=0, scale=0.1)
    >>> result.grid[-1], bool(result.regret[-1] < 2000 * eb.solve(bridge, 1.5).value)
    (np.int64(2000), True)
    """
    settings = dict(beta=beta, episodes=episodes, delta=delta, seed=seed, scale=scale, ties=ties, **params)
    factory = find(learner)
    game = new_game(mdp, beta=beta, episodes=episodes, delta=delta, scale=scale, seed=seed, ties=ties)
    check_params(learner, factory, params)
    play = factory(game, **params)
    began = time.perf_counter()
    for first in range(0, episodes, EPISODES_PER_CALL):
        play(first, min(first + EPISODES_PER_CALL, episodes))
    return Run(
        learner=learner,
        grid=game.oracle.grid,
        regret=game.oracle.regret * game.reward_span,
        policy_changes=int(game.oracle.changes[0]) - 1,
        policy=mdp.replace_forbidden(_policy(game)),
        seconds=time.perf_counter() - began,
        settings=settings,
    )


def parameters_of(learner: Learner) -> list[str]:
    """Return the names of a learner's own parameters."""
    return list(inspect.signature(learner).parameters)[1:]


def check_params(learner: str, factory: Learner, params: dict[str, Any]) -> None:
    known = parameters_of(factory)
    for name in params:
        if name not in known:
            raise InvalidProblemError(f"{learner} has no parameter {name!r}; it has: {', '.join(known) or 'none'}")


def _policy(game: Game) -> np.ndarray:
    """Return the policy of the episode after the last one."""
    first = 1 if game.artificial_start else 0
    states = range(game.n_states)
    return np.array(
        [[action(game.greedy, game.episodes, h, s) for s in states] for h in range(first, game.horizon)], dtype=np.int64
    )
