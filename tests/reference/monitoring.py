"""Plain versions of what a monitor computes, and streams of episodes whose laws lie at the edge of a certificate's balls."""

import math

import numpy as np
from scipy.optimize import brentq

from reference import kl as reference


def log_mixture(sequence, possible, most=0):
    """Of a sequence of outcomes 0, 1, …, outcome by outcome: the average over Dirichlet priors."""

    def dirichlet(a, cells):
        seen, total = {}, 0.0
        for n, outcome in enumerate(sequence):
            total += math.log((seen.get(outcome, 0) + a) / (n + cells * a))
            seen[outcome] = seen.get(outcome, 0) + 1
        return total

    logs = [dirichlet(a, possible) for a in (1 / possible**2, 1 / possible, 0.5, 1.0)]
    usual = np.logaddexp.reduce(logs) - math.log(4)
    if not most:
        return usual
    share = math.prod((most - i) / (possible - i) for i in range(len(set(sequence))))
    return np.logaddexp(usual, dirichlet(0.5, most) + math.log(share)) - math.log(2)


def kl(p, q):
    return sum(a * math.log(a / b) if b > 0 else math.inf for a, b in zip(p, q, strict=True) if a > 0)


def largest_likelihood(before, since, xi):
    """The largest mean log-likelihood of the new outcomes over the ball, at its edge or at their own frequencies."""
    old, new = np.array(before) / sum(before), np.array(since) / sum(since)
    if kl(old, new) <= xi:
        return sum(a * math.log(a) for a in new if a > 0)
    mixed = lambda mu: (new + mu * old) / (1 + mu)  # noqa: E731
    mu = brentq(lambda mu: min(kl(old, mixed(mu)), 1e9) - xi, 1e-300, 1e12, xtol=1e-15, rtol=1e-14, maxiter=1000)
    return sum(a * math.log(b) for a, b in zip(new, mixed(mu), strict=True) if a > 0)


def radius(problem, before):
    """Of a row of a known model, where nothing is declared about the number of outcomes."""
    log_union = math.log(problem.rows_at_risk / problem.delta)
    possible = len(before)
    return (log_union + float(reference.mixture_radius_mpmath([n for n in before if n], possible))) / sum(before)


def at_the_edge(rng, certificate, factor=1.0):
    """A kernel ``(rows, S)``: each row is ``factor`` radii of its ball away from the frequencies."""
    problem, seen = certificate.problem, certificate.transitions
    kernel = rng.dirichlet(np.ones(problem.n_states), problem.n_rows)
    for row in np.unique(seen.rows):
        before = np.zeros(problem.n_states, dtype=int)
        before[seen.successors[seen.rows == row]] = seen.times[seen.rows == row]
        old, xi = before / before.sum(), factor * radius(problem, before)
        kernel[row] = moved(rng, old, xi)
    return kernel


def moved(rng, old, distance):
    """A law with KL(old, law) = ``distance``, in a random direction."""
    target = rng.dirichlet(np.full(len(old), 0.3))
    mixed = lambda t: (1 - t) * old + t * target  # noqa: E731
    far = 1 - 1e-12
    if kl(old, mixed(far)) <= distance:
        return mixed(far)
    return mixed(brentq(lambda t: kl(old, mixed(t)) - distance, 0.0, far, xtol=1e-15))


def episode(rng, problem, kernel, choose):
    """States, actions and rewards of one episode with this kernel of rows."""
    state, states, actions, rewards = problem.start, [problem.start], [], []
    for h in range(problem.horizon):
        action = choose(h, state)
        row = (
            (0 if problem.stationary else h * problem.n_states * problem.n_actions) + state * problem.n_actions + action
        )
        rewards.append(float(problem.rewards[h % len(problem.rewards), state, action]))
        state = int(rng.choice(problem.n_states, p=kernel[row]))
        states.append(state)
        actions.append(action)
    return states, actions, rewards
