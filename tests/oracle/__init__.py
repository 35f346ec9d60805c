"""A second reading of the contract, to attack the checkers with.

The modules here judge a history by quantifying over pairs and orders, one sentence of the contract after the other:
slow, obvious, in exact arithmetic (integers and fractions), and sharing no code with `checkers` or `harness.history`.
`generate` makes random histories, `compare` sets the two readings side by side, `longrun` does so a great many times.
"""
