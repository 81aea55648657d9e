"""From a table, or a Minari data set, to the checked lines of a log, in DuckDB; whatever contradicts it is named."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.sources.logs.tables import Table, hashable, quoted
from entropic_bpi.sources.spaces import FiniteSpace, finite
from entropic_bpi.tools.checks import check_list
from entropic_bpi.tools.text import shown

_LABELS = ("episode", "state", "next_state", "action")
_EXPECTED = {
    "step": "not an integer",
    "reward": "not a finite number",
    "terminated": "neither true nor false",
    "truncated": "neither true nor false",
    "state": "not among the declared states",
    "next_state": "not among the declared states",
    "action": "not among the declared actions",
}
_ENDS = "terminated=, truncated= or next_state= (truncated=True, --all-truncated: all that did not terminate were cut)"
_IN_ZONE = "TIMESTAMP WITH TIME ZONE"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class LogReader:
    """A log on its way from the data to the table ``log`` of a DuckDB database of its own."""

    def __init__(self, data: Any, table: str | None = None) -> None:
        self.table = Table(data, table)
        self.connection, self._fetch = self.table.connection, self.table.fetch
        self.excluded: str | None = None
        self._width = 0  # how many columns make a state, if they are several

    @property
    def name(self) -> str:
        return self.table.name

    def _create(self, table: str, query: str) -> None:
        self.connection.execute(f"CREATE TEMP TABLE {table} AS {query}")

    def take(self, columns: dict[str, Any], query: str | None, exclude: str | None) -> None:
        """Make the table ``taken``: the lines with their numbers, and a column for each role."""
        table, source = self.table, "data"
        roles = {role: column for role, column in columns.items() if column is not None}
        single = self._single_columns(roles)
        table.load(single if query is None and exclude is None else None)
        if query is not None:
            table.check_select("query", "one SELECT over the table data", query, query)
            self.connection.execute(f"CREATE TEMP VIEW source AS {query}")
            table.name, source = f"the query of {table.name}", "source"
        table.check_columns(single, source)
        for role, column in single.items():
            if role.startswith(_LABELS) and column in table.rounded:
                raise InvalidProblemError(f"{role}: the values of {self.name} are longer than DuckDB can read exactly")
        parts = {role: quoted(column) for role, column in roles.items() if isinstance(column, str)}
        parts |= self._joined({role: column for role, column in roles.items() if role not in parts}, source)
        if exclude is not None:
            for condition in (exclude, f"({exclude}\n)"):  # which together make it one expression
                table.check_select("exclude", "one condition on the columns", exclude, f"SELECT {condition}")
            parts["unwanted"] = f"({exclude}\n)"
        named = [f"{part} AS {role}" for role, part in parts.items()]
        self._create("taken", f"SELECT row_number() OVER () AS line, {', '.join(named)} FROM {source}")
        if query is not None:
            self.connection.execute("DROP VIEW source")
        self.connection.execute("DROP TABLE data")
        if "order_by" in roles:
            self._number_steps(columns["order_by"])
        self.kinds = table.columns("taken")
        # What each role is in ``log``, where NULL stands for whatever it cannot be.
        number = {role: f"TRY_CAST({role} AS DOUBLE)" for role in ("step", "reward")}
        self.values = {
            "step": f"CASE WHEN {number['step']} = trunc({number['step']}) THEN TRY_CAST(step AS BIGINT) END",
            "reward": f"CASE WHEN isfinite({number['reward']}) THEN {number['reward']} + 0.0 END",  # there is no -0.0
            **{
                role: f"TRY_CAST({role} AS BOOLEAN)" if role in self.kinds else "false"
                for role in ("terminated", "truncated")
            },
        }
        if exclude is not None:
            self._leave_out(exclude)

    def _single_columns(self, roles: dict[str, Any]) -> dict[str, Any]:
        """The columns by role, those of a state of several columns with their positions."""
        lists = {role: list(column) for role, column in roles.items() if isinstance(column, list | tuple)}
        for role in lists.keys() - {"state", "next_state"}:
            raise InvalidProblemError(f"{role} must be one column, got {shown(roles[role])}")
        if lists:
            self._width = len(lists.get("state", ()))
            if (
                not self._width
                or len(lists.get("next_state", lists["state"])) != self._width
                or ("next_state" in roles and "next_state" not in lists)
            ):
                raise InvalidProblemError("state and next_state must be lists of as many columns")
        parts = {f"{role}[{i}]": column for role, columns in lists.items() for i, column in enumerate(columns)}
        return {role: column for role, column in roles.items() if role not in lists} | parts

    def _joined(self, lists: dict[str, Any], source: str) -> dict[str, str]:
        """Several columns as one value, which is missing if one of them is."""
        kinds = self.table.columns(source)
        fields: dict[str, list[str]] = {role: [] for role in lists}
        for i in range(self._width if lists else 0):
            columns = [columns[i] for columns in lists.values()]
            values = {column: quoted(column) for column in columns}
            if self.table.text and all(kinds[column] == "VARCHAR" for column in columns):
                whole = [
                    f"coalesce(TRY_CAST({value} AS BIGINT)::VARCHAR = {value}, {value} IS NULL)"
                    for value in values.values()
                ]
                if self._fetch(f"SELECT bool_and({' AND '.join(whole)}) FROM {source}")[0][0]:
                    values = {column: f"TRY_CAST({value} AS BIGINT)" for column, value in values.items()}
            for role, each in lists.items():
                value, kind = values[each[i]], kinds[each[i]]
                value = _not_nan(value) if kind in ("FLOAT", "DOUBLE") else value
                fields[role].append(f"{value}::VARCHAR" if kind.startswith("ENUM") else value)
        joined = {}
        for role, parts in fields.items():
            packed = ", ".join(f"p{i} := {part}" for i, part in enumerate(parts))
            missing = " OR ".join(f"({part}) IS NULL" for part in parts)
            joined[role] = f"CASE WHEN NOT ({missing}) THEN struct_pack({packed}) END"
        return joined

    def _number_steps(self, column: str) -> None:
        """Number the steps of each episode in the order of a column of numbers or times."""
        kind, key = self.table.columns("taken")["order_by"], "order_by"
        if kind == "VARCHAR" or kind.startswith("ENUM"):
            text = "order_by::VARCHAR"
            for key in (
                f"CASE WHEN regexp_full_match({text}, '-?[0-9]+') THEN TRY_CAST({text} AS HUGEINT) END",
                _not_nan(f"TRY_CAST({text} AS DOUBLE)"),
                f"TRY_CAST({text} AS TIMESTAMP_NS)",
            ):
                if self._fetch(f"SELECT bool_and(({key}) IS NOT NULL OR order_by IS NULL) FROM taken")[0][0]:
                    break
            zone = "regexp_extract(order_by::VARCHAR, ':[0-9][0-9][^+-]*(Z|[+-][0-9][0-9](:?[0-9][0-9])?)$', 1)"
            if "TIMESTAMP" in key and self._fetch(f"SELECT count(DISTINCT {zone}) FROM taken")[0][0] > 1:
                raise InvalidProblemError(
                    f"order_by: {column} of {self.name} has several time zones: convert it to one of them"
                )
        elif kind in ("FLOAT", "DOUBLE"):
            key = _not_nan(key)
        elif any(word in kind for word in ("[", "(", "BLOB", "BOOLEAN", "INTERVAL")) and not kind.startswith("DECIMAL"):
            raise InvalidProblemError(
                f"order_by: {column} of {self.name} has the type {kind}, expected numbers or times"
            )
        order = f"PARTITION BY episode ORDER BY {key}, line"
        query = f"SELECT *, {key} AS key, lag({key}) OVER ({order}) AS before FROM taken"
        wrong = f"SELECT line, order_by::VARCHAR, key IS NULL FROM ({query}) WHERE key IS NULL OR key = before ORDER BY line"
        for line, value, is_missing in self._fetch(f"{wrong} LIMIT 1"):
            found = (
                "is missing"
                if value is None
                else f"is {shown(value)}, expected a number or a time such as 2024-01-31 08:00"
            )
            tie = f"has {shown(value)} a second time in this episode: which step was first is not known"
            raise InvalidProblemError(f"line {line} of {self.name}: {column} {found if is_missing else tie}")
        self._create("numbered", f"SELECT * EXCLUDE (order_by), row_number() OVER ({order}) - 1 AS step FROM taken")
        self.connection.execute("DROP TABLE taken")
        self.connection.execute("ALTER TABLE numbered RENAME TO taken")

    def _leave_out(self, condition: str) -> None:
        unwanted = "SELECT DISTINCT episode FROM taken WHERE unwanted AND episode IS NOT NULL"
        number = self._fetch(f"SELECT count(*) FROM ({unwanted})")[0][0]
        self.connection.execute(f"DELETE FROM taken WHERE episode IN ({unwanted})")
        self.excluded = f"{number} episodes with {condition}"

    def number(self, table: str, roles: Iterable[str], declared: Iterable[Any] | None) -> tuple[Any, ...]:
        """Make the table of the labels that occur in these roles, and of their numbers; the labels in order."""
        values = self._labels([role for role in roles if role in self.kinds])
        used = {"next_state": f" WHERE NOT coalesce({self.values['terminated']}, false)"}  # nothing follows an end
        seen = {role: f"SELECT {value} AS label FROM taken{used.get(role, '')}" for role, value in values.items()}
        if declared is not None:
            self._declare(table, self._packed(declared) if table == "states" else declared)
            seen = {table: "SELECT label FROM declared", **seen}
        every = f"({' UNION ALL '.join(seen.values())})"
        # Labels of different types are compared in the type that they have in common.
        kind = self.table.columns(every)["label"]
        for role, labels in seen.items():
            self._refuse_rounding(role, labels, kind)
        self.values |= {role: f"CAST({value} AS {kind})" for role, value in values.items()}
        labels, order = f"SELECT DISTINCT label FROM {every} WHERE label IS NOT NULL", "label"
        if declared is not None:
            labels, order = f"SELECT CAST(label AS {kind}) AS label, place FROM declared", "place"
        self._create(table, f"SELECT label, row_number() OVER (ORDER BY {order}) - 1 AS code FROM ({labels})")
        return self._labels_in(table)

    def _labels_in(self, table: str) -> tuple[Any, ...]:
        """The labels of a table in order."""
        kind, form = self._fetch(f"DESCRIBE {table}")[0][1], "label"
        if kind.startswith("MAP(") and kind.endswith(")"):  # Python would see what it sees of a STRUCT
            form = "map_entries(label)"
        elif kind == _IN_ZONE:  # Python would need pytz
            form = "epoch_us(label)"
        labels = [hashable(label) for (label,) in self._fetch(f"SELECT {form} FROM {table} ORDER BY code")]
        if kind == _IN_ZONE:
            labels = [_EPOCH + timedelta(microseconds=label) for label in labels]
        if len(set(map(str, labels))) < len(labels):
            raise InvalidProblemError(f"{self.name} has different {table} that are written alike: give them as text")
        return tuple(labels)

    def _refuse_rounding(self, role: str, labels: str, kind: str) -> None:
        """Refuse labels that change in the type in which they are compared."""
        own = self.table.columns(f"({labels})")["label"]
        if own == kind:
            return
        changed = f"SELECT label FROM ({labels}) WHERE TRY_CAST(CAST(label AS {kind}) AS {own}) IS DISTINCT FROM label"
        for (label,) in self._fetch(f"{changed} LIMIT 1"):
            raise InvalidProblemError(
                f"{role} {shown(label)} of {self.name} would be rounded: it is compared with labels of type {kind}. Give "
                "all of them the same type"
            )

    def _labels(self, roles: list[str]) -> dict[str, str]:
        """Columns of labels as expressions: integers where all are whole numbers, and NULL where one is missing."""
        plain, whole = {}, {}
        for role in roles:
            value = role
            if self.kinds[role] == "VARCHAR" and self.table.text:
                whole[role] = f"coalesce(TRY_CAST({role} AS BIGINT)::VARCHAR = {role}, {role} IS NULL)"
            elif self.kinds[role] in ("FLOAT", "DOUBLE"):
                value = _not_nan(role)
                whole[role] = f"coalesce({value} = trunc({value}) AND abs({value}) < 1e15, true)"
            elif self.kinds[role].startswith("ENUM"):
                value = f"{role}::VARCHAR"
            plain[role] = value
        if whole and self._fetch(f"SELECT bool_and({' AND '.join(whole.values())}) FROM taken")[0][0]:
            return plain | {role: f"TRY_CAST({plain[role]} AS BIGINT)" for role in whole}
        return plain

    def _packed(self, declared: Any) -> Any:
        """States of several columns as they are in the table."""
        if not self._width:
            return declared
        labels = check_list("states", declared)
        for label in labels:
            if not isinstance(label, list | tuple) or len(label) != self._width:
                raise InvalidProblemError(
                    f"states must be tuples of {self._width} values, as state has columns, got {shown(label)}"
                )
        return [{f"p{i}": value for i, value in enumerate(label)} for label in labels]

    def _declare(self, name: str, declared: Iterable[Any]) -> None:
        """Make the table ``declared`` of labels in their order."""
        labels = [label.item() if isinstance(label, np.generic) else label for label in check_list(name, declared)]
        if not labels or any(label is None for label in labels):
            raise InvalidProblemError(f"{name} must list at least one label, and not None; got {shown(labels)}")
        query = f"SELECT unnest(?) AS label, unnest(range({len(labels)})) AS place"
        self.connection.execute(f"CREATE OR REPLACE TEMP TABLE declared AS {query}", [labels])
        for given, (label,) in zip(labels, self._fetch("SELECT label FROM declared ORDER BY place"), strict=True):
            if isinstance(label, float) and label != given:
                raise InvalidProblemError(f"{name}: {shown(given)} would be rounded; give all labels the same type")
        for (label,) in self._fetch("SELECT label FROM declared GROUP BY label HAVING count(*) > 1 LIMIT 1"):
            raise InvalidProblemError(f"{name} lists {shown(label)} twice")

    def check(self, cut: bool) -> None:
        """Make the table ``log``, or name a line; ``cut``: whether every episode that did not terminate was truncated."""
        parts = {role: f"{value} AS {role}" for role, value in self.values.items()}
        told = "next_state IS NOT NULL" if "next_state" in self.kinds else "false"
        parts.setdefault("next_state", f"CASE WHEN false THEN {self.values['state']} END AS next_state")
        steps = "PARTITION BY episode ORDER BY step, line"
        self._create(
            "walked",
            f"WITH given AS (SELECT line, episode, {told} AS told, {', '.join(parts.values())} FROM taken), "
            "coded AS (SELECT line, episode, step, s.code AS state, a.code AS action, reward, t.code AS next_state, told, "
            "terminated, truncated FROM given LEFT JOIN states s ON given.state = s.label LEFT JOIN actions a "
            "ON given.action = a.label LEFT JOIN states t ON given.next_state = t.label) "
            f"SELECT *, lead(state) OVER ({steps}) AS following, lag(state) OVER ({steps}) AS previous, "
            f"row_number() OVER ({steps}) - 1 AS place FROM coded",
        )
        if not self._fetch("SELECT count(*) FROM walked")[0][0]:
            raise InvalidProblemError(f"{self.name} has no episodes")
        if self.kinds["episode"] in ("FLOAT", "DOUBLE"):
            self._refuse_value("episode", "isnan(episode)")
        for role in ("episode", "step", "state", "action", "reward", "terminated", "truncated"):
            self._refuse_value(role, f"{role} IS NULL")
        self._refuse_value("next_state", "told AND next_state IS NULL AND NOT terminated")
        self._refuse(
            "step <> place",
            "step, place",
            "step {} where step {} should be: those of an episode must be 0, 1, 2, … without repetitions and gaps",
        )
        self._refuse(
            "(terminated OR truncated) AND following IS NOT NULL",
            "step",
            "it goes on although it terminated or was truncated at step {}",
        )
        self._refuse(
            "NOT terminated AND next_state <> following",
            "(SELECT label FROM states WHERE code = next_state), (SELECT label FROM states WHERE code = following)",
            "next_state is {!r}, but the episode goes on in state {!r}",
        )
        if not cut:
            self._refuse(
                "following IS NULL AND next_state IS NULL AND NOT (terminated OR truncated)",
                "step",
                f"it stops after step {{}}, and nothing tells how: say so with {_ENDS}",
            )
        self._refuse(
            "following IS NULL AND next_state IS NULL AND NOT terminated AND "
            + ("true" if "next_state" in self.kinds else "step < (SELECT max(step) FROM walked)"),
            "step",
            "it was cut after step {}, and the state after that is missing: of such steps only the endings would be known. "
            "Give next_state= for them, or exclude= if there is a reason that has nothing to do with what happened",
        )
        successor = "CASE WHEN terminated THEN (SELECT count(*) FROM states) ELSE coalesce(next_state, following) END"
        if "next_state" not in self.kinds and (cut or "truncated" in self.kinds):
            successor = f"CASE WHEN step < (SELECT max(step) FROM walked) THEN {successor} END"
        columns = "line, episode, step, state, action, reward, previous, terminated"
        self._create("log", f"SELECT {columns}, {successor} AS successor FROM walked")
        for table in ("taken", "walked"):
            self.connection.execute(f"DROP TABLE {table}")

    def _refuse_value(self, role: str, wrong: str) -> None:
        """Name the first line with a ``wrong`` value, and the value."""
        for (line,) in self._fetch(f"SELECT min(line) FROM walked WHERE {wrong} HAVING count(*) > 0"):
            ((value,),) = self._fetch(f"SELECT {role} FROM taken WHERE line = {line}")
            missing = value is None or value != value
            problem = "is missing" if missing else f"is {shown(value)}, {_EXPECTED[role]}"
            raise InvalidProblemError(f"line {line} of {self.name}: {role} {problem}")

    def _refuse(self, wrong: str, values: str, message: str) -> None:
        """Name the first line where the steps of an episode do not fit together."""
        query = f"SELECT line, episode, {values} FROM walked WHERE {wrong} ORDER BY line LIMIT 1"
        for line, episode, *found in self._fetch(query):
            raise InvalidProblemError(f"line {line} of {self.name}, episode {shown(episode)}: {message.format(*found)}")


def _not_nan(value: str) -> str:
    return f"CASE WHEN NOT isnan({value}) THEN {value} END"


def listed_space(space: Any) -> FiniteSpace:
    """A space of a data set, whose elements can be listed."""
    numbered = finite(space)
    if numbered is None or not numbered.listable:
        raise InvalidProblemError(f"the space {shown(space)} of the data set is not finite, or too large to list it")
    return numbered


def columns_of(episodes: Iterable[Any], states: FiniteSpace, actions: FiniteSpace) -> dict[str, np.ndarray]:
    """The steps of Minari's episodes; an episode has one observation more than steps."""
    columns: dict[str, list[np.ndarray]] = {}
    for number, episode in enumerate(episodes):
        steps = len(episode.rewards)
        observed, done = _numbers_of(states, episode.observations), _numbers_of(actions, episode.actions)
        if not steps or len(observed) != steps + 1 or min(observed.min(), done.min()) < 0:
            raise InvalidProblemError(
                f"episode {number} of the data set is empty, or has observations or actions outside its spaces"
            )
        parts = {
            "episode": np.full(steps, number),
            "step": np.arange(steps),
            "state": observed[:-1],
            "action": done,
            "reward": episode.rewards,
            "next_state": observed[1:],
            "terminated": episode.terminations,
            "truncated": episode.truncations,
        }
        for name, part in parts.items():
            columns.setdefault(name, []).append(np.asarray(part))
    if not columns:
        raise InvalidProblemError("the data set has no episodes")
    return {name: np.concatenate(parts) for name, parts in columns.items()}


def _numbers_of(space: FiniteSpace, elements: Any) -> np.ndarray:
    """The numbers of elements of a space; those of a tuple come as a tuple of arrays."""
    each = zip(*elements, strict=True) if isinstance(elements, tuple) else elements
    return np.array([space.index(element) for element in each], dtype=np.int64)
