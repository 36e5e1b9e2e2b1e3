"""Exports: models that answer without Python.

Functions
---------
to_onnx : a graph for ONNX runtimes.
to_c : one self-contained C file for microcontrollers.
"""

from streamkpca.export.c import to_c
from streamkpca.export.onnx import to_onnx

__all__ = ["to_c", "to_onnx"]
