"""Foundations that every other package builds on.

jit : the decorator of all compiled loops.
blas : OpenBLAS on one thread, and the product A^T A without the interpreter lock.
triangular : solve with, invert and shrink lower triangular factors.
reservoir : a weighted random sample of a stream.
validation : rows and sample weights as finite arrays, or a clear error.
params : checks of single parameters.
concurrency : the write lock of a model, and a cached property that takes no lock.
files : replace a file as a whole or not at all.
_loops : compiled loops of the input checks.
"""
