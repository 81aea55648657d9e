"""Certificates from data that was already collected: by a run of this library, or in a log."""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np

from entropic_bpi import methods
from entropic_bpi.certificate.certificate import Certificate
from entropic_bpi.certificate.provenance import LogSummary, Provenance
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.declarations import ENTRIES, REWARD_LAWS, Declarations
from entropic_bpi.problem.masks import check_policy_allowed
from entropic_bpi.problem.problem import Problem
from entropic_bpi.problem.risk import AnyReward, EVaR, Risk, check_risk
from entropic_bpi.runs.exploration.other_rewards import with_rewards
from entropic_bpi.runs.progress import Progress
from entropic_bpi.runs.settings import refuse_renamed
from entropic_bpi.runs.state import certificate_of
from entropic_bpi.runs.verdicts import check_assumptions
from entropic_bpi.sources.assumption_tests import AssumptionTests
from entropic_bpi.sources.log import Log
from entropic_bpi.sources.opening import open_problem
from entropic_bpi.tools.checks import check_device, check_policy, check_positive, check_probability
from entropic_bpi.tools.text import shown
from entropic_bpi.types import Claim, Transitions


@dataclass(frozen=True, eq=False)
class Comparison:
    """Certificates of several policies, which hold at once with probability at least 1 - δ.

    Attributes
    ----------
    certificates : dict
        The certificate of each policy, by name.
    intervals : dict
        Lower and upper bound of each policy's own value.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=5)
    >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, successors="model", seed=1)
    >>> both = eb.certify(result, beta=-1.0, policies={"found": result.policy, "safe": 0 * result.policy})
    >>> sorted(both.intervals)
    ['found', 'safe']
    """

    certificates: dict[str, Certificate]
    intervals: dict[str, tuple[float, float]]

    @property
    def order(self) -> tuple[tuple[str, str], ...]:
        """The pairs ``(better, worse)`` of names whose order is certain."""
        ends = self.intervals
        return tuple((one, other) for one, other in permutations(ends, 2) if ends[one][0] > ends[other][1])

    def __repr__(self) -> str:
        intervals = ", ".join(f"{name}: [{low:.6g}, {high:.6g}]" for name, (low, high) in self.intervals.items())
        return f"Comparison({intervals}; order={self.order})"


class CollectedData(NamedTuple):
    """Counts of a problem, in their canonical order, how they came about, and the labels of its states and actions."""

    counts: Counts
    transitions: Transitions
    provenance: Provenance
    labels: tuple[Sequence[Any], Sequence[Any]]
    tests: AssumptionTests | None = None

    @property
    def problem(self) -> Problem:
        return self.counts.problem

    def certificate(self, planned: np.ndarray, claim: Claim, *, named: float | None = None) -> Certificate:
        """Return the certificate of a claim about a policy of all planned steps; ``named`` is the ε that was given."""
        problem, provenance = self.problem, self.provenance
        if provenance.log is not None and named is None:
            # Nobody named an ε: the policy is within the certified gap of the best.
            problem = replace(problem, eps=claim.gap if 0 < claim.gap < math.inf else problem.eps)
        if self.tests is not None:
            provenance = provenance._replace(tests=check_assumptions(self.tests, claim.upper))
        data = {"episodes": self.counts.episodes, "transitions": self.transitions, "provenance": provenance}
        return certificate_of(problem, planned, claim, method="kl", constants=None, **data)


