"""Foundations that every other package builds on.

jit : the decorator of all compiled loops.
linalg : OpenBLAS on one thread, the product A^T A without the interpreter lock, and triangular factors.
reservoir : a weighted random sample of a stream.
parameters : parameters, checked, or a clear error.
validation : rows and sample weights, checked, or a clear error.
concurrency : the write lock of a model, and a cached property that takes no lock.
files : replace a file as a whole or not at all.
_loops : compiled loops of the input checks.
"""
