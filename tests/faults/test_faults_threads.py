"""Readers beside a writer, several writers, processes that fork: every answer is one that was published.

HYPOTHESIS_PROFILE=nightly reads 10^6 times.
"""

import copy
import faulthandler
import itertools
import os
import pickle
import signal
import sys
import threading
import time
from collections import Counter

import numpy as np
import pytest
import sklearn
from together import together

import streamkpca
from streamkpca import KernelPCA, StreamingKernelPCA, kernels
from streamkpca.monitoring import Monitor

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
N_READERS = 8
N_READS = 1_000_000 if NIGHTLY else 8000
N_FORKS = 300 if NIGHTLY else 8
ROWS = np.random.default_rng(12).normal(size=(3000, 3))
PROBE = np.random.default_rng(13).normal(size=(1, 3))
SMALL = {"max_atoms": 8, "block_size": 32, "reservoir_size": 20, "refit_every": 64}


def new_model(**settings):
    return StreamingKernelPCA(2, **{**SMALL, **settings})


QUESTIONS = [
    lambda model: model.transform(PROBE),
    lambda model: model.score_samples(PROBE),
    lambda model: model.transform(ROWS[:20]),
    lambda model: model.eigenvalue_bounds_,
]


def test_every_answer_is_that_of_a_published_snapshot():
    """The writer always cuts the same stream in the same way, so all possible snapshots are known."""
    cuts = [1, 3, 1, 40, 1, 1, 64, 20, 100, 1, 33] * 4
    pieces = np.split(ROWS[: sum(cuts)], np.cumsum(cuts)[:-1])
    allowed = [set() for _ in QUESTIONS]
    reference = new_model()
    for piece in pieces:
        reference.partial_fit(piece)
        for question, answers in zip(QUESTIONS, allowed, strict=True):
            answers.add(question(reference).tobytes())
    shown = [new_model().partial_fit(pieces[0])]
    n_reads, n_streams, seen = [0] * N_READERS, 0, [set() for _ in QUESTIONS]
    finished = threading.Event()

    def read(reader):
        number = reader
        try:
            while n_reads[reader] < N_READS // N_READERS:
                number = (number + 1) % len(QUESTIONS)
                answer = QUESTIONS[number](shown[0]).tobytes()
                assert answer in allowed[number]
                seen[number].add(answer)
                n_reads[reader] += 1
        except BaseException:
            finished.set()
            raise

    def write():
        nonlocal n_streams
        while sum(n_reads) < N_READS // N_READERS * N_READERS and not finished.is_set():
            model = new_model().partial_fit(pieces[0])
            shown[0] = model
            for piece in pieces[1:]:
                model.partial_fit(piece)
                time.sleep(0)
            n_streams += 1

    together(write, *(lambda reader=reader: read(reader) for reader in range(N_READERS)))
    assert n_streams > 0


def test_writers_are_serialised():
    pieces = [ROWS[:45], ROWS[100:190], ROWS[300:333]]
    begun = new_model().partial_fit(ROWS[1000:1100])
    allowed = set()
    for order in itertools.permutations(pieces):
        model = copy.deepcopy(begun)
        for piece in order:
            model.partial_fit(piece)
        allowed.add(model.to_bytes())
    for _ in range(300 if NIGHTLY else 25):
        model = copy.deepcopy(begun)
        together(*(lambda piece=piece: model.partial_fit(piece) for piece in pieces))  # noqa: B023
        assert model.to_bytes() in allowed


