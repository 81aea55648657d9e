"""Problem files: the declarations about a problem as TOML, for users to read, check and confirm.

.. code-block:: toml

    source = "gym:FrozenLake-v1"

    [declare.horizon]
    value = 20
    confirmed = true

    [declare.reward_range]
    value = [0.0, 1.0]
    confirmed = false
    seen = "rewards from 0 to 1 in 500 episodes"

    [risk]
    beta = -1.0
    eps = 0.1
    delta = 0.05

A declaration that is not confirmed can be read, but a function that needs it raises an error. Tables take the place of
functions: the successors of an environment are a list of ``[state, action, [next state, …]]``, with ``{end = true}`` for the
end of the episode. An array is written as nested lists; a large one can be a file: ``value = "mask.npy"``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.instances.sources import named_model
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.problem.declarations import ENTRIES, Declarations
from entropic_bpi.problem.risk import Entropic, EVaR, Risk
from entropic_bpi.problem.toml_values import key_as_toml, value_as_toml
from entropic_bpi.tools.checks import check_path, check_positive, check_probability
from entropic_bpi.tools.files import reading, write_text_atomically
from entropic_bpi.tools.text import shown

SUFFIX = ".toml"
_HEADER = """\
# The declarations about a problem. Only confirmed declarations are used: set confirmed = true if the declaration is true of
# your problem. Certificates state the declarations that they use as assumptions.
"""


class Remark(NamedTuple):
    """The remark of a problem file on a declaration.

    Attributes
    ----------
    confirmed : bool
        Whether the user confirms that the declaration is true.
    seen : str
        A description of what was observed.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> eb.Remark(seen="rewards from 0 to 1 in 500 episodes").confirmed
    False
    """

    confirmed: bool = False
    seen: str = ""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ProblemFile(Declarations):
    """The declarations of a problem file, with its source, its risk, and remarks on the declarations.

    It has the attributes of :class:`entropic_bpi.Declarations` and the following ones.

    Attributes
    ----------
    source : str or None
        An instance, a saved model, ``gym:ENV_ID``, ``file.py:Class``, or a log.
    params : dict
        Parameters of the source: those of an instance or an environment, or the columns of a log.
    risk : Entropic, EVaR or None
        The risk measure.
    eps, delta : float or None
        The accuracy and the probability of failure.
    remarks : dict of Remark
        Remarks by the name of the declaration; a declaration without a remark is confirmed.
    path : Path or None
        The file that was read; the path of a source is relative to its folder.
    accepted : tuple of str
        The declarations that :meth:`accept_all` confirmed; the certificate names them.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> eb.ProblemFile(source="risky-bridge", horizon=7).given()
    {'horizon': 7}
    """

    source: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    risk: Risk | None = None
    eps: float | None = None
    delta: float | None = None
    remarks: Mapping[str, Remark] = field(default_factory=dict)
    path: Path | None = None
    accepted: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: str | Path) -> ProblemFile:
        """Read a problem file; see :meth:`entropic_bpi.Declarations.load`.

        Parameters
        ----------
        path : path
            The TOML file.

        Returns
        -------
        ProblemFile
            All declarations, also unconfirmed ones.

        Examples
        --------
        >>> import tempfile, pathlib, entropic_bpi as eb
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "problem.toml"
        >>> eb.ProblemFile(source="risky-bridge", horizon=7).save(path)
        >>> eb.ProblemFile.read(path).source
        'risky-bridge'
        """
        path = check_path("path", path)
        with reading(path, f"{path} is not a readable TOML file"):
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        try:
            return cls(path=path, **_fields_of(content))
        except InvalidProblemError as error:
            raise InvalidProblemError(f"{path}: {error}") from None

    def save(self, path: str | Path) -> None:
        """Write the file, with a comment for each declaration; see :meth:`entropic_bpi.Declarations.save`.

        Parameters
        ----------
        path : path
            The file to write.

        Examples
        --------
        >>> import tempfile, pathlib, entropic_bpi as eb
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "problem.toml"
        >>> eb.ProblemFile(source="risky-bridge", horizon=7).save(path)
        >>> eb.ProblemFile.read(path).source
        'risky-bridge'
        """
        write_text_atomically(check_path("path", path), "\n".join(_lines(self)) + "\n")

    @property
    def folder(self) -> Path:
        return Path() if self.path is None else self.path.parent

    @property
    def named_source(self) -> str:
        """The source; an error if the file names none."""
        if self.source is None:
            raise InvalidProblemError(
                f'{self.path or "the problem file"} names no source: add one at the top, such as source = "gym:ENV_ID"'
            )
        return self.source

    def with_params(self, params: Mapping[str, Any]) -> ProblemFile:
        """Return the problem with additional parameters of the source.

        Parameters
        ----------
        params : dict
            The parameters; they replace parameters of the file with the same name.

        Returns
        -------
        ProblemFile
            The new problem.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> eb.ProblemFile(source="risky-bridge", params={"p_mid": 0.5}).with_params({"p_mid": 0.6}).params
        {'p_mid': 0.6}
        """
        return replace(self, params={**self.params, **params})

    @property
    def unconfirmed(self) -> list[str]:
        """The names of the declarations that are not confirmed."""
        return [name for name in self.given() if not self.remarks.get(name, Remark(True)).confirmed]

    def model(self, **given: Any) -> FiniteMDP:
        """Return the model that the source names.

        Parameters
        ----------
        **given
            ``horizon`` and ``discount``; they replace those of the file.

        Returns
        -------
        FiniteMDP
            The model.

        Raises
        ------
        InvalidProblemError
            If the horizon or discount of the file is not confirmed, or if the source is not a model.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> eb.ProblemFile(source="risky-bridge").model(horizon=5).horizon
        5
        """
        own = self._completed(given, ("horizon", "discount"))
        return named_model(self.named_source, own, self.params, self.folder)

    def accept_all(self) -> ProblemFile:
        """Return the problem with all declarations confirmed; certificates name the declarations that this confirmed.

        Returns
        -------
        ProblemFile
            The new problem.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> problem = eb.ProblemFile(horizon=7, max_successors=2, remarks={"max_successors": eb.Remark(confirmed=False)})
        >>> problem.unconfirmed, problem.accept_all().unconfirmed, problem.accept_all().accepted
        (['max_successors'], [], ('max_successors',))
        """
        names = self.unconfirmed
        confirmed = {name: self.remarks[name]._replace(confirmed=True) for name in names}
        return replace(self, remarks={**self.remarks, **confirmed}, accepted=(*self.accepted, *names))

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a run: those given and, for arguments that are missing or None, those of the file.

        Parameters
        ----------
        given : dict
            Arguments by name.

        Returns
        -------
        dict
            The arguments of the run.

        Raises
        ------
        InvalidProblemError
            If a declaration of the file is needed and not confirmed.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> eb.ProblemFile(horizon=7, eps=0.1).arguments({"horizon": 5, "delta": None})
        {'horizon': 5, 'delta': None, 'eps': 0.1}
        """
        own = self._completed(given, ENTRIES)
        goal: dict[str, Any] = {"eps": self.eps, "delta": self.delta}
        if "beta" not in own and "risk" not in own:
            goal["risk"] = self.risk
        return {**given, **{name: value for name, value in goal.items() if value is not None}, **own}

    def _completed(self, given: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Return the arguments ``given``, completed by the confirmed declarations among ``names`` that are not given."""
        own = {name: value for name, value in given.items() if value is not None}
        missing = [name for name in names if name in self.unconfirmed and name not in own]
        if missing:
            raise InvalidProblemError(
                f"{self.path or 'the problem file'}: not confirmed: {', '.join(missing)}. Set confirmed = true in "
                f"[declare.{missing[0]}] if it is true of your problem, give {missing[0]}=, or accept all (--accept all)"
            )
        return {name: value for name, value in self.given().items() if name in names} | own


# -- reading -----------------------------------------------------------------------------------------------------


def _fields_of(content: dict[str, Any]) -> dict[str, Any]:
    _check_table("the file", content, {"source": str, "params": dict, "declare": dict, "names": dict, "risk": dict})
    fields: dict[str, Any] = {"source": content.get("source"), "params": content.get("params", {}), "remarks": {}}
    fields |= _read_risk(content.get("risk", {}))
    for section in ("names", "declare"):
        known = {name: entry for name, entry in ENTRIES.items() if entry.section == section}
        table = content.get(section, {})
        _check_table(section, table, dict.fromkeys(known, object))
        for name, value in table.items():
            where = f"{section}.{name}"
            if section == "declare":
                _check_table(where, value, {"value": object, "confirmed": bool, "seen": str})
                if "value" not in value:
                    raise InvalidProblemError(f"{where} has no value")
                fields["remarks"][name] = Remark(value.get("confirmed", False), value.get("seen", ""))
                where, value = f"{where}.value", value["value"]
            fields[name] = known[name].check(where, known[name].from_toml(where, value))
    return fields


def _check_table(where: str, table: Any, kinds: Mapping[str, type]) -> None:
    """Raise an error unless ``table`` is a table whose keys are among ``kinds``, with values of these types."""
    if not isinstance(table, dict):
        raise InvalidProblemError(f"{where} must be a table, got {shown(table)}")
    for key, value in table.items():
        name = key if where == "the file" else f"{where}.{key}"
        if key not in kinds:
            raise InvalidProblemError(f"{name} is unknown, expected one of {', '.join(kinds)}")
        if not isinstance(value, kinds[key]):
            expected = {str: "a string", bool: "true or false", dict: "a table"}[kinds[key]]
            raise InvalidProblemError(f"{name} must be {expected}, got {shown(value)}")


def _read_risk(table: dict[str, Any]) -> dict[str, Any]:
    _check_table("risk", table, dict.fromkeys(("beta", "alpha", "eps", "delta"), object))
    if "beta" in table and "alpha" in table:
        raise InvalidProblemError("risk has beta and alpha: give one of them")
    kinds = {"beta": Entropic, "alpha": EVaR}
    risk = next((kind(table[name]) for name, kind in kinds.items() if name in table), None)
    checks = {"eps": check_positive, "delta": check_probability}
    goal = {name: check(f"risk.{name}", table[name]) for name, check in checks.items() if name in table}
    return {"risk": risk, **goal}


# -- writing -----------------------------------------------------------------------------------------------------


def _lines(file: ProblemFile) -> Iterator[str]:
    yield _HEADER
    if file.source is not None:
        yield f"source = {value_as_toml(file.source)}"
    yield from _table("params", file.params)
    named = {name: value for name, value in file.given().items() if ENTRIES[name].section == "names"}
    yield from _table("names", named)
    for name, value in file.given().items():
        if name not in named:
            remark = file.remarks.get(name, Remark(True))
            content = {"value": value, "confirmed": remark.confirmed} | ({"seen": remark.seen} if remark.seen else {})
            yield from _table(f"declare.{name}", content, f"# {ENTRIES[name].help}")
    goal = {} if file.risk is None else vars(file.risk)
    goal = {**goal, "eps": file.eps, "delta": file.delta}
    yield from _table("risk", {name: value for name, value in goal.items() if value is not None})


def _table(name: str, content: Mapping[str, Any], *comment: str) -> Iterator[str]:
    """Yield the lines of a table; none if it is empty."""
    if content:
        yield from ("", *comment, f"[{name}]")
        yield from (f"{key_as_toml(key)} = {value_as_toml(value)}" for key, value in content.items())
