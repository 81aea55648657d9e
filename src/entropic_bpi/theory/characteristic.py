r"""A lower bound on the number of episodes that one given model demands of every algorithm.

**Change of measure.** Let an algorithm be (ε, δ)-PAC on a class of models with the same rewards and start as :math:`M`, and
let :math:`M'` be one of them. Write :math:`A(M)` for the deterministic policies that are ε-optimal in :math:`M` and
:math:`x=\mathbb P_M(\hat\pi\in A(M'))`. Then

.. math:: \sum_{h,s,a}\mathbb E_M[N_h(s,a)]\,\mathrm{KL}\big(p_h(s,a),p'_h(s,a)\big) \ge \varphi(x), \qquad
   \varphi(x) = \mathrm{kl}(x, 1-\delta)\,\mathbf 1\{x<1-\delta\},

and :math:`x\le\delta` if no policy is ε-optimal in both. The expected visits :math:`\mathbb E_M[N]` are
:math:`\mathbb E_M[\tau]` times a point of the visitation polytope of :math:`M`.

**Many alternatives at once.** With several alternatives :math:`M_1,\dots,M_K` these inequalities hold together, and the
:math:`x_k` come from one law of the returned policy. So :math:`\mathbb E_M[\tau]` is at least the smallest :math:`T` for
which visits :math:`n`, a law and its :math:`x_k` exist. *Any* finite family gives a valid bound, a larger family a better
one: the supremum over families is the quantity that cannot be beaten by this argument.

**What is relaxed, always downwards.** (a) A policy of :math:`A(M_k)` is described by its decisions one at a time: it plays
in :math:`D_k(h,s)`, the actions whose best completion loses at most ε in :math:`M_k`. (b) If
:math:`D_k(h,s)\cap D_0(h,s)=\varnothing` somewhere then :math:`x_k\le\delta`; and so it is if the best policy that plays in
:math:`D_0` wherever it can be in :math:`M` loses more than ε in :math:`M_k`. Otherwise the part of the law in
:math:`A(M_k)` is a flow of mass :math:`x_k` through the rows of :math:`D_k`, below the flow of the whole law. (c)
:math:`\varphi` is convex and is replaced by tangents. What remains is a linear program.

**What is heuristic.** How alternatives are found: for each step, state and action, rows are moved along the gradient of the
difference of two values, weighted by the visits of the current program, just as far as needed. Where no straight way
leads to one, rows are moved together little by little, with a new gradient at every step. This affects how large the bound
is, never that it is one; alternatives in which no single decision changes are not looked for.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.mdp import FiniteMDP, check_model
from entropic_bpi.theory._alternatives import AlternativeKernels, Target, row_divergence
from entropic_bpi.theory._dense import LOSS_SLACK, DenseModel
from entropic_bpi.theory._program import LinearProgram
from entropic_bpi.tools.checks import (
    check_exponent,
    check_finite,
    check_flag,
    check_integer,
    check_positive,
    check_probability,
)
from entropic_bpi.tools.text import shown

# The linear program's own tolerance, taken off its value.
_PROGRAM_SLACK = 1e-6
_TANGENTS = (0.002, 0.01, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8)


@dataclass(frozen=True, eq=False)
class CharacteristicTime:
    """A lower bound on the expected number of episodes, and what it rests on.

    Attributes
    ----------
    episodes : float
        Every (ε, δ)-PAC algorithm needs at least this many episodes on average.
    time : float
        ``episodes`` over kl(δ, 1 - δ): the factor of log(1/δ) for small δ.
    visits : float array ``(H, S, A)``
        Expected visits that attain the bound of the program.
    alternatives : tuple of FiniteMDP
        The models that the data must rule out for it to hold; those that bind.

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
        Alternatives are improved at most this often; more rounds give a better bound.
    seconds : float, optional
        No more alternatives are searched after this time, and the bound is that of the ones found so far. The last linear
        program is still solved. Without it there is no limit, and the result can be repeated.

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
    mdp = check_model(mdp)
    if successors is not None and not (isinstance(successors, str) and successors == "model"):
        raise InvalidProblemError(f"successors must be 'model' or None, got {shown(successors)}")
    if check_flag("stationary", stationary) and not mdp.stationary:
        raise InvalidProblemError("stationary=True asks for kernels that do not change, but the model's does")
    rounds = check_integer("rounds", rounds)
    seconds = np.inf if seconds is None else check_positive("seconds", seconds)
    check_exponent(check_finite("beta", beta), mdp.horizon * max(map(abs, mdp.reward_range)))
    search = _Search(
        DenseModel.of(mdp, check_finite("beta", beta)),
        check_positive("eps", eps),
        check_probability("delta", delta),
        anywhere=successors is None,
        pooled=bool(stationary),
    )
    solution = search.run(rounds, seconds)
    model = search.model
    bound = solution.episodes * (1 - _PROGRAM_SLACK)
    certain = _divergence(delta, delta) if delta < 0.5 else np.inf
    visits = np.zeros(model.shape)
    visits[search.reachable] = solution.visits
    binding = tuple(_as_mdp(mdp, search.alternatives[k].kernel, stationary) for k in solution.binding)
    return CharacteristicTime(bound, bound / certain, visits, binding)


