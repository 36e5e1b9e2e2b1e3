"""The dictionary: which rows of a stream become atoms, and what is recorded in their span.

basis : the atoms, and the factor that makes them orthonormal
selection, swaps : rows admitted, atoms removed, and which row should replace which atom
greedy, moving : atoms chosen from all rows at once, and atoms that leave the rows of the stream
moments : sums over rows in the basis, and the account of their energy
completion, expected : rows with gaps completed, and expectations of their kernel values
"""
