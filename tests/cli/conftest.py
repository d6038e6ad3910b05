from __future__ import annotations

import contextlib
import shutil

import psutil
import pytest

from tests.cli.many import QuickProgram, shared


@pytest.fixture
def cloudgpu(tmp_path, many):
    """A home with nothing in it; `down` has to leave no process, whatever the test has done."""
    program = QuickProgram(tmp_path / "home", many=many)
    yield program
    program("down", "--all", "--yes", timeout=120)
    _, left = psutil.wait_procs(processes_of(str(program.home)), timeout=10)  # one may be on its way out
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    assert not left, f"down left processes: {left}"


@pytest.fixture(scope="session")
def many():
    """A process that runs one command line after the other: most of what one alone costs is its start."""
    return shared()


def processes_of(home):
    """The processes that were started in this home, whatever their parent is by now."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if home in " ".join([*process.cmdline(), *process.environ().values()]):
                found.append(process)
    return found


@pytest.fixture(scope="session")
def chromium():
    """Where Chromium is; browser tests are skipped with a sentence where there is none."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("There is no Chromium here: install it (Debian: apt-get install chromium) to run browser tests.")
    return found
