"""Doors to other libraries, each opened by importing it.

for_river : a transformer and an anomaly detector for River's pipelines.
for_dask : fit and ask over dask Arrays, DataFrames and Bags.
for_spark : the recipe for Spark, partitions as batches of Arrow.
partitions : the pure functions behind the last two, for any other framework.
"""
