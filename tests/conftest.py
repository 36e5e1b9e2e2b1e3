"""One BLAS thread, every check of scikit-learn, hypothesis profiles, and the tests that only ``.ci/run`` runs.

Hypothesis draws 10 examples, 30 where CI is set, and 2,000 with ``HYPOTHESIS_PROFILE=nightly``.
"""

import gc
import os
from pathlib import Path

# Before anything imports numpy: the tests' matrices are so small that a second thread costs time, and on a busy machine
# a multiple of it. Child processes inherit it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Without it scikit-learn leaves out its check of arrays that are not numpy's.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

import pytest
from hypothesis import HealthCheck, settings

# Drawing a stream is cheap but not free, and compiling the first loop takes longer than any deadline.
_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
for _name, _examples in {"quick": 10, "ci": 30, "nightly": 2000}.items():
    settings.register_profile(
        _name,
        max_examples=_examples,
        deadline=None,
        derandomize=_name != "nightly",
        suppress_health_check=_SLOW,
        print_blob=True,
    )
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "quick"))

HERE = Path(__file__).parent
# Folders and files whose tests are left out unless `-m` asks for them.
MARKS = {
    "faults": "faults",
    "cli/test_processes.py": "faults",
    "docs": "documents",
    "experiments/test_experiments.py": "documents",
    "experiments/test_experiments_digits.py": "documents",
    "experiments/test_sensor_service.py": "engines",
    "adapters/test_adapters_for_dask.py": "engines",
    "adapters/test_adapters_for_ray.py": "engines",
    "adapters/test_adapters_for_spark.py": "engines",
    "export/test_device_state.py": "engines",
    "export/test_export_answers.py": "engines",
    "export/test_export_c.py": "engines",
    "export/test_export_onnx.py": "engines",
}


def pytest_configure(config: pytest.Config) -> None:
    """Compile the loops once, before the workers that share numba's cache start."""
    if getattr(config.option, "numprocesses", None):
        from streamkpca import warmup

        warmup()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by the folder or the file that holds them."""
    for item in items:
        if item.path.is_relative_to(HERE):
            name = item.path.relative_to(HERE).as_posix()
            mark = MARKS.get(name) or MARKS.get(name.partition("/")[0])
            if mark:
                item.add_marker(mark)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Take what the imports and the collection made out of all later garbage collections.

    There are some million objects of numba, pyarrow, dask and the tests: a full collection would go through them for
    0.4 s each time, and tests of memory ask for one a file.
    """
    del session
    gc.collect()
    gc.freeze()
