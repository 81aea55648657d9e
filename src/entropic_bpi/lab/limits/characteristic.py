r"""A lower bound on the number of episodes that every algorithm needs on a given model.

**Change of measure.** Let an algorithm be (ε, δ)-PAC on a class of models with the same rewards and start as :math:`M`, and
let :math:`M'` be one of them. Write :math:`A(M)` for the deterministic policies that are ε-optimal in :math:`M` and
:math:`x=\mathbb P_M(\hat\pi\in A(M'))`. Then

.. math:: \sum_{h,s,a}\mathbb E_M[N_h(s,a)]\,\mathrm{KL}\big(p_h(s,a),p'_h(s,a)\big) \ge \varphi(x), \qquad
   \varphi(x) = \mathrm{kl}(x, 1-\delta)\,\mathbf 1\{x<1-\delta\},

and :math:`x\le\delta` if no policy is ε-optimal in both. The expected visits :math:`\mathbb E_M[N]` are
:math:`\mathbb E_M[\tau]` times a point of the visitation polytope of :math:`M`.

**Many alternatives at once.** With several alternatives :math:`M_1,\dots,M_K` these inequalities hold together, and the
:math:`x_k` come from one law of the returned policy. So :math:`\mathbb E_M[\tau]` is at least the smallest :math:`T` for
which visits :math:`n`, a law and its :math:`x_k` exist. *Any* finite family gives a valid bound, and a larger family a
better one: the supremum over families is the best bound of this argument.

**Relaxations, which only lower the bound.** (a) A policy of :math:`A(M_k)` is described by its decisions one at a time: it
plays in :math:`D_k(h,s)`, the actions whose best completion loses at most ε in :math:`M_k`. (b) If
:math:`D_k(h,s)\cap D_0(h,s)=\varnothing` somewhere, then :math:`x_k\le\delta`; the same holds if the best policy that plays
in :math:`D_0` wherever it can be in :math:`M` loses more than ε in :math:`M_k`. Otherwise the part of the law in
:math:`A(M_k)` is a flow of mass :math:`x_k` through the rows of :math:`D_k`, below the flow of the whole law. (c)
:math:`\varphi` is convex and is replaced by tangents. What remains is a linear program.

**Heuristics.** Alternatives are found as follows: for each step, state and action, rows are moved along the gradient of the
difference of two values, weighted by the visits of the current program, as far as needed. If no such move leads to an
alternative, rows are moved together in small steps, with a new gradient at every step. This affects the size of the bound,
not its validity; alternatives in which no single decision changes are not searched for.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize, sparse

from entropic_bpi.errors import EntropicBPIError, InvalidProblemError
from entropic_bpi.lab.limits.alternatives import AlternativeKernels, DenseModel, Target, row_divergence
from entropic_bpi.lab.limits.bounds import check_exponent
from entropic_bpi.model.mdp import FiniteMDP, check_model
from entropic_bpi.tools import checks
from entropic_bpi.tools.text import shown

# The tolerance of the linear program, which is subtracted from its value.
_PROGRAM_SLACK = 1e-6
_TANGENTS = (0.002, 0.01, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8)


@dataclass(frozen=True, eq=False)
class CharacteristicTime:
    """A lower bound on the expected number of episodes, and the models that imply it.

    Attributes
    ----------
    episodes : float
        Every (ε, δ)-PAC algorithm needs at least this many episodes on average.
    time : float
        ``episodes`` over kl(δ, 1 - δ): the factor of log(1/δ) for small δ.
    visits : float array ``(H, S, A)``
        Expected visits that attain the bound of the program.
    alternatives : tuple of FiniteMDP
        The models that the data must rule out and that determine the bound.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> from entropic_bpi import theory
    >>> kernel = [[[0, 0.8, 0.2], [0, 0.5, 0.5]], [[0, 1, 0]] * 2, [[0, 0, 1]] * 2]
    >>> lotteries = eb.FiniteMDP(kernel, [[0, 0], [1, 1], [0, 0]], horizon=2)
    >>> theory.characteristic_time(lotteries, 0.0, 0.1).visits.shape
    (2, 3, 2)
    """

    episodes: float
    time: float
    visits: np.ndarray
    alternatives: tuple[FiniteMDP, ...]

    def __float__(self) -> float:
        return self.episodes

    def __repr__(self) -> str:
        count = len(self.alternatives)
        return f"CharacteristicTime(episodes={self.episodes:.6g}, time={self.time:.6g}, alternatives={count})"


def characteristic_time(
    mdp: FiniteMDP,
    beta: float,
    eps: float,
    *,
    delta: float = 0.1,
    successors: str | None = "model",
    stationary: bool = False,
    rounds: int = 6,
    seconds: float | None = None,
) -> CharacteristicTime:
    r"""Compute a lower bound on the episodes that every (ε, δ)-PAC algorithm needs on this model, on average.

    The number is a proved lower bound on :math:`\mathbb E[\tau]`, up to floating-point rounding, for every algorithm that
    knows rewards and start, returns a deterministic policy and is (ε, δ)-PAC on all models of the class below. It is not
    the best such bound: see the module's docstring for what is relaxed and what is heuristic. The cost grows quickly with
    the model; it is meant for a few hundred rows (h, s, a).

    Parameters
    ----------
    mdp : FiniteMDP
        The model.
    beta : float
        Risk parameter: positive is risk-seeking, negative risk-averse, 0 the expectation.
    eps, delta : float
        Accuracy, and the probability of error.
    successors : "model" or None
        The class: kernels with the model's own possible successors, so that the bound holds even for an algorithm that
        knows them, or kernels with any successors.
    stationary : bool
        The class: kernels that may change from step to step (False), or only those that do not.
    rounds : int
        Largest number of rounds in which alternatives are improved; more rounds give a better bound.
    seconds : float, optional
        Search for alternatives for this time, and use those found so far. A linear program may take as long again; if it
        does not end, it is solved for half of the alternatives. Without a limit the result is reproducible.

    Returns
    -------
    CharacteristicTime
        The bound, and the alternatives that imply it.

    Examples
    --------
    Two lotteries for one unit, won with probability 0.8 and 0.5:

    >>> import entropic_bpi as eb
    >>> from entropic_bpi import theory
    >>> lotteries = eb.FiniteMDP(
    ...     [[[0, 0.8, 0.2], [0, 0.5, 0.5]], [[0, 1, 0]] * 2, [[0, 0, 1]] * 2],
    ...     [[0, 0], [1, 1], [0, 0]],
    ...     horizon=2,
    ... )
    >>> round(theory.characteristic_time(lotteries, 0.0, 0.1, delta=0.05).episodes)
    30
    """
    mdp, beta = check_model(mdp), checks.check_finite("beta", beta)
    eps, delta = checks.check_positive("eps", eps), checks.check_probability("delta", delta)
    if successors is not None and not (isinstance(successors, str) and successors == "model"):
        raise InvalidProblemError(f"successors must be 'model' or None, got {shown(successors)}")
    if checks.check_flag("stationary", stationary) and not mdp.stationary:
        raise InvalidProblemError("stationary=True asks for kernels that do not change, but the model's does")
    rounds = checks.check_integer("rounds", rounds)
    seconds = np.inf if seconds is None else checks.check_positive("seconds", seconds)
    check_exponent(beta, mdp.horizon * max(map(abs, mdp.reward_range)))
    model = DenseModel.of(mdp, beta)
    search = _Search(AlternativeKernels(model, eps, successors is None, bool(stationary)), delta)
    solution = search.run(rounds, seconds)
    bound = solution.episodes * (1 - _PROGRAM_SLACK)
    certain = _divergence(delta, delta) if delta < 0.5 else np.inf
    rewards = model.rewards if mdp.rewards is None else mdp.rewards
    kernels = [search.alternatives[k].kernel for k in solution.binding]
    kernels = [kernel[0] if stationary else kernel for kernel in kernels]
    binding = [FiniteMDP(kernel, rewards, horizon=mdp.horizon, start=mdp.start) for kernel in kernels]
    return CharacteristicTime(bound, bound / certain, search.on_rows(solution.visits), tuple(binding))


class _Alternative(NamedTuple):
    """A kernel, its divergence from the model in each reachable row, its ``decisions``, and whether x ≤ δ."""

    target: int
    kernel: np.ndarray
    divergence: np.ndarray
    decisions: np.ndarray
    decisive: bool

    def resembles(self, other: _Alternative) -> bool:
        """Return whether two alternatives are almost equal."""
        same = self.decisive == other.decisive and (self.decisions == other.decisions).all()
        return bool(same and np.allclose(self.divergence, other.divergence, rtol=1e-4, atol=0))


class _Solution(NamedTuple):
    """Episodes, visits of the reachable rows, the share x of each alternative, and which alternatives bind or nearly do."""

    episodes: float
    visits: np.ndarray
    shares: list[float]
    binding: list[int]
    close: list[int]


class _Search:
    """Alternate between the linear program and the search for alternatives that its solution does not rule out."""

    def __init__(self, kernels: AlternativeKernels, delta: float) -> None:
        self.kernels, self.model, self.delta, self.decisions = kernels, kernels.model, delta, kernels.decisions
        self.alternatives: list[_Alternative] = []
        horizon, states, actions = self.model.shape
        self.places = np.zeros((horizon, states), dtype=bool)  # those that an episode can reach
        self.spread = np.zeros(self.model.shape)  # visits of the policy that plays uniformly, per episode
        occupied, reached = self.model.start, self.model.start > 0
        for h in range(horizon):
            self.places[h] = reached
            reached = (self.model.kernel[h][reached] > 0).any(axis=(0, 1))
            self.spread[h] = occupied[:, None] / actions
            occupied = np.einsum("sa,sat->t", self.spread[h], self.model.kernel[h])
        self.reachable = np.repeat(self.places[:, :, None], actions, axis=2)
        self.targets = self._targets()
        self.flow, self.inflow = self._flow_matrix()

    def on_rows(self, reachable: np.ndarray) -> np.ndarray:
        """Return values of the reachable rows as an array ``(H, S, A)``."""
        table = np.zeros(self.model.shape)
        table[self.reachable] = reachable
        return table

    def run(self, rounds: int, seconds: float) -> _Solution:
        began = time.perf_counter()
        solution = _Solution(0.0, self.spread[self.reachable], [], [], [])
        wanted = list(range(len(self.targets)))
        for _ in range(rounds):
            known = len(self.alternatives)
            for index in wanted:
                if time.perf_counter() - began < seconds:
                    self._add_alternatives(index, solution)
            if len(self.alternatives) == known:
                break
            improved = self._program(seconds)
            while improved is None and known == 0 and len(self.alternatives) > 1:  # keep the more important half
                del self.alternatives[len(self.alternatives) // 2 :]
                improved = self._program(seconds)
            if improved is None:
                del self.alternatives[known:]
                break
            if improved.episodes <= solution.episodes:
                break
            gain, solution = improved.episodes / (solution.episodes or 1.0), improved
            if known and gain < 1.002:
                break
            wanted = sorted({self.alternatives[k].target for k in solution.close})
        return solution

    def _targets(self) -> list[Target]:
        """Return the targets, in order of importance: first states with one ε-optimal action, the rarest first."""
        often, open_ended = self.spread.sum(axis=2), self.decisions.sum(axis=2) > 1
        order = np.where(open_ended, -often, often)
        places = sorted(np.argwhere(self.places).tolist(), key=lambda place: (open_ended[*place], order[*place]))
        targets = []
        for h, s in places:
            good = np.flatnonzero(self.decisions[h, s]).tolist()
            every = [Target((h, s), a, [b for b in good if b != a]) for a in range(self.model.shape[2])]
            targets += [target for target in every if target.others]
        return targets

    def _add_alternatives(self, index: int, solution: _Solution) -> None:
        """Add alternatives for a target: its own row alone, the rows of its policy, and those of its rival as well."""
        target, kernels = self.targets[index], self.kernels
        weights = self.on_rows(solution.visits / (solution.visits.max() or 1.0) + 1e-3)
        for kernel in kernels.leading_to(target, weights, first=solution.episodes == 0):
            other = kernels.model_of(kernel)
            decisions = other.decisions(kernels.eps)
            wrong = kernels.restricted_loss(other) > kernels.eps * (1 + 5e-8) + other.slack
            if decisions[target.place][target.others].any() and not wrong:
                continue
            divergence = row_divergence(self.model.kernel, kernel)[self.reachable]
            decisive = wrong or bool((~(decisions & self.decisions).any(axis=2)).any())
            alternative = _Alternative(index, kernel, divergence, decisions, decisive)
            if not any(alternative.resembles(known) for known in self.alternatives):
                self.alternatives.append(alternative)

    # -- the linear program ------------------------------------------------------------------------------

    def _flow_matrix(self) -> tuple[Any, np.ndarray]:
        """Return the conservation of flow over the reachable rows: ``matrix @ visits = mass * inflow``."""
        number = np.cumsum(self.places.ravel()).reshape(self.places.shape) - 1
        h, s, _ = np.nonzero(self.reachable)
        out = sparse.csr_array((np.ones(len(h)), (number[h, s], np.arange(len(h)))), shape=(number.max() + 1, len(h)))
        kernel = self.model.kernel[self.reachable]
        row, successor = np.nonzero(kernel * (h < self.model.shape[0] - 1)[:, None])
        arrivals = (kernel[row, successor], (number[h[row] + 1, successor], row))
        inflow = np.zeros(out.shape[0])
        inflow[number[0, self.places[0]]] = self.model.start[self.places[0]]
        return out - sparse.csr_array(arrivals, shape=out.shape), inflow

    def _most_per_episode(self, price: np.ndarray) -> float:
        """Compute the largest expected sum of prices in an episode, by dynamic programming.

        By duality it is 1 for exact multipliers of the program. Dividing by it makes the value a bound despite the rounding
        of the solver.
        """
        table, values = self.on_rows(price), np.zeros(self.model.shape[1])
        for h in reversed(range(self.model.shape[0])):
            values = (table[h] + self.model.kernel[h] @ values).max(axis=1)
        return float(self.model.start @ values)

    def _program(self, seconds: float) -> _Solution | None:
        """Solve the program, and add tangents of φ at the shares found, until they no longer matter or the time is up.

        The result is None if not even the first program was solved in this time.
        """
        tangents, began, solution = {min(t, 0.999) * (1 - self.delta) for t in _TANGENTS}, time.perf_counter(), None
        while True:
            newer = self._solve_program(sorted(tangents), max(began + seconds - time.perf_counter(), 0.01))
            if newer is None:
                return solution
            solution = newer
            open_ended = [x for a, x in zip(self.alternatives, solution.shares, strict=True) if not a.decisive]
            new = {round(float(x), 4) for x in open_ended if 1e-4 < x < 1 - self.delta}
            new = {x for x in new if min(abs(x - t) for t in tangents) > 0.05 * x}
            if not new or len(tangents) > 40:
                return solution
            tangents |= new

    def _solve_program(self, tangents: list[float], seconds: float) -> _Solution | None:
        r"""Minimise :math:`T`, or return None if it takes too long.

        Variables are visits, T and, if needed, the flows of the law and of its parts, and shares.
        """
        flow, inflow, size, delta = self.flow, self.inflow, self.flow.shape[1], self.delta
        source, nothing = -sparse.csr_array(inflow[:, None]), np.zeros(len(inflow))
        scale = float(np.median([a.divergence.max() for a in self.alternatives]))
        certain = _divergence(delta, delta)
        shared = {k: a.decisions for k, a in enumerate(self.alternatives) if not a.decisive}
        program = _LinearProgram()
        visits, total = program.add(size), program.add(1)
        program.constrain("equal", [(visits, flow), (total, source)], nothing)
        share_of: dict[int, slice] = {}
        if shared:
            law = program.add(size)
            program.constrain("equal", [(law, flow)], inflow)
            for k, decisions in {-1: self.decisions, **shared}.items():
                allowed = np.flatnonzero(decisions[self.reachable])
                part, share_of[k] = program.add(len(allowed)), program.add(1, upper=1.0)
                program.constrain("equal", [(part, flow[:, allowed]), (share_of[k], source)], nothing)
                whole = sparse.eye_array(size, format="csr")[allowed]
                below = [(part, sparse.eye_array(len(allowed))), (law, -whole)]
                program.constrain("at_most", below, np.zeros(len(allowed)))
            program.constrain("at_most", [(share_of[-1], -sparse.eye_array(1))], np.array([delta - 1]))
        priced = []
        for k, alternative in enumerate(self.alternatives):
            information = (visits, sparse.csr_array(-alternative.divergence[None] / scale))
            if alternative.decisive:
                priced.append((program.constrain("at_most", [information], np.array([-certain])), k))
                continue
            for x in tangents:
                slope = np.log(x / (1 - x)) - np.log((1 - delta) / delta)
                terms = [information, (share_of[k], sparse.csr_array([[slope]]))]
                height = np.array([slope * x - _divergence(x, delta)])
                priced.append((program.constrain("at_most", terms, height), k))
        solved = program.minimise(total.start, seconds)
        if solved is None:
            return None
        outcome, prices = solved
        price, worth = np.zeros(size), 0.0
        for row, k in priced:
            price += prices[row] * self.alternatives[k].divergence / scale
            worth += prices[row] * certain
        # By duality both are equal; the second is computed from the multipliers, without the solver's optimal value.
        value = float(outcome[total][0]) if shared else worth
        episodes = max(0.0, value / scale) / max(1.0, self._most_per_episode(price))
        shares = [outcome[share_of[k]][0] if k in shared else delta for k in range(len(self.alternatives))]
        found = np.maximum(outcome[visits], 0.0) / scale
        spent = np.array([a.divergence @ found for a in self.alternatives])
        needed = np.array([_divergence(x, delta) for x in shares])
        binding, close = (np.flatnonzero(spent <= most).tolist() for most in (needed * (1 + 1e-3) + 1e-9, 1.5 * needed))
        return _Solution(episodes, found, shares, binding, close)


class _LinearProgram:
    """A linear program that consists of blocks of variables and of constraints."""

    def __init__(self) -> None:
        self.bounds: list[tuple[float, float | None]] = []
        self.rows: dict[str, list[tuple[list[tuple[slice, Any]], np.ndarray]]] = {"equal": [], "at_most": []}

    def add(self, count: int, upper: float | None = None) -> slice:
        """Add non-negative variables, and return their positions."""
        self.bounds += [(0.0, upper)] * count
        return slice(len(self.bounds) - count, len(self.bounds))

    def constrain(self, kind: str, terms: list[tuple[slice, Any]], right: np.ndarray) -> int:
        """Add constraints ``"equal"`` or ``"at_most"``; return the number of the first one."""
        first = sum(len(before) for _, before in self.rows[kind])
        self.rows[kind].append((terms, right))
        return first

    def minimise(self, variable: int, seconds: float) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the solution and the multipliers of the constraints ``"at_most"``, or None if it takes too long."""
        objective = np.zeros(len(self.bounds))
        objective[variable] = 1.0
        system = (*self._system("at_most"), *self._system("equal"))
        outcome = optimize.linprog(objective, *system, self.bounds, method="highs", options={"time_limit": seconds})
        if outcome.status == 1:
            return None
        if outcome.status != 0:
            raise EntropicBPIError(f"the linear program of the characteristic time was not solved: {outcome.message}")
        return np.asarray(outcome.x), np.maximum(-outcome.ineqlin.marginals, 0.0)

    def _system(self, kind: str) -> tuple[Any, np.ndarray]:
        """Return the matrix and the right side of the constraints of a kind."""
        select = sparse.eye_array(len(self.bounds), format="csr")
        groups = [sum(part @ select[block] for block, part in terms) for terms, _ in self.rows[kind]]
        return sparse.vstack(groups, format="csr"), np.concatenate([right for _, right in self.rows[kind]])


def _divergence(x: float, delta: float) -> float:
    """Compute φ(x), which is kl(x, 1 - δ) below 1 - δ and 0 above."""
    if x >= 1 - delta:
        return 0.0
    first = x * np.log(x / (1 - delta)) if x > 0 else 0.0
    return float(first + (1 - x) * (np.log1p(-x) - np.log(delta)))
