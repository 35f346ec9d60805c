"""Kinds of holders: what a contender makes of what it is told about its own hold.

The same lock hurts or doesn't, by how the program that uses it behaves; so the kind is a parameter of a trial.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Holder:
    """One kind. `watches`: it has a deadline of its own, and writes nothing while its client has no connection.
    `listens`: it hears that it holds no more, by its client's word or by a renewal that the service refused as not
    held, and says `lost`. `heeds`: it then acts no more. `presumes`: it acts although its acquire did not succeed.
    """

    name: str
    summary: str
    watches: bool = False
    listens: bool = False
    heeds: bool = False
    presumes: bool = False


HOLDERS: Mapping[str, Holder] = {
    holder.name: holder
    for holder in (
        Holder("guarded", "checks its own deadline, too, before it acts", watches=True, listens=True, heeds=True),
        Holder("trusting", "believes what its library says, and nothing else", listens=True, heeds=True),
        Holder("naive", "acts until it releases, and never listens"),
        Holder(
            "careless", "goes on without a grant, and after it was told that it is lost", listens=True, presumes=True
        ),
    )
}


def holder_of(given: Mapping[str, object], default: str = "guarded") -> str:
    """The kind that a mapping asks for: `holder`, or its older form `guarded` (false is naive).

    ValueError when it is none of the four, or both are given and differ.
    """
    named, guarded = given.get("holder"), given.get("guarded")
    if named is not None and named not in HOLDERS:
        raise ValueError(f"must be one of {', '.join(HOLDERS)}, not {named!r}")
    older = None if guarded is None else "guarded" if guarded else "naive"
    if named is not None and older is not None and (named == "guarded") != (older == "guarded"):
        raise ValueError(f"is {named!r}, and guarded = {str(bool(guarded)).lower()} says {older}: give one of them")
    return str(named or older or default)
