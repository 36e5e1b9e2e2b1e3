"""Plain detectors of changes of distribution, after their papers: the statistic of each row of a stream.

All have a Gaussian kernel exp(-|x - y|^2 / (2 s^2)), s being the median distance of healthy rows. A detector signals at
the first row whose statistic passes a level.

* **MMDEW**, arXiv 2205.12706: buckets of 1, 2, 4, ... rows, the sums of kernel values within and between them; of all
  splits between buckets the largest maximum mean discrepancy, over its bound.
* **NEWMA**, arXiv 1805.08061: the distance of two moving averages of random Fourier features.
* **Scan-B**, arXiv 1507.01279: the unbiased squared discrepancy of the last B rows and N blocks of healthy ones.
* **OKCUSUM**, arXiv 2211.15070: the largest of such statistics of the last 2, 4, ..., B rows, each over its deviation.
"""

import math

import numpy as np
from numba import njit

Array = np.ndarray
MOST_BUCKETS = 40


def bandwidth(healthy: Array) -> float:
    """Return 1 / (2 s^2) for the median distance s."""
    rows = healthy[:500]
    squared = ((rows[:, None] - rows[None]) ** 2).sum(axis=2)
    return 0.5 / float(np.median(squared[np.triu_indices(len(rows), 1)]))


@njit
def _gauss(x, y, gamma):
    total = 0.0
    for j in range(len(x)):
        total += (x[j] - y[j]) ** 2
    return math.exp(-gamma * total)


@njit
def mmdew(rows, gamma):
    """Return the statistic of each row (n,): the largest of MMD / sqrt(1 / m + 1 / n) over the splits.

    Nothing is sampled: sums of kernel values are those of all rows, as in the paper before its buckets are compressed.
    """
    n = len(rows)
    out = np.zeros(n)
    size, own = np.zeros(MOST_BUCKETS, np.int64), np.zeros(MOST_BUCKETS)
    cross = np.zeros((MOST_BUCKETS, MOST_BUCKETS))
    b = 0
    for t in range(n):
        size[b], own[b] = 1, 1.0
        start = 0
        for i in range(b):
            cross[i, b] = 0.0
            for k in range(start, start + size[i]):
                cross[i, b] += _gauss(rows[t], rows[k], gamma)
            start += size[i]
        b += 1
        whole = 0.0
        for i in range(b):
            whole += own[i]
            for h in range(i):
                whole += 2.0 * cross[h, i]
        inside, m = 0.0, 0
        for s in range(b - 1, 0, -1):
            inside += own[s]
            m += size[s]
            for h in range(s + 1, b):
                inside += 2.0 * cross[s, h]
            between = 0.0
            for i in range(s):
                for h in range(s, b):
                    between += cross[i, h]
            older = t + 1 - m
            rest = whole - inside - 2.0 * between
            squared = inside / m**2 + rest / older**2 - 2.0 * between / (m * older)
            out[t] = max(out[t], math.sqrt(max(squared, 0.0)) / math.sqrt(1.0 / m + 1.0 / older))
        # Last, so that each row is compared by itself first.
        while b > 1 and size[b - 1] == size[b - 2]:
            i, j = b - 2, b - 1
            own[i] += own[j] + 2.0 * cross[i, j]
            for h in range(i):
                cross[h, i] += cross[h, j]
            size[i] *= 2
            b -= 1
    return out


def newma_rates(window: int) -> tuple[float, float]:
    """Return the two forgetting factors for a window: the least bound of the error, over what tells them apart."""
    best, found = math.inf, (0.0, 0.0)
    for large in np.exp(np.linspace(math.log(1.0 / (window + 1)) + 1e-3, math.log(0.9), 400)):
        wanted, low, high = large * (1.0 - large) ** window, 0.0, 1.0 / (window + 1)
        for _ in range(60):
            small = (low + high) / 2.0
            low, high = (small, high) if small * (1.0 - small) ** window < wanted else (low, small)
        gap = (1.0 - small) ** window - (1.0 - large) ** window
        bound = (math.sqrt(large + small) + (1.0 - small) ** (2 * window) - (1.0 - large) ** (2 * window)) / gap
        if bound < best:
            best, found = bound, (float(large), small)
    return found


