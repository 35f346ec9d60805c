"""The runs of a matrix: the book in which they stand, what each measured, and what all of a cell say together.

`book` reads and writes `runs.jsonl`, `measure` takes the figures of one run from its folder, `rule` says when a cell
has had enough runs, `pooled` says *k of n* with the interval that `intervals` computes, `spelled` puts it into words.
"""
