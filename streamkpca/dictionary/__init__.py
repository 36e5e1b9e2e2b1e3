"""dictionary."""
