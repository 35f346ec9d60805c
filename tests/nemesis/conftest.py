"""Fixtures: nodes made of namespaces, and agents on them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nemesis.link import Link, open_agent
from tests.nemesis.nodes import NamespaceNode, lan, why_not

needs_namespaces = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@pytest.fixture
def node() -> Iterator[NamespaceNode]:
    """One node on its own."""
    if reason := why_not():
        pytest.skip(reason)
    made = NamespaceNode("n1")
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def agent(node: NamespaceNode) -> Iterator[Link]:
    """The agent on that node."""
    link = open_agent(node)
    try:
        yield link
    finally:
        link.close()


@pytest.fixture
def pair() -> Iterator[dict[str, NamespaceNode]]:
    """Two nodes, n1 and n2, on one network."""
    if reason := why_not():
        pytest.skip(reason)
    with lan("n1", "n2") as nodes:
        yield nodes
