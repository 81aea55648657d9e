"""``instances`` and ``solve``: the models at hand, and exact planning."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from entropic_bpi.cli._answer import again, answer
from entropic_bpi.cli._show import attitude, show_policy, terminal
from entropic_bpi.cli._sources import (
    DiscountOption,
    EitherBetaOption,
    EVaROption,
    HorizonOption,
    JsonOption,
    ParamOption,
    SourceArgument,
    open_model,
    risk_of,
)
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.show.choices import Choice, choices_of, reached_by

if TYPE_CHECKING:
    import numpy as np

    from entropic_bpi.model.mdp import FiniteMDP
    from entropic_bpi.model.planning import ReturnLaw

# The law of the return is shown when it needs at most this many atoms on the way.
_LARGEST_LAW = 100_000
_SHOWN_ATOMS = 5
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def instances(as_json: JsonOption = False) -> None:
    """List the built-in instances with their parameters.

    Parameters without a default are required. Pass them with -p, as in

        entropic-bpi solve garnet --beta 1 -p n_states=20 -p n_actions=3 -p branching=4 -p horizon=10 -p seed=1

        entropic-bpi solve hard-instance --beta -1 -p n_states=10 -p n_actions=2 -p horizon=12 -p beta=-1 -p eps=0.05
    """
    from entropic_bpi.model.instances import builder, names

    found = []
    for name in names():
        build = builder(name)
        parameters = inspect.signature(build).parameters.values()
        found.append(
            {
                "name": name,
                "required": [p.name for p in parameters if p.default is p.empty],
                "defaults": {p.name: p.default for p in parameters if p.default is not p.empty},
                "what": (inspect.getdoc(build) or "").splitlines()[0],
            }
        )
    then = ("solve", "risky-bridge", "--beta", "-1")
    answer({"instances": found}, as_json, lambda: _show_instances(found), then)


def _show_instances(found: Sequence[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table("name", "parameters", "what it is", box=None, pad_edge=False)
    for one in found:
        parameters = [*one["required"], *(f"{name}={value}" for name, value in one["defaults"].items())]
        table.add_row(one["name"], " ".join(parameters), one["what"])
    terminal().print(table)


def solve(
    context: typer.Context,
    source: SourceArgument,
    beta: EitherBetaOption = None,
    evar: EVaROption = None,
    horizon: HorizonOption = None,
    discount: DiscountOption = None,
    param: ParamOption = None,
    device: Annotated[str, typer.Option(help="Where to plan for a beta: cpu, or gpu for large sparse models.")] = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Find an optimal policy of a known model, and the law of its return.

    Examples:

        entropic-bpi solve risky-bridge --beta 2.5

        entropic-bpi solve risky-bridge --beta -1 --horizon 9 -p p_dash=0.5 --json

        entropic-bpi solve risky-bridge --evar 0.05

        entropic-bpi solve gym:FrozenLake-v1 --horizon 100 --beta -1 -p is_slippery=false

        entropic-bpi solve model.npz --beta 0

        entropic-bpi solve river-swim --beta -1 --discount 0.95 -p n_states=6
    """
    from entropic_bpi.model import planning
    from entropic_bpi.model.discounting import discounted, tail_of
    from entropic_bpi.model.evar import solve_evar

    risk = risk_of(beta, evar)
    mdp = open_model(source, horizon, param, discount)
    tail = None
    if discount is not None:
        ends, mdp = mdp.reward_range, discounted(mdp, discount, horizon)
        tail = tail_of(discount, mdp.horizon, ends)
    if evar is None:
        solution: Any = planning.solve(mdp, risk["beta"], device=device)
    elif device == "cpu":
        solution = solve_evar(mdp, evar)
    else:
        raise InvalidProblemError("--device gpu is for --beta: the entropic value at risk is planned on the CPU")
    law = _small_law(mdp, solution.policy)
    choices = choices_of(solution.policy, reached_by(mdp, solution.policy), mdp.state_names, mdp.action_names)
    low, high = mdp.reward_range
    then = [
        *again(context, "plan", without=("as_json", "device")),
        "--eps",
        f"{(high - low) * mdp.horizon / 20:.1g}",
        "--delta",
        "0.1",
    ]
    answer(
        _solution_as_json(source, mdp, solution, evar, law, choices, tail),
        as_json,
        lambda: _show_solution(source, mdp, solution, evar, law, choices, tail),
        then,
    )


