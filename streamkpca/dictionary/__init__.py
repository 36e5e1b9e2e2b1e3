"""The dictionary: which rows of a stream become atoms, and what is recorded in their span."""
