r"""Certificates: the claim that a run makes, with everything that is needed to check it again.

**The claim.** With probability at least :math:`1-\delta` over the data, under the stated assumptions,

.. math:: \text{lower}\le V^{\pi},\qquad V^\star\le\text{upper},\qquad V^\star-V^{\pi}\le\text{gap}

for the stated policy. The counts that it follows from are part of the certificate. V is the entropic risk of the return or,
where ``risk`` is ``"evar"``, its entropic value at risk of level ``alpha``.
"""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from entropic_bpi.certificate.contents import digest, parts_of, read_content, refusals, write_content
from entropic_bpi.certificate.provenance import Provenance, assumptions_of
from entropic_bpi.errors import CertificateError, InvalidProblemError
from entropic_bpi.model.mdp import FiniteMDP, check_model
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.masks import check_allowed_rows, check_policy_allowed
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.risk import Entropic, EVaR
from entropic_bpi.sources.logs.labels import labels_behind, names_for
from entropic_bpi.sources.spaces import label
from entropic_bpi.tools.checks import LARGEST_COUNT, check_integer, check_path, check_policy
from entropic_bpi.tools.files import write_text_atomically
from entropic_bpi.tools.text import shown
from entropic_bpi.types import Cell, Cut, Integers, Summarised, Transitions
from entropic_bpi.verification import Verification

_ALWAYS_AFFORDED = 2**30  # bytes of memory that planning for the problem of any file may take


class Reported(Summarised):
    """A result that can be written as a report."""

    def report(self, path: str | Path) -> Verification:
        """Write the result as an HTML page, see :func:`entropic_bpi.show.report.write`.

        Parameters
        ----------
        path : path
            The HTML file to write.

        Returns
        -------
        Verification
            The result of the check when the report was written; if the model is known, there is nothing to check.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=5)
        >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, successors="model", seed=1)
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result.report(f"{folder}/report.html").ok
        ...     result.certificate.report(f"{folder}/report.html").ok
        ...     eb.appraise(result, {"found": result.policy}).report(f"{folder}/decision.html").ok
        True
        True
        True
        """
        import entropic_bpi

        return entropic_bpi.report.write(self, path)


class Verifiable(Reported):
    """A claim and its data, which :func:`entropic_bpi.verify` checks."""

    def _content(self) -> dict[str, Any]:
        raise NotImplementedError

    def _text(self) -> str:
        content = self._content()
        return json.dumps({**content, "digest": digest(content)}, indent=1) + "\n"

    def save(self, path: str | Path) -> None:
        """Write the claim with the data that it rests on, as a file that :func:`entropic_bpi.verify` checks.

        Parameters
        ----------
        path : path
            The file to write (JSON, which keeps exactly the same numbers). It is compressed if its name ends in ``.gz``, to
            about a fifth of the size.

        Raises
        ------
        InvalidProblemError
            For an appraisal of a known model: there are no data to check.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=5)
        >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, successors="model", seed=1)
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result.certificate.save(f"{folder}/certificate.json")
        ...     eb.Certificate.load(f"{folder}/certificate.json").gap == result.certificate.gap
        ...     eb.appraise(result, {"found": result.policy}).save(f"{folder}/appraisal.json")
        ...     eb.verify(f"{folder}/appraisal.json").ok
        True
        True
        """
        write_text_atomically(check_path("path", path), self._text())