def newma(rows: Array, gamma: float, start: Array, seed: int = 0, window: int = 50, n_features: int = 300) -> Array:
    """Return the statistic of each row (n,), the averages having begun at the mean of healthy rows."""
    random = np.random.default_rng(seed)
    directions = random.normal(scale=math.sqrt(2.0 * gamma), size=(rows.shape[1], n_features))
    phases = random.uniform(0.0, 2.0 * math.pi, n_features)

    def features(part: Array) -> Array:
        return np.cos(part @ directions + phases) * math.sqrt(2.0 / n_features)

    return _two_averages(features(rows), features(start).mean(axis=0), *newma_rates(window))


@njit
def _two_averages(features, begin, large, small):
    fast, slow, out = begin.copy(), begin.copy(), np.empty(len(features))
    for t in range(len(features)):
        total = 0.0
        for j in range(len(begin)):
            fast[j] += large * (features[t, j] - fast[j])
            slow[j] += small * (features[t, j] - slow[j])
            total += (fast[j] - slow[j]) ** 2
        out[t] = math.sqrt(total)
    return out


def scan(rows: Array, gamma: float, healthy: Array, block: int = 50, n_blocks: int = 15) -> tuple[Array, Array]:
    """Return the statistics (n,) of Scan-B and of OKCUSUM; 0 before there is a block."""
    need = block * n_blocks
    blocks = healthy[:need].reshape(n_blocks, block, -1)
    sizes = np.arange(2, block + 1, 2)
    deviations = _deviations(healthy[need:], gamma, n_blocks, sizes)
    return _scan(rows, gamma, np.ascontiguousarray(blocks), sizes, deviations)


def _deviations(healthy: Array, gamma: float, n_blocks: int, sizes: Array, count: int = 2000) -> Array:
    """Return the standard deviations of statistics of healthy rows, by the formula for their variance."""
    random = np.random.default_rng(0)
    x, x2, y, y2, z, z2 = (healthy[random.integers(0, len(healthy), count)] for _ in range(6))

    def kernel(a: Array, b: Array) -> Array:
        return np.exp(-gamma * ((a - b) ** 2).sum(axis=1))

    one = kernel(x, x2) + kernel(y, y2) - kernel(x, y2) - kernel(x2, y)
    other = kernel(z, z2) + kernel(y, y2) - kernel(z, y2) - kernel(z2, y)
    variance = (one**2).mean() / n_blocks + (n_blocks - 1) / n_blocks * np.cov(one, other)[0, 1]
    return np.sqrt(variance / (sizes * (sizes - 1) / 2.0))


@njit
def _scan(rows, gamma, blocks, sizes, deviations):
    n, block, n_blocks = len(rows), blocks.shape[1], blocks.shape[0]
    last, within = np.zeros(n), np.zeros((block, block))
    largest, between, among = np.zeros(n), np.zeros((block, block)), np.zeros((block, block))
    for i in range(block):
        for j in range(i):
            for b in range(n_blocks):
                among[i, j] += _gauss(blocks[b, i], blocks[b, j], gamma) / n_blocks
            among[j, i] = among[i, j]
    for t in range(n):
        for i in range(block - 1):
            for j in range(block - 1):
                within[i, j] = within[i + 1, j + 1]
        for i in range(block):
            for j in range(block - 1):
                between[i, j] = between[i, j + 1]
        for i in range(block):
            back = t - (block - 1 - i)
            within[i, block - 1] = within[block - 1, i] = _gauss(rows[back], rows[t], gamma) if back >= 0 else 0.0
            total = 0.0
            for b in range(n_blocks):
                total += _gauss(blocks[b, i], rows[t], gamma)
            between[i, block - 1] = total / n_blocks
        if t < block - 1:
            continue
        total, q = 0.0, 0
        for size in range(2, block + 1):
            i = block - size
            for j in range(i + 1, block):
                total += 2.0 * (among[i, j] + within[i, j] - between[i, j] - between[j, i])
            if size == 2 or size == sizes[q]:
                value = total / (size * (size - 1)) / deviations[q]
                largest[t] = max(largest[t], value)
                last[t] = value
                q += 1
    return last, largest
