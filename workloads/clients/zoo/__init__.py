"""The zoo: locks that are wrong on purpose, each in the way in which people build them wrong.

They are clients like any other (`fencepost run redis --client zoo-forever …`), and the matrix `mistakes` shows each
with the verdict that tells it. `queued.py` alone is right: the client of the zoo's own server, which can be wrong
itself (`workloads/zoo`).
"""
