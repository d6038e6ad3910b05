"""The snapshot of a job's directory, as a value: its files by content, its links, and what is left out."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass

from cloudgpu.errors import InvalidRequest

VERSION = 1  # of the manifest
MAX_LISTED = 5
EXECUTABLE = 0o111

SECRET_FILES = (
    *".env* *.pem id_* .netrc _netrc kaggle.json credentials.json client_secret*.json".split(),
    *"*service_account*.json *service-account*.json application_default_credentials.json".split(),
    *"*.key *.p12 *.pfx *.jks *.keystore *.ppk *.kdbx *.ovpn .htpasswd *.tfstate *.tfstate.*".split(),
    *".pypirc .npmrc .git-credentials .pgpass .my.cnf .boto .s3cfg .rclone.conf rclone.conf .vault-token".split(),
    *".dockercfg .terraformrc secrets.toml secrets.yaml secrets.yml secrets.json .secrets".split(),
)
SECRET_DIRECTORIES = ".env* .aws .ssh .azure .kube .gnupg .kaggle .secrets".split()
SECRET_PATH_SUFFIXES = (  # paths that end so
    *".config/gcloud .config/gh .docker/config.json .huggingface/token huggingface/token".split(),
    *"huggingface/stored_tokens .config/rclone .cargo/credentials.toml .cargo/credentials .gem/credentials".split(),
)


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """One regular file. `path` is relative, `size` in bytes; of `mode` only the executable bit is kept (0o755, 0o644).

    Bytes of a name that are not valid UTF-8 are lone surrogates, as `os.fsdecode` makes them.
    """

    path: str
    size: int
    mode: int
    sha256: str

    @property
    def is_executable(self) -> bool:
        """Whether its owner may run it."""
        return bool(self.mode & EXECUTABLE)


@dataclass(frozen=True, slots=True)
class SnapshotLink:
    """A symbolic link. `target` is relative to the link's directory and stays inside the tree."""

    path: str
    target: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An entry that stays out; of a directory `size` is the sum of its files, or with `at_least` a part of it.

    `why` is `ignored`, `secret`, `special` (a socket, pipe or device) or `excluded` (the caller named it).
    """

    path: str
    size: int
    why: str
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class Omissions:
    """What stays out: the largest entries, how many there are in all, and the path of each secret."""

    largest: tuple[LeftOut, ...] = ()
    count: int = 0
    secrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A directory at one moment, named by the hash of its content.

    `directories` are those without a file in the snapshot: a program may expect them. `total_bytes` is the sum over
    `files`. `left_out` are the five largest of `left_out_count` entries that stay out; `secrets` are the paths that
    stay out because of their names.
    """

    hash: str
    files: tuple[SnapshotFile, ...]
    links: tuple[SnapshotLink, ...]
    directories: tuple[str, ...]
    total_bytes: int
    left_out: tuple[LeftOut, ...]
    left_out_count: int
    secrets: tuple[str, ...]


def make_snapshot(
    files: Iterable[SnapshotFile],
    links: Iterable[SnapshotLink] = (),
    directories: Iterable[str] = (),
    omissions: Omissions | None = None,
) -> Snapshot:
    """Return the snapshot of these parts, in the order of their paths, whatever order they come in."""
    sorted_files = tuple(sorted(files, key=lambda one: one.path))
    sorted_links, empty_directories = tuple(sorted(links, key=lambda one: one.path)), tuple(sorted(directories))
    left_out = omissions or Omissions()
    hash_, total_bytes = (
        snapshot_hash(sorted_files, sorted_links, empty_directories),
        sum(one.size for one in sorted_files),
    )
    return Snapshot(
        hash_,
        sorted_files,
        sorted_links,
        empty_directories,
        total_bytes,
        left_out.largest,
        left_out.count,
        left_out.secrets,
    )


