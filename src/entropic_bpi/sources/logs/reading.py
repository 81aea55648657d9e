"""Conversion of a table to the checked lines of a log, in DuckDB; errors name the line."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.sources.logs.tables import Table, hashable, quoted
from entropic_bpi.tools.checks import check_list
from entropic_bpi.tools.text import shown

_LABELS = ("episode", "state", "next_state", "action")
_FLAGS = ("terminated", "truncated")
_EXPECTED = {
    "step": "not an integer",
    "reward": "not a finite number",
    "action": "not among the declared actions",
    **dict.fromkeys(_FLAGS, "neither true nor false"),
    **dict.fromkeys(("state", "next_state"), "not among the declared states"),
}
_ENDS = "give terminated=, truncated= or next_state=; truncated=True (--all-truncated) if all others were truncated"
_UNKNOWN = (
    "the next state is missing: using only the outcomes that are known would be a selection. Give next_state=, or exclude= "
    "such episodes if they were truncated independently of their outcome"
)
_FLOATS, _IN_ZONE = ("FLOAT", "DOUBLE"), "TIMESTAMP WITH TIME ZONE"


class LogReader(Table):
    """Converts data to the table ``log`` of its own DuckDB database."""

    excluded: str | None = None
    _width = 0  # the number of columns of a state, if it is a list of columns

    def _create(self, table: str, query: str) -> None:
        self.connection.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS {query}")

    def take(self, columns: dict[str, Any], query: str | None, exclude: str | None) -> None:
        """Create the table ``taken``: the lines with their numbers, and a column for each role."""
        roles, source = {role: column for role, column in columns.items() if column is not None}, "data"
        single = self._single_columns(roles)
        self.load(single if query is None and exclude is None else None)
        if query is not None:
            self.check_select("query", "one SELECT over the table data", query, query)
            self.connection.execute(f"CREATE TEMP VIEW source AS {query}")
            self.name, source = f"the query of {self.name}", "source"
        self.check_columns(single, source)
        for role, column in single.items():
            if role.startswith(_LABELS) and column in self.rounded:
                raise InvalidProblemError(f"{role}: the values of {self.name} are longer than DuckDB can read exactly")
        parts = {role: quoted(column) for role, column in roles.items() if isinstance(column, str)}
        parts |= self._joined({role: column for role, column in roles.items() if role not in parts}, source)
        if exclude is not None:
            for condition in (exclude, f"({exclude}\n)"):  # both are valid only if it is a single expression
                self.check_select("exclude", "one condition on the columns", exclude, f"SELECT {condition}")
            parts["unwanted"] = f"({exclude}\n)"
        named = [f"{part} AS {role}" for role, part in parts.items()]
        self._create("taken", f"SELECT row_number() OVER () AS line, {', '.join(named)} FROM {source}")
        self.connection.execute("DROP TABLE data")
        if "order_by" in roles:
            self._number_steps(columns["order_by"])
        self.kinds = self.columns("taken")
        # The expression of each role in ``log``; NULL for invalid values.
        step, reward = (f"TRY_CAST({role} AS DOUBLE)" for role in ("step", "reward"))
        self.values = {
            "step": f"CASE WHEN {step} = trunc({step}) THEN TRY_CAST(step AS BIGINT) END",
            "reward": f"CASE WHEN isfinite({reward}) THEN {reward} + 0.0 END",  # turns -0.0 into 0.0
            **{role: f"TRY_CAST({role} AS BOOLEAN)" if role in self.kinds else "false" for role in _FLAGS},
        }
        if exclude is not None:
            unwanted = "SELECT DISTINCT episode FROM taken WHERE unwanted AND episode IS NOT NULL"
            self.excluded = f"{self._one(f'SELECT count(*) FROM ({unwanted})')} episodes with {exclude}"
            self.connection.execute(f"DELETE FROM taken WHERE episode IN ({unwanted})")

    def _single_columns(self, roles: dict[str, Any]) -> dict[str, Any]:
        """Return the columns by role; if a state has several columns, with their positions."""
        lists = {role: list(column) for role, column in roles.items() if isinstance(column, list | tuple)}
        for role in lists.keys() - {"state", "next_state"}:
            raise InvalidProblemError(f"{role} must be one column, got {shown(roles[role])}")
        if lists:
            widths = {len(lists.get(role, ())) for role in ("state", "next_state") if role in roles}
            self._width = widths.pop()
            if widths or not self._width:
                raise InvalidProblemError("state and next_state must be lists of the same number of columns")
        parts = {f"{role}[{i}]": column for role, columns in lists.items() for i, column in enumerate(columns)}
        return {role: column for role, column in roles.items() if role not in lists} | parts

    def _joined(self, lists: dict[str, Any], source: str) -> dict[str, str]:
        """Return expressions that combine several columns into one value, which is NULL if one of them is."""
        kinds, joined = self.columns(source), {}
        names = [{role: columns[i] for role, columns in lists.items()} for i in range(self._width)]
        values = [
            self._plain(source, {role: (quoted(name), kinds[name]) for role, name in each.items()}, whole_floats=False)
            for each in names
        ]
        for role in lists:
            packed = ", ".join(f"p{i} := {each[role]}" for i, each in enumerate(values))
            missing = " OR ".join(f"({each[role]}) IS NULL" for each in values)
            joined[role] = f"CASE WHEN NOT ({missing}) THEN struct_pack({packed}) END"
        return joined

    def _plain(self, table: str, columns: dict[str, tuple[str, str]], *, whole_floats: bool = True) -> dict[str, str]:
        """Return expressions of labels: integers if all labels of a table are whole numbers, and NULL for missing ones.

        ``columns`` contains an expression and a type for each role.
        """
        plain, whole = {}, {}
        for role, (value, kind) in columns.items():
            plain[role] = value
            if kind == "VARCHAR" and self.text:
                whole[role] = f"coalesce(TRY_CAST({value} AS BIGINT)::VARCHAR = {value}, {value} IS NULL)"
            elif kind in _FLOATS:
                plain[role] = value = _not_nan(value)
                if whole_floats:
                    whole[role] = f"coalesce({value} = trunc({value}) AND abs({value}) < 1e15, true)"
            elif kind.startswith("ENUM"):
                plain[role] = f"{value}::VARCHAR"
        if whole and self._one(f"SELECT bool_and({' AND '.join(whole.values())}) FROM {table}"):
            plain |= {role: f"TRY_CAST({plain[role]} AS BIGINT)" for role in whole}
        return plain

    def _number_steps(self, column: str) -> None:
        """Number the steps of each episode in the order of a column of numbers or times."""
        kind, key, text = self.columns("taken")["order_by"], "order_by", "order_by::VARCHAR"
        if kind == "VARCHAR" or kind.startswith("ENUM"):
            for key in (
                f"CASE WHEN regexp_full_match({text}, '-?[0-9]+') THEN TRY_CAST({text} AS HUGEINT) END",
                _not_nan(f"TRY_CAST({text} AS DOUBLE)"),
                f"TRY_CAST({text} AS TIMESTAMP_NS)",
            ):
                if self._one(f"SELECT bool_and(({key}) IS NOT NULL OR order_by IS NULL) FROM taken"):
                    break
            zone = f"regexp_extract({text}, ':[0-9][0-9][^+-]*(Z|[+-][0-9][0-9](:?[0-9][0-9])?)$', 1)"
            if "TIMESTAMP" in key and self._one(f"SELECT count(DISTINCT {zone}) FROM taken") > 1:
                raise InvalidProblemError(f"order_by: {column} of {self.name} has several time zones: convert to one")
        elif kind in _FLOATS:
            key = _not_nan(key)
        elif any(word in kind for word in ("[", "(", "BLOB", "BOOLEAN", "INTERVAL")) and not kind.startswith("DECIMAL"):
            raise InvalidProblemError(f"order_by: {column} of {self.name} has the type {kind}, not numbers or times")
        order = f"PARTITION BY episode ORDER BY {key}, line"
        keys = f"SELECT line, {text} AS given, {key} AS key, lag({key}) OVER ({order}) AS before FROM taken"
        bad = f"SELECT line, given, key IS NULL FROM ({keys}) WHERE key IS NULL OR key = before ORDER BY line LIMIT 1"
        for line, value, is_invalid in self.fetch(bad):
            problem = f"has {shown(value)} a second time in this episode, so that the order of steps is unknown"
            if is_invalid:
                problem = f"is {shown(value)}, expected a number or a time such as 2024-01-31 08:00"
            problem = "is missing" if value is None else problem
            raise InvalidProblemError(f"line {line} of {self.name}: {column} {problem}")
        self._create("taken", f"SELECT * EXCLUDE (order_by), row_number() OVER ({order}) - 1 AS step FROM taken")

    # -- labels --------------------------------------------------------------------------------------------------------

    def number(self, table: str, roles: Iterable[str], declared: Iterable[Any] | None) -> tuple[Any, ...]:
        """Create the table of the labels in these roles, with their numbers; return the labels in order."""
        values = self._plain("taken", {role: (role, self.kinds[role]) for role in roles if role in self.kinds})
        used = {"next_state": f" WHERE NOT coalesce({self.values['terminated']}, false)"}  # not of ends
        seen = {role: f"SELECT {value} AS label FROM taken{used.get(role, '')}" for role, value in values.items()}
        if declared is not None:
            self._declare(table, declared)
            seen = {table: "SELECT label FROM declared", **seen}
        every = f"({' UNION ALL '.join(seen.values())})"
        # Labels of different types are compared in their common type.
        kind = self.columns(every)["label"]
        for role, labels in seen.items():
            self._refuse_rounding(role, labels, kind)
        self.values |= {role: f"CAST({value} AS {kind})" for role, value in values.items()}
        labels, order = f"SELECT DISTINCT label FROM {every} WHERE label IS NOT NULL", "label"
        if declared is not None:
            labels, order = f"SELECT CAST(label AS {kind}) AS label, place FROM declared", "place"
        self._create(table, f"SELECT label, row_number() OVER (ORDER BY {order}) - 1 AS code FROM ({labels})")
        # In Python, a MAP is not distinguishable from a STRUCT, and times with a zone need pytz.
        if "MAP(" in kind or kind == _IN_ZONE:
            raise InvalidProblemError(f"{self.name} has {table} of type {kind}: convert them to text")
        names = [hashable(label) for (label,) in self.fetch(f"SELECT label FROM {table} ORDER BY code")]
        if len(set(map(str, names))) < len(names):
            raise InvalidProblemError(f"{self.name} has different {table} with the same text: convert them to text")
        return tuple(names)

    def _refuse_rounding(self, role: str, labels: str, kind: str) -> None:
        """Raise an error if a label changes by conversion to the type in which labels are compared."""
        own = self.columns(f"({labels})")["label"]
        changed = f"TRY_CAST(CAST(label AS {kind}) AS {own}) IS DISTINCT FROM label" if own != kind else "false"
        for (label,) in self.fetch(f"SELECT label FROM ({labels}) WHERE {changed} LIMIT 1"):
            words = f"would be rounded by comparison with labels of type {kind}: convert all labels to the same type"
            raise InvalidProblemError(f"{role} {shown(label)} of {self.name} {words}")

    def _declare(self, name: str, declared: Iterable[Any]) -> None:
        """Create the table ``declared`` of labels in order; states of several columns have the form of the table."""
        labels = [label.item() if isinstance(label, np.generic) else label for label in check_list(name, declared)]
        if not labels or any(label is None for label in labels):
            raise InvalidProblemError(f"{name} must list at least one label, without None; got {shown(labels)}")
        if name == "states" and self._width:
            for label in labels:
                if not isinstance(label, list | tuple) or len(label) != self._width:
                    expected = f"tuples of {self._width} values, one for each column of state"
                    raise InvalidProblemError(f"states must be {expected}, got {shown(label)}")
            labels = [{f"p{i}": value for i, value in enumerate(label)} for label in labels]
        query = f"SELECT unnest(?) AS label, unnest(range({len(labels)})) AS place"
        self.connection.execute(f"CREATE OR REPLACE TEMP TABLE declared AS {query}", [labels])
        for given, (label,) in zip(labels, self.fetch("SELECT label FROM declared ORDER BY place"), strict=True):
            if isinstance(label, float) and label != given:
                raise InvalidProblemError(f"{name}: {shown(given)} would be rounded; give all labels the same type")
        for (label,) in self.fetch("SELECT label FROM declared GROUP BY label HAVING count(*) > 1 LIMIT 1"):
            raise InvalidProblemError(f"{name} lists {shown(label)} twice")

    # -- lines ---------------------------------------------------------------------------------------------------------

    def check(self, cut: bool) -> None:
        """Create the table ``log``, or raise an error that names a line.

        ``cut`` says whether every episode that did not terminate was truncated.
        """
        has_next = "next_state" in self.kinds
        parts = {"next_state": f"CASE WHEN false THEN {self.values['state']} END"} | self.values
        given = ", ".join(f"{value} AS {role}" for role, value in parts.items())
        given_next = "next_state IS NOT NULL" if has_next else "false"
        steps = "PARTITION BY episode ORDER BY step, line"
        self._create(
            "walked",
            f"WITH given AS (SELECT line, episode, {given_next} AS has_next, {given} FROM taken), "
            "coded AS (SELECT line, episode, step, s.code AS state, a.code AS action, reward, t.code AS next_state, "
            "has_next, terminated, truncated FROM given LEFT JOIN states s ON given.state = s.label LEFT JOIN actions a "
            "ON given.action = a.label LEFT JOIN states t ON given.next_state = t.label) "
            f"SELECT *, lead(state) OVER ({steps}) AS following, lag(state) OVER ({steps}) AS previous, "
            f"row_number() OVER ({steps}) - 1 AS place FROM coded",
        )
        if not self._one("SELECT count(*) FROM walked"):
            raise InvalidProblemError(f"{self.name} has no episodes")
        if self.kinds["episode"] in _FLOATS:
            self._refuse_value("episode", "isnan(episode)")
        for role in ("episode", "step", "state", "action", "reward", *_FLAGS):
            self._refuse_value(role, f"{role} IS NULL")
        self._refuse_value("next_state", "has_next AND next_state IS NULL AND NOT terminated")
        label = "(SELECT label FROM states WHERE code = {})".format
        last, ended = "following IS NULL AND next_state IS NULL", "(terminated OR truncated)"
        at_end = "true" if has_next else "step < (SELECT max(step) FROM walked)"
        elsewhere, both = "NOT terminated AND next_state <> following", f"{label('next_state')}, {label('following')}"
        for condition, values, message in (
            ("step <> place", "step, place", "got step {}, expected step {}: steps are 0, 1, 2, … once each"),
            (f"{ended} AND following IS NOT NULL", "step", "it continues after it terminated or was cut at step {}"),
            (elsewhere, both, "next_state is {!r}, but the episode continues in state {!r}"),
            (f"{last} AND NOT ({cut} OR {ended})", "step", f"it stops after step {{}} for an unknown reason: {_ENDS}"),
            (f"{last} AND NOT terminated AND {at_end}", "step", f"it was truncated after step {{}}, and {_UNKNOWN}"),
        ):
            bad = f"SELECT line, episode, {values} FROM walked WHERE {condition} ORDER BY line LIMIT 1"
            for line, episode, *entries in self.fetch(bad):
                place = f"line {line} of {self.name}, episode {shown(episode)}"
                raise InvalidProblemError(f"{place}: {message.format(*entries)}")
        successor = "CASE WHEN terminated THEN (SELECT count(*) FROM states) ELSE coalesce(next_state, following) END"
        if not has_next and (cut or "truncated" in self.kinds):
            successor = f"CASE WHEN step < (SELECT max(step) FROM walked) THEN {successor} END"
        columns = "line, episode, step, state, action, reward, previous, terminated"
        self._create("log", f"SELECT {columns}, {successor} AS successor FROM walked")
        self.connection.execute("DROP TABLE taken; DROP TABLE walked")

    def _refuse_value(self, role: str, condition: str) -> None:
        """Raise an error for the first line with this ``condition``, which names the line and its value."""
        for (line,) in self.fetch(f"SELECT min(line) FROM walked WHERE {condition} HAVING count(*) > 0"):
            value = self._one(f"SELECT {role} FROM taken WHERE line = {line}")
            missing = value is None or value != value
            problem = "is missing" if missing else f"is {shown(value)}, {_EXPECTED[role]}"
            raise InvalidProblemError(f"line {line} of {self.name}: {role} {problem}")


def _not_nan(value: str) -> str:
    return f"CASE WHEN NOT isnan({value}) THEN {value} END"