def certify(
    source: Any,
    *,
    beta: float | None = None,
    risk: Risk | None = None,
    eps: float | None = None,
    delta: float | None = None,
    policy: Any = None,
    policies: Mapping[str, Any] | None = None,
    states: Any = None,
    rewards: Any = None,
    device: str = "cpu",
    **declarations: Any,
) -> Any:
    r"""Certify from data that was already collected, for another risk level, a given policy or a log.

    The event behind ``method="kl"`` is about transitions only: it mentions neither β nor the rewards nor the policy, and it
    holds for every rule of choosing actions that does not look into the future. On it, every certificate for every β and
    every policy is true, so with probability :math:`1-\delta` *all* of them hold at once, however many are computed and
    however they are chosen. Random rewards are an exception: their bounds are for one β, and a certificate for another one
    is refused.

    Parameters
    ----------
    source : Identification, Certificate, Counts, Log or problem file
        The data whose counts are used. A problem file (``problem.toml``) names a log and declares what is needed.
    beta : float
        The risk parameter to certify for; positive is risk-seeking.
    risk : Entropic or EVaR, instead of ``beta``
        Certify the entropic value at risk of a level: a lower bound on the mean of the worst returns (CVaR), not that mean.
        A policy with the largest EVaR need not have the largest CVaR.
    eps, delta : float, optional
        Default: those of the run. Certificates for several β hold at once if they have the same δ. A log has neither: δ is
        required, and ε is the certified gap by default.
    policy : array ``(H, S)``, mapping or function, optional
        The policy that the claim is about: actions by number; or the action for each state, by their labels in the log (or
        their names), as a mapping or as a function. Default: the best candidate by the data.
    policies : mapping of names to policies, optional
        Compare these policies, instead of ``policy``.
    states : iterable or "seen", optional
        For a log, which states exist; it or ``max_states`` is required unless :meth:`entropic_bpi.Log.read` was given one of
        them. A list of all states; or ``"seen"``: you declare that those of the log are all there are, and the certificate
        says so. There is no default, because a rare state may be missing in the log.
    rewards : array, function, mapping or path of a CSV file, optional
        Certify for these known rewards instead of those that the episodes were collected for: an array with a shape that
        :class:`entropic_bpi.FiniteMDP` takes; a function of state, action and next state; the rewards that change, by
        ``(state, action)`` or ``(state, action, next state)``, as a mapping or a CSV file with the columns ``state``,
        ``action``, ``reward`` and perhaps ``next_state``. States and actions are named as in ``policy``, the end of an
        episode is :data:`entropic_bpi.END` (``end`` in a file). Of an environment or a log, an array is ``(S, A)`` or
        ``(S, A, S + 1)``, whose last column is the end; a function also needs ``reward_range``, for what is paid where
        nobody has been. All these claims hold at once, also for rewards that were chosen after looking at the data. Refused
        where rewards are random.
    device : {"cpu", "gpu"}
        Where the bounds are computed; see :func:`entropic_bpi.identify`.
    **declarations
        For a log, what is declared about it, as :func:`entropic_bpi.identify` takes it for an environment: ``horizon`` and
        ``reward_range``, which are required; ``stationary`` (default: True), and the others of
        :class:`entropic_bpi.Declarations` except ``discount``. States and actions are the log's labels. A contradiction is
        reported with its line, and the tests of :mod:`entropic_bpi.runs.verdicts` are made.

    Returns
    -------
    Certificate or Comparison
        The claim; with ``policies``, a claim for each of them.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> result = eb.identify(bridge, beta=-1.0, eps=0.2, delta=0.1, successors="model", seed=1)
    >>> other = eb.certify(result, beta=-2.0)
    >>> bool(other.lower <= eb.solve(bridge, -2.0).value <= other.upper)
    True
    >>> tail = eb.certify(result, risk=eb.EVaR(0.1))
    >>> tail.risk, tail.alpha, bool(tail.lower <= eb.solve_evar(bridge, 0.1).upper <= tail.upper + 1e-5)
    ('evar', 0.1, True)
    >>> both = eb.certify(result, beta=-1.0, policies={"found": result.policy, "always 0": 0 * result.policy})
    >>> low, high = both.intervals["found"]
    >>> bool(low <= eb.evaluate(bridge, result.policy, -1.0).value <= high)
    True

    What if the safe action paid half as much?

    >>> rewards = bridge.rewards * [0.5, 1.0]
    >>> changed = eb.certify(result, beta=-1.0, rewards=rewards)
    >>> model = eb.FiniteMDP(bridge.transitions, rewards, horizon=7)
    >>> bool(changed.lower <= eb.solve(model, -1.0).value <= changed.upper), eb.verify(changed).ok
    (True, True)
    """
    given = {"beta": beta, "risk": risk, "eps": eps, "delta": delta, "states": states, **declarations}
    with Progress():
        evidence = evidence_of(source, given, rewards)
        counts = evidence.counts
        method: Any = methods.make("kl", evidence.problem, {}, 0, check_device("device", device))

        def claim_of(planned: np.ndarray) -> Certificate:
            return evidence.certificate(planned, method.bounds_of(counts, planned), named=eps)

        if policies is None and policy is None:
            return claim_of(evidence.problem.replace_forbidden(method.plan_once(counts).policy))
        if policies is None:
            return claim_of(read_policy(policy, evidence.problem, evidence.labels))
        if policy is not None or not isinstance(policies, Mapping) or not policies:
            raise InvalidProblemError("policies must be a mapping of names to policies, given instead of policy")
        each = {str(name): read_policy(one, evidence.problem, evidence.labels) for name, one in policies.items()}
        intervals = {name: method.interval_of(counts, planned) for name, planned in each.items()}
        return Comparison({name: claim_of(planned) for name, planned in each.items()}, intervals)


