"""``bounds``: lower and upper bounds on the number of episodes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from entropic_bpi.cli.common.show import Fact, data, line, present
from entropic_bpi.errors import InvalidProblemError

_STANDING = {
    ("lower", "verified"): "machine-checked",
    ("lower", "exact"): "proved on paper",
    ("lower", "printed"): "proved on paper under the corrected condition A",
    ("upper", "verified"): "machine-checked; constants=verified",
    ("upper", "implicit"): "proved on paper; constants=sharp",
    ("upper", "closed"): "proved on paper; constants=sharp",
    ("upper", "printed"): "printed only",
}


def bounds(
    *,
    states: int,
    actions: int,
    horizon: int,
    beta: float,
    eps: float,
    delta: float,
    max_return: float | None = None,
    as_json: bool = False,
) -> None:
    """Lower and upper bounds on the number of episodes, side by side.

    The lower bounds are about the hard instances of these sizes, the upper bounds about the paper's algorithm on every
    model of these sizes. Two limits are shown: beta to 0, and eps squared times the bound as eps goes to 0.

    Example:

        entropic-bpi bounds --states 10 --actions 2 --horizon 12 --beta -1 --eps 0.05 --delta 0.05

    Parameters
    ----------
    states
        Number of states S.
    actions
        Number of actions A.
    horizon
        Number of steps H.
    beta
        Risk parameter: > 0 risk-seeking, < 0 risk-averse.
    eps
        Accuracy, for rewards in [0, 1].
    delta
        Probability of error.
    max_return
        Largest return of the model, for the upper bounds (default: H).
    """
    sizes = {"n_states": states, "n_actions": actions, "horizon": horizon}
    rows = _rows(sizes, beta, eps, delta, float(horizon) if max_return is None else max_return)
    given = {"states": states, "actions": actions, "horizon": horizon, "beta": beta, "eps": eps, "delta": delta}
    shown = ("episodes", "beta_to_0", "eps_squared_times_episodes")
    table = [("bound", "form", "episodes", "as beta → 0", "eps² × episodes as eps → 0", "standing")]
    table += [(r["side"], r["form"], *(_written(r, name) for name in shown), r["standing"]) for r in rows]
    facts = [*data(**given), Fact("bounds", rows, shown=table)]
    for reason in dict.fromkeys(row["outside"] for row in rows if row["outside"]):
        forms = ", ".join(f"{row['side']} {row['form']}" for row in rows if row["outside"] == reason)
        facts.append(line(f"{forms}: {reason}"))
    present(facts, as_json, ("reproduce", "tight", "--quick", "--out", "figures"))


def _rows(sizes: dict[str, int], beta: float, eps: float, delta: float, largest: float) -> list[dict[str, Any]]:
    """One entry per bound and form; raises if not even one bound applies."""
    from entropic_bpi import theory

    rows, refusals = [], []
    for (side, form), standing in _STANDING.items():
        common: dict[str, Any] = {**sizes, "delta": delta, "form": form, "log": True}
        if side == "upper":
            common["max_return"] = largest
        bound: Callable[..., float] = theory.lower_bound if side == "lower" else theory.upper_bound
        row: dict[str, Any] = {"side": side, "form": form, "standing": standing, "outside": None}
        try:
            row |= _numbers("episodes", bound(**common, beta=beta, eps=eps))
        except InvalidProblemError as error:
            row |= {**_numbers("episodes", None), "outside": str(error)}
            refusals.append(error)
        row |= _numbers("beta_to_0", _if_defined(bound, **common, beta=0.0, eps=eps))
        small = _if_defined(theory.small_eps_limit, **common, beta=beta) if side == "lower" else None
        rows.append(row | _numbers("eps_squared_times_episodes", small))
    if len(refusals) == len(rows):
        raise refusals[0]
    return rows


def _if_defined(function: Callable[..., float], **arguments: Any) -> float | None:
    try:
        return function(**arguments)
    except InvalidProblemError:
        return None


def _numbers(name: str, log_value: float | None) -> dict[str, float | None]:
    """The value, None if there is none or it leaves the range of doubles, and its natural logarithm."""
    if log_value is None or log_value == -math.inf:
        return {name: None if log_value is None else 0.0, f"log_{name}": None}
    return {name: math.exp(log_value) if log_value < 709 else None, f"log_{name}": log_value}


def _written(row: dict[str, Any], name: str) -> str:
    """A number in scientific notation, however large it is."""
    value, log_value = row[name], row[f"log_{name}"]
    if log_value is None:
        return "–" if value is None else "0"
    exponent = math.floor(log_value / math.log(10))
    mantissa = math.exp(log_value - exponent * math.log(10))
    if round(mantissa, 2) >= 10:
        mantissa, exponent = mantissa / 10, exponent + 1
    return f"{mantissa:.2f}e{exponent:+03d}"
