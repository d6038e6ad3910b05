"""An SSH config that users may `Include`, and the system's own client started with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cloudgpu.access.files import explain_os_errors, locked, remove, write_whole
from cloudgpu.core.model.instances import Address
from cloudgpu.core.model.machine import Machine, jump_of
from cloudgpu.core.values.network import Jump
from cloudgpu.errors import InvalidRequest

HEAD = "# Written by cloudgpu; changes are lost. To use it, put this line first in ~/.ssh/config:\n#   Include {file}\n"
ALIVE_EVERY_S = 15  # OpenSSH gives up after three of these without an answer


@dataclass(frozen=True, slots=True)
class SshHost:
    """A machine as `ssh NAME` should find it; `id` is the alias of its host key, `jump` the host in between."""

    name: str
    id: str
    address: Address
    jump: Jump | None = None


def hosts_of(machines: Iterable[Machine]) -> list[SshHost]:
    """Return those of these machines that have an address."""
    return [SshHost(one.name, one.id, Address(*one.address), jump_of(one)) for one in machines if one.address]


def write(file: Path, hosts: Sequence[SshHost], *, key_file: Path, known_hosts: Path) -> None:
    """Write the config for these machines, whole and mode 0600; remove it when there are none.

    An unchanged config is not written again. Raises InvalidRequest when it cannot be written.
    """
    if not hosts:
        remove(file)
        return
    text = config_text(file, hosts, key_file=key_file, known_hosts=known_hosts).encode()
    if _read(file) != text:
        with locked(file):
            write_whole(file, text)


def config_text(file: Path, hosts: Sequence[SshHost], *, key_file: Path, known_hosts: Path) -> str:
    """Return the whole config as text, sorted by name."""
    common = _lines(_common_options(key_file, known_hosts))
    blocks = [_block(host) + common for host in sorted(hosts, key=lambda host: host.name)]
    return HEAD.format(file=_quoted(file)) + "".join(blocks)


def ssh_command(file: Path, name: str, arguments: Sequence[str] = ()) -> list[str]:
    """Return the argument list that opens `name` with the system's client; raise InvalidRequest where it has none.

    `arguments` follow the name, as a command to run there; options go before it through the user's own `ssh -F`.
    """
    return [client(), "-F", str(file), name, *arguments]


def client() -> str:
    """Return the path of the system's `ssh`; raise InvalidRequest when there is none."""
    import shutil

    found = shutil.which("ssh")
    if found is None:
        raise InvalidRequest(
            "This machine has no ssh client.",
            field="PATH",
            value="ssh",
            next="Install it (Debian, Ubuntu, WSL: apt-get install openssh-client), or use: cloudgpu exec NAME -- CMD",
        )
    return found


def _block(host: SshHost) -> str:
    """Return the lines that are of this machine alone."""
    address, user = host.address, _quoted_text(host.address.user)
    text = (
        f"\nHost {host.name}\n  HostName {address.host}\n  Port {address.port}\n  User {user}\n"
        f"  HostKeyAlias {host.id}\n"
    )
    if host.jump:
        # Not ProxyJump: started with `-F`, that would read this file for the jump host, too, and not the user's own.
        text += f"  ProxyCommand ssh -W '[%h]:%p' {' '.join(host.jump.options())}\n"
    return text


def _common_options(key_file: Path, known_hosts: Path) -> dict[str, str]:
    """Return the options that are the same for every machine."""
    return {
        "IdentityFile": _quoted(key_file),
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
        "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no",
        "UserKnownHostsFile": _quoted(known_hosts),
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "UpdateHostKeys": "no",
        "CheckHostIP": "no",
        "ServerAliveInterval": str(ALIVE_EVERY_S),
    }


def _lines(options: dict[str, str]) -> str:
    return "".join(f"  {name} {value}\n" for name, value in options.items())


def _quoted(path: Path) -> str:
    # OpenSSH expands %-tokens and ${VAR} in these paths: a percent sign is doubled, a variable cannot be escaped.
    if "${" in str(path):
        raise InvalidRequest(
            f"The path {path} cannot be used in an SSH config: OpenSSH would read ${{ as a variable.",
            field="CLOUDGPU_HOME",
            value=str(path),
            next="Set CLOUDGPU_HOME to a path without ${.",
        )
    return _quoted_text(str(path).replace("%", "%%"))


@lru_cache(maxsize=64)  # machines have the same few users
def _quoted_text(text: str) -> str:
    if any(sign in text for sign in '"\n\r\\'):
        raise InvalidRequest(
            f"{text!r} cannot be used in an SSH config.",
            field="CLOUDGPU_HOME",
            value=text,
            next="Use paths and user names without quotes, backslashes and line ends.",
        )
    return f'"{text}"' if any(sign in text for sign in " \t#'") else text


def _read(file: Path) -> bytes | None:
    with explain_os_errors(file):
        try:
            return file.read_bytes()
        except FileNotFoundError:
            return None
