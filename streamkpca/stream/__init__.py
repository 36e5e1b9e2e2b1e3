"""The state of a stream, from the rows of a call to a summary and published axes.

settings : parameters, checked
blocks : pending rows, blocks compared with the atoms, blocks prepared ahead in threads
schedule : when to search for atoms, and a test of whether the stream is explained worse than before
summary : all that is kept of the rows, advanced a block at a time
state : pending rows, summary, refits and published axes; the cell that holds them for a model
checkpoint : a stream written to a file and read back
"""
