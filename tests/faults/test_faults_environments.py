"""Where the library runs: event loops, pools of processes and threads, interpreters' options, caches of other users.

HYPOTHESIS_PROFILE=nightly repeats what depends on timing.
"""

import asyncio
import concurrent.futures
import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import joblib
import numba
import numpy as np
import pytest

import streamkpca
from streamkpca import KernelPCA, StreamingKernelPCA, kernels

pytestmark = pytest.mark.faults

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
PACKAGE = Path(streamkpca.__file__).parent
ROWS = np.random.default_rng(0).normal(size=(3000, 3))
PROBE = ROWS[:7]
SMALL: dict[str, Any] = {"max_atoms": 8, "block_size": 32, "reservoir_size": 20, "kernel": kernels.RBF(0.3)}
CODE = """
import json, sys, warnings
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    import numpy as np
    from streamkpca import StreamingKernelPCA, kernels
    rows = np.random.default_rng(0).normal(size=(300, 3))
    model = StreamingKernelPCA(2, max_atoms=8, block_size=32, reservoir_size=20, kernel=kernels.RBF(0.3))
    model.partial_fit(rows)
    found = [model.novelty(rows[:7]).tolist(), model.transform(rows[:7]).tolist(), len(model.to_bytes())]
print(json.dumps([found, [str(one.category.__name__) for one in told]]))
"""


def new_model() -> StreamingKernelPCA:
    return StreamingKernelPCA(2, **SMALL)


@pytest.fixture(scope="module")
def model() -> StreamingKernelPCA:
    return new_model().partial_fit(ROWS[:300])


@pytest.fixture(scope="module")
def expected(model: StreamingKernelPCA) -> list[Any]:
    """Return what `CODE` prints; it begins with the same rows."""
    return [model.novelty(PROBE).tolist(), model.transform(PROBE).tolist(), len(model.to_bytes())]


def assert_same(found: Any, expected: list[Any]) -> None:
    # Another numba target, or an interpreter without compiled loops, may round otherwise.
    for answer, right in zip(found[:2], expected[:2], strict=True):
        np.testing.assert_allclose(answer, right, rtol=1e-9, atol=1e-12)
    assert found[2] == expected[2]


# Event loops


