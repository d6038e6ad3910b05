"""Programs that use the library pass mypy's strict rules, as the page promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_users_program_is_type_checked():
    cache = str(ROOT / ".mypy_cache" / "api")
    argv = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", cache]
    files = [*(ROOT / "examples").rglob("*.py"), *(ROOT / "tests" / "typing").glob("*.py")]
    done = subprocess.run([*argv, *map(str, files)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
