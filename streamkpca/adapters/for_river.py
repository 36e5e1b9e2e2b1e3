"""Kernel PCA in River's pipelines: a transformer and an anomaly detector. Needs the extra ``river``."""

from streamkpca.adapters.river_detector import KernelPCADetector
from streamkpca.adapters.river_transformer import KernelPCATransformer

__all__ = ["KernelPCADetector", "KernelPCATransformer"]
