"""What a device that learns computes, in numpy's single precision: every operation as in its C file, in the same order.

It is written from the description of the rules and imports nothing from the package. Sums are accumulated one by one.
"""

import numpy as np

F = np.float32
EXP = [F(x) for x in ("1.9875691e-4", "1.3981999e-3", "8.3334519e-3", "4.1665796e-2", "1.6666665e-1", "5.0e-1")]
LOG = "7.0376836e-2 -1.1514610e-1 1.1676999e-1 -1.2420141e-1 1.4249323e-1 -1.6668058e-1 2.0000715e-1".split()
LOG = [F(x) for x in (*LOG, "-2.5000000e-1", "3.3333331e-1")]
ZERO, ONE, TWO, HALF = F(0), F(1), F(2), F(0.5)
BATCH, LEAST_BATCHES, ROWS_TO_DRAW, LEAST_RESIDUAL = 64, 4, 8, F(2e-6)
ARRAYS = "first second factor atoms weight_since_admission loss total_weight squared_weight threshold run mean".split()
NUMBERS = "largest_energy energy lost_on_arrival lost_by_removal waiting_weight waiting_count".split()


def total(terms):
    """Add numbers one after the other."""
    return np.add.accumulate(terms)[-1] if len(terms) else ZERO


def exp(x):
    x = np.asarray(x, dtype=F)
    n = (x * F(1.442695) - HALF).astype(np.int32)
    rest = x - n.astype(F) * F(0.693359375)
    rest = rest + n.astype(F) * F(2.1219444e-4)
    y = EXP[0]
    for coefficient in EXP[1:]:
        y = y * rest + coefficient
    y = y * (rest * rest) + rest + ONE
    power = ((n + 127).astype(np.uint32) << 23).view(F)
    return np.where(x > F(-86), y * power, ZERO)


def log(x):
    bits = int(np.asarray(x, dtype=F).view(np.uint32))
    e, x = (bits >> 23) - 127, np.asarray((bits & 0x7FFFFF) | 0x3F800000, dtype=np.uint32).view(F)[()]
    if x > F(1.4142135):
        x, e = x * HALF, e + 1
    x = x - ONE
    y = LOG[0]
    for coefficient in LOG[1:]:
        y = y * x + coefficient
    y = y * x * (x * x)
    y = y - F(e) * F(2.1219444e-4)
    y = y - HALF * (x * x)
    return x + y + F(e) * F(0.693359375)


def root(x):
    bits = (int(np.asarray(x, dtype=F).view(np.uint32)) >> 1) + 0x1FBD1DF5
    y = np.asarray(bits, dtype=np.uint32).view(F)[()]
    for _ in range(3):
        y = HALF * (y + x / y)
    return y


class Candidate:
    """A row that may become an atom, and what the rows that followed say about it."""

    def __init__(self, row):
        self.row, self.residual = row, ZERO
        self.restart()

    def restart(self):
        self.count = self.missed = self.batch = self.gain = self.square = ZERO


