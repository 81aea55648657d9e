"""Play before any reward is known, until every reward of a range can be optimised from the same data."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from entropic_bpi.certificate.certificate import Certificate
from entropic_bpi.certificate.estimate import best_by_estimates, estimated_loss
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.methods.reward_free import RewardFree
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.problem.counts import Counts
from entropic_bpi.problem.declarations import ENTRIES
from entropic_bpi.problem.risk import AnyReward
from entropic_bpi.runs.certification import certify
from entropic_bpi.runs.identification import run_to_end
from entropic_bpi.runs.loop import RunResult
from entropic_bpi.runs.settings import CHECKS, Settings, refuse_renamed
from entropic_bpi.sources.opening import open_problem
from entropic_bpi.tools.checks import check_finite

_ABOUT_WHAT_IS_PAID = {"return_range", "reward_law", "reward"}


class Exploration(RunResult):
    """The outcome of :func:`explore`.

    Attributes
    ----------
    eps_reached : float
        The promise: for every reward in the range and every β in the interval, the policy that is best by the estimates is
        at most so much worse than the best one, with probability at least 1 - δ.
    stopped : bool
        Whether the promise is at most ε (otherwise the budget was spent).
    episodes : int
        Episodes played.
    certificate : Certificate
        The promise as a claim, with the counts that it follows from; it has no policy.
    history : structured array ``episodes, lower, upper, gap``
        One row per plan.
    seconds : float
        Time spent, without that for compiling.
    seed : int
        The seed; passing it again repeats the exploration.
    forecast : Forecast or None
        If the budget was spent: how many more episodes and seconds the target would probably take.
    compile_seconds : float
        Time spent on compiling, which is done once per installation.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=3)
    >>> found = eb.explore(bridge, eps=0.5, delta=0.1, betas=(-1, 1), successors="model", stationary=True, seed=1)
    >>> found.stopped, bool(found.eps_reached <= 0.5)
    (True, True)
    """

    @property
    def eps_reached(self) -> float:
        """The gap of the certificate."""
        return self.certificate.gap

    @property
    def counts(self) -> Counts:
        """What was seen."""
        return self.certificate.counts

    def solve(self, rewards: Any = None, beta: float = 0.0, *, reward_range: Any = None) -> Certificate:
        """Return a good policy for a reward and a risk parameter, with its certificate.

        Parameters
        ----------
        rewards : array, function, mapping or path of a CSV file, optional
            Known rewards, as :func:`entropic_bpi.certify` takes them. Default: those of the model.
        beta : float
            Risk parameter: positive is risk-seeking, negative risk-averse, 0 the expectation.
        reward_range : (float, float), optional
            For an environment, the range of the rewards where nobody has been. Default: the range that was explored for.

        Returns
        -------
        Certificate
            Its gap is that of ``method="kl"`` for this reward or the bound for all rewards, whichever is smaller. Rewards
            and risk parameters that were not explored for are certified as well, but nothing is promised for them.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=3)
        >>> options = {"successors": "model", "stationary": True, "seed": 1}
        >>> found = eb.explore(bridge, eps=0.5, delta=0.1, betas=(-1, 1), **options)
        >>> claim = found.solve(bridge.rewards / 2, beta=-1.0)
        >>> bool(claim.gap <= found.eps_reached), eb.verify(claim).ok
        (True, True)
        """
        return solve_explored(self.certificate, rewards, beta, reward_range)

    def __repr__(self) -> str:
        risk, gap = self.certificate.problem.risk, self.eps_reached
        return f"Exploration(stopped={self.stopped}, episodes={self.episodes}, eps_reached={gap:.6g}, {risk})"


def explore(
    source: Any,
    *,
    eps: float | None = None,
    delta: float | None = None,
    betas: tuple[float, float],
    reward_range: tuple[float, float] | None = None,
    checkpoint: str | Path | None = None,
    progress: bool = False,
    accept_errors: bool = False,
    **settings: Any,
) -> Exploration:
    r"""Play until every reward of a range can be optimised from the data, for every β of an interval.

    With probability at least :math:`1-\delta`, for every reward in the range, every β in the interval and at the same time:
    the policy that is best by the estimates is at most ε worse than the best one. What is paid while playing is ignored.
    See ``entropic_bpi.methods.reward_free`` for the theorem.

    Parameters
    ----------
    source : FiniteMDP, environment or problem file
        As for :func:`entropic_bpi.identify`. Rewards of a model are ignored, and so is what a problem file declares about
        the rewards that are paid (``return_range``, ``reward_law``, ``reward``).
    eps, delta : float
        Accuracy, in the unit of the rewards, and the probability with which the promise may fail.
    betas : (float, float)
        The interval of the risk parameters; (0, 0) is the expectation alone.
    reward_range : (float, float), optional
        The range of the rewards to come; (0, 1) by default. The promise is for rewards that depend on state and action or,
        for an environment or a model whose own rewards do, also on the next state; they may change from step to step.
    checkpoint : path, optional
        As for :func:`entropic_bpi.identify`.
    progress, accept_errors : bool
        As for :func:`entropic_bpi.identify`.
    **settings
        The other arguments of :func:`entropic_bpi.identify`: ``horizon``, ``stationary``, ``successors``,
        ``max_successors``, ``start``, ``max_states``, ``max_episodes``, ``max_seconds``, ``replan``, ``seed``, ``ties``,
        ``num_envs``.

    Returns
    -------
    Exploration
        Its ``solve(rewards, beta)`` returns policies with certificates.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=3)
    >>> found = eb.explore(bridge, eps=0.5, delta=0.1, betas=(-1, 1), successors="model", stationary=True, seed=1)
    >>> for price in (0.2, 0.8):
    ...     claim = found.solve({("s0", "safe"): price}, beta=-1.0)
    ...     assert claim.gap <= 0.5 and eb.verify(claim).ok
    """
    given = {"eps": eps, "delta": delta, "reward_range": reward_range, **settings}
    refuse_renamed("explore", settings.keys() - CHECKS.keys() - ENTRIES.keys())
    opened, arguments, accepted = open_problem(source, given)
    ignored = [name for name in _ABOUT_WHAT_IS_PAID if given.get(name) is None]  # in a problem file it is for others
    arguments = {name: value for name, value in arguments.items() if name not in ignored}
    rewards = (0.0, 1.0) if arguments["reward_range"] is None else arguments["reward_range"]
    arguments |= {"risk": AnyReward(betas, rewards), "beta": None}
    arguments["reward_range"] = None if isinstance(opened, FiniteMDP) else rewards
    checked = replace(Settings.of(**arguments), accepted=tuple(name for name in accepted if name in arguments))
    checked.declared.check_source("exploration")
    run = run_to_end(opened, checked, checkpoint=checkpoint, accept_errors=accept_errors, progress=progress)
    return Exploration(**vars(run))


def solve_explored(certificate: Certificate, rewards: Any, beta: float, reward_range: Any = None) -> Certificate:
    """Return the claim about a good policy for one reward from the counts of an exploration.

    The policy is the best one by the estimates if the bound for all rewards is smaller than the gap of ``method="kl"``.
    """
    problem, given = certificate.problem, dict[str, Any]()
    if problem.black_box_rewards:
        if rewards is None:
            raise InvalidProblemError("solve needs rewards=: an exploration ignores the rewards of an environment")
        given["reward_range"] = problem.declared_range if reward_range is None else reward_range
    claim = certify(certificate, beta=check_finite("beta", beta), rewards=rewards, **given)
    if claim.problem.allowed is not None:  # the estimated model's best policy does not know masks
        return claim
    promised = promised_claim(claim)
    return promised if promised.gap < claim.gap else claim


def promised_claim(claim: Certificate) -> Certificate:
    """Return the claim that the bound for all rewards makes about the policy that is best by the estimates."""
    problem, size = claim.problem, abs(claim.beta)
    method = RewardFree(replace(problem, risk=AnyReward((size, size), problem.possible_rewards)))
    other = certify(claim, beta=claim.beta, policy=best_by_estimates(claim))
    gap = method.bound_at_most(claim.counts) + estimated_loss(other, math.copysign(method.most, claim.beta))
    return replace(other, provenance=claim.provenance, gap=gap, test="explored")
