"""Adapters for other libraries. Import the one you need; each loads its library.

for_river : a transformer and an anomaly detector for River's pipelines
for_dask : `StreamingKernelPCA` that learns and answers over dask Arrays and DataFrames
for_spark : fits and answers for Spark's DataFrames
for_ray : fits and answers for Ray's Datasets

The last three stand on `streamkpca.aggregate.Aggregate`, which serves other engines too, and share the module
`partition`, which is not public: what is done with one part of the rows.
"""
