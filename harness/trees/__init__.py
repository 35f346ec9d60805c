"""File trees: what images are to a runtime that has no engine. `tree.py` says what one is."""

from __future__ import annotations

from harness.trees.tree import Tree

__all__ = ["Tree"]
