"""What the README shows of a service does what it says."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from streamkpca import Checkpointer, StreamingKernelPCA

README = Path(__file__).parents[1] / "README.md"
# Few distinct ones, which is quick.
ROWS = np.random.default_rng(0).integers(0, 4, size=(35_000, 2)).astype(float)
ROWS[5, 1] = np.nan


class Killed(BaseException):
    """What no program catches."""


def snippet(heading: str) -> str:
    section = README.read_text(encoding="utf-8").partition(f"## {heading}\n")[2]
    return section.partition("```python\n")[2].partition("```")[0]


def test_a_service_goes_on_where_its_checkpoint_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    offsets = []

    def run(stop: int | None) -> dict[str, Any]:
        def batches_from(offset: int) -> Iterator[npt.NDArray[np.float64]]:
            offsets.append(offset)
            for start in range(offset, len(ROWS), 1000):
                if start == stop:
                    raise Killed
                yield ROWS[start : start + 1000]

        names: dict[str, Any] = {"batches_from": batches_from}
        exec(snippet("In a service that must not stop"), names)
        return names

    for stop in (4_000, 13_000, 34_000):
        with pytest.raises(Killed):
            run(stop)
    run(None)
    assert offsets == [0, 0, 10_000, 30_000]
    saved = Checkpointer("plant.npz").latest()
    assert saved is not None
    assert saved.extra_ == {"offset": len(ROWS)}
    assert saved.to_bytes() == StreamingKernelPCA(on_bad_rows="skip").partial_fit(ROWS).to_bytes()
