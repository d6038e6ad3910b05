"""A local cloud of the test's own; whatever it launched is ended, by number, when the test is over."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path

import psutil
import pytest

from tests.providers.local.cloud import Cloud, processes_under


@pytest.fixture
def cloud():
    # not tmp_path: it is so long that no socket fits below it, and a machine's TMPDIR would be left out
    root = Path(tempfile.mkdtemp(prefix="cg-"))
    made = Cloud(root / "here")
    yield made
    for instance in made.provider.list().instances:
        made.provider.terminate(instance.id)
    left = processes_under(root)
    for process in left:
        os.kill(process.pid, signal.SIGKILL)
    psutil.wait_procs(left, timeout=5)
    shutil.rmtree(root, ignore_errors=True)
    assert not left, f"processes outlived their machines: {left}"


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """Put an executable named nvidia-smi on PATH that answers as the driver's does."""

    def answer(names, watts, status=0):
        program = tmp_path / "nvidia-smi"
        program.write_text(
            f'#!/bin/sh\ncase "$1" in\n*power.limit) printf "{watts}";;\n*) printf "{names}";;\nesac\nexit {status}\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    return answer