def test_readers_and_a_writer_share_an_event_loop() -> None:
    cuts = [ROWS[start : start + 37] for start in range(300, 1410, 37)]
    learning, n_asked = new_model().partial_fit(ROWS[:300]), 0
    reference = new_model().partial_fit(ROWS[:300])
    allowed = {reference.transform(PROBE).tobytes()}
    for piece in cuts:
        allowed.add(reference.partial_fit(piece).transform(PROBE).tobytes())

    async def read(done: asyncio.Event) -> int:
        n_read = 0
        while not done.is_set():
            assert (await asyncio.to_thread(learning.transform, PROBE)).tobytes() in allowed
            n_read += 1
        return n_read

    async def write(done: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        for piece in cuts:
            await loop.run_in_executor(None, learning.partial_fit, piece)
        done.set()

    async def serve() -> int:
        done = asyncio.Event()
        readers = [asyncio.create_task(read(done)) for _ in range(4)]
        await write(done)
        return sum(await asyncio.gather(*readers))

    n_asked = asyncio.run(serve())
    assert learning.to_bytes() == reference.to_bytes()
    print(f"asyncio: {n_asked} answers beside {len(cuts)} writes")


def test_cancelled_tasks_leave_a_model_that_learned_whole_calls() -> None:
    """A thread that has begun goes on when its task is cancelled; one that has not begun never runs."""
    pieces = [ROWS[start : start + 100] for start in range(0, 3000, 100)]
    learning, n_cancelled = new_model(), 0

    async def serve() -> int:
        count = 0
        for number, piece in enumerate(pieces):
            task = asyncio.create_task(asyncio.to_thread(learning.partial_fit, piece))
            await asyncio.sleep(0.0005 * (number % 3))
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            count += task.cancelled()
        return count

    # `run` waits for the threads that go on.
    n_cancelled = asyncio.run(serve())
    assert learning.n_samples_seen_ % 100 == 0
    assert StreamingKernelPCA.from_bytes(learning.to_bytes()).n_samples_seen_ == learning.n_samples_seen_
    learning.partial_fit(ROWS).transform(PROBE)
    print(f"asyncio: {n_cancelled} of {len(pieces)} calls cancelled, {learning.n_samples_seen_ - 3000} rows learned")


# Pools


def novelty_of(model: Any, rows: Any) -> list[float]:
    found: list[float] = model.novelty(rows).tolist()
    return found


def learned(rows: Any) -> bytes:
    return new_model().partial_fit(rows).to_bytes()


@pytest.mark.parametrize("backend", ["loky", "threading", "multiprocessing"])
# Joblib forks beside the threads that other tests started.
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_joblib_gets_the_answers_of_one_process(backend: str, model: StreamingKernelPCA) -> None:
    parts = np.split(ROWS, 5)
    with joblib.Parallel(n_jobs=2, backend=backend) as parallel:
        assert parallel(joblib.delayed(novelty_of)(model, part) for part in parts) == [
            novelty_of(model, part) for part in parts
        ]
        assert parallel(joblib.delayed(learned)(part) for part in parts) == [learned(part) for part in parts]
        # Larger arrays reach the workers as read-only memory maps.
        mapped = np.repeat(ROWS, 6, axis=0)
        sent = joblib.Parallel(n_jobs=2, backend=backend, max_nbytes=1000)(
            joblib.delayed(type_and_flag)(mapped) for _ in range(2)
        )
        if backend == "loky":
            assert sent == [("memmap", False)] * 2
        answers = joblib.Parallel(n_jobs=2, backend=backend, max_nbytes=1000)(
            joblib.delayed(act)(rows)
            for act in (learned, learned_in_batch)
            for rows in (mapped, np.asfortranarray(mapped))
        )
    assert answers[0] == answers[1] == learned(mapped)
    assert answers[2] == answers[3]
    print(f"joblib {backend}: {2 * len(parts) + len(answers)} tasks, the same bytes")


def type_and_flag(rows: Any) -> tuple[str, bool]:
    return type(rows).__name__, bool(rows.flags.writeable)


def learned_in_batch(rows: Any) -> list[float]:
    batch = KernelPCA(2, kernel=kernels.RBF(0.3)).fit(rows[::2000])
    found: list[float] = batch.transform(rows[:50]).ravel().tolist()
    return found


@pytest.mark.parametrize("method", [m for m in ("spawn", "forkserver") if m in multiprocessing.get_all_start_methods()])
def test_executors_get_the_answers_of_one_process(method: str, model: StreamingKernelPCA) -> None:
    context = multiprocessing.get_context(method)
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        found = [pool.submit(novelty_of, model, ROWS[start : start + 100]) for start in range(0, 600, 100)]
        data = pool.submit(learned, ROWS).result()
        assert [task.result() for task in found] == [
            novelty_of(model, ROWS[start : start + 100]) for start in range(0, 600, 100)
        ]
    assert data == learned(ROWS)
    print(f"{method}: {len(found) + 1} tasks, the same bytes")


# Threads


def in_thread(act: Callable[[], Any], *, stack: int) -> Any:
    """Run a function in a thread with a stack of so many bytes."""
    found: list[Any] = []
    before = threading.stack_size(stack)
    try:
        thread = threading.Thread(target=lambda: found.append(act()))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert found, "the thread raised an error"
    return found[0]


def test_a_small_stack_is_enough() -> None:
    """Musl and macOS give threads 128 to 512 KiB; what is compiled here is compiled beforehand, which takes more."""

    def act() -> bytes:
        learning = new_model().partial_fit(ROWS[:2000])
        learning.transform(PROBE)
        learning.novelty(ROWS)
        learning.contributions(PROBE)
        learning.inverse_transform(learning.transform(PROBE))
        learning.novelty_threshold()
        return StreamingKernelPCA.from_bytes(learning.to_bytes()).partial_fit(ROWS[2000:]).to_bytes()

    expected_bytes = act()
    assert in_thread(act, stack=256 * 1024) == expected_bytes
    deep: Any = kernels.RBF(0.3)
    for _ in range(150):
        deep = 0.999 * deep
    expected_repr = repr(deep)
    assert in_thread(lambda: repr(deep), stack=256 * 1024) == expected_repr
    assert in_thread(lambda: new_model().set_params(kernel=deep).partial_fit(ROWS[:100]).to_bytes(), stack=256 * 1024)


def test_a_deep_stack_refuses_or_answers_and_changes_nothing(model: StreamingKernelPCA) -> None:
    """Near the limit of recursion any call may fail; the model is then as before."""
    data, outcomes = model.to_bytes(), {"answered": 0, "refused": 0}
    working = StreamingKernelPCA.from_bytes(data)
    lengths = {data: 0}

    def at_depth(left: int) -> None:
        if left:
            return at_depth(left - 1)
        working.partial_fit(ROWS[:64])
        working.refit().novelty(PROBE)
        return None

    limit = sys.getrecursionlimit()
    for depth in range(limit - 130, limit - 40, 1 if NIGHTLY else 7):
        before = working.to_bytes()
        try:
            at_depth(depth)
            outcomes["answered"] += 1
        except RecursionError:
            outcomes["refused"] += 1
            after = working.to_bytes()
            # The rows may have been learned before the query failed.
            if after != before:
                twin = StreamingKernelPCA.from_bytes(before).partial_fit(ROWS[:64])
                assert after in (twin.to_bytes(), twin.refit().to_bytes())
        lengths[before] = depth
    print(f"deep stacks: {outcomes}")
    assert outcomes["refused"] > 0


def test_signals_are_handled_while_threads_compute(model: StreamingKernelPCA) -> None:
    if not hasattr(signal, "setitimer"):
        pytest.fail("signals with a timer are needed")
    n_signals, stop, errors = 0, threading.Event(), []
    right = model.transform(ROWS).tobytes()

    def handler(number: int, frame: Any) -> None:
        nonlocal n_signals
        n_signals += 1
        # Handlers run between two lines of the main thread, which may hold the model's lock.
        model.transform(PROBE)

    def work() -> None:
        try:
            while not stop.is_set():
                assert model.transform(ROWS).tobytes() == right
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    before = signal.signal(signal.SIGALRM, handler)
    try:
        for thread in threads:
            thread.start()
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.002)
        learning = new_model()
        for start in range(0, 3000, 50):
            learning.partial_fit(ROWS[start : start + 50])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        stop.set()
        for thread in threads:
            thread.join()
    assert not errors
    cut = new_model()
    for piece in np.split(ROWS, 3):
        cut.partial_fit(piece)
    assert learning.to_bytes() == cut.to_bytes()
    print(f"{n_signals} signals while a model learned in the main thread and two threads read")
    assert n_signals > 0


