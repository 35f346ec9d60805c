"""A lock client that a user brings: what he means by it, what is sent, and how it gets to the contenders' nodes.

Nothing of his is loaded here. `brought.py` reads his files and says which command is started on a node, `needs.py`
which packages of Python that takes, and `sending.py` brings both there.
"""
