"""Policies as functions of observations and as tables, and rollouts of policies.

A policy needs its certificate and nothing else. A rollout estimates returns and certifies nothing.
"""

from __future__ import annotations

import os
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from entropic_bpi.certificate.certificate import Certificate
from entropic_bpi.errors import EntropicBPIError, InvalidProblemError
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.model.return_law import ReturnLaw
from entropic_bpi.sources.environment import make_env
from entropic_bpi.tools.checks import check_integer, check_path, check_seed
from entropic_bpi.tools.files import write_csv
from entropic_bpi.tools.text import shown
from entropic_bpi.types import Summarised

CERTIFICATE = "certificate.json"
_COLUMNS = "step", "state", "action"
_NOTHING = object()
NOT_CERTIFIED = "not certified: do not rely on this policy"


class Policy(Summarised):
    """A policy as a function of the observation.

    ``policy.start()`` begins an episode, and each ``policy(observation)`` after it is one step. Or give the step:
    ``policy(observation, step=h)``.

    Parameters
    ----------
    certificate : Certificate
        The certificate with the policy.
    unseen : action, optional
        The action on an observation that the certificate does not know. By default such an observation is an error. The
        claim holds for any action there.
    actions : int array ``(H, S)``, optional
        Another policy for the same problem, about which the certificate says nothing.

    Attributes
    ----------
    certificate : Certificate or None
        None if the policy is not the one of the certificate.
    certified : bool
        Whether the certificate says that the policy is ε-optimal.
    actions : int array ``(H, S)``
        The number of the action at each step and state.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> goal = {"beta": -1.0, "eps": 0.5, "delta": 0.1}
    >>> result = eb.identify("FrozenLake-v1", horizon=4, reward_range=(0, 1), **goal, seed=1, max_episodes=50)
    >>> policy = eb.Policy.load(result)
    >>> policy(0, step=2) in range(4)
    True
    >>> policy.start()(0) in range(4)
    True
    >>> policy.table()[0]["state"]
    '0'
    """

    def __init__(self, certificate: Certificate, unseen: Any = _NOTHING, *, actions: np.ndarray | None = None) -> None:
        self._labels, self._unseen = certificate, unseen
        self.certificate: Certificate | None = certificate if actions is None else None
        self.certified = actions is None and certificate.reached
        self._actions = certificate.policy if actions is None else actions
        self._step: int | None = None

    @classmethod
    def load(cls, source: Any, unseen: Any = _NOTHING) -> Policy:
        """Return the policy of a certificate.

        Parameters
        ----------
        source : Certificate, Identification or path
            A certificate, the result of a run, a certificate's file, or a folder that a command wrote.
        unseen : action, optional
            The action on an observation that the certificate does not know.

        Returns
        -------
        Policy
            The policy.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=5)
        >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, successors="model", seed=1)
        >>> eb.Policy.load(result)
        Policy(horizon=5, states=8, actions=2)
        """
        source = getattr(source, "certificate", source)
        if isinstance(source, (str, os.PathLike)):
            path = Path(source)
            source = Certificate.load(path / CERTIFICATE if path.is_dir() else path)
        if not isinstance(source, Certificate):
            raise InvalidProblemError(
                "a policy is loaded from a certificate, the result of identify, a file or a folder; "
                f"got {type(source).__name__}"
            )
        return cls(source, unseen)

    @property
    def horizon(self) -> int:
        """The number of steps of an episode."""
        return self._labels.problem.horizon

    @property
    def actions(self) -> np.ndarray:
        """The action, by number, at each step and state: an array ``(H, S)``."""
        return self._actions

    def start(self) -> Policy:
        """Begin an episode: the next call is at step 0, and each call advances the step.

        Returns
        -------
        Policy
            This policy.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=7)
        >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, seed=1)
        >>> policy = eb.Policy.load(result.certificate).start()
        >>> bool(policy(0) == result.policy[0, 0])
        True
        """
        self._step = 0
        return self

    def __call__(self, observation: Any, step: int | None = None) -> Any:
        """Return the action, as the environment's ``step`` takes it; for a model, its number.

        Parameters
        ----------
        observation : observation, or state of a model
        step : int, optional
            Default: the next step of the episode that :meth:`start` began.

        Raises
        ------
        InvalidProblemError
            If the step is not given, no episode was begun, and the policy differs between steps.
        """
        at = self._advance() if step is None else check_integer("step", step, at_least=0, at_most=self.horizon - 1)
        try:
            return self._labels.action_of(self.actions, observation, at)
        except EntropicBPIError:
            if self._unseen is _NOTHING:
                raise
            return self._unseen

    def _advance(self) -> int:
        """Return the step of a call without ``step=``, and go on to the next one."""
        if self._step is None:
            if (self.actions != self.actions[0]).any():
                raise InvalidProblemError(
                    "the policy differs between steps: call policy.start() when an episode begins, or give step="
                )
            return 0
        if self._step >= self.horizon:
            raise InvalidProblemError(
                f"the policy has {self.horizon} steps: call policy.start() when the next episode begins"
            )
        self._step += 1
        return self._step - 1

    def table(self) -> list[dict[str, Any]]:
        """Return the policy as a table.

        Returns
        -------
        list of dict
            One row ``step, state, action`` for each step and state that was seen, or that the declared successors allow.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=5)
        >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, successors="model", seed=1)
        >>> eb.Policy.load(result).table()[0]
        {'step': 0, 'state': 's0', 'action': 'safe'}
        """
        problem, seen = self._labels.problem, self._labels.transitions.successors
        known = np.full(problem.n_states, not problem.black_box_rewards)
        if problem.black_box_rewards:
            known[seen[seen < problem.n_states - 1]] = True  # not the state after the end, where nothing is chosen
        frame, first = problem.frame, int(problem.artificial)
        reachable = np.split(frame.states, frame.first_state[1:-1])[first:]
        return [
            dict(zip(_COLUMNS, (h, problem.state_names[s], problem.action_names[self.actions[h, s]]), strict=True))
            for h, states in enumerate(reachable)
            for s in states[known[states]]
        ]

    def save(self, path: str | Path) -> None:
        """Write the table as a CSV file.

        A name that a spreadsheet would run as a formula, such as ``=1+1``, has an apostrophe in front.

        Parameters
        ----------
        path : path
            The file; its name ends in ``.csv``.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=5)
        >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, successors="model", seed=1)
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     eb.Policy.load(result).save(f"{folder}/policy.csv")
        ...     pathlib.Path(folder, "policy.csv").stat().st_size > 0
        True
        """
        path = check_path("path", path)
        if path.suffix.lower() != ".csv":
            raise InvalidProblemError(f"a policy is written as .csv; got {shown(str(path))}")
        write_csv(path, _COLUMNS, ([*row.values()] for row in self.table()))

    def __repr__(self) -> str:
        problem, warning = self._labels.problem, "" if self.certified else f"; {NOT_CERTIFIED}"
        return f"Policy(horizon={self.horizon}, states={problem.n_states}, actions={problem.n_actions}{warning})"