# -- alternatives --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Alternative:
    """A kernel, its divergence from the model in each reachable row, its ``decisions``, and whether x ≤ δ."""

    target: int
    kernel: np.ndarray
    divergence: np.ndarray
    decisions: np.ndarray
    decisive: bool

    def resembles(self, other: _Alternative) -> bool:
        """Whether the two say almost the same."""
        same = self.decisive == other.decisive and (self.decisions == other.decisions).all()
        return bool(same and np.allclose(self.divergence, other.divergence, rtol=1e-4, atol=0))


@dataclass(frozen=True, eq=False)
class _Solution:
    episodes: float
    visits: np.ndarray
    shares: np.ndarray
    binding: list[int]


class _Search:
    """Alternates between the linear program and the search for alternatives that its solution does not rule out."""

    def __init__(self, model: DenseModel, eps: float, delta: float, anywhere: bool, pooled: bool) -> None:
        self.model, self.eps, self.delta = model, eps, delta
        self.kernels = AlternativeKernels(model, eps, anywhere, pooled)
        self.decisions = model.decisions(eps)
        self.places = self._reachable_places()
        self.reachable = np.repeat(self.places[:, :, None], model.shape[2], axis=2)
        self.targets = self._targets()
        self.alternatives: list[_Alternative] = []
        self.flow = self._flow_matrix()

    def run(self, rounds: int, seconds: float) -> _Solution:
        began = time.perf_counter()
        solution = _Solution(0.0, self._spread_visits(), np.zeros(0), [])
        wanted = list(range(len(self.targets)))
        for _ in range(rounds):
            known = len(self.alternatives)
            for index in wanted:
                if time.perf_counter() - began < seconds:
                    self.alternatives += self._alternatives(index, solution)
            if len(self.alternatives) == known:
                break
            improved = self._program()
            if improved.episodes <= solution.episodes:
                break
            gain, solution = improved.episodes / (solution.episodes or 1.0), improved
            if known and gain < 1.002:
                break
            wanted = self._close_to_binding(solution)
        return solution

    def _reachable_places(self) -> np.ndarray:
        horizon, states, _ = self.model.shape
        places = np.zeros((horizon, states), dtype=bool)
        places[0] = self.model.start > 0
        for h in range(horizon - 1):
            places[h + 1] = (self.model.kernel[h][places[h]] > 0).any(axis=(0, 1))
        return places

    def _spread_visits(self) -> np.ndarray:
        """Visits of the policy that plays uniformly, per episode."""
        horizon, _, actions = self.model.shape
        visits, occupied = np.zeros(self.model.shape), self.model.start
        for h in range(horizon):
            visits[h] = occupied[:, None] / actions
            occupied = np.einsum("sa,sat->t", visits[h], self.model.kernel[h])
        return np.asarray(visits[self.reachable])

    def _targets(self) -> list[Target]:
        """What may be changed. If time is short, what counts are states with one right action, the rarest first."""
        visits = np.zeros(self.model.shape)
        visits[self.reachable] = self._spread_visits()
        often, open_ended = visits.sum(axis=2), self.decisions.sum(axis=2) > 1
        targets = []
        for h, s in sorted(
            np.argwhere(self.places).tolist(),
            key=lambda p: (open_ended[*p], -often[*p] if open_ended[*p] else often[*p]),
        ):
            good = np.flatnonzero(self.decisions[h, s]).tolist()
            for action in range(self.model.shape[2]):
                others = [a for a in good if a != action]
                if others:
                    targets.append(Target((h, s), action, others))
        return targets

    def _close_to_binding(self, solution: _Solution) -> list[int]:
        """Targets with an alternative that the current visits barely rule out."""
        needed = np.array([self._needed(a, x) for a, x in zip(self.alternatives, solution.shares, strict=True)])
        spent = np.array([alternative.divergence @ solution.visits for alternative in self.alternatives])
        return sorted({a.target for a, near in zip(self.alternatives, spent <= 1.5 * needed, strict=True) if near})

    def _needed(self, alternative: _Alternative, share: float) -> float:
        return _divergence(self.delta if alternative.decisive else share, self.delta)

    # -- finding one -------------------------------------------------------------------------------------

    def _alternatives(self, index: int, solution: _Solution) -> list[_Alternative]:
        """New alternatives for a target: its own row alone, the rows of its policy, and those of its rival as well."""
        target, model = self.targets[index], self.model
        weights = np.zeros(model.shape)
        weights[self.reachable] = solution.visits / (solution.visits.max() or 1.0) + 1e-3
        candidates = self.kernels.leading_to(target, weights, first=solution.episodes == 0)
        alternatives: list[_Alternative] = []
        for kernel in candidates:
            other = self.kernels.model_of(kernel)
            decisions, lost = other.decisions(self.eps), self.kernels.restricted_loss(other)
            wrong = lost > self.eps * (1 + 5e-8) + LOSS_SLACK * (1 + float(np.abs(other.solve()[0][0]).max()))
            if decisions[target.place][target.others].any() and not wrong:
                continue
            divergence = row_divergence(model.kernel, kernel)[self.reachable]
            decisive = wrong or bool((~(decisions & self.decisions).any(axis=2)).any())
            alternative = _Alternative(index, kernel, divergence, decisions, decisive)
            if not any(alternative.resembles(known) for known in self.alternatives + alternatives):
                alternatives.append(alternative)
        return alternatives

    # -- the linear program ------------------------------------------------------------------------------

    def _flow_matrix(self) -> tuple[Any, np.ndarray]:
        """Conservation of flow over the reachable rows: ``matrix @ visits = mass * inflow``."""
        number = np.cumsum(self.places.ravel()).reshape(self.places.shape) - 1
        h, s, _ = np.nonzero(self.reachable)
        out = sparse.csr_array((np.ones(len(h)), (number[h, s], np.arange(len(h)))), shape=(number.max() + 1, len(h)))
        row, successor = np.nonzero(self.model.kernel[self.reachable])
        inner = h[row] < self.model.shape[0] - 1
        row, successor = row[inner], successor[inner]
        share = self.model.kernel[self.reachable][row, successor]
        arrivals = sparse.csr_array((share, (number[h[row] + 1, successor], row)), shape=out.shape)
        inflow = np.zeros(out.shape[0])
        first = np.flatnonzero(self.places[0])
        inflow[number[0, first]] = self.model.start[first]
        return out - arrivals, inflow

    def _most_per_episode(self, price: np.ndarray) -> float:
        """The largest expected sum of prices in an episode, by dynamic programming.

        By duality it is 1 for the program's multipliers, whatever the rounding of its solver did: dividing by it makes the
        value a bound again.
        """
        table = np.zeros(self.model.shape)
        table[self.reachable] = price
        values = np.zeros(self.model.shape[1])
        for h in reversed(range(self.model.shape[0])):
            values = (table[h] + self.model.kernel[h] @ values).max(axis=1)
        return float(self.model.start @ values)

    def _program(self) -> _Solution:
        """Solve, adding tangents of φ at the shares found, until they no longer matter."""
        tangents = {min(t, 0.999) * (1 - self.delta) for t in _TANGENTS}
        while True:
            solution = self._solve_program(sorted(tangents))
            open_ended = [x for a, x in zip(self.alternatives, solution.shares, strict=True) if not a.decisive]
            new = {round(float(x), 4) for x in open_ended if 1e-4 < x < 1 - self.delta}
            new = {x for x in new if min(abs(x - t) for t in tangents) > 0.05 * x}
            if not new or len(tangents) > 40:
                return solution
            tangents |= new

    def _solve_program(self, tangents: list[float]) -> _Solution:
        r"""Minimise :math:`T`; variables: visits, T, and where needed the flows of the law and of its parts, and shares."""
        flow, inflow = self.flow
        size = flow.shape[1]
        scale = float(np.median([a.divergence.max() for a in self.alternatives]))
        shared = [k for k, a in enumerate(self.alternatives) if not a.decisive]
        blocks = LinearProgram()
        visits, total = blocks.add(size), blocks.add(1)
        blocks.equal([(visits, flow), (total, -sparse.csr_array(inflow[:, None]))], np.zeros(len(inflow)))
        share_of: dict[int, slice] = {}
        if shared:
            law = blocks.add(size)
            blocks.equal([(law, flow)], inflow)
            parts = [(-1, self.decisions)] + [(k, self.alternatives[k].decisions) for k in shared]
            for k, decisions in parts:
                allowed = np.flatnonzero(decisions[self.reachable])
                part, share = blocks.add(len(allowed)), blocks.add(1, upper=1.0)
                blocks.equal(
                    [(part, flow[:, allowed]), (share, -sparse.csr_array(inflow[:, None]))], np.zeros(len(inflow))
                )
                whole = sparse.eye_array(size, format="csr")[allowed]
                blocks.at_most([(part, sparse.eye_array(len(allowed))), (law, -whole)], np.zeros(len(allowed)))
                share_of[k] = share
            blocks.at_most([(share_of[-1], -sparse.eye_array(1))], np.array([self.delta - 1]))
        priced = []
        for k, alternative in enumerate(self.alternatives):
            information = sparse.csr_array(-alternative.divergence[None] / scale)
            if alternative.decisive:
                row = blocks.at_most([(visits, information)], np.array([-_divergence(self.delta, self.delta)]))
                priced.append((row, k))
                continue
            for x in tangents:
                slope = np.log(x / (1 - x)) - np.log((1 - self.delta) / self.delta)
                height = _divergence(x, self.delta) - slope * x
                terms = [(visits, information), (share_of[k], sparse.csr_array([[slope]]))]
                priced.append((blocks.at_most(terms, np.array([-height])), k))
        outcome, prices = blocks.minimise(total.start)
        price, worth = np.zeros(size), 0.0
        for row, k in priced:
            price += prices[row] * self.alternatives[k].divergence / scale
            worth += prices[row] * _divergence(self.delta, self.delta)
        value = float(outcome[total][0]) if shared else worth  # the same by duality; this one needs no solver
        episodes = max(0.0, value / scale) / max(1.0, self._most_per_episode(price))
        shares = np.array(
            [self.delta if a.decisive else outcome[share_of[k]][0] for k, a in enumerate(self.alternatives)]
        )
        found = np.maximum(outcome[visits], 0.0) / scale
        solution = _Solution(episodes, found, shares, [])
        spent = [a.divergence @ found for a in self.alternatives]
        needed = [self._needed(a, x) for a, x in zip(self.alternatives, shares, strict=True)]
        solution.binding.extend(k for k in range(len(spent)) if spent[k] <= needed[k] * (1 + 1e-3) + 1e-9)
        return solution


def _divergence(x: float, delta: float) -> float:
    """φ(x) = kl(x, 1 - δ) below 1 - δ, else 0."""
    if x >= 1 - delta:
        return 0.0
    first = x * np.log(x / (1 - delta)) if x > 0 else 0.0
    return float(first + (1 - x) * (np.log1p(-x) - np.log(delta)))


def _as_mdp(mdp: FiniteMDP, kernel: np.ndarray, stationary: bool) -> FiniteMDP:
    rewards: Any = mdp.rewards
    if rewards is None:
        model = DenseModel.of(mdp, 0.0)
        rewards = model.rewards
    return FiniteMDP(kernel[0] if stationary else kernel, rewards, horizon=mdp.horizon, start=mdp.start)
