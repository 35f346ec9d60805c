"""The zoo's own lock service, which is right, and what makes it wrong on purpose: one switch at a time.

Positive controls. A checker that has never said "false" about a lock that is known to be wrong has shown nothing when
it says "true" about another. So each bug here is in reach of one fault, and of one set of verdicts
(`fencepost matrix zoo`).
"""
