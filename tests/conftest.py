"""One BLAS thread, every check of scikit-learn, hypothesis profiles: HYPOTHESIS_PROFILE=nightly searches longer."""

import gc
import os

# Before anything imports numpy: the tests' matrices are so small that a second thread costs time, and on a busy machine
# a multiple of it. Child processes inherit it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Without it scikit-learn leaves out its check of arrays that are not numpy's.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

import pytest
from hypothesis import HealthCheck, settings

# Drawing a stream is cheap but not free, and compiling the first loop takes longer than any deadline.
_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "ci", max_examples=30, deadline=None, derandomize=True, suppress_health_check=_SLOW, print_blob=True
)
settings.register_profile("nightly", max_examples=2000, deadline=None, suppress_health_check=_SLOW, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Take what the imports and the collection made out of all later garbage collections.

    There are some million objects of numba, pyarrow, dask and the tests: a full collection would go through them for
    0.4 s each time, and tests of memory ask for one a file.
    """
    del session
    gc.collect()
    gc.freeze()
