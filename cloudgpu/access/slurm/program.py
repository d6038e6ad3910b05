"""The program that takes a job through Slurm, as the texts that are sent to the machine where jobs are submitted."""

from __future__ import annotations

from functools import cache
from pathlib import Path

PARTS = ("remote_rank", "remote_submit")  # each may import those before it
BEGIN = f"""import sys, types
for name in {PARTS!r}:
    module = types.ModuleType("cloudgpu.access.slurm." + name)
    sys.modules[module.__name__] = module
    path = sys.argv[1] + "/" + name + ".py"
    with open(path) as file:
        exec(compile(file.read(), path, "exec"), module.__dict__)
sys.exit(module.submit())
"""


@cache
def program() -> dict[str, str]:
    """Return the texts by the names of their files; `begin.py` is run with their directory."""
    texts = {f"{name}.py": Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8") for name in PARTS}
    texts["remote_rank.py"] = f"#!/usr/bin/env python3\n{texts['remote_rank.py']}"  # it is the batch script, too
    return {**texts, "begin.py": BEGIN}