def evidence_of(source: Any, given: Mapping[str, Any], rewards: Any = None) -> CollectedData:
    """Return the data of a source; ``given`` are the arguments of :func:`certify`."""
    if isinstance(rewards, str) and rewards in REWARD_LAWS:
        refuse_renamed("certify", ["rewards"])
    source, declarations, accepted = open_problem(source, given)
    beta, risk, eps, delta, states = (declarations.pop(name) for name in ("beta", "risk", "eps", "delta", "states"))
    refuse_renamed("certify", declarations.keys() - ENTRIES.keys())
    other_range = None
    if rewards is not None and not isinstance(source, Log):
        other_range = declarations.pop("reward_range", None)
    elif callable(rewards):  # of a log, one range holds both rewards
        other_range = declarations.get("reward_range")
    risk = check_risk(beta, risk)
    if isinstance(source, Log):
        evidence = _logged(source, risk, eps, delta, states, Declarations(**declarations))
    else:
        evidence = _collected(source, risk, eps, delta, {"states": states, **declarations}, rewards is not None)
    if accepted:
        evidence = evidence._replace(provenance=evidence.provenance._replace(accepted=accepted))
    return evidence if rewards is None else _with_rewards(evidence, rewards, other_range)


def _with_rewards(evidence: CollectedData, rewards: Any, reward_range: Any) -> CollectedData:
    """Return the data for other rewards, without the evidence of the returns, which is about the observed rewards."""
    problem, transitions, labels = evidence.problem, evidence.transitions, evidence.labels
    problem, transitions, name = with_rewards(problem, transitions, labels, rewards, reward_range)
    problem.check_limits()
    provenance = evidence.provenance
    tests = provenance.tests if evidence.tests is None else check_assumptions(evidence.tests, math.inf)
    provenance = provenance._replace(rewards=name, tests=tests and tests._replace(returns=None))
    counts = Counts.of(problem, transitions, evidence.counts.episodes)
    return evidence._replace(counts=counts, transitions=transitions, provenance=provenance, tests=None)


def _collected(
    source: Any, risk: Risk, eps: float | None, delta: float | None, declared: Mapping[str, Any], known: bool
) -> CollectedData:
    """Return the data of a run, a certificate or counts; ``known``: other rewards are used instead of its own."""
    certificate, kind = getattr(source, "certificate", source), type(source).__name__
    if not isinstance(certificate, (Certificate, Counts)):
        raise InvalidProblemError(
            f"certify needs the result of identify, a certificate, counts or a log; got {kind}. Tables are read by "
            "eb.Log.read(table, episode=…, state=…, …)"
        )
    named = Declarations(**{name: declared.get(name) for name, entry in ENTRIES.items() if entry.section == "names"})
    for name, value in declared.items():
        if value is not None and name not in named.given():
            raise InvalidProblemError(f"{name}= is for logs, and the problem of this {kind} is already declared")
    problem, provenance, episodes = certificate.problem, Provenance(), certificate.episodes
    if isinstance(certificate, Counts):
        transitions = certificate.transitions()
    else:
        transitions, provenance = certificate.transitions, certificate.provenance._replace(ignored=())
    if isinstance(problem.risk, AnyReward) and problem.black_box_rewards and not known:
        raise InvalidProblemError("an exploration ignores the rewards of an environment: give rewards=")
    same = risk == problem.risk or (isinstance(risk, EVaR) and isinstance(problem.risk, EVaR))
    if problem.random_rewards and not same:
        raise InvalidProblemError(
            f"random rewards were learned for {problem.risk} and cannot be certified for {risk}: how much a random reward "
            "is worth depends on beta, and the bounds are for the risk that was declared before the first episode"
        )
    if provenance.tests is not None and risk != problem.risk:
        provenance = provenance._replace(tests=provenance.tests._replace(returns=None))
    eps = problem.eps if eps is None else check_positive("eps", eps)
    delta = problem.delta if delta is None else check_probability("delta", delta)
    problem = replace(problem, risk=risk, eps=eps, delta=delta).named(named)
    problem.check_limits()
    return CollectedData(Counts.of(problem, transitions, episodes), transitions, provenance, problem.labels)


