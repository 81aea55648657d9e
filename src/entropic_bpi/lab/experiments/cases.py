"""The models of a validation, and the cells of a study.

A *case* is a model with risk parameters, or levels of the entropic value at risk, and an accuracy. A *cell* is a case at
one of them under one rule of :data:`~entropic_bpi.lab.experiments.spec.RULES`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.lab.experiments.oracle import true_values
from entropic_bpi.lab.experiments.spec import RULES
from entropic_bpi.model import instances, planning
from entropic_bpi.model.mdp import FiniteMDP, check_model
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.risk import Entropic, EVaR
from entropic_bpi.runs.identification import start_run
from entropic_bpi.runs.settings import Settings
from entropic_bpi.tools.checks import check_finite, check_list, check_positive, check_probability
from entropic_bpi.tools.text import shown

# The name of the totals.
ALL = "all"
DELTA = 0.1
# The rules of cells of the entropic value at risk.
EVAR_RULES = ("KL, successors known", "KL, both")
# Unless given, ε is this share of the loss of the worst policy, so that a wrong answer is possible in every cell.
EPS_SHARE = 0.1
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Case:
    """A model to validate on.

    Attributes
    ----------
    name : str
        Name of the case in the tables.
    mdp : FiniteMDP
        The model.
    betas : tuple of float
        Risk parameters; positive is risk-seeking.
    eps : float, optional
        Accuracy, in the reward's own units; by default 0.1 of the loss of the worst policy, to nine digits.
    alphas : tuple of float
        Levels of the entropic value at risk, each under the rules ``EVAR_RULES``. The default of ``eps`` is then computed
        from the worst policy that always chooses the same action.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> from entropic_bpi.lab.experiments import Case
    >>> case = Case("bridge", eb.instances.risky_bridge(horizon=4), betas=(-1.0,))
    >>> 0 < case.accuracy(-1.0) < 0.1
    True
    """

    name: str
    mdp: FiniteMDP
    betas: tuple[float, ...] = (1.0, -1.0)
    eps: float | None = None
    params: dict[str, Any] = field(default_factory=dict)
    alphas: tuple[float, ...] = ()

    def accuracy(self, beta: float) -> float:
        """Return ε for a risk parameter."""
        loss = planning.solve(self.mdp, beta).value - worst_value(self.mdp, beta)
        return self._accuracy(loss, f"beta = {beta:g}")

    def evar_accuracy(self, alpha: float) -> float:
        """Return ε for a level of the entropic value at risk."""
        shape = (self.mdp.horizon, self.mdp.n_states)
        always = [true_values(self.mdp, np.full(shape, a), math.nan, alpha) for a in range(self.mdp.n_actions)]
        return self._accuracy(max(best - mine for best, mine in always), f"alpha = {alpha:g}")

    def _accuracy(self, loss: float, where: str) -> float:
        if self.eps is not None:
            if check_positive("eps", self.eps) >= loss:
                raise InvalidProblemError(
                    f"every policy of {self.name} is eps-optimal at {where}: the worst one loses {loss:.6g}"
                )
            return self.eps
        if loss < _ROUNDING:
            raise InvalidProblemError(f"all policies of {self.name} are equally good at {where}: nothing to validate")
        return float(f"{EPS_SHARE * loss:.9g}")  # a part of hashes, so without the digits that depend on the processor

    def rules(self, beta: float) -> list[str]:
        """Return the rules that apply to the model."""
        return [name for name, settings in RULES.items() if self._fits(beta, **settings)]

    def _fits(self, beta: float, **settings: Any) -> bool:
        """Return whether the method accepts the model with what the rule declares about it."""
        try:
            start_run(self.mdp, Settings.of(beta=beta, eps=1.0, delta=DELTA, **settings))
        except InvalidProblemError:
            return False
        return True


def worst_value(mdp: FiniteMDP, beta: float) -> float:
    """Return the value of the worst policy, which is the best one for the opposite rewards and risk parameter."""
    return -planning.solve(mdp._with_rewards(-mdp._payoffs), -beta).value


class StudyCell(NamedTuple):
    """A case at one β, or at one level of the entropic value at risk, under one rule."""

    rule: str
    case: Case
    beta: float
    alpha: float | None
    eps: float

    @property
    def first_seed(self) -> int:
        """Return the first seed of the cell; no two cells share seeds, so that their failures are independent."""
        risk = repr(self.beta) if self.alpha is None else f"EVaR({self.alpha!r})"
        return crc32(f"{self.case.name}|{risk}|{self.rule}".encode()) << 16

    def problem(self, delta: float) -> Problem:
        declared = {name: value for name, value in RULES[self.rule].items() if name not in ("method", "constants")}
        risk = Entropic(self.beta) if self.alpha is None else EVaR(self.alpha)
        return Problem.from_mdp(self.case.mdp, risk=risk, eps=self.eps, delta=delta, **declared)


def default_cases() -> list[Case]:
    """Return small models: chains, trees, garnets, kernels by step, random starts, next-state rewards, a lake."""
    rng = np.random.default_rng(7)
    dense = rng.dirichlet(np.full(4, 0.6), (4, 2))
    outcomes = rng.dirichlet(np.ones(3), (3, 2, 2))
    cases = [
        Case("bridge", instances.risky_bridge(horizon=5)),
        Case("bridge_slippery", instances.risky_bridge(horizon=4, p_start=0.7)),
        Case("river", instances.river_swim(4, horizon=5)),
        Case("garnet", instances.garnet(3, 2, 2, horizon=3, seed=0), alphas=(0.1, 0.5)),
        Case("garnet_by_step", instances.garnet(2, 3, 2, horizon=2, seed=1, stationary=False)),
        Case("random_start", FiniteMDP(dense, rng.random((4, 2)), horizon=3, start=rng.dirichlet(np.ones(4)))),
        Case("paid_on_arrival", FiniteMDP(outcomes[:, :, 0], 2 * rng.random((3, 2, 3)) - 1, horizon=3), alphas=(0.2,)),
        Case("lake", instances.from_gymnasium("FrozenLake-v1", horizon=6, desc=["SFG", "HFF"])),
    ]
    for beta in (1.0, -1.0):
        tree = instances.hard_instance(6, 2, 6, beta=beta, eps=0.05, special=(1, 5, 1))
        cases.append(Case("hard", tree, (beta,), params={"beta": beta}))
    return cases


def check_cases(cases: Sequence[Any]) -> None:
    """Check the cases; no two cells may have the same name and β or level."""
    for case in cases:
        if not isinstance(case, Case):
            raise InvalidProblemError(f"cases must hold Case objects, got {shown(case)}")
        check_model(case.mdp, f"the model of {shown(case.name)}")
        for beta in check_list("betas", case.betas):
            check_finite("beta", beta)
        for alpha in check_list("alphas", case.alphas):
            check_probability("alpha", alpha)
    cells = [(case.name, f"beta = {beta:g}") for case in cases for beta in case.betas]
    cells += [(case.name, f"alpha = {alpha:g}") for case in cases for alpha in case.alphas]
    repeated = next((cell for cell in cells if cells.count(cell) > 1), None)
    if repeated:
        raise InvalidProblemError(f"two cases are called {repeated[0]!r} and have {repeated[1]}")
    if any(case.name == ALL for case in cases):
        raise InvalidProblemError(f"no case may be called {ALL!r}, which is the name of the totals")


def cells_of(cases: Sequence[Case], rules: Sequence[str] | None) -> list[StudyCell]:
    cells: list[StudyCell] = []
    for case in cases:
        for beta in case.betas:
            eps = case.accuracy(beta)
            cells += [StudyCell(rule, case, beta, None, eps) for rule in case.rules(beta)]
        for alpha in case.alphas:
            eps, fitting = case.evar_accuracy(alpha), case.rules(-1.0)
            cells += [StudyCell(rule, case, math.nan, alpha, eps) for rule in fitting if rule in EVAR_RULES]
    chosen = [cell for cell in cells if rules is None or cell.rule in rules]
    if not chosen:
        raise InvalidProblemError("none of the rules applies to the cases")
    return chosen
