"""The settings of a workload: what there is to set, and what a trial sets of it, checked at the border."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from workloads.validate import BadConfig


@dataclass(frozen=True)
class Parameter:
    """One setting of a workload: its default, its range, its unit, and what it means. `ttl` as unit: in leases."""

    default: float
    low: float
    high: float
    unit: str
    meaning: str
    whole: bool = False
    """Whether it counts something."""


def resolve(
    parameters: Mapping[str, Parameter], given: Mapping[str, Any], ordered: Iterable[tuple[str, str]]
) -> dict[str, float]:
    """All parameters, the given ones over the defaults. BadConfig names one that is unknown or out of range.

    `ordered`: pairs of which the first must not be above the other.
    """
    for key in given:
        if key not in parameters:
            raise BadConfig(f"parameters.{key}", f"unknown (known: {', '.join(parameters)})")
    values = {}
    for key, parameter in parameters.items():
        value = given.get(key, parameter.default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadConfig(f"parameters.{key}", f"must be a number ({parameter.unit}), not {value!r}")
        if not parameter.low <= value <= parameter.high:
            span = f"between {parameter.low:g} and {parameter.high:g} ({parameter.unit})"
            raise BadConfig(f"parameters.{key}", f"must lie {span}, not {value!r}")
        if parameter.whole and value != int(value):
            raise BadConfig(f"parameters.{key}", f"must be a whole number ({parameter.unit}), not {value!r}")
        values[key] = float(value)
    for low, high in ordered:
        if values[low] > values[high]:
            unit = f" {parameters[high].unit}" if parameters[high].unit == "s" else ""
            raise BadConfig(f"parameters.{low}", f"must not be above {high} ({values[high]:g}{unit})")
    return values
