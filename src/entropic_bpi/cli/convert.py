"""The command ``convert``: a model from one format into another."""

from __future__ import annotations

from pathlib import Path

from entropic_bpi.cli.common.show import Fact, data, line, present
from entropic_bpi.cli.common.sources import open_model
from entropic_bpi.cli.identify import CERTIFICATE
from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.formats.registry import format_of


def is_certificate(path: Path) -> bool:
    """Return whether a file begins as certificates do; models are JSON files too."""
    if not path.is_file() or path.suffix not in (".json", ".gz"):
        return False
    from entropic_bpi.tools.files import read_unpacked

    return b'"entropic-bpi certificate"' in read_unpacked(path)[:200]


def convert(
    source: str, target: Path, *, horizon: int | None = None, param: list[str] | None = None, as_json: bool = False
) -> None:
    """Write a model in another format, or the interval model of a certificate.

    A certificate, or the folder of a run, is written as the interval MDP of all models that its data allow (.drn or .tra),
    unrolled over the steps: the return is what is earned until the label end.

    Only .npz and .json have a horizon; --horizon is required if one of them is written and SOURCE has none.

    Examples:

        entropic-bpi convert model.drn model.csv -p reward=cost

        entropic-bpi convert model.csv model.npz --horizon 20

        entropic-bpi convert run/certificate.json learned.drn

    Parameters
    ----------
    target : FILE
        The model file to write: .npz or .json (ours), .csv (MDPs.jl), .tra (PRISM), .drn (Storm).
    """
    if target.exists():
        raise InvalidProblemError(f"{target} exists already, and nothing is overwritten: give another FILE")
    certificate = Path(source) / CERTIFICATE if Path(source).is_dir() else Path(source)
    if is_certificate(certificate):
        import entropic_bpi as eb

        eb.Certificate.load(certificate).save_interval_model(target)
        present(
            [*data(source=source, written=str(target)), line(f"written  {target}")], as_json, ("verify", certificate)
        )
        return
    given, wanted = format_of(Path(source)), format_of(target)
    if horizon is None and given is not None and not (given.has_horizon or (wanted is not None and wanted.has_horizon)):
        horizon = 1  # neither format has one
    mdp = open_model(source, horizon, param)
    mdp.save(target)
    sizes = f"{mdp.n_states} states, {mdp.n_actions} actions"
    facts = [*data(source=source, written=str(target), states=mdp.n_states, actions=mdp.n_actions)]
    facts += [Fact(name="model", shown=f"{source}: {sizes}"), line(f"written  {target}")]
    present(facts, as_json, ("solve", target, "--beta", "0", "--horizon", mdp.horizon))
