"""What a node removes of those that are gone: directories of the engine alone, by their names."""

from __future__ import annotations

import os
from pathlib import Path

from cloudgpu.access.slurm.remote_node import remove_stale_directories


def test_only_directories_with_the_engines_names_are_removed(tmp_path: Path) -> None:
    ours, others = tmp_path / "cg-0123456789", [tmp_path / "cg-machines-x1", tmp_path / "cg-abc", tmp_path / "else"]
    new = tmp_path / "cg-bbbbbbbbbb"
    for one in (ours, *others, new):
        one.mkdir()
    os.utime(ours, (1, 1))
    remove_stale_directories(tmp_path / "cg-aaaaaaaaaa")
    assert sorted(tmp_path.iterdir()) == sorted([*others, new])
