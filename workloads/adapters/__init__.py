"""Adapters: a lock in any language, run as a child of the contender and spoken to in JSON lines (docs/adapters.md).

`wire.py` is the protocol, `child.py` the process, `workloads/clients/adapter.py` the lock client made of both.
"""
