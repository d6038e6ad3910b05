"""The facts that each node reports about itself, checked before any of them is written into a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

MEMORY_SHARE = 0.95  # of a node's memory is for jobs, the rest for its system
MAX_TEXT_CHARS = 1024
MAX_GPUS = 64
MAX_CORES = 65_535
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}\$?")
_ADDRESS = re.compile(r"[0-9a-fA-F.:]{2,45}")
_DEVICE = re.compile(r"/[A-Za-z0-9._/-]{1,200}")
_VERSION = re.compile(r"(\d{2})\.(\d{2})\.(\d+)\S*")


class SlurmVersion(NamedTuple):
    """A version of Slurm, as in `slurmd -V`: 22.05.8."""

    year: int
    month: int
    patch: int

    def __str__(self) -> str:
        return f"{self.release}.{self.patch}"

    @property
    def release(self) -> str:
        """The major release, as people call it: 22.05."""
        return f"{self.year:02}.{self.month:02}"


class Ports(NamedTuple):
    """Where the daemons of a node listen; the controller's is None on every node but node 0."""

    node: int
    controller: int | None


class NodeFacts(NamedTuple):
    """The facts that a node reports about itself.

    `memory_mb` is all its memory in MiB. `gpus` are the device files of its GPUs. `version` is None where Slurm is
    missing, `munge` says whether munge is installed. `clock_ahead_s` is how many seconds its clock is ahead of ours.
    `people` are the user ids of the people who share the queue, None for one without an account there. `has_sudo`: the
    login user has sudo without a password (only checked if people were named). `host` is the same for nodes on one
    host. `home` is the home directory of the login user `user` there (no CLOUDGPU_HOME). `address` is the one at which
    it was reached, `interface` the network interface that has it, `interfaces` how many there are. `resolved_address`
    is the address to which its host name resolves on it, empty for none. `environ` are variables that tasks there get
    in place of the submitter's. `files_digest` is the digest of the inputs (`conf.files_digest`) from which its files
    were written, empty for none; `ports` are those in the files. `running_daemons` are the names of its running
    daemons. `is_booting`: its first boot still installs software.
    """

    name: str
    cores: int
    memory_mb: int
    gpus: tuple[str, ...]
    version: SlurmVersion | None
    munge: bool
    clock_ahead_s: float
    user: str
    uid: int
    people: Mapping[str, int | None]
    has_sudo: bool
    hostname: str
    host: str
    address: str
    interface: str | None
    interfaces: int
    resolved_address: str
    home: str
    environ: Mapping[str, str]
    files_digest: str
    ports: Ports | None
    running_daemons: tuple[str, ...]
    is_booting: bool

    @property
    def has_engine(self) -> bool:
        """Whether the engine is installed there."""
        return self.version is not None and self.munge

    @property
    def job_memory_mb(self) -> int:
        """How much memory jobs may use, in MiB."""
        return max(1, int(self.memory_mb * MEMORY_SHARE))


def version_of(text: str) -> SlurmVersion | None:
    """Return the version in what `slurmd -V` prints: `slurm 22.05.8`, or `slurm-wlm 22.05.8`; None for no version."""
    match = _VERSION.search(text)
    return SlurmVersion(int(match[1]), int(match[2]), int(match[3])) if match else None


def node_facts(name: str, answers: Any, ahead_s: float) -> NodeFacts:
    """Return the checked facts of a node. Raises ValueError for invalid ones, as they go into files on all nodes."""
    try:
        ports = answers["ports"]
        return NodeFacts(
            name=_matched(_WORD, name),
            cores=_whole_number(answers["cores"], MAX_CORES),
            memory_mb=_whole_number(answers["memory_mb"], 2**31),
            gpus=tuple(_matched(_DEVICE, one) for one in answers["gpus"][:MAX_GPUS]),
            version=version_of(str(answers["version"] or "")[:MAX_TEXT_CHARS]),
            munge=answers["munge"] is True,
            clock_ahead_s=ahead_s,
            user=_matched(_USER, answers["user"]),
            uid=_whole_number(answers["uid"], 2**32, least=0),
            people={
                str(person): None if uid is None else _whole_number(uid, 2**32, least=0)
                for person, uid in answers["people"].items()
            },
            has_sudo=answers["root"] is True,
            hostname=_matched(_WORD, answers["hostname"]),
            host=_line(answers["host"]),
            address=_matched(_ADDRESS, answers["address"]),
            interface=None if answers["interface"] is None else _matched(_WORD, answers["interface"]),
            interfaces=_whole_number(answers["interfaces"], 4096, least=0),
            resolved_address=_matched(_ADDRESS, answers["named"]) if answers["named"] else "",
            home=_path(answers["home"]),
            environ={_matched(_WORD_OF_SHELL, one): _line(value) for one, value in answers["environ"].items()},
            files_digest=_line(answers["planned"]),
            ports=None if ports is None else Ports(_port(ports[0]), None if ports[1] is None else _port(ports[1])),
            running_daemons=tuple(_line(one) for one in answers["alive"]),
            is_booting=answers["preparing"] is True,
        )
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"it did not say what it is: {error}") from None


_WORD_OF_SHELL = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")


def _matched(pattern: re.Pattern[str], value: object) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError(f"it said {str(value)[:60]!r}")
    return value


def _line(value: object) -> str:
    if not isinstance(value, str) or len(value) > 8 * MAX_TEXT_CHARS or not value.isprintable():
        raise ValueError(f"it said {str(value)[:60]!r}")
    return value


def _path(value: object) -> str:
    text = _line(value)
    if not text.startswith("/") or any(letter.isspace() or letter in "#\"'" for letter in text):
        raise ValueError(f"Slurm cannot have its files below {text[:60]!r}")
    return text


def _whole_number(value: object, most: int, *, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"it said {str(value)[:60]!r}")
    return value


def _port(value: object) -> int:
    return _whole_number(value, 65_535)
