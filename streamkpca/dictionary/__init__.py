"""The dictionary: which rows of a stream become atoms, and what is recorded in their span.

basis : the atoms, and the factor that makes them orthonormal
selection : which rows to admit, and which atoms to remove
swaps : which row should replace which atom
greedy : atoms chosen from all rows at once
moving : atoms that leave the rows of the stream for better places
moments : sums over rows in the basis, and the account of their energy
completion : rows with gaps, completed so that they are least novel
expected : expected kernel values of rows with gaps
_loops : the compiled loops of selection, swaps and moving
"""
