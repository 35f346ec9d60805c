"""The runtime `local`: nodes are Linux namespaces that the harness makes itself, without any engine.

`runtime` is what others load; `inside/` is what runs in the namespaces. docs/runtime.md tells how it is built and why.
"""
