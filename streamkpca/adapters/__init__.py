"""Adapters for other libraries. Import the one you need; each loads its library.

for_river : a transformer and an anomaly detector for River's pipelines.
for_dask : `StreamingKernelPCA` that learns and answers over dask Arrays, DataFrames and Bags.
for_spark : the recipe for Spark, with partitions as Arrow batches.
partitions : the pure functions behind the last two, for any other framework.
"""
