"""PostgreSQL's own client library, as far as a contender needs it: connect, one statement at a time, its error.

By ctypes, since contenders are started five at a time, and Python's usual driver takes 0.1 s of a processor to be
imported; this takes a tenth of that. What bounds a wait, and how that is named, is libpq's own
(https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS). Not safe for two threads at once.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from typing import Any

LIBRARY = "libpq.so.5"

Value = int | str | Sequence[int] | None
"""What a statement takes and returns: numbers, text, lists of numbers, NULL."""

_CONNECTION_OK = 0
_COMMAND_OK, _TUPLES_OK = 1, 2
_SQLSTATE = ord("C")
_INTEGERS = frozenset({20, 21, 23})
"""Type numbers of int8, int2 and int4 (src/include/catalog/pg_type.dat), which never change."""
_LISTS = frozenset({1016, 1005, 1007})
_INT8, _ANY = 20, 0
_NAMED = re.compile(r"%\((\w+)\)s")


class DatabaseError(Exception):
    """A statement that went wrong, or no connection.

    `sqlstate` is the server's own word for it, and with it the statement is rolled back; None when nobody answered.
    """

    def __init__(self, text: str, sqlstate: str | None = None) -> None:
        self.sqlstate = sqlstate
        super().__init__(text)


class Connection:
    """A connection, each statement of which is a transaction unless it says `BEGIN`."""

    def __init__(self, options: Mapping[str, str | int]) -> None:
        """Connect; `options` are libpq's. Raises DatabaseError with its words when that can't be done."""
        self._library = library()
        keys, values = _strings([*options]), _strings([str(value) for value in options.values()])
        self._handle: int | None = self._library.PQconnectdbParams(keys, values, 0)
        if self.closed:
            text = _text(self._library.PQerrorMessage(self._handle)) if self._handle else "no memory"
            self.close()
            raise DatabaseError(text)

    @property
    def closed(self) -> bool:
        """Whether nothing can be asked any more."""
        return self._handle is None or self._library.PQstatus(self._handle) != _CONNECTION_OK

    def close(self) -> None:
        """Drop it. Idempotent."""
        if self._handle is not None:
            self._library.PQfinish(self._handle)
            self._handle = None

    def execute(self, sql: str, values: Mapping[str, Value] | None = None) -> tuple[Value, ...] | None:
        """Run a statement and return its first row, None without one. Values stand in it as `%(name)s`.

        Without `values` there may be several statements, with semicolons between them. Raises DatabaseError.
        """
        if self._handle is None:
            raise DatabaseError("the connection is closed")
        if values is None:
            result = self._library.PQexec(self._handle, sql.encode())
        else:
            names = list(dict.fromkeys(_NAMED.findall(sql)))
            numbered = _NAMED.sub(lambda found: f"${names.index(found[1]) + 1}", sql)
            given = [values[name] for name in names]
            result = self._library.PQexecParams(
                self._handle,
                numbered.encode(),
                len(given),
                # The server finds out by itself what type a text is meant to be, and NULL.
                (ctypes.c_uint * len(given))(*(_INT8 if isinstance(each, int) else _ANY for each in given)),
                _strings([_written(each) for each in given]),
                None,
                None,
                0,
            )
        try:
            return self._row(result)
        finally:
            self._library.PQclear(result)

    def _row(self, result: int | None) -> tuple[Value, ...] | None:
        library = self._library
        if not result or library.PQresultStatus(result) not in (_COMMAND_OK, _TUPLES_OK):
            sqlstate = library.PQresultErrorField(result, _SQLSTATE) if result else None
            said = library.PQresultErrorMessage(result) if result else library.PQerrorMessage(self._handle)
            raise DatabaseError(_text(said), None if sqlstate is None else sqlstate.decode())
        if library.PQntuples(result) == 0:
            return None
        return tuple(
            None
            if library.PQgetisnull(result, 0, column)
            else _read(library.PQgetvalue(result, 0, column).decode(), library.PQftype(result, column))
            for column in range(library.PQnfields(result))
        )


def _written(value: Value) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) else "{" + ",".join(map(str, value)) + "}"


def _read(text: str, kind: int) -> Value:
    if kind in _INTEGERS:
        return int(text)
    if kind in _LISTS:
        return [int(each) for each in text[1:-1].split(",") if each]
    return text


def _text(said: bytes | None) -> str:
    """An error in its words, without the severity in front, which is translated and says nothing more."""
    text = (said or b"").decode(errors="replace").strip()
    return text.partition(":  ")[2] or text or "no reason given"


def _strings(words: Sequence[str | None]) -> Any:
    """An array of C strings, with NULL behind them."""
    return (ctypes.c_char_p * (len(words) + 1))(*(None if word is None else word.encode() for word in words), None)


_loaded: list[Any] = []


def library() -> Any:
    """The library, loaded when it is first needed. Raises DatabaseError when this image has none."""
    if not _loaded:
        try:
            library = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise DatabaseError(
                f"{LIBRARY} can't be loaded ({error}); on Debian it is in the package libpq5"
            ) from error
        handle, number, string = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
        for name, returned, taken in (
            ("PQconnectdbParams", handle, (handle, handle, number)),
            ("PQstatus", number, (handle,)),
            ("PQerrorMessage", string, (handle,)),
            ("PQfinish", None, (handle,)),
            ("PQexec", handle, (handle, string)),
            ("PQexecParams", handle, (handle, string, number, handle, handle, handle, handle, number)),
            ("PQclear", None, (handle,)),
            ("PQresultStatus", number, (handle,)),
            ("PQresultErrorField", string, (handle, number)),
            ("PQresultErrorMessage", string, (handle,)),
            ("PQntuples", number, (handle,)),
            ("PQnfields", number, (handle,)),
            ("PQgetisnull", number, (handle, number, number)),
            ("PQgetvalue", string, (handle, number, number)),
            ("PQftype", ctypes.c_uint, (handle, number)),
        ):
            function = getattr(library, name)
            function.restype, function.argtypes = returned, taken
        _loaded.append(library)
    return _loaded[0]
