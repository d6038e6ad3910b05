"""Opens the lab of the long run: models of AWS, own machines, a PostgreSQL, and system users where we are root."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil
import psycopg

from tests.soak.lab import ACCOUNTS, CONFIG, START, Lab
from tests.soak.lab_clock import SharedClock
from tests.soak.lab_cloud import Cloud
from tests.soak.lab_local import LocalPlace
from tests.soak.lab_member import Forks, Member
from tests.soak.lab_server import LabServer
from tests.soak.lab_ssh import SshPlace

UP = "--disk 93 --ssh-from 203.0.113.7 --no-wait --yes --template bare"
PASSED = ("PATH", "PYTHONPATH", "CLOUDGPU_TEST_NETWORK_LOG")
PREFIX = "cloudgpu-lab-"  # of the system users, who are removed again
OWNER = "lab"  # of the tables, and nobody's daily user
HOSTS = ("tower", "attic")  # users of this computer behind SSH servers
CALLED = [{"tower": "tower", "attic": "attic"}, {"bigbox": "tower"}]  # by the first members; others know of none
LOCKED = {1, 10}  # useradd(8), userdel(8): the file of users or of groups cannot be written now


@contextmanager
def opened(seed: int, people: Sequence[str], accounts: Sequence[str] = ACCOUNTS) -> Iterator[Lab]:
    """Yield the lab of these people; the first, third, ... have one account of AWS, the others have the other."""
    with ExitStack() as stack:
        memory = Path("/dev/shm")
        place = Path(tempfile.mkdtemp(prefix=PREFIX, dir=memory if memory.is_dir() else None))
        stack.callback(shutil.rmtree, place, ignore_errors=True)
        place.chmod(0o755)
        clock = SharedClock(place / "clock", START)
        clouds = [stack.enter_context(Cloud(number, clock)) for number in accounts]
        forks = stack.enter_context(Forks(clock, place))
        server = LabServer()
        stack.callback(server.remove)
        server.start()
        uids = stack.enter_context(system_users([*people, *HOSTS]))
        if not _can_run(forks, uids[0], place):
            uids = [0] * len(uids)  # a container that does not even let root lend its sight
        by_number = {cloud.number: cloud.begun() for cloud in clouds}
        url = partial(_url, server)
        _make_team(server, forks, place, people)
        members = [
            _member(name, uid, by_number[number], place, url(name), forks)
            for name, uid, number in zip(people, uids, itertools.cycle(accounts), strict=False)
        ]
        places = [LocalPlace(one.name, one.home) for one in members]
        stack.callback(_end_all, place)
        hosts = [_host(stack, name, uid, place) for name, uid in zip(HOSTS, uids[len(people) :], strict=True)]
        for member, called in zip(members, CALLED, strict=False):
            _make_known(member, called, hosts)
        yield Lab(seed, [*clouds, *places, *hosts], members, clock, place, url(OWNER), server, UP)


@contextmanager
def system_users(people: Sequence[str]) -> Iterator[list[int]]:
    """Yield the number of a new system user for each of them; where we are not root, all of them are ourselves."""
    names = [f"{PREFIX}{os.getpid()}-{name}" for name in people] if os.geteuid() == 0 else []
    try:
        for name in names:
            _run("useradd", "--no-create-home", "--user-group", "--shell", "/bin/sh", name)
        yield [pwd.getpwnam(name).pw_uid for name in names] or [0] * len(people)
    finally:
        for name in names:
            if any(one.pw_name == name for one in pwd.getpwall()):
                _run("userdel", "--force", name)


def _url(server: LabServer, user: str, database: str = "lab") -> str:
    return f"postgresql://{user}:{user}-pw@127.0.0.1:{server.port}/{database}?connect_timeout=60"


def _make_team(server: LabServer, forks: Forks, place: Path, people: Sequence[str]) -> None:
    """Do what docs/team.md says: a database, its owner, and a database user for each; the first one is the payer."""
    owner = {"CLOUDGPU_LEDGER": _url(server, OWNER), "CLOUDGPU_HOME": os.fspath(place), "PATH": os.environ["PATH"]}
    words = ["ledger", "init", "--team", "--payer", people[0]]
    words += [word for name in people[1:] for word in ("--member", name)]
    with psycopg.connect(server.url(), autocommit=True) as raw:
        raw.execute(f"CREATE ROLE {OWNER} LOGIN PASSWORD '{OWNER}-pw'")
        raw.execute(f"CREATE DATABASE lab OWNER {OWNER} ENCODING 'UTF8' TEMPLATE template0")
    with psycopg.connect(server.url("lab"), autocommit=True) as raw:
        for line in forks.run(words, owner, 0, 0).out.splitlines():
            if line.strip().startswith(("CREATE ", "GRANT ")):
                raw.execute(line)
        for name in people:
            raw.execute(f"ALTER ROLE {name} PASSWORD '{name}-pw'")
    done = forks.run(words, owner, 0, 0)
    assert done.code == 0, done


def _end_all(place: Path) -> None:
    """End the local machines that are left; their processes name their home."""
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if any(f"{place}/" in word for word in words) and "tests.soak" not in " ".join(words):
            with suppress(psutil.Error):
                process.kill()


def _can_run(forks: Forks, uid: int, place: Path) -> bool:
    """Say whether a command runs for this user: Python and this checkout may stand where only root can read them."""
    nowhere = {"CLOUDGPU_HOME": os.fspath(place), "PATH": os.environ["PATH"]}
    return forks.run(["cost", "-o", "json"], nowhere, uid, 0).code == 0


def _member(name: str, uid: int, cloud: Cloud, place: Path, url: str, forks: Forks) -> Member:
    home = place / name
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(CONFIG.format(owner=name))
    if uid:
        for path in (home, home / "config.toml"):
            os.chown(path, uid, uid)
    nothing = dict.fromkeys(("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"), "/nothing")
    passed = {one: os.environ[one] for one in PASSED if one in os.environ}
    environ = passed | cloud.environ | nothing | {"CLOUDGPU_LEDGER": url}
    environ |= {"AWS_EC2_METADATA_DISABLED": "true", "CLOUDGPU_PATIENCE": "60"}
    return Member(name, home, cloud.number, environ, forks, uid)


def _host(stack: ExitStack, name: str, uid: int, place: Path) -> SshPlace:
    host = SshPlace(place / "hosts", name, uid=uid)
    host.root.mkdir(exist_ok=True)
    stack.callback(host.clean_up)
    host.start()
    return host


def _make_known(member: Member, called: Mapping[str, str], hosts: Sequence[SshPlace]) -> None:
    """Write these hosts into a member's settings, with a copy of the key that logs in there."""
    known = {host.name: host for host in hosts}
    key = member.home / "id_own"
    shutil.copy(hosts[0].users_key, key)
    tables = ", ".join(known[name].settings(mine, key) for mine, name in called.items())
    with (member.home / "config.toml").open("a") as file:
        file.write(f"[accounts.ssh]\nhosts = [{tables}]\n")
    if member.uid:
        os.chown(key, member.uid, member.uid)
    member.hosts = {mine: known[name].number for mine, name in called.items()}


def _run(*words: str) -> None:
    """Run it; another such command may have the file of users for a moment."""
    for _ in range(50):
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode not in LOCKED:
            break
        time.sleep(0.2)
    assert done.returncode == 0, (words, done.stderr)