def test_models_are_saved_copied_and_merged_while_they_learn():
    model, copies = new_model(kernel=kernels.RBF(0.3)).partial_fit(ROWS[:10]), []
    finished = threading.Event()

    def write():
        for row in ROWS[10:700]:
            model.partial_fit(row[None])
        finished.set()

    def save():
        while not finished.is_set():
            copies.append(StreamingKernelPCA.from_bytes(model.to_bytes()))
            copies.append(copy.deepcopy(model))
            new_model(kernel=kernels.RBF(0.3)).partial_fit(ROWS[:5]).merge(model)

    together(write, save, save)
    expected, n_rows = new_model(kernel=kernels.RBF(0.3)).partial_fit(ROWS[:10]), 10
    for found in sorted(copies, key=lambda copied: copied.n_samples_seen_):
        while n_rows < found.n_samples_seen_:
            expected.partial_fit(ROWS[n_rows][None])
            n_rows += 1
        assert found.to_bytes() == expected.to_bytes()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_children_read_and_write_whatever_threads_do_at_the_fork():
    model, more = new_model().partial_fit(ROWS[:200]), ROWS[1000:1100]
    # Whatever is not compiled yet would be compiled under a lock of numba's, which a child inherits locked.
    copy.deepcopy(model).partial_fit(ROWS[200:900]).partial_fit(more).transform(ROWS[:100])
    StreamingKernelPCA.from_bytes(model.to_bytes()).transform(PROBE)
    stop, outcomes = threading.Event(), Counter[int]()

    def write():
        while not stop.is_set():
            for start in range(200, 900, 10):
                model.partial_fit(ROWS[start : start + 10])
                model.transform(ROWS[:100])

    def in_the_child():
        # Where it hangs, if it does.
        faulthandler.register(signal.SIGALRM, file=sys.__stderr__, chain=True)
        signal.alarm(30)
        data = model.to_bytes()
        again = StreamingKernelPCA.from_bytes(data).partial_fit(more)
        answers = model.partial_fit(more).transform(PROBE)
        same = again.to_bytes() == model.to_bytes() and np.array_equal(again.transform(PROBE), answers)
        return 0 if same else 3

    def fork():
        try:
            for _ in range(N_FORKS):
                child = os.fork()
                if child == 0:
                    code = 4
                    try:
                        code = in_the_child()
                    finally:
                        os._exit(code)
                outcomes[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])] += 1
        finally:
            stop.set()

    together(fork, write, write)
    assert set(outcomes) == {0}


N_ROUNDS = 400 if NIGHTLY else 12


MODELS = {
    "streaming": lambda: new_model(kernel=kernels.RBF(0.3)).partial_fit(ROWS[:50]),
    "exact": lambda: KernelPCA(2, kernel=kernels.RBF(0.3)).fit(ROWS[:60]),
}

TAKEN = [
    lambda model: pickle.loads(pickle.dumps(model)),
    lambda model: pickle.loads(pickle.dumps(model, protocol=2)),
    copy.deepcopy,
    copy.copy,
    repr,
    lambda model: model.get_params(),
    sklearn.clone,
]


@pytest.mark.parametrize("name", MODELS)
def test_models_are_copied_and_printed_while_parameters_are_set(name):
    model = MODELS[name]()
    new = itertools.cycle(range(2, 9))

    def change():
        # Attributes come and go: those of other libraries too.
        model.set_params(n_components=next(new)).set_output(transform="default")
        model.extra = model.more = model.most = None
        model.transform(PROBE)
        del model.extra, model.more, model.most

    acts = list(TAKEN)
    if name == "streaming":
        base = new_model(kernel=kernels.RBF(0.3)).partial_fit(ROWS[50:100])
        acts += [
            lambda model: model.to_bytes(),
            lambda model: copy.deepcopy(base).merge(model),
            lambda model: streamkpca.merge(model, base),
        ]
    stop, n_taken = threading.Event(), 0

    def set_parameters():
        while not stop.is_set():
            change()

    def take():
        nonlocal n_taken
        try:
            for _ in range(N_ROUNDS):
                for act in acts:
                    act(model)
                    n_taken += 1
        finally:
            stop.set()

    together(set_parameters, take)
    print(f"{name}: {n_taken} copies, prints and files beside set_params")


def test_copies_of_a_monitor_hold_a_model_and_thresholds_of_the_same_row():
    monitor = Monitor(new_model(kernel=kernels.RBF(0.3)))
    monitor.update(ROWS[:100])
    stop, rows, copies = threading.Event(), itertools.cycle(ROWS[:, None]), []

    def update():
        while not stop.is_set():
            monitor.update(next(rows))

    def take():
        try:
            for _ in range(N_ROUNDS):
                copies.append(pickle.loads(pickle.dumps(monitor)))
                copies.append(copy.deepcopy(monitor))
                repr(monitor)
        finally:
            stop.set()

    together(update, take)
    for found in copies:
        assert found.model.n_samples_seen_ <= found.n_rows_
        assert Monitor.from_bytes(found.to_bytes()).n_rows_ == found.n_rows_
