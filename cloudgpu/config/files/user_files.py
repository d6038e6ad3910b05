"""Where the user's files are, and how a small text file that a person wrote, and the values in it, are read.

Those of cloudgpu are all under CLOUDGPU_HOME. Shipped templates and policies are in the wheel, or in the checkout. An
error shows the wrong value.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from cloudgpu.core.values.naming import NAME, closest_match, did_you_mean
from cloudgpu.errors import InvalidRequest


def data_dir(kind: str) -> Path:
    """Return the directory of the shipped `templates` or `policies`: the packaged copy, else the checkout's."""
    package = Path(__file__).resolve().parents[2]
    packaged = package / "_data" / kind
    return packaged if packaged.is_dir() else package.parent / kind


def project_dirs(kind: str) -> tuple[Path, ...]:
    """Return the project's directory of `templates` or `policies`: in the working directory.

    Empty where that was removed, as it may be under a `watch` that runs on: its runs must not fail for it.
    """
    try:
        return (Path.cwd() / ".cloudgpu" / kind,)
    except FileNotFoundError:
        return ()


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
        """The directories of budget files: the project's, the user's own and the shipped one. All are read.

        One with two paths counts once, as in a login's home directory that is a link.
        """
        policies = (*project_dirs("policies"), self.policies, data_dir("policies"))
        directories = {os.path.realpath(parent): parent / "budgets" for parent in reversed(policies)}
        return [budgets for budgets in reversed(directories.values()) if budgets.is_dir()]

    @property
    def ledger(self) -> Path:
        """The default ledger's directory."""
        return self.root / "ledger"

    @property
    def samples(self) -> Path:
        """Samples that machines' agents have measured, for 90 days."""
        return self.root / "samples"

    @property
    def identities(self) -> Path:
        """The last known identities of this home's accounts."""
        return self.root / "identities.json"

    @property
    def number_file(self) -> Path:
        """The file with the random number that identifies this home; the first run of the reaper makes it."""
        return self.root / "number"

    @property
    def keys(self) -> Path:
        """The directory of the client's own SSH key."""
        return self.root / "keys"

    @property
    def known_hosts(self) -> Path:
        """Pinned host keys, one line per machine, under its cloudgpu-id."""
        return self.root / "known_hosts"

    @property
    def ssh_config(self) -> Path:
        """The file that a user may `Include` into ~/.ssh/config."""
        return self.root / "ssh_config"

    @property
    def attempts(self) -> Path:
        """Saved launch calls (0600), kept until the machine's end is confirmed."""
        return self.root / "attempts"

    @property
    def locks(self) -> Path:
        """Files that running processes lock."""
        return self.root / "locks"

    @property
    def tunnels(self) -> Path:
        """State files of background tunnels (0600)."""
        return self.root / "tunnels"

    @property
    def jobs(self) -> Path:
        """Inputs and results of jobs (0700), and the snapshots of their directories."""
        return self.root / "jobs"

    @property
    def snapshots(self) -> Path:
        """Input files of jobs, by content, shared by all jobs (0600)."""
        return self.jobs / "snapshots"

    @property
    def price_lists(self) -> Path:
        """Refreshed price lists, one file for each provider."""
        return self.root / "catalog"

    def provider_dir(self, kind: str, account: str) -> Path:
        """Return the directory for files of one account of one provider."""
        return self.root / "providers" / kind / account


def find_home(environ: Mapping[str, str] | None = None) -> Home:
    """Return CLOUDGPU_HOME, else the platform's place for a user's data (XDG on Linux, Library on macOS).

    Raises InvalidRequest for a CLOUDGPU_HOME that is no absolute path, or a place that is no directory.
    """
    environ = os.environ if environ is None else environ
    home = _home_from_variable(environ["CLOUDGPU_HOME"]) if environ.get("CLOUDGPU_HOME") else _default_home(environ)
    _check_directory(home.root)
    return home


def _home_from_variable(text: str) -> Home:
    try:
        path = Path(text).expanduser()
    except RuntimeError:
        raise InvalidRequest(
            f"CLOUDGPU_HOME is {text!r}, and this computer knows no home directory of that user.",
            field="CLOUDGPU_HOME",
            value=text,
            next="Use an absolute path: CLOUDGPU_HOME=/home/ada/.cloudgpu",
        ) from None
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
        problem = "is not a directory"
    except FileNotFoundError:
        return
    except OSError as error:
        problem = f"cannot be used: {(error.strerror or str(error)).lower()}"
    raise InvalidRequest(
        f"CLOUDGPU_HOME, {root}, {problem}.",
        field="CLOUDGPU_HOME",
        value=str(root),
        next="Name a directory of your own: CLOUDGPU_HOME=~/.local/share/cloudgpu",
    )


def _default_home(environ: Mapping[str, str]) -> Home:
    if os.uname().sysname == "Darwin":
        return Home(Path.home() / "Library" / "Application Support" / "cloudgpu")
    base = environ.get("XDG_DATA_HOME", "")
    return Home((Path(base) if base.startswith("/") else Path.home() / ".local" / "share") / "cloudgpu")


