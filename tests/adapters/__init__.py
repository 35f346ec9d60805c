"""Locks in any language: the adapter protocol, its process, and the conformance check."""