def _small_law(mdp: FiniteMDP, policy: np.ndarray) -> ReturnLaw | None:
    """The law of the return, or None when it has too many atoms to be worth the time."""
    from entropic_bpi.model.planning import ReturnLaw, return_law

    try:
        law = return_law(mdp, policy, max_support=_LARGEST_LAW)
    except InvalidProblemError:
        return None
    return law if isinstance(law, ReturnLaw) else None


def _solution_as_json(
    source: str,
    mdp: FiniteMDP,
    solution: Any,
    evar: float | None,
    law: ReturnLaw | None,
    choices: Sequence[Choice],
    tail: tuple[float, float] | None,
) -> dict[str, Any]:
    names = ("beta",) if evar is None else ("lam", "lower", "upper")
    risk = {name: getattr(solution, name) for name in names} | ({} if evar is None else {"evar": evar})
    result: dict[str, Any] = {
        "source": source,
        "states": mdp.n_states,
        "actions": mdp.n_actions,
        "horizon": mdp.horizon,
        **risk,
        "value": solution.value,
        "tail": tail,
        "return": None,
        "policy": [choice._asdict() for choice in choices],
    }
    if law is not None:
        quantiles = {f"{q:g}": law.quantile(q) for q in _QUANTILES}
        result["return"] = {"mean": law.mean, "std": law.variance**0.5, "quantiles": quantiles}
        if evar is not None:
            result["return"] |= {"quantile": law.quantile(evar), "cvar": law.cvar(evar)}
    return result


def _show_solution(
    source: str,
    mdp: FiniteMDP,
    solution: Any,
    evar: float | None,
    law: ReturnLaw | None,
    choices: Sequence[Choice],
    tail: tuple[float, float] | None,
) -> None:
    from rich.table import Table

    console = terminal()
    facts = Table.grid("name", "value", padding=(0, 2))
    facts.add_row("model", f"{source}: {mdp.n_states} states, {mdp.n_actions} actions, horizon {mdp.horizon}")
    if evar is not None:
        facts.add_row(
            "evar", f"{evar:g}, attained at lambda = {solution.lam:.6g}: optimal for beta = {-solution.lam:.6g}"
        )
        facts.add_row(
            "value", f"{solution.lower:.6f} <= best EVaR <= {solution.upper:.6f}; the policy attains the former"
        )
    else:
        facts.add_row("beta", f"{solution.beta:g} ({attitude(solution.beta)})")
        facts.add_row("value", f"{solution.value:.6f}")
    if tail is not None:
        (low, high), best = tail, solution.value if evar is None else solution.upper
        facts.add_row(
            "in all",
            f"between {solution.value + low:.6f} and {best + high:.6f}: value and return are those of the first "
            f"{mdp.horizon} steps, and all later ones add between {low:.3g} and {high:.3g}, whatever is done",
        )
    if law is None:
        facts.add_row("return", "too many possible values to list its law")
    else:
        quantiles = ", ".join(f"{q:.0%} {law.quantile(q):g}" for q in _QUANTILES)
        facts.add_row("return", f"mean {law.mean:.6g}, std {law.variance**0.5:.6g}; quantiles {quantiles}")
        if evar is not None:
            facts.add_row(
                "worst cases",
                f"CVaR {law.cvar(evar):.6g}, quantile {law.quantile(evar):.6g}, each at {evar:g}; another policy may have a "
                "better CVaR",
            )
        if len(law.support) <= _SHOWN_ATOMS:
            atoms = zip(law.support, law.probabilities, strict=True)
            facts.add_row("law", ", ".join(f"{value:g} with probability {mass:.6g}" for value, mass in atoms))
    console.print(facts)
    console.print()
    console.print("Optimal policy on the states that it reaches (steps count from 0):")
    show_policy(console, choices)
