"""Foundations that every other package builds on.

jit : the decorator of all compiled loops
_loops : loops that check rows, and put numbers into their gaps
arrays : types of arrays
linalg : OpenBLAS on one thread, the product A^T A without the interpreter lock, and triangular factors
reservoir : positions of rows in a stream, and a weighted random sample of it
parameters : checks of parameters
concurrency : the write lock of a model, and a cached property that takes no lock
files : a file replaced as a whole or not at all; locks on files
"""
