"""docs/library.md runs: its code blocks, one after the other, are one program."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "library.md"


def test_the_pages_program_runs_from_the_first_block_to_the_last(tmp_path, own_home):
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (tmp_path / "data.csv").write_text("a,b\n1,2\n")
    root = str(PAGE.parents[1])
    program = f"import sys\nsys.path.insert(0, {root!r})\n" + "\n".join(blocks)
    argv = [sys.executable, "-c", program]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 data.csv" in done.stdout
    assert "JupyterLab answers on port" in done.stdout
    assert "Nothing like that: " in done.stdout
    assert "not_found 7 name nobody" in done.stdout
    assert done.stdout.endswith("[]\n"), "the machine is gone"
