"""The dictionary: which rows of a stream become atoms, and what is recorded in their span.

basis : the atoms and the Cholesky factor of their kernel matrix; projections onto their span.
moments : the stream's sums in that basis, and the account of the energy that projections lost.
selection : the residuals of a block, which rows to admit, which atoms to remove, and which row replaces which atom.
greedy : choose atoms from a whole data set.
_loops : compiled loops of all these.
"""