class ReferenceDevice:
    """The memory of a device, of which only the places in use are kept, and the tables of its relation."""

    def __init__(self, values, tables):
        self.v, self.tables, n = values, tables, values["n_atoms"]
        self.is_rbf, self.m = values["kernel"] == 1, values["max_atoms"]
        for name in NUMBERS:
            setattr(self, name, F(values[name]))
        lower = np.tril_indices(n)
        for name in ("second", "factor"):
            matrix = np.zeros((n, n), dtype=F)
            matrix[lower] = values[name][: len(lower[0])]
            setattr(self, name, matrix)
        for name in ("first", "atoms", "weight_since_admission", "loss"):
            setattr(self, name, values[name][:n].astype(F))
        for name in ("total_weight", "squared_weight", "threshold", "run", "mean"):
            setattr(self, name, values[name].astype(F))
        self.seed, self.turn, self.n_rows, self.n_refused = values["seed"], 0, int(values["n_rows"][0]), 0
        self.candidates, self.waiting_row = [None] * 3, np.zeros(values["n_features"], dtype=F)
        half_life, period = values["half_life"], values["return_period"]
        self.fading = F(-np.expm1(-np.log(2.0) / half_life)) if half_life else ZERO
        self.squared_fading = F(-np.expm1(-2.0 * np.log(2.0) / half_life)) if half_life else ZERO
        self.up, self.down, self.tolerance = F(0.02 * (1.0 - 1.0 / period)), F(0.02 / period), F(values["tolerance"])

    def random(self):
        self.seed = (self.seed * 1664525 + 1013904223) % 2**32
        return F(self.seed >> 8) * F(5.9604645e-8)

    def base(self, u, rows):
        """Return minus the squared distances, or the inner products, of a row and some rows."""
        sums = np.zeros(len(rows), dtype=F)
        for k in range(len(u)):
            if self.is_rbf:
                sums = sums - (u[k] - rows[:, k]) * (u[k] - rows[:, k])
            else:
                sums = sums + u[k] * rows[:, k]
        return sums

    def project(self, u):
        c = self.base(u, self.atoms)
        top = max(F(-1e30), c.max())
        rest = exp(c - top) if self.is_rbf else c
        for j in range(len(c)):
            c[j] = rest[j] / self.factor[j, j]
            rest[j + 1 :] = rest[j + 1 :] - self.factor[j + 1 :, j] * c[j]
        explained = total(c * c)
        if self.is_rbf:
            scale = exp(top)[()]
            energy, novelty = ONE, -(TWO * top + log(explained))
            c = c * scale
            residual = ONE - explained * scale * scale
        else:
            energy = self.base(u, u[None])[0]
            novelty = residual = energy - explained
        return c, energy, max(residual, ZERO), max(novelty, ZERO)

    def update(self, x):
        with np.errstate(all="ignore"):
            u = (x.astype(F) - self.v["centre"]) * self.v["scale"]
        if not (np.abs(u) <= F(1e7)).all():
            self.n_refused += 1
            return -1
        c, energy, residual, novelty = self.project(u)
        place, relation = self.follow(0, novelty), self.follow(1, total(self.relate(u)[1]))
        for candidate in filter(None, self.candidates):
            self.judge(candidate, u, c, residual)
        self.record(u, c, energy, residual)
        self.appraise()
        self.decide()
        self.draw(u, energy, residual)
        return 2 if relation > place else int(place > 0)

    def follow(self, view, score):
        rarity = ZERO
        if not score <= self.threshold[view]:
            rarity = self.rarity_of(view, score)
            self.run[view] += ONE if self.run[view] < F(1e6) else ZERO
            self.threshold[view] = min(self.threshold[view] * (ONE + self.up / root(self.run[view])), F(1e30))
        else:
            self.run[view] = ZERO
            self.threshold[view] = max(self.threshold[view] * (ONE - self.down), F(1e-5))
        return rarity

    def rarity_of(self, view, score):
        levels = self.tables["levels"][view]
        logarithm = log(max(score / self.threshold[view], F(1e-30)))
        if not logarithm > levels[0]:
            return ONE
        k = 1
        while k < len(levels) - 1 and logarithm >= levels[k]:
            k += 1
        share = (logarithm - levels[k - 1]) / (levels[k] - levels[k - 1])
        return F(2**k) * (share if share > ONE else exp((share - ONE) * F(0.69314718055994531))[()])

    def rarity(self, x):
        """Return in how many rows one is as odd."""
        u = (x.astype(F) - self.v["centre"]) * self.v["scale"]
        place, relation = self.rarity_of(0, self.project(u)[3]), self.rarity_of(1, total(self.relate(u)[1]))
        return max(max(place, relation) / self.tables["rarity_divisor"][0], ONE)

    def relate(self, u):
        """Return what is expected of standardised numbers, and how surprising they are."""
        precision, d = self.tables["precision"], len(u)
        z = np.clip((u - self.mean) * self.tables["inverse_scales"], F(-1e9), F(1e9))
        expected, terms = np.empty((2, d), dtype=F)
        for j in range(d):
            others = ZERO
            for k in range(d):
                if k != j:
                    others = others + precision[max(j, k) * (max(j, k) + 1) // 2 + min(j, k)] * z[k]
            expected[j] = others * -precision[j * (j + 1) // 2 + j]
            off = (z[j] - expected[j]) * self.tables["inverse_units"][j]
            terms[j] = log(ONE + off * off)
        return expected, terms

    def judge(self, candidate, u, c, residual):
        shared = self.base(u, candidate.row[None])
        shared = exp(shared) if self.is_rbf else shared
        shared = np.subtract.accumulate(np.concatenate([shared, c * candidate.coordinates]))[-1]
        gain = min(shared * shared / candidate.residual, residual)
        candidate.count += ONE
        candidate.missed += residual
        candidate.batch += gain
        if int(candidate.count) % BATCH == 0:
            mean = candidate.batch / F(BATCH)
            candidate.gain += mean
            candidate.square += mean * mean
            candidate.batch = ZERO

    def gain(self):
        return max(ONE / self.total_weight[0], F(9.5367432e-7))

    def record(self, u, c, energy, residual):
        for sums, fading in ((self.total_weight, self.fading), (self.squared_weight, self.squared_fading)):
            low = sums[1] + (ONE - fading * sums[0])
            high = sums[0] + low
            sums[:] = high, low - (high - sums[0])
        gain = self.gain()
        first, second = self.random(), self.random()
        fading = gain + (first - second) * F(1.1920929e-7)
        self.first = self.first + (gain * c - fading * self.first)
        self.second = np.tril(self.second + (np.outer(gain * c, c) - fading * self.second))
        since = self.weight_since_admission
        self.weight_since_admission = since + (ONE - self.fading * since)
        self.mean = self.mean + (gain * u - fading * self.mean)
        for name, value in (("energy", energy), ("lost_on_arrival", residual), ("lost_by_removal", ZERO)):
            setattr(self, name, getattr(self, name) + (gain * value - fading * getattr(self, name)))
        self.largest_energy = max(self.largest_energy, energy)
        self.n_rows += 1

    def appraise(self):
        n = len(self.first)
        j = self.turn % n
        since, memory = self.weight_since_admission[j], ONE / self.gain()
        self.turn = j + 1
        w, length, recorded = np.zeros(n, dtype=F), ZERO, ZERO
        for i in range(j, n):
            rest = np.subtract.accumulate(np.append(F(i == j), self.factor[i, j:i] * w[j:i]))[-1] / self.factor[i, i]
            across = total(self.second[i, j:i] * w[j:i])
            w[i] = rest
            length += rest * rest
            recorded += rest * (TWO * across + rest * self.second[i, i])
        recorded /= length
        if since < F(BATCH * LEAST_BATCHES) and since < HALF * memory:
            recorded = F(1e30)
        elif since < memory:
            recorded *= memory / since
        self.loss[j] = recorded

    def decide(self):
        n, memory = len(self.first), F(0.25) / self.gain()
        has_room, weakest = n < self.m, int(self.loss.argmin())
        tolerated = np.subtract.accumulate(np.append(self.energy, self.first * self.first))[-1]
        tolerated = max(tolerated, F(1e-6) * self.energy) * self.tolerance
        needed = tolerated / F(self.m) if has_room else F(1.5) * self.loss[weakest]
        for p, candidate in enumerate(self.candidates):
            if candidate is None:
                continue
            count, batches = candidate.count, int(candidate.count) // BATCH
            if batches < LEAST_BATCHES or int(count) != batches * BATCH:
                continue
            mean = candidate.gain / F(batches)
            error = candidate.square / F(batches) - mean * mean
            error = root(error / F(batches - 1)) if error > 0 else ZERO
            share = ONE if has_room or not count < memory else count / memory
            if mean + error <= needed or candidate.missed <= tolerated * count or count >= F(4) * memory:
                self.candidates[p] = None
            elif (mean - error) * share > needed:
                self.candidates[p] = None
                if not has_room:
                    self.drop(weakest, candidate)
                self.admit(candidate)
                return

    def drop(self, j, candidate):
        n, c = len(self.first), candidate.coordinates
        second = self.second + np.tril(self.second, -1).T
        for i in range(j, n - 1):
            x, y = self.factor[i + 1, i : i + 2]
            length = root(x * x + y * y)
            a, b = x / length, y / length
            c[i], c[i + 1] = turned(a, b, c[i], c[i + 1])
            self.first[i : i + 2] = turned(a, b, *self.first[i : i + 2])
            x, y, z = second[i, i], second[i + 1, i], second[i + 1, i + 1]
            second[:, i], second[:, i + 1] = turned(a, b, second[:, i], second[:, i + 1])
            second[[i, i + 1]] = second[:, [i, i + 1]].T
            second[i, i] = a * (a * x + b * y) + b * (a * y + b * z)
            second[i, i + 1] = second[i + 1, i] = a * (a * y - b * x) + b * (a * z - b * y)
            second[i + 1, i + 1] = a * (a * z - b * y) - b * (a * y - b * x)
            below = self.factor[i + 1 :]
            below[:, i], below[:, i + 1] = turned(a, b, below[:, i], below[:, i + 1])
        self.lost_by_removal += second[-1, -1]
        self.second = np.tril(second)[:-1, :-1].copy()
        self.factor = np.tril(np.delete(self.factor, j, axis=0))[:, :-1].copy()
        for name in ("atoms", "loss", "weight_since_admission"):
            setattr(self, name, np.delete(getattr(self, name), j, axis=0))
        self.first = self.first[:-1]
        candidate.coordinates, candidate.residual = c[:-1], candidate.residual + c[-1] * c[-1]

    def prepared(self, candidate):
        candidate.coordinates, energy, residual, _ = self.project(candidate.row)
        is_known = candidate.residual > 0 and residual > F(0.9) * candidate.residual
        candidate.residual = residual
        if not is_known:
            candidate.restart()
        return candidate if residual > LEAST_RESIDUAL * energy and residual > F(1e-12) else None

    def admit(self, chosen):
        n = len(self.first)
        self.factor, self.second = (np.pad(matrix, (0, 1)) for matrix in (self.factor, self.second))
        self.factor[n, :n], self.factor[n, n] = chosen.coordinates, root(chosen.residual)
        self.atoms = np.vstack([self.atoms, chosen.row])
        self.first, self.weight_since_admission = (
            np.append(a, ZERO) for a in (self.first, self.weight_since_admission)
        )
        self.loss = np.append(self.loss, F(1e30))
        self.candidates = [None if other is None else self.prepared(other) for other in self.candidates]

    def draw(self, u, energy, residual):
        self.waiting_count += ONE
        if residual > LEAST_RESIDUAL * energy:
            self.waiting_weight += residual
            if self.random() * self.waiting_weight < residual:
                self.waiting_row = u
        if self.waiting_count < F(ROWS_TO_DRAW) or not self.waiting_weight > 0:
            return
        gains = [self.gain_of(candidate) for candidate in self.candidates]
        place = int(np.argmin(gains))
        if gains[place] < F(1e30):
            self.candidates[place] = self.prepared(Candidate(self.waiting_row))
            self.waiting_count = self.waiting_weight = ZERO

    def gain_of(self, candidate):
        """Return the mean gain of a candidate that may give way, -1 of a free place."""
        if candidate is None:
            return F(-1)
        batches = int(candidate.count) // BATCH
        stays = batches < LEAST_BATCHES or self.waiting_count < F(BATCH * LEAST_BATCHES)
        return F(1e30) if stays else candidate.gain / F(batches)

    def differences(self, values):
        """Name the fields of a saved state that are not equal to this to the bit."""
        n, lower = len(self.first), np.tril_indices(len(self.first))
        own = {name: getattr(self, name) for name in (*ARRAYS, *NUMBERS, "seed", "turn", "n_refused", "waiting_row")}
        own |= {"second": self.second[lower], "factor": self.factor[lower], "n_atoms": n}
        wrong = [name for name, mine in own.items() if np.any(np.resize(values[name], np.shape(mine)) != mine)]
        for p, candidate in enumerate(self.candidates):
            if (values["candidate_residual"][p] > 0) != (candidate is not None):
                wrong.append(f"candidate {p} is there")
            for name in ("residual", "count", "missed", "batch", "gain", "square", "coordinates") if candidate else ():
                mine = getattr(candidate, name)
                if np.any(np.resize(values[f"candidate_{name}"][p], np.shape(mine)) != mine):
                    wrong.append(f"{name} of candidate {p}")
        return wrong


def turned(a, b, x, y):
    """Rotate a pair by a cosine and a sine."""
    return a * x + b * y, a * y - b * x