@dataclass(frozen=True, eq=False)
class Certificate(Verifiable):
    """A claim about a policy and the counts that it follows from.

    Attributes
    ----------
    policy : int array ``(H, S)``
    episodes : int
        Episodes behind the counts of this claim.
    lower, upper, gap : float
        With probability at least 1 - ``delta``: lower ≤ V^π, V* ≤ upper and V* - V^π ≤ gap, in the reward's own units.
    method : str
        ``"kl"`` or ``"bernstein"``.
    constants : str or None
        ``"verified"``, ``"sharp"`` or ``"printed"`` for ``"bernstein"``.
    problem : Problem
        Sizes, rewards, risk parameter and what was declared.
    transitions : Transitions
        The counts, in their canonical order.
    provenance : Provenance
        How the counts came about.
    test : str or None
        How the gap of ``"kl"`` was bounded: ``"ratio"``, the gap certificate; ``"pairs"``, the pair certificate;
        ``"explored"``, the bound for all rewards, for the policy that is best by the estimates; or ``"boxes"``, the gap
        certificate on each of several parts of the kernels.
    cells : tuple of Cell or None
        For the entropic value at risk: the λ from whose bounds the claim follows, and the end of the cell of each.
    cuts : tuple of Cut or str, or None
        For ``"boxes"``: the tree of the parts in preorder, see ``entropic_bpi.types.Claim``.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=5)
    >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, successors="model", seed=1)
    >>> claim = result.certificate
    >>> claim.lower <= claim.upper, claim.gap <= claim.eps == 0.5
    (True, True)
    """

    policy: Integers
    episodes: int
    lower: float
    upper: float
    gap: float
    method: str
    constants: str | None
    problem: Problem
    transitions: Transitions
    provenance: Provenance
    test: str | None = None
    cells: tuple[Cell, ...] | None = None
    cuts: tuple[Cut | str, ...] | None = None

    def __post_init__(self) -> None:
        problem, seen = self.problem, self.transitions
        problem.check()
        limits = {"rows": (0, problem.n_rows - 1), "successors": (0, problem.n_states - 1), "times": (1, LARGEST_COUNT)}
        for name, (least, most) in limits.items():
            column = getattr(seen, name)
            if len(column) != len(seen.rows) or ((column < least) | (column > most)).any():
                raise CertificateError(f"counts.{name} must be {len(seen.rows)} integers from {least} to {most}")
        check_policy(self.policy, problem.horizon, problem.n_states, problem.n_actions)
        check_allowed_rows(problem, seen.rows)
        check_policy_allowed(problem, self._planned)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions of the claim, in words."""
        return assumptions_of(self.problem, self.transitions, self.provenance, self.constants)

    @property
    def statement(self) -> str:
        """The claim in words.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=5)
        >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, successors="model", seed=1)
        >>> print(result.certificate.statement)  # doctest: +ELLIPSIS
        With probability at least 90 %: The policy has a value of at least ..., and no policy has a value above ...
        """
        import entropic_bpi

        return entropic_bpi.report.statement(self)

    @property
    def risk(self) -> str:
        """``"entropic"``, ``"evar"`` for the entropic value at risk, or ``"any reward"`` for an exploration."""
        risk = self.problem.risk
        return "evar" if isinstance(risk, EVaR) else "entropic" if isinstance(risk, Entropic) else "any reward"

    @property
    def alpha(self) -> float | None:
        """The level of the entropic value at risk; None for another risk."""
        return getattr(self.problem.risk, "alpha", None)

    beta = property(attrgetter("problem.beta"), doc="The risk parameter; NaN for EVaR, which has a level instead.")
    eps = property(attrgetter("problem.eps"), doc="The target for the gap.")
    delta = property(attrgetter("problem.delta"), doc="The probability with which the claim may fail.")
    stationary = property(attrgetter("problem.stationary"), doc="Whether counts are pooled over the steps.")
    successors = property(
        attrgetter("problem.successors"),
        doc='What is declared about the possible next states: ``"unknown"``, ``"model"``, ``"mask"`` or ``"noise"``.',
    )

    @property
    def counts(self) -> Counts:
        """The counts behind the claim, as the methods and :mod:`entropic_bpi.lab.events` take them."""
        return Counts.of(self.problem, self.transitions, self.episodes)

    @property
    def _planned(self) -> np.ndarray:
        """The policy with the artificial first step of a random start."""
        return np.pad(self.policy, ((int(self.problem.artificial), 0), (0, 0)))

    @property
    def reached(self) -> bool:
        """Whether the policy is certified to be ε-optimal."""
        return bool(self.gap <= self.eps)

    def policy_of(self, observation: Any, step: int = 0) -> Any:
        """Return the action of the policy on an observation.

        An action that is an array of integers is returned as a tuple. For a model, ``observation`` is the number or the name
        of a state, and the action is a number. For a log, both are labels; those of actions that are neither numbers nor
        made of numbers are returned as text.

        Parameters
        ----------
        observation : object
            An observation of the environment, the number or name of a state of a model, or a label of a log.
        step : int
            The step, from 0.

        Returns
        -------
        object
            The action, as the environment's ``step`` takes it.

        Raises
        ------
        InvalidProblemError
            If the environment has no such observation or, with ``max_states``, if it was not seen in this run. The claim
            allows for such observations: it holds whatever action is played there.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> goal = {"beta": -1.0, "eps": 0.5, "delta": 0.1}
        >>> result = eb.identify("Blackjack-v1", horizon=2, reward_range=(-1, 1), **goal, seed=1, max_episodes=50)
        >>> result.certificate.policy_of((21, 10, 1)) in (0, 1)
        True
        """
        at = check_integer("step", step, at_least=0, at_most=self.problem.horizon - 1)
        return self.action_of(self.policy, observation, at)

    def action_of(self, policy: np.ndarray, observation: Any, step: int) -> Any:
        """Return the action of any policy of this problem on an observation; see :meth:`policy_of`.

        Parameters
        ----------
        policy : int array ``(H, S)``
            The numbers of the actions.
        observation : observation, or state of a model
            The observation.
        step : int
            The step, from 0.

        Returns
        -------
        action
            The action, as the environment's ``step`` takes it; for a model, its number.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=7)
        >>> certificate = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, seed=1).certificate
        >>> bool(certificate.action_of(certificate.policy, 0, step=0) == certificate.policy[0, 0])
        True
        """
        if self.risk == "any reward":
            raise InvalidProblemError("an exploration has no policy: eb.Exploration.solve(rewards, beta) returns one")
        action = int(policy[step, self._state_of(observation)])
        if not self.problem.black_box_rewards:
            return action
        if self._of_a_log:
            return self._logged_actions[action]
        name = self.problem.labels[1][action]
        try:
            return ast.literal_eval(name)
        except (ValueError, SyntaxError, MemoryError, RecursionError):  # in a file that this library did not write
            raise CertificateError(f"{shown(name)} is not the name of an environment's action") from None

    def policy_for(self, mdp: FiniteMDP) -> np.ndarray:
        """Return the policy for a model of the same environment, whose states have the same names.

        :func:`~entropic_bpi.from_gymnasium` may add copies of a state (``36'``) and further ends (``end 2``): the action in
        a copy is that of its state, and at an end no action matters.

        Parameters
        ----------
        mdp : FiniteMDP
            The model.

        Returns
        -------
        int array ``(H, S)``
            The policy.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> options = {"horizon": 3, "reward_range": (-100, 0), "beta": -0.01, "eps": 1.0, "delta": 0.1}
        >>> result = eb.identify("CliffWalkingSlippery-v1", **options, seed=1, max_episodes=50)
        >>> cliff = eb.from_gymnasium("CliffWalkingSlippery-v1", horizon=3)
        >>> value = eb.evaluate(cliff, result.certificate.policy_for(cliff), beta=-0.01).value
        >>> bool(result.certificate.lower <= value)
        True
        """
        problem, mdp = self.problem, check_model(mdp)
        if (mdp.horizon, mdp.n_actions) != (problem.horizon, problem.n_actions):
            raise InvalidProblemError(
                f"the model has horizon {mdp.horizon} and {mdp.n_actions} actions, "
                f"the certificate {problem.horizon} and {problem.n_actions}"
            )
        # A state of the model may be a copy of the environment's state (a'), or a further end (end 2).
        names = [n if n in self._numbers else re.sub("^end [0-9]+$", "end", n.rstrip("'")) for n in mdp.state_names]
        missing = [name for name in names if name not in self._numbers]
        if missing:
            raise InvalidProblemError(f"state {missing[0]!r} of the model is not a state of the certificate")
        return self.policy[:, [self._numbers[name] for name in names]]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """The number of each state, by its label or by the name that is declared for it."""
        return {name: s for names in (self.problem.state_names, self.problem.labels[0]) for s, name in enumerate(names)}

    @cached_property
    def _logged_actions(self) -> list[Any]:
        return labels_behind(self.problem.labels[1])

    @property
    def _of_a_log(self) -> bool:
        """Whether states and actions have the names of a log, and not those of an environment."""
        return self.problem.source_hash.startswith("log:")

    def _state_of(self, observation: Any) -> int:
        problem, name = self.problem, observation
        if self._of_a_log:
            names = list(names_for(observation))
            name = next((each for each in names if each in self._numbers), names[0])
        elif problem.black_box_rewards:
            name = label(observation)
        elif not isinstance(observation, str):
            return check_integer("the state", observation, at_least=0, at_most=problem.n_states - 1)
        if name not in self._numbers:
            unseen = "" if problem.max_states is None else " that were seen: the claim holds whatever is played on it"
            raise InvalidProblemError(f"{shown(name)} is not one of the observations{unseen}")
        return self._numbers[name]

    def interval_model(self) -> tuple[sparse.csr_array, sparse.csr_array]:
        """Return lower and upper bounds on the probability of every transition.

        With probability at least 1 - δ all of them hold at once. The intervals are the projections of the balls of
        ``method="kl"``; bounds over the balls are at least as tight as bounds over the intervals.

        Returns
        -------
        (csr_array, csr_array)
            Lower and upper probabilities; both have the same stored entries. Row ``(h * S + s) * A + a``, or ``s * A + a``
            if counts are pooled, has the possible next states; the last row is that of a random start, if there is one. For
            an environment, the last column is the end of the episode.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=5)
        >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, stationary=True, seed=1)
        >>> lower, upper = result.certificate.interval_model()
        >>> truth = bridge.transitions.reshape(-1, 8)
        >>> bool((lower.toarray() <= truth).all() and (truth <= upper.toarray()).all())
        True
        """
        from entropic_bpi.certificate.interval_model import intervals_of

        return intervals_of(self)

    def __repr__(self) -> str:
        risk = self.problem.risk
        named = f"beta={risk.beta:g}" if isinstance(risk, Entropic) else f"risk={risk}"
        return (
            f"Certificate({named}, lower={self.lower:.6g}, upper={self.upper:.6g}, gap={self.gap:.6g}, "
            f"delta={self.delta:g}, episodes={self.episodes}, method={self.method!r})"
        )

    @classmethod
    def load(cls, path: str | Path) -> Certificate:
        """Read a certificate that ``save`` wrote.

        The file is refused unless it is complete and consistent. Whether its counts imply its claim is checked by
        :func:`~entropic_bpi.verify`.

        Parameters
        ----------
        path : path
            The file.

        Returns
        -------
        Certificate
            The certificate.

        Raises
        ------
        CertificateError
            If the file is not a complete and consistent certificate.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=5)
        >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, successors="model", seed=1)
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result.certificate.save(f"{folder}/certificate.json")
        ...     eb.Certificate.load(f"{folder}/certificate.json").gap == result.certificate.gap
        True
        """
        return cls._of_content(check_path("path", path), path)

    @classmethod
    def _of_content(cls, source: Any, path: str | Path) -> Certificate:
        """Return the certificate in a file, or in the content that was read from the file ``path``.

        A file is refused if it contradicts itself, or if it is small and planning for its problem needs much memory.
        """
        with refusals(path):
            content = read_content(source)
            certificate = cls(**parts_of(cls, content))
            problem, seen = certificate.problem, certificate.transitions
            if content["claim"]["reached"] is not certificate.reached:
                raise CertificateError(f"claim.reached must be {certificate.reached}")
            if content["assumptions"] != list(certificate.assumptions):
                raise CertificateError("the assumptions are not those that the content implies")
            # Pooled counts do not grow with the horizon; what planning needs does.
            needed = 8 * problem.steps * problem.n_states * problem.n_actions
            if needed > 160 * (certificate.policy.size + problem.n_rows + len(seen.rows)) + _ALWAYS_AFFORDED:
                raise CertificateError(f"planning would take {needed} bytes of memory, far more than the file")
        return certificate

    def _content(self) -> dict[str, Any]:
        return write_content(self)
