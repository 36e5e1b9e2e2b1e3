"""Rows as callers bring them, made into dense rows of float64 that may have gaps, which are NaN.

validation : rows of any kind as float64, or an error; their weights and names
parts : many rows part by part, so that large tables are not copied as a whole
bad_rows : rows with NaN or infinity, refused or left out
gaps : NaN as missing numbers, and the normal distribution that these have
times : times of rows, as dates in UTC or as numbers
"""
