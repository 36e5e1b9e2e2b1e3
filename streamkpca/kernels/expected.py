"""Kernel values of rows with gaps: their expectations, the missing numbers being normal given the others of the row.

Closed forms hold for sums of products of RBF kernels with a power of one inner product, in any units and on any
columns: RBF, Linear, Polynomial, and their sums and products. For other kernels gaps take the numbers of the nearest
atom.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from streamkpca._core._loops import (
    form_cumulants_apart,
    form_cumulants_together,
    tilt_apart,
    tilt_together,
)
from streamkpca._core.concurrency import cached_property
from streamkpca.kernels.base import Kernel
from streamkpca.kernels.equality import category_columns
from streamkpca.kernels.program import Arithmetic, Array, Base, PairwiseMatrix, Program
from streamkpca.rows.gaps import Mask, RowDistribution, gaps_in

# Powers of inner products, and terms of a sum, up to which expectations are worth it.
_HIGHEST_POWER, _MOST_TERMS = 8, 64
# Rows with gaps that are integrated at a time.
_CHUNK = 256


class Compared(NamedTuple):
    """Rows (n, d) compared with atoms; of a row with gaps, its expected image.

    Parameters
    ----------
    kernel_rows : ndarray of shape (n, m)
        E k(x, z) with atoms z: inner products of the expected image.
    energy : ndarray of shape (n,)
        The squared length of that image; k(x, x) of a row without gaps.
    spread : ndarray of shape (n,)
        E k(x, x) less that length: the variance of the image, which no atoms could explain; 0 without gaps.
    """

    kernel_rows: Array
    energy: Array
    spread: Array


@dataclass(frozen=True)
class Term:
    """coefficient exp(-sum_p widths_p D_p) S^power with squared distances D_p and one inner product S.

    `widths` are pairs of a base matrix' position and its gamma; `inner` is the position of S, None for power 0.
    """

    coefficient: float
    widths: tuple[tuple[int, float], ...]
    inner: int | None
    power: int


def closed_form(program: Program) -> list[Term] | None:
    """Write a kernel as a sum of terms whose expectations are known; None if it is none."""
    if program.scalings:
        return None
    try:
        bases = [_Polynomial.of_base(p, matrix.base) for p, matrix in enumerate(program.base_matrices)]
        total = program.evaluate(bases, _TermArithmetic())
        return [_term(*item) for item in total.terms.items()]
    except _NotClosedError:
        return None


class ExpectedKernel:
    """A kernel of rows with gaps against complete atoms.

    Parameters
    ----------
    kernel : Kernel
        A settled kernel.
    distribution : RowDistribution
        Of complete rows.
    """

    def __init__(self, kernel: Kernel, distribution: RowDistribution) -> None:
        self.kernel, self.distribution = kernel, distribution
        self._program = kernel.program

    def compare(self, rows: Array, atoms: Array) -> Compared:
        """Evaluate the kernel for rows (n, d) with themselves and with atoms (m, d), integrating over gaps.

        O(n m (d + g^2)) for g gaps of a row, and O(m d^2) once; what it is for rows without gaps depends on no others.
        """
        missing = gaps_in(rows)
        if missing is None:
            return Compared(self._program.matrix(rows, atoms), self._program.diagonal(rows), np.zeros(len(rows)))
        out = Compared(np.empty((len(rows), len(atoms))), np.empty(len(rows)), np.zeros(len(rows)))
        has_gaps = missing.any(axis=1)
        whole = rows[~has_gaps]
        out.kernel_rows[~has_gaps], out.energy[~has_gaps] = (
            self._program.matrix(whole, atoms),
            self._program.diagonal(whole),
        )
        places = np.flatnonzero(has_gaps)
        # Rows of many atoms and several base matrices are integrated in parts.
        for start in range(0, len(places), _CHUNK):
            some = places[start : start + _CHUNK]
            for target, values in zip(out, self._expected(rows[some], missing[some], atoms), strict=True):
                target[some] = values
        return out

    def expected(self, rows: Array, atoms: Array) -> Array:
        """Put the expected numbers into the gaps of rows (n, d).

        No category is expected: that of the nearest atom is taken, or without atoms the last one before it.
        """
        completed = self.distribution.completed(rows)
        if categories := sorted(category_columns(self.kernel, rows.shape[1])):
            if len(atoms):
                completed[:, categories] = self.distribution.borrowed(rows, atoms)[:, categories]
            else:
                for column in categories:
                    completed[:, column] = _filled_forward(rows[:, column])
        return completed

    def completed(self, rows: Array, atoms: Array, novelty: Callable[[Array], Array]) -> Array:
        """Complete rows (n, d) in the less novel of the two ways; the rows themselves if they have no gaps."""
        missing = gaps_in(rows)
        if missing is None:
            return rows
        has_gaps = missing.any(axis=1)
        part = np.ascontiguousarray(rows[has_gaps])
        chosen = self.expected(part, atoms)
        if len(atoms):
            with np.errstate(all="ignore"):
                replace_where_less_novel(
                    chosen, novelty(chosen), slice(None), self.distribution.borrowed(part, atoms), novelty
                )
        out = rows.copy()
        out[has_gaps] = chosen
        return out

    def _expected(self, rows: Array, missing: Mask, atoms: Array) -> Compared:
        """Integrate over the gaps of rows (b, d), each of which has some."""
        if self._terms is None:
            known = self.distribution
            completed = known.borrowed(rows, atoms) if len(atoms) else known.completed(rows)
            return Compared(
                self._program.matrix(completed, atoms), self._program.diagonal(completed), np.zeros(len(rows))
            )
        part = _Part(self.distribution.completed(rows), missing, self._program, atoms)
        kernel_rows, energy, whole = np.zeros((len(rows), len(atoms))), np.zeros(len(rows)), np.zeros(len(rows))
        with np.errstate(all="ignore"):
            for term in self._terms:
                values, length, own = self._integrated(term, part)
                kernel_rows += values
                energy += length
                whole += own
        return Compared(kernel_rows, energy, np.maximum(whole - energy, 0.0))

    @cached_property
    def _terms(self) -> list[Term] | None:
        return closed_form(self._program)

    @cached_property
    def _metrics(self) -> list[Array]:
        """Of each base matrix the matrix (d, d) of its inner products, or its diagonal (d,), in scales."""
        scale, found = self.distribution.scale, []
        for matrix in self._program.base_matrices:
            metric = _metric(matrix, len(scale))
            if metric.ndim == 1 and not self.distribution.is_independent:
                metric = np.diag(metric)
            found.append(metric * scale**2 if metric.ndim == 1 else metric * scale * scale[:, None])
        return found

    @cached_property
    def _precision(self) -> Array:
        distribution = self.distribution
        return np.eye(len(distribution.mean)) if distribution.is_independent else distribution.precision

    def _integrated(self, term: Term, part: "_Part") -> tuple[Array, Array, Array]:
        """Return E k(x, z) (b, m), E k(x, x') (b,) for two independent draws of the gaps, and E k(x, x) (b,)."""
        distribution, d = self.distribution, part.rows.shape[1]
        unit = np.where(distribution.scale > 0.0, distribution.scale, 1.0)
        b, m = len(part.rows), len(part.atoms)
        used = [p for p, _ in term.widths] + ([] if term.inner is None else [term.inner])
        apart = distribution.is_independent and all(self._metrics[p].ndim == 1 for p in used)
        stiffness = np.zeros(d) if apart else np.zeros((d, d))
        exponent = np.zeros((b, m))
        for p, width in term.widths:
            metric = self._metrics[p]
            stiffness = stiffness + width * (np.diag(metric) if metric.ndim < stiffness.ndim else metric)
            exponent -= width * part.bases[p]

        def pulled(rows: Array) -> Array:
            # Columns that never vary have no scale, and their gaps no variance.
            away = (rows - distribution.mean) / unit
            return away * stiffness if apart else away @ stiffness

        slopes, shifts = np.empty((0, 0)), np.empty((0, 0))
        if term.inner is not None:
            slopes = np.ascontiguousarray(self._sloped(term.inner, part.atoms).T)
            shifts = np.empty((b, m))
        variances, tilts, own = np.empty_like(shifts), np.empty((b, m)), np.empty(b)
        atom_pulls = np.ascontiguousarray(pulled(part.atoms).T)
        outputs = (pulled(part.rows), atom_pulls, slopes, tilts, shifts, variances, own)
        if apart:
            tilt_apart(part.starts, part.gaps, stiffness, *outputs)
        else:
            tilt_together(part.starts, part.gaps, self._precision, stiffness, *outputs)
        exponent += tilts
        np.exp(np.minimum(exponent, 0.0, out=exponent), out=exponent)
        exponent *= term.coefficient
        length, whole = term.coefficient * np.exp(own), np.full(b, term.coefficient)
        if term.inner is not None:
            exponent *= normal_moment(term.power, part.bases[term.inner] + shifts, variances)
            of_two, of_one = self._own_moments(term.inner, term.power, part, stiffness)
            length, whole = length * of_two, whole * of_one
        return exponent, length, whole

    def _sloped(self, inner: int, rows: Array) -> Array:
        """Return A x in scales for rows (n, d), with the matrix A of an inner product."""
        scale = self.distribution.scale
        metric = _metric(self._program.base_matrices[inner], rows.shape[1])
        return (rows * metric if metric.ndim == 1 else rows @ metric) * scale

    def _own_moments(self, inner: int, power: int, part: "_Part", stiffness: Array) -> tuple[Array, Array]:
        """Return E S(x, x')^p under the tilt of two independent draws of the gaps, and E S(x, x)^p; (b,) each."""
        view = self._program.base_matrices[inner].view
        seen = view.of(part.rows)
        lengths = np.einsum("ij,ij->i", seen, seen)
        one, two = np.empty((2, len(part.rows), power))
        known = self._metrics[inner], self._sloped(inner, part.rows), lengths, one, two
        if stiffness.ndim == 1:
            form_cumulants_apart(part.starts, part.gaps, stiffness, *known)
        else:
            form_cumulants_together(part.starts, part.gaps, self._precision, stiffness, *known)
        return moment_of(two), moment_of(one)


def replace_where_less_novel(
    whole: Array, scores: Array, places: Any, found: Array, novelty: Callable[[Array], Array]
) -> None:
    """Put rows (k, d) at some places (k,) of completed rows (n, d) where they are less novel than what is there.

    `scores` (n,) is the novelty of the completed rows, which changes with them.
    """
    scored = novelty(found)
    is_less = scored < scores[places]
    whole[places] = np.where(is_less[:, None], found, whole[places])
    scores[places] = np.where(is_less, scored, scores[places])


class _Part:
    """Some completed rows (b, d), their gaps, and their base matrices against the atoms."""

    def __init__(self, rows: Array, missing: Mask, program: Program, atoms: Array) -> None:
        self.rows, self.atoms = np.ascontiguousarray(rows), atoms
        self.starts = np.concatenate([[0], np.cumsum(missing.sum(axis=1))]).astype(np.int64)
        self.gaps = np.nonzero(missing)[1].astype(np.int64)
        self.bases = program.base_values(self.rows, atoms)


def _filled_forward(values: Array) -> Array:
    """Put the last number before it into each gap of a column (n,), into those before the first number that one."""
    known = np.flatnonzero(~np.isnan(values))
    if not len(known):
        return np.zeros_like(values)
    last = np.searchsorted(known, np.arange(len(values)), side="right") - 1
    return values[known[np.maximum(last, 0)]]


def normal_moment(power: int, mean: Array, variance: Array) -> Array:
    """Return E (mean + sqrt(variance) u)^power for a standard normal u."""
    total = np.zeros_like(mean)
    for k in range(power // 2 + 1):
        # (2k - 1)!! is the moment of u^2k.
        count = math.comb(power, 2 * k) * math.prod(range(1, 2 * k, 2))
        total += count * mean ** (power - 2 * k) * variance**k
    return total


def moment_of(cumulants: Array) -> Array:
    """Return the raw moments (n,) of order p, given cumulants (n, p) without the factors (r - 1)!."""
    n_orders = cumulants.shape[1]
    moments = [np.ones(len(cumulants))]
    for n in range(1, n_orders + 1):
        total = np.zeros(len(cumulants))
        for r in range(1, n + 1):
            # (n - 1 choose r - 1) (r - 1)!
            total += math.perm(n - 1, r - 1) * cumulants[:, r - 1] * moments[n - r]
        moments.append(total)
    return moments[-1]


def _metric(matrix: PairwiseMatrix, d: int) -> Array:
    """Return the matrix (d, d) of a base matrix' inner products, or its diagonal (d,) where no matrix multiplies."""
    view = matrix.view
    columns = np.arange(d) if view.columns is None else np.array(view.columns)
    if view.matrix is not None:
        metric = np.zeros((d, d))
        metric[np.ix_(columns, columns)] = view.matrix.entries.T @ view.matrix.entries
        return metric
    diagonal = np.zeros(d)
    diagonal[columns] = 1.0 if view.divisors is None else 1.0 / view.divisors**2
    return diagonal


# Base matrices with the gammas of exponentials, and with powers.
_Key = tuple[tuple[tuple[int, Any], ...], tuple[tuple[int, Any], ...]]


class _NotClosedError(Exception):
    """A kernel is no sum of terms with known expectations."""


@dataclass(frozen=True)
class _Polynomial:
    """A polynomial in base matrices, times exponentials of squared distances: coefficients by `_Key`."""

    terms: dict[_Key, float]

    @classmethod
    def of_base(cls, p: int, base: Base) -> "_Polynomial":
        if base not in (Base.INNER, Base.SQUARED):
            raise _NotClosedError
        # Squared distances only make sense below an exponential, which `_term` checks.
        return cls({((), ((p if base is Base.INNER else ~p, 1),)): 1.0})

    def items(self) -> Iterator[tuple[_Key, float]]:
        yield from self.terms.items()


class _TermArithmetic(Arithmetic[_Polynomial]):
    """Steps of a program on polynomials; what leads out of them raises `_NotClosedError`."""

    def affine(self, x: _Polynomial, a: float, b: float) -> _Polynomial:
        scaled = _Polynomial({key: a * value for key, value in x.items()})
        return scaled if b == 0.0 else self.add(scaled, _Polynomial({((), ()): b}))

    def minimum(self, x: _Polynomial, most: float) -> _Polynomial:
        raise _NotClosedError

    def add(self, x: _Polynomial, y: _Polynomial) -> _Polynomial:
        total = dict(x.terms)
        for key, value in y.items():
            total[key] = total.get(key, 0.0) + value
        return _checked(total)

    def multiply(self, x: _Polynomial, y: _Polynomial) -> _Polynomial:
        total: dict[_Key, float] = {}
        for (widths, powers), value in x.items():
            for (other_widths, other_powers), other in y.items():
                key = (_joined(widths, other_widths), _joined(powers, other_powers))
                total[key] = total.get(key, 0.0) + value * other
        return _checked(total)

    def power(self, x: _Polynomial, exponent: int) -> _Polynomial:
        if not 1 <= exponent <= _HIGHEST_POWER:
            raise _NotClosedError
        return super().power(x, exponent)

    def apply(self, function: str, x: _Polynomial) -> _Polynomial:
        if function != "exp":
            raise _NotClosedError
        level, widths = 0.0, []
        for (exponentials, powers), value in x.items():
            if not exponentials and not powers:
                level = value
            elif not exponentials and len(powers) == 1 and powers[0][0] < 0 and powers[0][1] == 1 and value < 0.0:
                widths.append((~powers[0][0], -value))
            else:
                raise _NotClosedError
        return _Polynomial({(tuple(sorted(widths)), ()): math.exp(min(level, 700.0))})


def _joined(
    first: tuple[tuple[int, float], ...], second: tuple[tuple[int, float], ...]
) -> tuple[tuple[int, float], ...]:
    """Add up the numbers of equal positions."""
    total = dict(first)
    for position, number in second:
        total[position] = total.get(position, 0) + number
    return tuple(sorted(total.items()))


def _checked(terms: dict[_Key, float]) -> _Polynomial:
    if len(terms) > _MOST_TERMS:
        raise _NotClosedError
    return _Polynomial(terms)


def _term(key: _Key, coefficient: float) -> Term:
    widths, powers = key
    if not math.isfinite(coefficient) or len(powers) > 1 or any(p < 0 or n > _HIGHEST_POWER for p, n in powers):
        raise _NotClosedError
    inner, power = powers[0] if powers else (None, 0)
    return Term(coefficient, widths, inner, power)
