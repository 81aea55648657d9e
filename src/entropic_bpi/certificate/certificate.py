r"""Certificates: the claim that a run makes, with everything that is needed to check it again.

**The claim.** With probability at least :math:`1-\delta` over the data, under the stated assumptions,

.. math:: \text{lower}\le V^{\pi},\qquad V^\star\le\text{upper},\qquad V^\star-V^{\pi}\le\text{gap}

for the stated policy. The counts that it follows from are part of the certificate. V is the entropic risk of the return or,
where ``risk`` is ``"evar"``, its entropic value at risk of level ``alpha``.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from entropic_bpi._version import __version__
from entropic_bpi.certificate import schema as _schema
from entropic_bpi.errors import CertificateError, EntropicBPIError, InvalidProblemError
from entropic_bpi.model.mdp import FiniteMDP, check_model
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.declarations import ENTRIES, FIXED, REWARD_LAWS
from entropic_bpi.problem.problem import SAME_REWARD, Problem
from entropic_bpi.problem.risk import Entropic, EVaR, Risk
from entropic_bpi.problem.rows import END_REWARDS, STAY_REWARDS, Slots
from entropic_bpi.sources.assumption_tests import LEVEL, REJECTED_FROM
from entropic_bpi.sources.log import labels_behind, names_for
from entropic_bpi.sources.spaces import label
from entropic_bpi.tools.checks import check_integer, check_path, check_policy, check_positive, check_probability
from entropic_bpi.tools.files import write_text_atomically
from entropic_bpi.tools.text import shown
from entropic_bpi.types import Cell, Evidence, Transitions

if TYPE_CHECKING:
    from entropic_bpi.verification import Verification

__all__ = ["Certificate", "LogSummary", "Provenance"]

_FORMAT = "entropic-bpi certificate"
_VERSION = 4
_PRINTED = (
    "the bonus is the one that the paper prints, the caps and the stopping rule are corrected; the guarantee rests on the "
    "proof on paper, for at most 12 steps or S <= 16H/(H - 12)"
)
# The declarations that a certificate states; the others follow from its slots.
_DECLARED = tuple(name for name in ENTRIES if name not in ("horizon", "start", "reward_range"))
_ALWAYS_AFFORDED = 2**30  # bytes of memory that planning for the problem of any file may take


class LogSummary(NamedTuple):
    """What a claim rests on besides, when its counts come from a log.

    Attributes
    ----------
    longest : int
        Steps of the longest episode.
    unused : int
        Lines of the last step that are not used, because the state after it is not told of all of them.
    excluded : str or None
        What was left out on request.
    seen : bool
        Whether the user declared that the states of the log are all there are.
    """

    longest: int
    unused: int
    excluded: str | None
    seen: bool = False


class Provenance(NamedTuple):
    """How the episodes behind a claim came about, as far as the claim depends on it.

    Attributes
    ----------
    batches : bool
        Whether plans and tests came in batches, not after every episode.
    ignored : tuple of str
        Declarations that were given and that the method does not use: ``"stationary"``, ``"successors"``.
    errors : int
        How often the environment raised an error and the run went on; the episodes of that moment are lost.
    preregistration : str or None
        Digest of the commitment that was published before the first episode.
    tests : Evidence or None
        What the episodes of an environment said about what is assumed of it.
    log : Logged or None
        Where the counts come from a log, wholly or to begin with: what is known of it.
    """

    batches: bool = True
    ignored: tuple[str, ...] = ()
    errors: int = 0
    preregistration: str | None = None
    tests: Evidence | None = None
    log: LogSummary | None = None


@dataclass(frozen=True, eq=False)
class Certificate:
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
    provenance : Circumstances
        How the counts came about.
    test : str or None
        What the gap of ``"kl"`` comes from: ``"ratio"``, the gap certificate, or ``"pairs"``, the pair certificate.
    cells : tuple of Cell or None
        Of the entropic value at risk: the λ at whose bounds the claim comes from, and how far each of them speaks.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=5)
    >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, successors="model", seed=1)
    >>> claim = result.certificate
    >>> claim.lower <= claim.upper, claim.gap <= claim.eps == 0.5
    (True, True)
    """

    policy: np.ndarray
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

    def __post_init__(self) -> None:
        problem = self.problem
        _schema.check_problem(problem)
        _schema.check_cells(problem, self.cells)
        log = self.provenance.log
        _schema.check_transitions(problem, self.transitions, self.episodes, None if log is None else log.longest)
        check_policy(self.policy, problem.horizon, problem.n_states, problem.n_actions)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the claim rests on, in words."""
        provenance = self.provenance
        notes = [*_assumptions_of(self.problem, self.transitions, provenance)]
        if provenance.ignored:
            notes.append(f"constants={self.constants!r} ignores {' and '.join(provenance.ignored)}")
        if self.constants == "verified":
            notes += _not_machine_checked(self.problem, provenance)
        elif self.constants == "printed":
            notes.append(_PRINTED)
        return (*notes, *_lost_episodes(provenance), *_tested(provenance.tests))

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
        """``"entropic"``, or ``"evar"`` for the entropic value at risk."""
        return "evar" if isinstance(self.problem.risk, EVaR) else "entropic"

    @property
    def alpha(self) -> float | None:
        """The level of the entropic value at risk, if that is the risk."""
        return getattr(self.problem.risk, "alpha", None)

    @property
    def beta(self) -> float:
        """The risk parameter; NaN for the entropic value at risk, which has a level instead."""
        return self.problem.beta

    @property
    def eps(self) -> float:
        return self.problem.eps

    @property
    def delta(self) -> float:
        return self.problem.delta

    @property
    def stationary(self) -> bool:
        return self.problem.stationary

    @property
    def successors(self) -> str:
        """What is declared about the possible next states: ``"unknown"``, ``"model"`` or ``"mask"``."""
        return self.problem.successors

    @property
    def counts(self) -> Counts:
        """The counts behind the claim, as the methods and :mod:`entropic_bpi.lab.events` take them."""
        return Counts.of(self.problem, self.transitions, self.episodes)

    @property
    def reached(self) -> bool:
        """Whether the policy is certified to be ε-optimal."""
        return bool(self.gap <= self.eps)

    def policy_of(self, observation: Any, step: int = 0) -> Any:
        """Return the action of the policy on an observation.

        Arrays of integers are given as tuples. Of a model, ``observation`` is a state's number or name, and the action is
        a number. Of a log, both are labels; those of actions that are neither numbers nor made of them are given as text.

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
            If the observation is none of the environment's or, where states are numbered as they are first seen, was not
            seen in this run. The claim reckons with such observations: it holds whatever is done on them.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> goal = {"beta": -1.0, "eps": 0.5, "delta": 0.1}
        >>> result = eb.identify("Blackjack-v1", horizon=2, reward_range=(-1, 1), **goal, seed=1, max_episodes=50)
        >>> result.certificate.policy_of((21, 10, 1)) in (0, 1)
        True
        """
        step = check_integer("step", step, at_least=0, at_most=self.problem.horizon - 1)
        action = int(self.policy[step, self._state_of(observation)])
        if not self.problem.black_box_rewards:
            return action
        if self._of_a_log:
            return self._logged_actions[action]
        name = self.problem.action_names[action]
        try:
            return ast.literal_eval(name)
        except (ValueError, SyntaxError, MemoryError, RecursionError):  # in a file that is not ours
            raise CertificateError(f"{shown(name)} is not the name of an environment's action") from None

    def policy_for(self, mdp: FiniteMDP) -> np.ndarray:
        """Return the policy for a model of the same environment, whose states have the same names.

        :func:`~entropic_bpi.from_gymnasium` may add twins of a state (``36'``) and further ends (``end 2``): a twin does
        what its state does, and at an end nothing is chosen.

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
        names = [name if name in self._numbers else _without_copies(name) for name in mdp.state_names]
        missing = [name for name in names if name not in self._numbers]
        if missing:
            raise InvalidProblemError(f"state {missing[0]!r} of the model is none of the certificate's")
        return self.policy[:, [self._numbers[name] for name in names]]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.problem.state_names)}

    @cached_property
    def _logged_actions(self) -> list[Any]:
        return labels_behind(self.problem.action_names)

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
            unseen = "" if problem.max_states is None else " that were seen: the claim holds whatever is done on it"
            raise InvalidProblemError(f"{shown(name)} is none of the observations{unseen}")
        return self._numbers[name]

    def report(
        self, path: str | Path, *, grid: tuple[int, int] | None = None, actions: Sequence[str] | None = None
    ) -> Verification:
        """Write a report, see :func:`entropic_bpi.show.report.write`.

        Parameters
        ----------
        path : path
            The HTML file to write.
        grid : (int, int), optional
            Rows and columns, if the first states are the cells of a map.
        actions : sequence of str, optional
            Names for the actions.

        Returns
        -------
        Verification
            The result of the check when the report was written.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=5)
        >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, successors="model", seed=1)
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result.certificate.report(f"{folder}/report.html").ok
        True
        """
        import entropic_bpi

        return entropic_bpi.report.write(self, path, grid=grid, actions=actions)

    def _repr_html_(self) -> str:
        import entropic_bpi

        return entropic_bpi.report.summary_html(self)

    def __repr__(self) -> str:
        risk = self.problem.risk
        named = f"risk={risk}" if isinstance(risk, EVaR) else f"beta={risk.beta:g}"
        return (
            f"Certificate({named}, lower={self.lower:.6g}, upper={self.upper:.6g}, gap={self.gap:.6g}, "
            f"delta={self.delta:g}, episodes={self.episodes}, method={self.method!r})"
        )

    def save(self, path: str | Path) -> None:
        """Write the certificate as JSON; reading it returns exactly the same numbers.

        Parameters
        ----------
        path : path
            The file to write.

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
        write_text_atomically(check_path("path", path), self._text())

    def _text(self) -> str:
        content = self._content()
        return json.dumps({**content, "digest": _digest(content)}, indent=1) + "\n"

    @classmethod
    def load(cls, path: str | Path) -> Certificate:
        """Read a certificate that :meth:`save` wrote.

        What is checked is that the certificate is whole and consistent; whether its counts imply its claim, ask
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
            If the file contains anything else.

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
        content, size = _read(check_path("path", path))
        try:
            certificate = _from_content(content)
            _check_affordable(certificate.problem, size)
        except EntropicBPIError as error:
            raise CertificateError(f"{path}: {error}") from None
        return certificate

    def _content(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "library": __version__,
            "problem": _problem_content(self.problem),
            "method": self.method,
            "constants": self.constants,
            "provenance": {
                **self.provenance._asdict(),
                "ignored": list(self.provenance.ignored),
                "tests": self.provenance.tests and self.provenance.tests._asdict(),
                "log": self.provenance.log and self.provenance.log._asdict(),
            },
            "assumptions": list(self.assumptions),
            "policy": self.policy.tolist(),
            "counts": {
                "episodes": self.episodes,
                **{name: getattr(self.transitions, name).tolist() for name in Transitions._fields},
            },
            "claim": {
                "lower": self.lower,
                "upper": self.upper,
                "gap": self.gap,
                "reached": self.reached,
                "test": self.test,
                "cells": None if self.cells is None else [_cell_content(cell) for cell in self.cells],
            },
        }


