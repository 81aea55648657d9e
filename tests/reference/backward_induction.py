"""Backward induction in plain Python and many digits, for models too large to enumerate."""

from __future__ import annotations

from mpmath import mp, mpf

from reference.brute_force import Model


def _risk(probabilities, values, beta) -> mpf:
    pairs = [(p, v) for p, v in zip(probabilities, values, strict=True) if p > 0]
    if beta == 0:
        return sum(p * v for p, v in pairs)
    # log(1 + β x) has lost as many digits as β has zeros.
    with mp.workdps(60 + max(0, -int(mp.floor(mp.log10(abs(mpf(beta))))))):
        mean = sum(p * mp.exp(mpf(beta) * v) for p, v in pairs) / sum(p for p, _ in pairs)
        return mp.log(mean) / mpf(beta)


def value(model: Model, beta, policy=None) -> mpf:
    """The value at the start, of the ``policy`` or else the best."""
    values = [mpf(0)] * model.n_states
    for h in reversed(range(model.horizon)):
        new = []
        for s in range(model.n_states):
            actions = range(model.n_actions) if policy is None else [int(policy[h][s])]
            risks = []
            for a in actions:
                outcomes = [r + v for r, v in zip(model.rewards[h][s][a], values, strict=True)]
                risks.append(_risk(model.transitions[h][s][a], outcomes, beta))
            new.append(max(risks))
        values = new
    return _risk(model.start, values, beta)
