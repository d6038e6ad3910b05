"""Makes a provider known to cloudgpu without installing it: for tests, through the same door as any plugin."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cloudgpu.providers.base import GROUP

FAKE = "cloudgpu.testing.whole:make"


def write_plugin(directory: Path, providers: Mapping[str, str], *, name: str = "cloudgpu-test-plugin") -> Path:
    """Write a distribution that offers `providers` (kind -> "module:factory") and return `directory`.

    Put the directory on `sys.path`, or in PYTHONPATH of a command, and the registry finds them:
    `write_plugin(tmp_path, {"fake": FAKE})`.
    """
    info = directory / f"{name.replace('-', '_')}-1.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    lines = "".join(f"{kind} = {target}\n" for kind, target in providers.items())
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{lines}")
    return directory
