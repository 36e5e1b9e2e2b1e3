"""The memory that is there, which Linux promises to more than it has: who takes too much is killed without a word."""

from contextlib import suppress
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
# Limits of a container, by the two versions of cgroups.
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def available_bytes() -> float:
    """Return how many bytes can be taken without swapping, at most; infinity where the system does not say."""
    found = float("inf")
    with suppress(OSError, ValueError, StopIteration):
        line = next(line for line in _MEMINFO.read_text().splitlines() if line.startswith("MemAvailable:"))
        found = 1024.0 * float(line.split()[1])
    for path in _LIMITS:
        # Without a limit, there is the word "max".
        with suppress(OSError, ValueError):
            found = min(found, float(path.read_text()))
    return found


def check_memory(n_rows: int, n_matrices: int) -> None:
    """Refuse rows, before the work begins, that need more matrices (n, n) than there is memory for."""
    needed, available = 8.0 * n_matrices * n_rows**2, available_bytes()
    if needed > available:
        most = int((available / 8.0 / n_matrices) ** 0.5)
        raise MemoryError(
            f"expected at most {most:,} rows, as matrices of n x n numbers must fit the {available / 1e9:.1f} GB of "
            f"memory that are there, but got {n_rows:,} ({needed / 1e9:.1f} GB); take StreamingKernelPCA, whose memory "
            "is bounded"
        )
