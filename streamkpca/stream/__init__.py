"""The state of a stream, from the rows of a call to a summary and published axes.

parameters : the table of a model's parameters
settings : parameters, checked
blocks : pending rows, blocks compared with the atoms and prepared ahead, and when to search them for atoms
drift : a test of whether the stream is explained worse than before
summary : all that is kept of the rows, advanced a block at a time
state : pending rows, summary, refits and published axes; the cell that holds them for a model
checkpoint : a stream written to a file and read back
"""
