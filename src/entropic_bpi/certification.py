"""Certificates from data that was already collected."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from entropic_bpi._checks import check_finite, check_positive, check_probability
from entropic_bpi.certificate import Certificate, Circumstances
from entropic_bpi.counts import Counts
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.methods.kl import KL

__all__ = ["certify"]


def certify(source: Any, *, beta: float, eps: float | None = None, delta: float | None = None) -> Certificate:
    r"""Certify another risk level from data that was already collected.

    The event behind ``method="kl"`` is about transitions only: it mentions neither β nor the rewards. On it, every
    certificate for every β is true, so with probability :math:`1-\delta` *all* of them hold at once, however many
    are asked for and however they are chosen. Where rewards are random this is not so: their bounds are about one β, and a
    certificate for another is refused.

    Parameters
    ----------
    source : Identification, Certificate or Counts
        Whose counts to use.
    beta : float
        The risk parameter to certify for; positive is risk-seeking.
    eps, delta : float, optional
        Default to those of the run. Simultaneity over β is for one and the same δ.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=7)
    >>> result = eb.identify(bridge, beta=-1.0, eps=0.2, delta=0.1, successors="model", seed=1)
    >>> other = eb.certify(result, beta=-2.0)
    >>> bool(other.lower <= eb.solve(bridge, -2.0).value <= other.upper)
    True
    """
    circumstances = Circumstances()
    if isinstance(source, Counts):
        problem, transitions, episodes = source.problem, source.transitions(), source.episodes
    else:
        certificate = getattr(source, "certificate", source)
        if not isinstance(certificate, Certificate):
            raise InvalidProblemError(
                f"certify needs the result of identify, a certificate or counts; got {type(source).__name__}"
            )
        problem, transitions, episodes = certificate.problem, certificate.transitions, certificate.episodes
        circumstances = certificate.circumstances._replace(ignored=())
    beta = check_finite("beta", beta)
    if problem.random_rewards and beta != problem.beta:
        raise InvalidProblemError(
            f"random rewards were learned for beta = {problem.beta:g} and cannot be certified for beta = {beta:g}: "
            "how much a random reward is worth depends on beta, and delta was spent on that one before the first episode"
        )
    problem = replace(
        problem,
        beta=beta,
        eps=problem.eps if eps is None else check_positive("eps", eps),
        delta=problem.delta if delta is None else check_probability("delta", delta),
    )
    counts, method = Counts.of(problem, transitions, episodes), KL(problem)
    plan = method.plan(counts, 0)
    return Certificate(
        policy=plan.policy[int(problem.artificial) :],
        episodes=episodes,
        **method.claim(counts, plan)._asdict(),
        method="kl",
        constants=None,
        problem=problem,
        transitions=transitions,
        circumstances=circumstances,
    )
