"""Reading the parameters of a fault: what is unknown or out of range is a UsageError that says what is right."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from harness.errors import UsageError

T = TypeVar("T")


class Parameters:
    """The parameters of one fault, taken out one by one; `done` rejects what nobody asked for."""

    def __init__(self, kind: str, values: Mapping[str, Any]) -> None:
        self._kind, self._values = kind, dict(values)
        self._known: list[str] = []

    def _take(self, name: str, default: Any) -> Any:
        self._known.append(name)
        value = self._values.get(name)
        return default if value is None else value

    def _bad(self, name: str, right: str, value: object) -> UsageError:
        return UsageError(f"{self._kind}: parameter {name!r} must be {right}, not {value!r}")

    def number(self, name: str, default: float, low: float, high: float) -> float:
        """A number from `low` to `high`."""
        value = self._take(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise self._bad(name, f"a number from {low:g} to {high:g}", value)
        return float(value)

    def whole(self, name: str, default: int, low: int, high: int) -> int:
        """A whole number from `low` to `high`."""
        value = self._take(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self._bad(name, f"a whole number from {low} to {high}", value)
        return value

    def choice(self, name: str, choices: Sequence[str], default: str | None = None) -> str:
        """One of some words; the first is the default unless another is given."""
        value = self._take(name, default if default is not None else choices[0])
        if value not in choices:
            near = difflib.get_close_matches(str(value), choices, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise UsageError(
                f"{self._kind}: parameter {name!r} must be one of {', '.join(choices)}, not {value!r}{hint}"
            )
        return str(value)

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self._take(name, default)
        if not isinstance(value, bool):
            raise self._bad(name, "true or false", value)
        return value

    def other(self, name: str, read: Callable[[Any], T], default: T) -> T:
        """Whatever `read` makes of it, which raises UsageError for what it can't take; the kind is put before it."""
        value = self._take(name, None)
        try:
            return default if value is None else read(value)
        except UsageError as error:
            raise UsageError(f"{self._kind}: {error}") from error

    def given(self, name: str) -> bool:
        """Whether it was given at all."""
        return self._values.get(name) is not None

    def done(self) -> None:
        """Raises UsageError for a parameter that the fault doesn't have."""
        for name in self._values:
            if name not in self._known:
                near = difflib.get_close_matches(name, self._known, n=1)
                known = f"known: {', '.join(self._known)}" if self._known else "it takes none"
                hint = f"did you mean {near[0]!r}?" if near else known
                raise UsageError(f"{self._kind}: unknown parameter {name!r}; {hint}")