@dataclass(frozen=True, eq=False)
class Rollout(Summarised):
    """Returns of episodes of a policy: an estimate, not a certificate.

    Attributes
    ----------
    returns : float array
        The return of each episode.
    lengths : int array
        Steps of each episode.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=5)
    >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, successors="model", seed=1)
    >>> seen = eb.rollout(bridge, result, episodes=100, seed=2)
    >>> seen.returns.shape
    (100,)
    """

    returns: np.ndarray
    lengths: np.ndarray

    @property
    def mean(self) -> float:
        """The mean of the observed returns."""
        return float(self.returns.mean())

    def value(self, beta: float) -> float:
        """Return the entropic value of the observed returns, an estimate.

        Parameters
        ----------
        beta : float
            Positive is risk-seeking, negative risk-averse.

        Returns
        -------
        float
            The estimate.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=5)
        >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, successors="model", seed=1)
        >>> seen = eb.rollout(bridge, result, episodes=100, seed=2)
        >>> seen.value(-1.0) <= seen.value(1.0)
        True
        """
        return ReturnLaw.of_sample(self.returns).entropic_risk(beta)

    def quantile(self, share: float) -> float:
        """Return a quantile of the observed returns.

        Parameters
        ----------
        share : float
            A probability, from 0 to 1.

        Returns
        -------
        float
            The quantile.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=5)
        >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, successors="model", seed=1)
        >>> seen = eb.rollout(bridge, result, episodes=100, seed=2)
        >>> bool(seen.quantile(0.0) == seen.returns.min())
        True
        """
        return float(np.quantile(self.returns, share))

    def __repr__(self) -> str:
        low, middle, high = np.quantile(self.returns, (0.05, 0.5, 0.95))
        return f"Rollout({len(self.returns)} episodes, mean={self.mean:.6g}, 5%={low:.6g}, 50%={middle:.6g}, 95%={high:.6g})"


def rollout(
    env: Any, policy: Any, episodes: int = 100, *, horizon: int | None = None, seed: int | None = None
) -> Rollout:
    """Play episodes with a policy.

    Parameters
    ----------
    env : FiniteMDP, Gymnasium environment, environment id, class or factory
        The model or the environment to play.
    policy : Policy, Identification, Certificate, path or function
        What :meth:`Policy.load` takes, or any function ``(observation, step)`` that returns an action.
    episodes : int
        Number of episodes.
    horizon : int, optional
        Steps after which an episode is over, if the environment does not end it before; required for a function,
        otherwise the policy's own.
    seed : int, optional
        Seed, to repeat the episodes.

    Returns
    -------
    Rollout
        The returns and the lengths of the episodes.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> result = eb.identify(bridge, beta=-1.0, eps=0.2, delta=0.1, successors="model", seed=1)
    >>> seen = eb.rollout(bridge, result, episodes=200, seed=2)
    >>> len(seen.returns), bool(seen.lengths.max() == 7)
    (200, True)
    """
    act = policy if callable(policy) else Policy.load(policy)
    own = getattr(act, "horizon", None)
    if horizon is None and own is None:
        raise InvalidProblemError("horizon is required for a policy that is a function: how many steps has an episode?")
    steps = check_integer("horizon", own if horizon is None else horizon)
    if isinstance(act, Policy) and steps > act.horizon:
        raise InvalidProblemError(f"horizon is {steps}, but the policy has {act.horizon} steps")
    first = None if seed is None else check_seed("seed", seed)
    returns, lengths = np.zeros(check_integer("episodes", episodes)), np.zeros(episodes, dtype=np.int64)
    weight = act._labels.problem.factors if isinstance(act, Policy) else np.ones(steps)
    from entropic_bpi.model.gymnasium.env import as_gymnasium

    given = hasattr(env, "step") and not isinstance(env, type)
    world = env if given else make_env(partial(as_gymnasium, env) if isinstance(env, FiniteMDP) else env)
    with nullcontext() if given else closing(world):
        for i in range(episodes):
            observation, _ = world.reset(seed=first if i == 0 else None)
            for step in range(steps):
                observation, reward, terminated, truncated, _ = world.step(act(observation, step))
                returns[i] += weight[step] * float(reward)
                lengths[i] += 1
                if terminated or truncated:
                    break
    return Rollout(returns, lengths)
