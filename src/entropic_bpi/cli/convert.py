"""The command ``convert``: a model from one format into another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from entropic_bpi.cli.common.show import Fact, data, line, present
from entropic_bpi.cli.common.sources import HorizonOption, JsonOption, ParamOption, SourceArgument, open_model
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.formats.registry import format_of


def convert(
    source: SourceArgument,
    target: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="The model file to write: .npz or .json (ours), .csv (MDPs.jl), .tra (PRISM), .drn (Storm).",
            show_default=False,
        ),
    ],
    horizon: HorizonOption = None,
    param: ParamOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a model in another format.

    Only .npz and .json have a horizon; --horizon is required if one of them is written and SOURCE has none.

    Examples:

        entropic-bpi convert model.drn model.csv -p reward=cost

        entropic-bpi convert model.csv model.npz --horizon 20
    """
    if target.exists():
        raise InvalidProblemError(f"{target} exists already, and nothing is overwritten: give another FILE")
    given, wanted = format_of(Path(source)), format_of(target)
    if horizon is None and given is not None and not (given.has_horizon or (wanted is not None and wanted.has_horizon)):
        horizon = 1  # neither format has one
    mdp = open_model(source, horizon, param)
    mdp.save(target)
    sizes = f"{mdp.n_states} states, {mdp.n_actions} actions"
    facts = [*data(source=source, written=str(target), states=mdp.n_states, actions=mdp.n_actions)]
    facts += [Fact(name="model", shown=f"{source}: {sizes}"), line(f"written  {target}")]
    present(facts, as_json, ("solve", target, "--beta", "0", "--horizon", mdp.horizon))
