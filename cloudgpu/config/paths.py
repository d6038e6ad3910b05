"""Where cloudgpu keeps its files: everything under CLOUDGPU_HOME."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Home:
    """The directory that holds config, ledger, keys, known hosts; made with mode 0700 when first written to."""

    root: Path

    @property
    def config_file(self) -> Path:
        """The user's settings."""
        return self.root / "config.toml"

    @property
    def templates(self) -> Path:
        """The user's own launch templates."""
        return self.root / "templates"

    @property
    def ledger(self) -> Path:
        """The default ledger's directory."""
        return self.root / "ledger"

    @property
    def keys(self) -> Path:
        """The client's own SSH key."""
        return self.root / "keys"

    @property
    def known_hosts(self) -> Path:
        """Pinned host keys, one line per machine, under its cloudgpu-id."""
        return self.root / "known_hosts"

    @property
    def ssh_config(self) -> Path:
        """What a user may `Include` into ~/.ssh/config."""
        return self.root / "ssh_config"

    @property
    def attempts(self) -> Path:
        """Saved calls (0600), until the end of what they made is proved."""
        return self.root / "attempts"

    @property
    def locks(self) -> Path:
        """Locks that living processes hold."""
        return self.root / "locks"

    @property
    def tunnels(self) -> Path:
        """What background tunnels write about themselves (0600)."""
        return self.root / "tunnels"

    def provider(self, kind: str, account: str) -> Path:
        """Where one account of one provider may keep files."""
        return self.root / "providers" / kind / account


def find_home(environ: Mapping[str, str] | None = None) -> Home:
    """Return CLOUDGPU_HOME, else the platform's place for a user's data (XDG on Linux, Library on macOS)."""
    environ = os.environ if environ is None else environ
    named = environ.get("CLOUDGPU_HOME")
    if named:
        return Home(Path(named).expanduser().absolute())
    if os.uname().sysname == "Darwin":
        return Home(Path.home() / "Library" / "Application Support" / "cloudgpu")
    base = environ.get("XDG_DATA_HOME")
    return Home((Path(base) if base else Path.home() / ".local" / "share") / "cloudgpu")