def _logged(
    log: Log, risk: Risk, eps: float | None, delta: float | None, given: Any, declared: Declarations
) -> CollectedData:
    """Return the data of a log, under what is declared about it."""
    if delta is None:
        raise InvalidProblemError("a log needs delta=: the probability with which the claim may fail")
    # Without an ε, the smallest one is used, so that no candidate ends the search for a better one.
    small = sys.float_info.min if eps is None else eps
    states = log.all_states(given, declared.max_states)
    problem = log.problem(states, eps=small, delta=delta, risk=risk, **declared.given())
    projection = log.project(problem, (states.numbers(log.states), range(len(log.actions))), playing=False)
    counts = projection.counts()
    transitions = counts.transitions()
    counts.clear()
    counts.add(transitions, log.episodes)
    provenance = Provenance(log=LogSummary(*projection.facts(), seen=states.seen))
    tests = AssumptionTests(problem)
    tests.add(projection.batch(), *projection.over_time())
    return CollectedData(counts, transitions, provenance, (states.labels, log.actions), tests)


def read_policy(policy: Any, problem: Problem, labels: tuple[Sequence[Any], Sequence[Any]]) -> np.ndarray:
    """Return a policy of any form as actions ``(steps, S)``, the artificial first step of a random start included.

    ``labels`` are those of the states and the actions.
    """
    if not isinstance(policy, (Mapping, np.ndarray, list)):
        policy = getattr(policy, "actions", getattr(policy, "policy", policy))  # of a Policy, or of a solution
    known = [(problem.horizon, states) for states in (problem.n_states - 1, len(labels[0]))]
    if isinstance(policy, Mapping) or callable(policy):
        policy = _by_label(policy, problem, *labels)
    elif problem.black_box_rewards and np.shape(policy) in known:
        # The action does not matter after the end, nor in a state that was never seen.
        policy = np.pad(policy, ((0, 0), (0, problem.n_states - np.shape(policy)[1])))
    checked = check_policy(policy, problem.horizon, problem.n_states, problem.n_actions)
    planned = np.pad(checked, ((int(problem.artificial), 0), (0, 0)))
    check_policy_allowed(problem, planned)
    return planned


def _by_label(
    policy: Mapping[Any, Any] | Callable[[Any], Any], problem: Problem, states: Sequence[Any], actions: Sequence[Any]
) -> np.ndarray:
    """Return the array ``(H, S)`` of a mapping or function from states to actions, which is the same at every step."""
    numbers = {name: a for names in (problem.action_names, actions) for a, name in enumerate(names)}
    if isinstance(policy, Mapping) and problem.state_labels is not None:
        labels = dict(zip(problem.state_names, states, strict=False))
        policy = {labels.get(state, state): action for state, action in policy.items()}
    played = np.zeros(problem.n_states, dtype=np.int64)
    for s, label in enumerate(states[: problem.n_states - problem.black_box_rewards]):
        missing = f"policy has no action for state {shown(label)}"
        chosen = _find(policy, label, missing) if isinstance(policy, Mapping) else policy(label)
        known = ", ".join(map(shown, actions[:10]))
        unknown = f"policy has {shown(chosen)} for state {shown(label)}, which is not an action: there are {known}"
        played[s] = _find(numbers, chosen, unknown)
    return np.tile(played, (problem.horizon, 1))


def _find(table: Mapping[Any, Any], label: Any, message: str) -> Any:
    """Return the entry of a label or of its text (a file may have '1' for 1), or raise an error with the message."""
    try:
        return table[label] if label in table else {str(key): value for key, value in table.items()}[str(label)]
    except (KeyError, TypeError):
        raise InvalidProblemError(message) from None
