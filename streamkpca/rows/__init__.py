"""Rows: what callers have made into dense float64 rows, part by part, with weights and with gaps marked as NaN.

validation : rows of any kind, as arrays of float64, or refused
gaps : rows with NaN, and the normal distribution of their missing numbers
times : times of rows, as dates in UTC or as numbers
"""