def omissions_of(entries: Iterable[LeftOut]) -> Omissions:
    """Return the summary of the entries that are left out."""
    left_out = list(entries)
    largest = sorted(left_out, key=lambda file: (-file.size, file.path))[:MAX_LISTED]
    return Omissions(
        tuple(largest), len(left_out), tuple(sorted(file.path for file in left_out if file.why == "secret"))
    )


def snapshot_hash(
    files: Iterable[SnapshotFile], links: Iterable[SnapshotLink] = (), directories: Iterable[str] = ()
) -> str:
    """Return the SHA-256, in hex, of paths, contents, executable bits, links and empty directories.

    It depends neither on their order nor on times, owners or the place of the directory.
    """
    lines = [f"x {file.sha256} {file.path}" if file.is_executable else f"f {file.sha256} {file.path}" for file in files]
    lines += [f"l {link.path}\0{link.target}" for link in links]
    lines += [f"d {path}" for path in directories]
    # No path contains NUL, so different snapshots differ in text: one NUL is before a link's target, two end a line.
    return hashlib.sha256("\0\0".join(sorted(lines)).encode("utf-8", "surrogateescape")).hexdigest()


def is_secret_name(path: str) -> bool:
    """Say whether a path looks like a key, a token or a password by its name, or lies in a directory that does.

    The name alone decides, in any case of letters: `id_*` also means `id_map.py`, so a plan lists what this leaves out.
    """
    return _SECRET.search(f"/{path.lower()}") is not None


def is_secret_directory(path: str) -> bool:
    """Say whether all that is in this directory counts as secret."""
    return _SECRET.search(f"/{path.lower()}/") is not None


def _any_of(globs: Iterable[str]) -> str:
    return "|".join(re.escape(glob).replace(r"\*", "[^/]*") for glob in globs)


_SECRET = re.compile(
    rf"/(?:(?:{_any_of(SECRET_DIRECTORIES)})/|(?:{_any_of(SECRET_PATH_SUFFIXES)})(?:/|\Z)|(?:{_any_of(SECRET_FILES)})\Z)"
)


def link_stays_inside(path: str, target: str) -> bool:
    """Say whether a relative target, read from the link's own directory, stays in the tree by its text alone."""
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return not target.startswith("/") and joined != ".." and not joined.startswith("../")


def write_manifest(snapshot: Snapshot) -> str:
    """Return the snapshot as JSON, in ASCII; `read_manifest` takes it back."""
    one = snapshot
    manifest = {
        "version": VERSION,
        "hash": one.hash,
        "total_bytes": one.total_bytes,
        "files": [(file.path, file.size, file.mode, file.sha256) for file in one.files],
        "links": [(link.path, link.target) for link in one.links],
        "directories": one.directories,
        "left_out": [(omission.path, omission.size, omission.why, omission.at_least) for omission in one.left_out],
        "left_out_count": one.left_out_count,
        "secrets": one.secrets,
    }
    return json.dumps(manifest, separators=(",", ":"))


def read_manifest(text: str) -> Snapshot:
    """Return the snapshot that this JSON describes.

    Raises InvalidRequest where it is no manifest, was written by another version, or does not have the hash it names.
    """
    try:
        manifest = json.loads(text)
        if manifest["version"] != VERSION:
            raise _invalid_manifest("was written by another version of cloudgpu")
        left_out = tuple(LeftOut(*one) for one in manifest["left_out"])
        snapshot = make_snapshot(
            (SnapshotFile(*file) for file in manifest["files"]),
            (SnapshotLink(*link) for link in manifest["links"]),
            manifest["directories"],
            Omissions(left_out, manifest["left_out_count"], tuple(manifest["secrets"])),
        )
        if (snapshot.hash, snapshot.total_bytes) != (manifest["hash"], manifest["total_bytes"]):
            raise _invalid_manifest("has changed since it was written")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _invalid_manifest("cannot be read") from error
    return snapshot


def _invalid_manifest(why: str) -> InvalidRequest:
    return InvalidRequest(f"The list of a snapshot's files {why}.", field="snapshot", next="Take the snapshot again.")
