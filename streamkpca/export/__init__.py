"""Exports: models that answer without Python.

Functions
---------
to_onnx : a graph for ONNX runtimes.
to_c : one self-contained C file for microcontrollers.
from_device : the state of a device that learns, as a model.
to_device : a model as the state of a device.
"""

from streamkpca.export.c import to_c
from streamkpca.export.device_models import from_device, to_device
from streamkpca.export.onnx import to_onnx

__all__ = ["from_device", "to_c", "to_device", "to_onnx"]
