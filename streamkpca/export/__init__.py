"""Exports: models that answer without Python, as ONNX graphs or C files, and devices that learn.

onnx, c, c_learning : a model as a graph, as a C file, and as one that goes on learning
model, layout, views : what all write: answers as tables, rows as kernels compare them, and the views of a monitor
c_kernel, c_text : a kernel, numbers and comments in C; `answers.c`, `relation.c`, `device.c` are templates
device_models, device_state : states of devices as models, and their fields
"""

from streamkpca.export.c import to_c
from streamkpca.export.device_models import from_device, to_device
from streamkpca.export.onnx import to_onnx

__all__ = ["from_device", "to_c", "to_device", "to_onnx"]