def _without_copies(name: str) -> str:
    """The environment's own state behind a state of its model, which may be a twin or a further end."""
    return re.sub(r"^end [0-9]+$", "end", name.rstrip("'"))


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _read(path: Path) -> tuple[dict[str, Any], int]:
    """The content of a certificate file, without its digest, and the size of the file."""
    content, size = _schema.parse(path)
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise CertificateError(f"{path} is not a certificate of entropic-bpi")
    if content.get("version") not in (3, _VERSION):
        raise CertificateError(
            f"{path} has certificate version {content.get('version')!r:.80}, this library reads 3 and {_VERSION}"
        )
    digest = content.pop("digest", None)
    if _digest(content) != digest:
        raise CertificateError(f"{path} was changed after it was written: its digest does not match")
    if content["version"] == 3:
        try:
            content = _from_version_3(content)
        except (KeyError, TypeError, AttributeError):
            raise CertificateError(f"{path} is not a certificate of version 3") from None
    return content, size


def _from_version_3(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a certificate of version 3 in the terms of version 4, which tests one more assumption."""
    provenance = dict(content["circumstances"])
    provenance["preregistration"] = provenance.pop("announcement")
    if provenance["tests"] is not None:
        provenance["tests"] = {**provenance["tests"], "unchanging": None}
    if provenance["log"] is not None:
        provenance["log"] = {**provenance["log"], "seen": False}
    joined, listed = " and that transitions do not depend", ", that transitions do not depend"
    return {
        **{name: value for name, value in content.items() if name != "circumstances"},
        "version": _VERSION,
        "provenance": provenance,
        "assumptions": [sentence.replace(joined, listed) for sentence in content["assumptions"]],
    }


def _from_content(content: dict[str, Any]) -> Certificate:
    """The certificate with this content, every part of which is checked."""
    parts = ("problem", "method", "constants", "provenance", "assumptions", "policy", "counts", "claim")
    given = _schema.object_with("the certificate", content, "format", "version", "library", *parts)
    _schema.text("library", given["library"])
    problem = _read_problem(given["problem"])
    counts = _schema.object_with("counts", given["counts"], "episodes", *Transitions._fields)
    claim = _schema.object_with("claim", given["claim"], "lower", "upper", "gap", "reached", "test", "cells")
    method, constants = _schema.text("method", given["method"]), given["constants"]
    tests: tuple[str | None, ...] = (None,)
    if method == "kl":
        _schema.choice("constants of method 'kl'", constants, None)
        tests = (None,) if isinstance(problem.risk, EVaR) else ("ratio", "pairs")
    elif method == "bernstein":
        _schema.choice("constants of method 'bernstein'", constants, "verified", "sharp", "printed")
    else:  # one that somebody registered
        constants = None if constants is None else _schema.text(f"constants of method {method!r}", constants)
        tests = (None, "ratio", "pairs")
    certificate = Certificate(
        policy=_schema.array("policy", given["policy"], (problem.horizon, problem.n_states), int),
        episodes=_schema.integer("counts.episodes", counts["episodes"], 0),
        lower=_schema.real("claim.lower", claim["lower"]),
        upper=_schema.real("claim.upper", claim["upper"]),
        gap=_schema.real("claim.gap", claim["gap"]),
        method=method,
        constants=constants,
        problem=problem,
        transitions=Transitions(
            rows=_schema.array("counts.rows", counts["rows"], (None,), int),
            successors=_schema.array("counts.successors", counts["successors"], (None,), int),
            times=_schema.array("counts.times", counts["times"], (None,), int),
            rewards=_schema.array("counts.rewards", counts["rewards"], (None,), float),
            upper=_schema.array("counts.upper", counts["upper"], (None,), float),
        ),
        provenance=_read_provenance(given["provenance"]),
        test=_schema.choice(f"claim.test of method {method!r}", claim["test"], *tests),
        cells=None if claim["cells"] is None else _read_cells(claim["cells"]),
    )
    if method == "bernstein" and problem.discount is not None:
        raise CertificateError(f"method {method!r} does not discount")
    if isinstance(problem.risk, EVaR) and method != "kl":
        raise CertificateError(f"the entropic value at risk is certified by method 'kl', got {method!r}")
    if claim["reached"] is not certificate.reached:
        raise CertificateError(f"claim.reached must be {certificate.reached}, got {claim['reached']!r:.80}")
    if given["assumptions"] != list(certificate.assumptions):
        raise CertificateError("the assumptions are not those of such a certificate")
    return certificate


def _problem_content(problem: Problem) -> dict[str, Any]:
    slots, evar = problem.slots, isinstance(problem.risk, EVaR)
    return {
        "n_states": problem.n_states,
        "n_actions": problem.n_actions,
        "horizon": problem.horizon,
        "start": problem.start,
        "beta": None if evar else problem.beta,
        "alpha": getattr(problem.risk, "alpha", None),
        "eps": problem.eps,
        "delta": problem.delta,
        "rewards": None if problem.rewards is None else problem.rewards.tolist(),
        "slots": {name: getattr(slots, name).tolist() for name in Slots._fields},
        "state_names": list(problem.state_names),
        "action_names": list(problem.action_names),
        "source": problem.source_hash,
        "lams": None if problem.lams is None else list(problem.lams),
        **{name: _plain(getattr(problem, name)) for name in _DECLARED},
    }


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _read_problem(content: Any) -> Problem:
    sizes, risk = ("n_states", "n_actions", "horizon"), ("beta", "alpha", "eps", "delta")
    parts = ("start", "rewards", "slots", "state_names", "action_names", "source", "lams")
    given = _schema.object_with("problem", content, *sizes, *risk, *parts, *_DECLARED)
    n_states, n_actions, horizon = (_schema.integer(name, given[name], 1) for name in sizes)
    slots = _schema.object_with("slots", given["slots"], *Slots._fields)
    successor = _schema.array("slots.successor", slots["successor"], (None,), int)
    rewards, lams = given["rewards"], given["lams"]
    if rewards is not None:
        rewards = _schema.array("rewards", rewards, (None, n_states, n_actions), float)
        if len(rewards) not in (1, horizon):
            raise CertificateError(f"rewards must have 1 or {horizon} steps, got {len(rewards)}")
    problem = Problem(
        n_states=n_states,
        n_actions=n_actions,
        horizon=horizon,
        start=_read_start(given["start"], n_states),
        risk=_read_risk(given["beta"], given["alpha"]),
        eps=check_positive("eps", _schema.real("eps", given["eps"])),
        delta=check_probability("delta", _schema.real("delta", given["delta"])),
        rewards=rewards,
        slots=Slots(
            begin=_schema.array("slots.begin", slots["begin"], (None,), int),
            used=_schema.array("slots.used", slots["used"], (None,), int),
            successor=successor,
            low=_schema.array("slots.low", slots["low"], (None, len(successor)), float),
            high=_schema.array("slots.high", slots["high"], (None, len(successor)), float),
            possible=_schema.array("slots.possible", slots["possible"], (None,), int),
        ),
        state_names=_schema.names("state_names", given["state_names"], n_states),
        action_names=_schema.names("action_names", given["action_names"], n_actions),
        source_hash=_schema.text("source", given["source"]),
        lams=None if lams is None else tuple(_schema.array("lams", lams, (None,), float).tolist()),
        **{name: given[name] for name in _DECLARED},
    )
    _schema.choice("stationary", problem.stationary, True, False)
    _schema.choice("successors", problem.successors, "unknown", "model", "mask")
    _schema.choice("reward_law", problem.reward_law, *REWARD_LAWS)
    if problem.black_box_rewards and problem.slots.low.size:
        problem = replace(problem, reward_range=(problem.slots.low[0, 0], problem.slots.high[0, 0]))
    return problem


def _read_start(start: Any, n_states: int) -> Any:
    if isinstance(start, list):
        return _schema.array("start", start, (None,), int).tolist()
    return start if start in (None, FIXED) else _schema.integer("start", start, 0, n_states - 1)


def _read_risk(beta: Any, alpha: Any) -> Risk:
    if alpha is None:
        return Entropic(_schema.real("beta", beta))
    if beta is not None:
        raise CertificateError(f"beta must be null beside alpha = {alpha!r:.80}, got {beta!r:.80}")
    return EVaR(_schema.real("alpha", alpha))


def _cell_content(cell: Cell) -> dict[str, Any]:
    return {**cell._asdict(), "until": None if cell.until == math.inf else cell.until}


def _read_cells(content: Any) -> tuple[Cell, ...]:
    if not isinstance(content, list):
        raise CertificateError(f"claim.cells must be a list, got {content!r:.80}")
    cells = []
    for cell in content:
        given = _schema.object_with("claim.cells", cell, *Cell._fields)
        until = math.inf if given["until"] is None else _schema.real("claim.cells.until", given["until"])
        test = _schema.choice("claim.cells.test", given["test"], "ratio", "pairs", None)
        cells.append(Cell(_schema.real("claim.cells.lam", given["lam"]), until, test))
    return tuple(cells)


def _read_provenance(content: Any) -> Provenance:
    given = _schema.object_with("provenance", content, *Provenance._fields)
    ignored, preregistration = given["ignored"], given["preregistration"]
    if ignored not in ([], ["stationary"], ["successors"], ["stationary", "successors"]):
        raise CertificateError(f"provenance.ignored must name 'stationary' and 'successors', got {ignored!r:.80}")
    if preregistration is not None and not re.fullmatch(
        "[0-9a-f]{64}", _schema.text("preregistration", preregistration)
    ):
        raise CertificateError(
            f"preregistration must be a digest of 64 hexadecimal digits, got {preregistration!r:.80}"
        )
    return Provenance(
        batches=_schema.choice("provenance.batches", given["batches"], True, False),
        ignored=tuple(ignored),
        errors=_schema.integer("provenance.errors", given["errors"], 0),
        preregistration=preregistration,
        tests=None if given["tests"] is None else _read_tests(given["tests"]),
        log=None if given["log"] is None else _read_logged(given["log"]),
    )


def _read_logged(content: Any) -> LogSummary:
    given = _schema.object_with("provenance.log", content, *LogSummary._fields)
    return LogSummary(
        longest=_schema.integer("provenance.log.longest", given["longest"], 1),
        unused=_schema.integer("provenance.log.unused", given["unused"], 0),
        excluded=None if given["excluded"] is None else _schema.text("provenance.log.excluded", given["excluded"]),
        seen=_schema.choice("provenance.log.seen", given["seen"], True, False),
    )


def _read_tests(content: Any) -> Evidence:
    given = _schema.object_with("tests", content, *Evidence._fields)
    numbers: dict[str, Any] = {
        name: None if value is None and name != "memoryless" else _schema.real(f"tests.{name}", value)
        for name, value in given.items()
    }
    evidence = Evidence(**numbers)
    if not max(evidence.stationary or 0.0, evidence.memoryless, evidence.unchanging or 0.0) < REJECTED_FROM:
        raise CertificateError(f"tests must not have rejected what is assumed, got {content!r:.80}")
    return evidence


def _check_affordable(problem: Problem, size: int) -> None:
    """Refuse a small file about a huge problem: pooled counts do not grow with the horizon, what planning needs does."""
    needed = 8 * problem.steps * problem.n_states * problem.n_actions
    if needed > 20 * size + _ALWAYS_AFFORDED:
        raise CertificateError(f"planning would take {needed} bytes of memory, far more than the file's {size}")


def _assumptions_of(problem: Problem, transitions: Transitions, provenance: Provenance) -> tuple[str, ...]:
    """What every claim about ``problem`` rests on, in words."""
    possible = {
        "unknown": "any state may follow any state and action",
        "model": "the possible next states are those of the model (their probabilities are not used)",
        "mask": "the possible next states are those of the declared mask",
    }
    return (
        *_origin_of(problem, provenance),
        "transitions are the same at every step" if problem.stationary else "transitions may differ from step to step",
        possible[problem.successors],
        *_state_assumption(problem),
        *_declared_limits(problem),
        _reward_assumption(problem, transitions),
        *_discount_assumption(problem),
        _start_assumption(problem),
    )


def _start_assumption(problem: Problem) -> str:
    if problem.start is None:
        return "the start is random; its distribution is learned as an artificial first step"
    if isinstance(problem.start, str):
        return "every episode starts in the same state"
    names = [problem.state_names[s] for s in ([problem.start] if isinstance(problem.start, int) else problem.start)]
    return f"every episode starts in {'state' if len(names) == 1 else 'one of the states'} {', '.join(names)}"


def _state_assumption(problem: Problem) -> tuple[str, ...]:
    if problem.max_states is None:
        return ()
    bound = f"there are at most {problem.max_states} different observations"
    return (f"{bound}; a state is one of them, numbered as it was first seen",)


def _origin_of(problem: Problem, provenance: Provenance) -> tuple[str, ...]:
    """Where the episodes come from."""
    log = provenance.log
    if log is None:
        lost = "no other was discarded" if provenance.errors else "none was discarded"
        return (f"episodes are independent runs of one finite Markov decision process, and {lost}",)
    origin = [
        "episodes are a log of one finite Markov decision process: every decision depended on the past alone, and nothing "
        "is missing because of what it led to",
        f"there are no other {'' if problem.max_states or log.seen else 'states and '}actions than those that are named",
    ]
    if log.seen:
        origin.append("the user declares that the states of the log are all there are")
    if log.unused:
        origin.append(
            f"episodes that did not end were cut after {log.longest} steps, whatever happened; that step is not used, "
            "because the log does not tell where it led"
        )
    if log.excluded is not None:
        origin.append(f"left out on request, and not because of what happened in them: {log.excluded}")
    return tuple(origin)


def _reward_assumption(problem: Problem, transitions: Transitions) -> str:
    if not problem.black_box_rewards:
        known = "state, action and next state" if problem.next_state_rewards else "state and action"
        return f"rewards are known, a function of {known}"
    low, high = problem.declared_range
    inside = f"rewards lie in [{low:g}, {high:g}] and are "
    if problem.random_rewards:
        pair = problem.reward_law == "random-pair"
        given = "state and action, whatever the next state" if pair else "state, action and next state"
        law = f"random, independent from visit to visit, with one law for each {given}"
        alone = (
            "this beta alone" if problem.lams is None else f"{len(problem.lams)} values of lambda declared beforehand"
        )
        return f"{inside}{law}; the claim is for {alone}"
    rounded = (transitions.upper > transitions.rewards).any()
    exception = (
        f"that an ending may have {END_REWARDS} different ones and a step back to the same state {STAY_REWARDS}"
        if problem.successors == "unknown"
        else "that a next state which is declared several times may have as many"
    )
    return f"{inside}determined by state, action and next state, except {exception}" + (
        f"; those that differ by at most {SAME_REWARD:g} of that range are one, between them" if rounded else ""
    )


def _discount_assumption(problem: Problem) -> tuple[str, ...]:
    if problem.discount is None:
        return ()
    return (
        f"the return never ends, and a reward counts {problem.discount!r} times as much with every step; "
        f"{problem.horizon} steps are planned, and what all later ones can add, whatever is done, is part of the bounds",
    )


def _declared_limits(problem: Problem) -> tuple[str, ...]:
    limits = []
    if problem.max_successors is not None:
        paid = problem.black_box_rewards and not problem.random_rewards
        outcome = "outcomes (next state and reward)" if paid else "next states"
        limits.append(f"every action in every state has at most {problem.max_successors} different {outcome}")
    if problem.return_range is not None:
        least, most = problem.return_range
        limits.append(f"the return of every episode lies in [{least:g}, {most:g}], whatever is played")
    return tuple(limits)


def _not_machine_checked(problem: Problem, provenance: Provenance) -> tuple[str, ...]:
    """How a run with the machine-checked constants differs from the statement that is machine-checked."""
    low, high = problem.possible_rewards
    differs = [
        ("plans and tests in batches", provenance.batches),
        ("rewards are rescaled to [0, 1]", low < 0 or high > 1),
        ("the start is random", problem.artificial),
    ]
    parts = [words for words, holds in differs if holds]
    if not parts:
        return ()
    return (
        f"the machine-checked theorem is about the run without: {', '.join(parts)}; here the guarantee rests on the proof "
        "on paper",
    )


def _lost_episodes(provenance: Provenance) -> tuple[str, ...]:
    times = provenance.errors
    if not times:
        return ()
    often = "once" if times == 1 else f"{times} times"
    return (
        f"the environment raised an error {often} and the run went on: episodes may have been lost, but not because of "
        "what happened in them",
    )


def _tested(evidence: Evidence | None) -> tuple[str, ...]:
    """How the tests of the assumptions came out."""
    if evidence is None:
        return ()
    e_values = {
        "that transitions are the same at every step": evidence.stationary,
        "that transitions do not depend on the previous state": evidence.memoryless,
        "that nothing changes over the episodes": evidence.unchanging,
    }
    tested = [f"{what} (log e-value {value:.3g})" for what, value in e_values.items() if value is not None]
    shown = "" if evidence.returns is None else f". Their returns alone show a value of at least {evidence.returns:.3g}"
    return (
        f"the episodes were used to test {', '.join(tested)}, and did not reject it: each test rejects what is true with "
        f"probability at most {LEVEL:g}, from {REJECTED_FROM:.3g} on{shown}",
    )
