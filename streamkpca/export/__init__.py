"""Exports: models that answer without Python, as ONNX graphs or C files, and devices that learn."""

from streamkpca.export.c import to_c
from streamkpca.export.device_models import from_device, to_device
from streamkpca.export.onnx import to_onnx

__all__ = ["from_device", "to_c", "to_device", "to_onnx"]
