"""Finds the files that cloudgpu keeps, and the data that it ships.

Its own files are all under CLOUDGPU_HOME. Templates and policies are packed in the wheel, or lie beside the checkout.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloudgpu.errors import InvalidRequest


def data_dir(kind: str) -> Path:
    """Return the directory of the shipped `templates` or `policies`: the packaged copy, else the checkout's."""
    package = Path(__file__).resolve().parents[2]
    packed = package / "_data" / kind
    return packed if packed.is_dir() else package.parent / kind


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
    def policies(self) -> Path:
        """The user's own policies."""
        return self.root / "policies"

    @property
    def budget_dirs(self) -> list[Path]:
        """Where files of budgets lie: in the project's policies, the user's own and the shipped ones. All count."""
        policies = (Path.cwd() / ".cloudgpu" / "policies", self.policies, data_dir("policies"))
        return [place for one in dict.fromkeys(policies) if (place := one / "budgets").is_dir()]

    @property
    def ledger(self) -> Path:
        """The default ledger's directory."""
        return self.root / "ledger"

    @property
    def samples(self) -> Path:
        """What machines' agents have seen, for 90 days."""
        return self.root / "samples"

    @property
    def identities(self) -> Path:
        """What this home's accounts last said they are."""
        return self.root / "identities.json"

    @property
    def number(self) -> Path:
        """The random number that tells this home from others; the first run of the reaper makes it."""
        return self.root / "number"

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

    @property
    def jobs(self) -> Path:
        """What jobs took along and brought back (0700), and the snapshots of their directories."""
        return self.root / "jobs"

    @property
    def snapshots(self) -> Path:
        """Files that jobs took along, by content, shared by all jobs (0600)."""
        return self.jobs / "snapshots"

    @property
    def price_lists(self) -> Path:
        """Refreshed price lists, one file for each provider."""
        return self.root / "catalog"

    def provider(self, kind: str, account: str) -> Path:
        """Where one account of one provider may keep files."""
        return self.root / "providers" / kind / account


def find_home(environ: Mapping[str, str] | None = None) -> Home:
    """Return CLOUDGPU_HOME, else the platform's place for a user's data (XDG on Linux, Library on macOS).

    Raises InvalidRequest for a CLOUDGPU_HOME that is no absolute path, or a place that is no directory.
    """
    environ = os.environ if environ is None else environ
    home = _named(environ["CLOUDGPU_HOME"]) if environ.get("CLOUDGPU_HOME") else _default_home(environ)
    _check_directory(home.root)
    return home


def _named(text: str) -> Home:
    path = Path(text).expanduser()
    if not path.is_absolute():
        # Two working directories would be two ledgers, and each would miss the other's machines.
        raise InvalidRequest(
            f"CLOUDGPU_HOME is {text!r}, a relative path: it means another directory wherever you run cloudgpu.",
            field="CLOUDGPU_HOME",
            value=text,
            next=f"Use an absolute path: CLOUDGPU_HOME={path.absolute()}",
        )
    return Home(path)


def _check_directory(root: Path) -> None:
    try:
        if stat.S_ISDIR(root.stat().st_mode):
            return
        why = "is not a directory"
    except FileNotFoundError:
        return
    except OSError as error:
        why = f"cannot be used: {(error.strerror or str(error)).lower()}"
    raise InvalidRequest(
        f"CLOUDGPU_HOME, {root}, {why}.",
        field="CLOUDGPU_HOME",
        value=str(root),
        next="Name a directory of your own: CLOUDGPU_HOME=~/.local/share/cloudgpu",
    )


def _default_home(environ: Mapping[str, str]) -> Home:
    if os.uname().sysname == "Darwin":
        return Home(Path.home() / "Library" / "Application Support" / "cloudgpu")
    base = environ.get("XDG_DATA_HOME", "")
    return Home((Path(base) if base.startswith("/") else Path.home() / ".local" / "share") / "cloudgpu")


def file_names(kind: str, search: Sequence[Path]) -> list[str]:
    """Return the names of the YAML files of a kind (`templates`, `policies`), here and shipped, sorted; reads none."""
    from cloudgpu.core.values.naming import NAME  # `ls` does without

    stems = {file.stem for directory in (*search, data_dir(kind)) for file in directory.glob("*.yaml")}
    return sorted(stem for stem in stems if NAME.fullmatch(stem))