def yaml_names(kind: str, search: Sequence[Path]) -> list[str]:
    """Return the names of the YAML files in `search` and among the shipped `templates` or `policies`; reads none."""
    stems = {file.stem for directory in (*search, data_dir(kind)) for file in directory.glob("*.yaml")}
    return sorted(stem for stem in stems if NAME.fullmatch(stem))


MAX_FILE_BYTES = 1 << 20  # a larger file is not a settings file
MAX_MAGNITUDE = 40  # digits of a number in the settings before or after its point
MAX_SHOWN_LENGTH = 60  # characters of a wrong value that an error shows


def read_text(path: Path, name: str) -> str | None:
    """Return the text of the file, or None when there is none; errors call it `name`.

    Raises InvalidRequest for anything but a readable UTF-8 text file of at most a mebibyte.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise _file_error(path, name, "is a directory" if path.is_dir() else "is not a file")
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        if path.is_symlink():
            raise _file_error(path, name, "is a link to a file that is not there") from None
        return None
    except OSError as error:
        raise _file_error(path, name, f"cannot be read: {(error.strerror or str(error)).lower()}") from None
    if len(raw) > MAX_FILE_BYTES:
        raise _file_error(path, name, f"is larger than {MAX_FILE_BYTES:,} bytes")
    return _decoded(raw, path, name)


def _decoded(raw: bytes, path: Path, name: str) -> str:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _file_error(path, name, f"is not text: line {line} is not UTF-8") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise _file_error(path, name, f"is not text: line {line} holds a zero byte")
    return text


def _file_error(path: Path, name: str, problem: str) -> InvalidRequest:
    return InvalidRequest(
        f"{name} {problem} ({path}).",
        field=name,
        value=str(path),
        next=f"Put a UTF-8 text file at {path}, or remove it.",
    )


def setting_error(key: str, value: object, problem: str, next: str) -> InvalidRequest:  # noqa: A002
    """Return the error for a key of config.toml; `problem` follows the key in the message: `has to be text`."""
    name = f"config.toml: {key}"
    end = "" if problem.endswith((".", "?")) else "."
    return InvalidRequest(f"{name} {problem}{end}", field=name, value=shown(value), next=next)


def settings_table(
    key: str,
    value: object,
    known_keys: Collection[str] | None = None,
    *,
    next: str = "",  # noqa: A002
) -> dict[str, Any]:
    """Return a table of config.toml; raise InvalidRequest for other values, and for a key not in `known_keys`."""
    if not isinstance(value, dict):
        raise setting_error(key, value, "has to be a table", next or f"Write: [{key}]")
    for name in value:
        if known_keys is not None and name not in known_keys:
            problem = f"is not a setting{did_you_mean(closest_match(str(name), known_keys))}"
            raise setting_error(f"{key}.{shown(name)}", name, problem, next or f"Settings: {', '.join(known_keys)}.")
    return value


def parse_finite_number(value: object) -> Decimal | None:
    """Return a finite number, written as one or as text; None for none. A binary float is taken as it was written.

    None for one of more than MAX_MAGNITUDE digits before or after the point, too: as a fraction it fills the memory.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        return None
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() and abs(number.adjusted()) <= MAX_MAGNITUDE else None


def shown(value: object) -> str | None:
    """Return a value for an error, cut to one short line; of a table or list only that it is one, not its inside."""
    if value is None:
        return None
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list | tuple):
        return "a list"
    text = ("true" if value else "false") if isinstance(value, bool) else str(value)
    if not text.isprintable():
        text = text.encode("unicode_escape").decode()
    return text if len(text) <= MAX_SHOWN_LENGTH else f"{text[: MAX_SHOWN_LENGTH - 3]}..."


def zone_of(zone_name: str, *, field: str = "--tz") -> tzinfo:
    """Return the time zone of an IANA name such as `Asia/Seoul`; raise InvalidRequest, with the nearest, for others."""
    if zone_name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        if zone_name.lower() not in ("localtime", "local", ""):  # the first is a file of the host
            return ZoneInfo(zone_name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: a directory, like `Asia`
        pass
    raise _unknown_zone(zone_name, field)


def _unknown_zone(name: str, field: str) -> InvalidRequest:
    from zoneinfo import available_timezones

    names_by_lowercase = {
        zone_name.casefold(): zone_name for zone_name in available_timezones() - {"Factory"}
    }  # "Factory" stands for a zone that nobody has set
    by_city = {zone_name.rpartition("/")[2].casefold(): zone_name for zone_name in sorted(names_by_lowercase.values())}
    suggestion = (
        names_by_lowercase.get(name.casefold())
        or by_city.get(name.casefold())
        or closest_match(name, names_by_lowercase.values())
    )
    return InvalidRequest(
        f"{shown(name)!r} is not a time zone" + did_you_mean(suggestion, "."),
        field=field,
        value=shown(name),
        next="Write the IANA name, like UTC, Asia/Seoul or Europe/Berlin.",
    )
