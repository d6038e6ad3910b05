"""What holds for the whole suite: loopback only, a CLOUDGPU_HOME of its own, and, where asked, no skips."""

from __future__ import annotations

import gc
import itertools
import os
import shutil
import signal
import sys
import tempfile
import venv
from pathlib import Path

import pytest
from hypothesis import settings

from cloudgpu.catalog.location import _directories
from tests.examples import some
from tests.order import order
from tests.postgres import postgres  # noqa: F401  (a fixture for all)

# Their assertions say what they compared only when they are rewritten before anybody imports them.
pytest.register_assert_rewrite("tests.soak.crash", "tests.soak.crash_nodes", "tests.faults.said", "tests.cli.program")

# How long an example takes says nothing here: several test processes share two cores. The usual examples are the same
# in each run, so that a red run can be repeated; with CLOUDGPU_EXPLORE=1 they are new ones.
EXPLORE = bool(os.environ.get("CLOUDGPU_EXPLORE"))
settings.register_profile("cloudgpu", deadline=None, derandomize=not EXPLORE, max_examples=some(100))
settings.load_profile("cloudgpu")

GUARD = Path(__file__).parent / "guard"
sys.path.insert(0, str(GUARD))  # before a room's own conftest imports what is hidden there
LOG = "CLOUDGPU_TEST_NETWORK_LOG"
NO_SKIP = "CLOUDGPU_TEST_NO_SKIP"
HOSTS_PYTHON = "CLOUDGPU_TEST_HOSTS_PYTHON"  # the directory of its environment
LOADED = "CLOUDGPU_TEST_LOADED"  # the directory of what `cli/many.py` has loaded once
HOMES = itertools.count()
MORE_FILES = 200  # opened in one process since garbage was collected: a run has come to 1,100, where 1,024 are allowed
OPEN = {"left": 0}
IN_MEMORY, ROOM_B = Path("/dev/shm"), 4 * 2**30  # a whole run needs less than half of that


def pytest_configure(config):
    """Prepare the whole run: the usual signals, and loopback only."""
    # Whoever started us may have these ignored (nohup, a shell's background); children would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # Three SDKs' models are millions of objects that stay: looking for garbage among them took a quarter of the time.
    gc.set_threshold(50_000, 20, 50)
    sys.setswitchinterval(0.02)  # clients and servers of one process hand over often enough by waiting for each other
    _use_memory_for_files()
    _give_hosts_a_python(config)
    os.environ["CLOUDGPU_PATIENCE"] = "60"  # seconds: how busy this computer is says nothing about a cloud
    _keep_bytecode()
    _load_once(config)
    _guard_network(config)
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(TurnedRooms())


def _use_memory_for_files():
    """Put the tests' directories on a tmpfs where there is room: half of the suite's time waited for the disk.

    The system calls stay the same; tests of a full disk mount one of their own. `--basetemp` still wins.
    """
    if IN_MEMORY.is_dir() and os.access(IN_MEMORY, os.W_OK) and shutil.disk_usage(IN_MEMORY).free >= ROOM_B:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))


def _give_hosts_a_python(config):
    """Let `python3` be a Python with no packages: hosts start it a thousand times.

    A shim before it, or packages that load themselves at its start, took most of these starts.
    """
    if HOSTS_PYTHON not in os.environ:
        made = os.environ[HOSTS_PYTHON] = tempfile.mkdtemp(prefix="cloudgpu-python-")
        venv.EnvBuilder(symlinks=True).create(made)
        config.add_cleanup(lambda: shutil.rmtree(os.environ.pop(HOSTS_PYTHON), ignore_errors=True))
    os.environ["PATH"] = os.pathsep.join(
        [str(Path(os.environ[HOSTS_PYTHON]) / "bin"), os.environ.get("PATH", os.defpath)]
    )


def _keep_bytecode():
    """Let no command that is tested compile cloudgpu at its start, and no worker rewrite every test again."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


@pytest.fixture
def no_bytecode(monkeypatch):
    """Compile nothing into files, here or in a child: a limit on their size leaves what stays broken for later runs."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")


def _load_once(config):
    """Let what `cli/many.py` loads be loaded once for all processes of the run; it ends with this one, the first."""
    if LOADED not in os.environ:
        made = os.environ[LOADED] = tempfile.mkdtemp(prefix="cloudgpu-loaded-")
        Path(made, "first").write_text(f"{os.getpid()}")
        config.add_cleanup(lambda: shutil.rmtree(os.environ.pop(LOADED), ignore_errors=True))


def _guard_network(config):
    """Guard this process and, by PYTHONPATH, every Python it starts; workers of xdist inherit both."""
    if LOG not in os.environ:
        handle, os.environ[LOG] = tempfile.mkstemp(prefix="cloudgpu-network-")
        os.close(handle)
        config.add_cleanup(lambda: Path(os.environ.pop(LOG)).unlink(missing_ok=True))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(GUARD), os.environ.get("PYTHONPATH")]))
    import loopback_only

    loopback_only.install()


class TurnedRooms:
    """Lets each worker read the rooms from another one on: each finds rewritten what the others have read.

    Where nothing was kept of an earlier run, all would rewrite the same file at the same time.
    """

    def pytest_collect_directory(self, path, parent):
        return TurnedDirectory.from_parent(parent, path=path) if path == Path(__file__).parent else None


class TurnedDirectory(pytest.Dir):
    """A directory whose entries begin in the middle."""

    def collect(self):
        found, worker = list(super().collect()), self.config.workerinput
        number = int(worker["workerid"].removeprefix("gw")) % worker["workercount"]
        first = len(found) * number // worker["workercount"]
        return found[first:] + found[:first]


def pytest_collection_modifyitems(items):
    items.sort(key=order(Path(__file__).parent))


def pytest_collection_finish():
    """Never look for garbage again among what was imported and collected: it stays to the end.

    And look less often among the rest: a process of tests has the memory, and a twentieth of its time went there.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


def pytest_runtest_logfinish():
    """Close what tests have left to the garbage collector before a process has too many files open.

    Only once many more are open than the last time has left: a look through all that lives takes half a second.
    """
    if _open_files() > OPEN["left"] + MORE_FILES:
        gc.collect()
        OPEN["left"] = _open_files()


def _open_files():
    return len(os.listdir("/dev/fd"))  # noqa: PTH208  (after each test)


def pytest_sessionfinish(session):
    """Fail the run when any process of it reached for another machine, even if nobody noticed."""
    tried = Path(os.environ[LOG]).read_text()
    if tried and not hasattr(session.config, "workerinput"):
        sys.stderr.write(f"\nReached for other machines than this one:\n{tried}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _refuse_skip(report):
    if os.environ.get(NO_SKIP) and report.skipped and not hasattr(report, "wasxfail"):
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"skipped, which {NO_SKIP} forbids: {why}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    return _refuse_skip((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report():
    return _refuse_skip((yield))


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory, monkeypatch):
    """No test reads or writes the home of whoever runs it, nor the prices of the test before it."""
    _directories.clear()
    home = tmp_path_factory.getbasetemp() / "homes" / f"{next(HOMES)}"  # to number them itself, pytest reads them all
    home.mkdir(parents=True)
    monkeypatch.setenv("CLOUDGPU_HOME", str(home))
    monkeypatch.delenv("CLOUDGPU_LEDGER", raising=False)
    return home
