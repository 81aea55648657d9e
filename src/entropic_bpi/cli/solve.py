"""Commands for known models: ``instances``, ``solve``, ``front`` and ``convert``."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import entropic_bpi as eb
from entropic_bpi.cli.facts import Answer, Fact, data, policy_facts
from entropic_bpi.cli.folders import written
from entropic_bpi.cli.options import open_model, risk_of
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.formats.registry import format_of
from entropic_bpi.show.choices import choices_of, reached_by

# The law of the return is shown when it needs at most this many atoms on the way.
_LARGEST_LAW = 100_000
_SHOWN_ATOMS = 5
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def instances() -> Answer:
    """List the built-in instances with their parameters.

    Parameters without a default are required. Pass them with -p, as in

        entropic-bpi solve garnet --beta 1 -p n_states=20 -p n_actions=3 -p branching=4 -p horizon=10 -p seed=1

        entropic-bpi solve hard-instance --beta -1 -p n_states=10 -p n_actions=2 -p horizon=12 -p beta=-1 -p eps=0.05
    """
    found, rows = [], [("name", "parameters", "what it is")]
    for name in eb.instances.names():
        build = eb.instances.builder(name)
        parameters = inspect.signature(build).parameters.values()
        required = [p.name for p in parameters if p.default is p.empty]
        defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        what = (inspect.getdoc(build) or "").splitlines()[0]
        found.append({"name": name, "required": required, "defaults": defaults, "what": what})
        rows.append((name, " ".join([*required, *(f"{key}={value}" for key, value in defaults.items())]), what))
    return Answer([Fact("instances", found, shown=rows)], ("solve", "risky-bridge", "--beta", "-1"))


def solve(
    source: str,
    *,
    beta: float | None = None,
    evar: float | None = None,
    horizon: int | None = None,
    discount: float | None = None,
    param: list[str] | None = None,
    on_gpu: bool = False,
) -> Answer:
    """Compute an optimal policy of a known model, and the distribution of its return.

    Examples:

        entropic-bpi solve risky-bridge --beta 2.5

        entropic-bpi solve risky-bridge --beta -1 --horizon 9 -p p_dash=0.5 --json

        entropic-bpi solve risky-bridge --evar 0.05

        entropic-bpi solve gym:FrozenLake-v1 --horizon 100 --beta -1 -p is_slippery=false

        entropic-bpi solve model.npz --beta 0

        entropic-bpi solve model.csv --beta 0 --horizon 20

        entropic-bpi solve river-swim --beta -1 --discount 0.95 -p n_states=6

    Parameters
    ----------
    on_gpu
        Plan on an NVIDIA GPU, for large sparse models.
    """
    from entropic_bpi.model.discounting import tail_of

    risk, mdp, tail = risk_of(beta, evar), open_model(source, horizon, param, discount), None
    if discount is not None:
        ends, mdp = mdp.reward_range, eb.discounted(mdp, discount, horizon)
        tail = tail_of(discount, mdp.horizon, ends)
    if evar is None:
        solution: Any = (eb.solve_on_gpu if on_gpu else eb.solve)(mdp, risk["beta"])
    elif on_gpu:
        raise InvalidProblemError("--on-gpu is for --beta: the entropic value at risk is planned on the CPU")
    else:
        solution = eb.solve_evar(mdp, evar)
    choices = choices_of(mdp, solution.policy, reached_by(mdp, solution.policy))
    sizes = f"{mdp.n_states} states, {mdp.n_actions} actions, horizon {mdp.horizon}"
    facts = [
        Fact("source", source, "model", f"{source}: {sizes}"),
        *data(states=mdp.n_states, actions=mdp.n_actions, horizon=mdp.horizon),
        *_value_facts(solution, evar),
        _tail_fact(solution.value, solution.value if evar is None else solution.upper, tail, mdp.horizon),
        *_law_facts(mdp, solution.policy, evar),
        *policy_facts("Optimal policy in the states that it reaches", choices),
    ]
    return Answer(facts)


def _value_facts(solution: Any, evar: float | None) -> list[Fact]:
    if evar is None:
        sign = "risk-seeking" if solution.beta > 0 else "risk-averse" if solution.beta < 0 else "the expectation"
        beta = Fact("beta", solution.beta, "beta", f"{solution.beta:g} ({sign})")
        return [beta, Fact("value", solution.value, "value", f"{solution.value:.6f}")]
    level = f"{evar:g}, attained at lambda = {solution.lam:.6g}: the policy is optimal for beta = {-solution.lam:.6g}"
    value = f"{solution.lower:.6f} <= best EVaR <= {solution.upper:.6f}; the policy attains the lower bound"
    facts = [Fact("evar", evar, "evar", level), Fact("value", solution.value, "value", value)]
    return facts + data(lam=solution.lam, lower=solution.lower, upper=solution.upper)


def _tail_fact(value: float, best: float, tail: tuple[float, float] | None, horizon: int) -> Fact:
    """Return what the steps after the planned ones add to the value."""
    if tail is None:
        return Fact("tail", None)
    low, high = tail
    words = (
        f"value between {value + low:.6f} and {best + high:.6f}: value and return above are those of the first {horizon} "
        f"steps, and later steps add between {low:.3g} and {high:.3g}, whatever the actions"
    )
    return Fact("tail", tail, "all steps", words)


def _law_facts(mdp: eb.FiniteMDP, policy: Any, evar: float | None) -> Iterator[Fact]:
    try:
        law: Any = eb.return_law(mdp, policy, max_support=_LARGEST_LAW)
    except InvalidProblemError:
        yield Fact("return", None, "return", "too many possible values to list them")
        return
    found: dict[str, Any] = {"mean": law.mean, "std": law.variance**0.5}
    found["quantiles"] = {f"{q:g}": law.quantile(q) for q in _QUANTILES}
    quantiles = ", ".join(f"{q:.0%} {law.quantile(q):g}" for q in _QUANTILES)
    if evar is not None:
        found |= {"quantile": law.quantile(evar), "cvar": law.cvar(evar)}
    yield Fact("return", found, "return", f"mean {law.mean:.6g}, std {found['std']:.6g}; quantiles {quantiles}")
    if evar is not None:
        worst = f"CVaR {found['cvar']:.6g}, quantile {found['quantile']:.6g}, each at {evar:g}"
        yield Fact(name="worst cases", shown=f"{worst}; another policy may have a better CVaR")
    if len(law.support) <= _SHOWN_ATOMS:
        atoms = zip(law.support, law.probabilities, strict=True)
        yield Fact(name="law", shown=", ".join(f"{value:g} with probability {mass:.6g}" for value, mass in atoms))


def front(
    source: str,
    *,
    betas: tuple[float, float],
    alpha: float = 0.05,
    tol: float = 1e-06,
    horizon: int | None = None,
    param: list[str] | None = None,
    plot: Path | None = None,
) -> Answer:
    """Compute all policies of a known model that are optimal for some β in a range, and the properties of their returns.

    Examples:

        entropic-bpi front risky-bridge --betas -2 2.5

        entropic-bpi front risky-bridge --betas -2 2.5 --alpha 0.1 --json

    Parameters
    ----------
    betas : LOW HIGH
        Smallest and largest risk parameter; positive seeks risk.
    alpha
        The share of the worst returns: VaR is the largest of them, CVaR their mean, EVaR a lower bound on CVaR.
    tol
        Tolerance: how much better an omitted policy may be, relative to the range of the return.
    plot : FILE.png
        Draw the mean of the return against its standard deviation.
    """
    found = eb.front(open_model(source, horizon, param), betas, tol=tol)
    rows, measures = found.table(alpha), [f"{measure} {100 * alpha:g} %" for measure in ("VaR", "CVaR", "EVaR")]
    if plot is not None:
        found.plot(plot, alpha=alpha)
    table = [("optimal for β", "mean", "std", *measures)]
    table += [(f"{row.low:.6g} to {row.high:.6g}", *(f"{value:.6g}" for value in row[2:])) for row in rows]
    facts = [
        *data(source=source, alpha=alpha),
        *(Fact(name, getattr(found, name)) for name in ("betas", "values", "breakpoints", "tol", "policies")),
        Fact("rows", [row._asdict() for row in rows], shown=table),
    ]
    return Answer(facts)


def convert(source: str, target: Path, *, horizon: int | None = None, param: list[str] | None = None) -> Answer:
    """Write a model in another format.

    Only .npz and .json have a horizon; --horizon is required if one of them is written and SOURCE has none.

    Examples:

        entropic-bpi convert model.drn model.csv -p reward=cost

        entropic-bpi convert model.csv model.npz --horizon 20

    Parameters
    ----------
    target : FILE
        The model file to write: .npz or .json (ours), .csv (MDPs.jl), .tra (PRISM), .drn (Storm).
    """
    if target.exists():
        raise InvalidProblemError(f"{target} exists already, and nothing is overwritten: give another FILE")
    given, wanted = format_of(Path(source)), format_of(target)
    if horizon is None and given is not None and not (given.has_horizon or (wanted is not None and wanted.has_horizon)):
        horizon = 1  # neither format has one
    mdp = open_model(source, horizon, param)
    mdp.save(target)
    facts = data(source=source, written=str(target), states=mdp.n_states, actions=mdp.n_actions)
    facts.append(Fact(name="model", shown=f"{source}: {mdp.n_states} states, {mdp.n_actions} actions"))
    return Answer([*facts, *written(target)], ("solve", target, "--beta", "0", "--horizon", mdp.horizon))
