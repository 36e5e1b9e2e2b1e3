"""Types of arrays."""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
# Row numbers, and positions of rows in a stream; `Indices` are those that numpy's searches return.
Positions = npt.NDArray[np.int64]
Indices = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]
Names = npt.NDArray[np.object_]
