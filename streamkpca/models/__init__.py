"""The estimators: what a user fits, asks, saves and merges.

streaming : `StreamingKernelPCA`, kernel PCA of a stream, and `merge`
exact : `KernelPCA` of all rows at once
sparse : `SparseKernelPCA`, maximum-likelihood weights of all rows
approximate : `ApproximateKernelPCA`, greedy choice of rows
checkpointer : `Checkpointer`, which saves generations of a model
saving : the base of what is saved in one file with a model, and `load`
outliers : `OutlierDetector`, which finds the outliers of a table
bank : `Bank`, a monitor or model for each key
_base : what the four of axes share: queries and fitted attributes
_protocol : what scikit-learn expects of all: parameters, names of features
"""
