"""Exports: models that answer without Python, as ONNX graphs or C files, and devices that learn.

onnx : `to_onnx`, a model as a graph
c_answers : `to_c`, a model as a C file, by the template `c_answers.c`: projections, scores, rarity
c_learning : `to_c_learner`, a model as a C file that goes on learning, by `c_learning.c`
c_rarity : the part that both have of `c_rarity.c`: rarity, and expected numbers
c_kernel : a kernel as C functions
c_text : tables, numbers, comments and templates in C
device_models : `to_device` and `from_device`, models as states of devices and back
device_state : the fields of such a state
formula : the tables that a model's answers are computed from
segments : rows as kernels compare them
views : the tables of rarity and of the relation between features
"""

from streamkpca.export.c_answers import to_c
from streamkpca.export.c_learning import to_c_learner
from streamkpca.export.device_models import from_device, to_device
from streamkpca.export.onnx import to_onnx

__all__ = ["from_device", "to_c", "to_c_learner", "to_device", "to_onnx"]
