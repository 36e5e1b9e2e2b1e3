"""Rows: what callers have made into dense float64 rows, part by part, with weights and with gaps marked as NaN."""