# Interpreters


def started(arguments: list[str], **environment: str) -> Any:
    """Run `CODE` in a new interpreter; return what it prints."""
    variables = os.environ | {"PYTHONPATH": str(PACKAGE.parent)} | environment
    return printed_by([sys.executable, *arguments, "-c", CODE], variables)


def printed_by(command: list[str], variables: dict[str, str]) -> Any:
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, cwd="/", timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["-OO"], {}),
        (["-X", "dev"], {}),
        ([], {"PYTHONHASHSEED": "1"}),
        ([], {"PYTHONHASHSEED": "4294967295", "PYTHONUTF8": "0", "LC_ALL": "C"}),
    ],
    ids=["OO", "dev", "hash-1", "hash-most"],
)
def test_options_of_the_interpreter_change_no_answer(
    arguments: list[str], environment: dict[str, str], expected: list[Any]
) -> None:
    found, _ = started(arguments, **environment)
    assert_same(found, expected)


def test_an_isolated_interpreter_finds_an_installed_package(tmp_path: Path, expected: list[Any]) -> None:
    """With -I neither PYTHONPATH nor the working directory count."""
    site = Path(np.__file__).parent.parent
    code = f"import sys; sys.path[:0] = [{str(PACKAGE.parent)!r}, {str(site)!r}]\n{CODE}"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert_same(json.loads(done.stdout)[0], expected)


# Caches


@contextlib.contextmanager
def open_folder() -> Iterator[Path]:
    """Give a folder that all users can reach, as that of pytest belongs to one."""
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as name:
        os.chmod(name, 0o777)
        yield Path(name)


