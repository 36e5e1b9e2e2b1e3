"""Any order of learning, forgetting, merging, saving and querying, compared with the slow and obvious model."""

import copy
import pickle

import naive
import numpy as np
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from strategies import small_samples

from streamkpca import KernelPCA, StreamingKernelPCA, kernels

GAMMA, BLOCK, WIDTH = 0.3, 16, 2
SEEDS = st.integers(0, 10**6)
MODES = st.sampled_from(["rows", "moved"])


def rows_of(seed, count):
    """Rows of one of three places, and weights of which some are zero."""
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.5, 2.0, count)
    weights[rng.uniform(size=count) < 0.1] = 0.0
    return rng.normal(size=(count, WIDTH)) + 4.0 * rng.integers(3), weights


def through_bytes(model):
    """Save and load a model."""
    return StreamingKernelPCA.from_bytes(model.to_bytes())


class LivingModel(RuleBasedStateMachine):
    """A streaming model, a second one that is given the same rows in other cuts, and a twin that learns by blocks."""

    @initialize(
        max_atoms=st.sampled_from([None, 3, 7]),
        half_life=st.sampled_from([None, 30.0]),
        atoms=MODES,
        sampled_rows_per_atom=st.sampled_from([None, 10]),
    )
    def begin(self, max_atoms, half_life, atoms, sampled_rows_per_atom):
        # With so few sampled rows, atoms also move when the sample no longer holds all rows.
        self.samples = small_samples(sampled_rows_per_atom)
        self.samples.__enter__()
        self.settings = {
            "max_atoms": max_atoms,
            "tolerance": 1e-3,
            "half_life": half_life,
            "atoms": atoms,
        }
        self.model, self.cut_otherwise = self.new_model(), self.new_model()
        self.twin = self.new_twin()
        self.waiting, self.waiting_weights = np.empty((0, WIDTH)), np.empty(0)
        self.n_draws = 0

    def teardown(self):
        if hasattr(self, "samples"):
            self.samples.__exit__(None, None, None)

    def new_rows(self, seed, count):
        """Draw rows that never came before, as no law decides which of two equal rows becomes an atom."""
        self.n_draws += 1
        return rows_of([seed, self.n_draws], count)

    def new_model(self):
        return StreamingKernelPCA(
            2, kernel=kernels.RBF(GAMMA), noise_variance=None, block_size=BLOCK, reservoir_size=20, **self.settings
        )

    def new_twin(self):
        return naive.NaiveStream(naive.rbf(GAMMA), WIDTH, **self.settings)

    @property
    def has_rows(self):
        return getattr(self.model, "state_", None) is not None

    @property
    def complete(self):
        return self.twin.with_pending(self.waiting, self.waiting_weights)

    @rule(seed=SEEDS, count=st.integers(1, 45), pieces=st.integers(1, 4))
    def learn(self, seed, count, pieces):
        rows, weights = self.new_rows(seed, count)
        for part in np.array_split(np.arange(count), min(pieces, count)):
            self.model.partial_fit(rows[part], sample_weight=weights[part])
        self.cut_otherwise.partial_fit(rows, sample_weight=weights)
        rows, weights = np.concatenate([self.waiting, rows]), np.concatenate([self.waiting_weights, weights])
        full = len(rows) // BLOCK * BLOCK
        for start in range(0, full, BLOCK):
            self.twin.advance(rows[start : start + BLOCK], weights[start : start + BLOCK])
        self.waiting, self.waiting_weights = rows[full:], weights[full:]

    @rule(factor=st.sampled_from([1.0, 0.5, 0.05]))
    def forget(self, factor):
        for model in (self.model, self.cut_otherwise):
            model.forget(factor)
        self.twin.forget(factor)
        self.waiting_weights = self.waiting_weights * factor

    @precondition(lambda self: self.has_rows)
    @rule(seed=SEEDS, count=st.integers(1, 40))
    def merge(self, seed, count):
        rows, weights = self.new_rows(seed, count)
        weights = weights + 0.1
        other, others_twin = self.new_model().partial_fit(rows, sample_weight=weights), self.new_twin()
        for start in range(0, count, BLOCK):
            others_twin.advance(rows[start : start + BLOCK], weights[start : start + BLOCK])
        before = other.state_.pending.n_rows, other.state_.n_rows
        self.model.merge(other)
        self.cut_otherwise.merge(other)
        assert (other.state_.pending.n_rows, other.state_.n_rows) == before
        self.twin = self.complete
        self.twin.merge(others_twin)
        self.waiting, self.waiting_weights = np.empty((0, WIDTH)), np.empty(0)

    @rule(seed=SEEDS, count=st.integers(1, 60))
    def fit(self, seed, count):
        rows, weights = self.new_rows(seed, count)
        weights[0] += 0.1
        for model in (self.model, self.cut_otherwise):
            model.fit(rows, sample_weight=weights)
        self.twin = naive.fit(rows, weights, naive.rbf(GAMMA), block_size=BLOCK, **self.settings)
        self.waiting, self.waiting_weights = np.empty((0, WIDTH)), np.empty(0)

    @rule(max_atoms=st.sampled_from([None, 3, 7]), atoms=MODES, half_life=st.sampled_from([None, 30.0]))
    def set_params(self, max_atoms, atoms, half_life):
        changed = {"max_atoms": max_atoms, "atoms": atoms, "half_life": half_life}
        self.settings.update(changed)
        for model in (self.model, self.cut_otherwise):
            model.set_params(**changed)
        self.twin.max_atoms, self.twin.mode, self.twin.half_life = max_atoms, atoms, half_life
        if not self.has_rows or self.model.state_.summary is None:
            # The budget at the first block decides how many rows are sampled.
            self.twin = self.new_twin()

    @precondition(lambda self: self.has_rows)
    @rule()
    def refit(self):
        for model in (self.model, self.cut_otherwise):
            model.refit()

    @precondition(lambda self: self.has_rows)
    @rule(
        how=st.sampled_from([copy.deepcopy, copy.copy, lambda model: pickle.loads(pickle.dumps(model)), through_bytes])
    )
    def replace_by_a_copy(self, how):
        self.model = how(self.model)

    @precondition(lambda self: self.has_rows)
    @rule(seed=SEEDS)
    def ask(self, seed):
        rows, _ = rows_of([seed], 5)
        assert np.isfinite(self.model.transform(rows)).all()
        assert np.all(self.model.reconstruction_error(rows) >= 0.0)
        if self.complete.weights.any():
            assert 0.0 <= self.model.novelty_threshold(0.9) < np.inf
            low, high = self.model.captured_energy()
            assert 0.0 <= low <= high <= 1.0

    @rule(bad=st.sampled_from([np.nan, np.inf]))
    def refuse(self, bad):
        n = self.model.state_.n_rows if self.has_rows else None
        with pytest.raises(ValueError, match="contains"):
            self.model.partial_fit([[0.0, 1.0], [bad, 0.0]])
        with pytest.raises(ValueError, match="factor"):
            self.model.forget(bad)
        with pytest.raises(ValueError, match="given twice"):
            self.model.merge(self.model)
        assert (self.model.state_.n_rows if self.has_rows else None) == n

    @invariant()
    def the_summary_is_sound(self):
        if not hasattr(self, "model") or not self.has_rows or self.model.state_.summary is None:
            return
        summary = self.model.state_.summary
        factor, moments = summary.basis.factor, summary.moments
        atoms = summary.basis.atoms
        np.testing.assert_allclose(factor @ factor.T, naive.rbf(GAMMA)(atoms, atoms), atol=1e-12)
        np.testing.assert_array_equal(moments.second, moments.second.T)
        if len(atoms):
            assert np.linalg.eigvalsh(moments.second).min() >= -1e-10 * moments.energy
        account = np.trace(moments.second) + moments.losses.total
        assert account == pytest.approx(moments.energy, rel=1e-10, abs=0.0)
        # The twin has the same atoms, the same weights, and has recorded as much. A direction that atoms may move along
        # without effect leaves their places uncertain beyond rounding.
        assert summary.atom_stats.positions.tolist() == self.twin.positions
        np.testing.assert_allclose(atoms, self.twin.points(self.twin.atoms), rtol=0, atol=1e-6)
        assert summary.n_rows == len(self.twin.rows)
        assert moments.total_weight == pytest.approx(self.twin.weights.sum(), rel=1e-9)
        if len(atoms):
            assert np.trace(moments.second) == pytest.approx(self.twin.recorded_energy, rel=1e-7, abs=1e-300)

    @invariant()
    def cuts_change_no_byte(self):
        if hasattr(self, "model"):
            assert self.model.to_bytes() == self.cut_otherwise.to_bytes()

    @invariant()
    def the_bounds_hold(self):
        if not hasattr(self, "model") or not self.has_rows:
            return
        twin = self.complete
        assert self.model.n_samples_seen_ == len(twin.rows)
        if np.count_nonzero(twin.weights) < 3:
            return
        true = KernelPCA(2, kernel=kernels.RBF(GAMMA)).fit(twin.rows, sample_weight=twin.weights).eigenvalues_
        complete = copy.deepcopy(self.model).refit()
        assert self.settings["max_atoms"] is None or complete.n_atoms_ <= self.settings["max_atoms"]
        low, high = complete.eigenvalue_bounds_.T
        assert np.all((low <= true) & (true <= high))


TestLivingModel = LivingModel.TestCase
TestLivingModel.settings = hypothesis_settings(stateful_step_count=12)