def installed(folder: Path, mode: int) -> Path:
    """Copy the package, without caches, and set the mode of its folders."""
    target = folder / "installed" / "streamkpca"
    shutil.copytree(PACKAGE, target, ignore=shutil.ignore_patterns("__pycache__"))
    for root, _, files in os.walk(folder / "installed", topdown=False):
        for name in files:
            os.chmod(Path(root, name), 0o644)
        os.chmod(root, mode)
    return target.parent


# Few loops, as each run may have to compile them.
FEW_LOOPS = """
import json, warnings
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    import numpy as np
    from streamkpca import KernelPCA
    rows = np.random.default_rng(0).normal(size=(40, 3))
    found = KernelPCA(2, kernel="linear").fit(rows).transform(rows[:7]).tolist()
print(json.dumps([found, [str(one.category.__name__) for one in told]]))
"""
AS_USER = f"""
import os, sys
user, site, cache, home = int(sys.argv[1]), *sys.argv[2:]
# Another user may not be allowed to read the interpreter's folder: everything but this package is loaded first.
code = {FEW_LOOPS!r}
exec(code, dict())
for name in [name for name in sys.modules if name.partition(".")[0] == "streamkpca"]:
    del sys.modules[name]
os.setgroups([])
os.setgid(user)
os.setuid(user)
os.environ["HOME"] = os.environ["XDG_CACHE_HOME"] = home
import numba
numba.config.CACHE_DIR = cache
sys.path.insert(0, site)
exec(code, dict())
import streamkpca
assert streamkpca.__file__.startswith(site), streamkpca.__file__
"""


def as_user(user: int, site: Path, *, cache: str = "", home: str = "/nonexistent") -> Any:
    """Run `FEW_LOOPS` as a user, with the package in a folder; check what it finds, and return its warnings."""
    variables = os.environ | {"PYTHONPATH": str(PACKAGE.parent), "NUMBA_OPT": "1"}
    command = [sys.executable, "-c", AS_USER, str(user), str(site), cache, home]
    found, warned = printed_by(command, variables)
    rows = np.random.default_rng(0).normal(size=(40, 3))
    np.testing.assert_allclose(found, KernelPCA(2, kernel="linear").fit(rows).transform(rows[:7]), atol=1e-9)
    return warned


def two_users() -> tuple[int, int]:
    """Return two users besides root, or end the test where there are none to become."""
    if os.name != "posix" or os.geteuid() != 0:
        pytest.skip("only root can become two other users")
    return 54321, 54322


def test_two_users_share_a_cache() -> None:
    first, second = two_users()
    with open_folder() as folder:
        cache = folder / "cache"
        cache.mkdir()
        os.chmod(cache, 0o777)
        site, told = installed(folder, 0o755), []
        for user in (first, second, first)[: 3 if NIGHTLY else 2]:
            told += as_user(user, site, cache=str(cache))
        assert any(cache.rglob("*.nbi"))
    print(f"two users on one cache: warnings {told}")


def test_a_read_only_install_with_the_cache_of_another_user() -> None:
    first, second = two_users()
    with open_folder() as folder:
        site, home, told = installed(folder, 0o777), folder / "home", []
        home.mkdir()
        os.chmod(home, 0o777)
        # The first user's cache lies beside the files. Then the install becomes read-only.
        told += as_user(first, site, home=str(home))
        assert any(site.rglob("*.nbi"))
        for root, _, _ in os.walk(site, topdown=False):
            os.chmod(root, 0o755)
        # Homes that can be written to, that cannot, and that do not exist.
        for place in (str(home), "/", "/nonexistent") if NIGHTLY else ("/",):
            told += as_user(second, site, home=place)
        # A cache that the second user may not read, with private files.
        for file in site.rglob("*.nb?"):
            os.chmod(file, 0o600)
        told += as_user(second, site)
    print(f"read-only installs: warnings {told}")


SUBINTERPRETER = f"""
import sys
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
code = {CODE!r}
try:
    interpreters.run_string(interpreters.create(), code)
except Exception as error:
    print("refused:", type(error).__name__, error)
"""


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="without compiled loops nothing waits")
def test_a_subinterpreter_is_refused() -> None:
    """Numba's loops release the interpreter lock, and would wait for it for ever."""
    variables = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    command = [sys.executable, "-W", "ignore", "-c", SUBINTERPRETER]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    assert "ImportError" in done.stdout
    assert "this is a subinterpreter" in done.stdout
