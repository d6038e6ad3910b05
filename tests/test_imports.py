"""Holds the house's import rules over the syntax of every file: who may import whom, and what core may touch."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[1]

BASE = {"errors", "core"}
ASKING = BASE | {"parallel"}  # what asks many at once
CLOUD = ASKING | {"providers", "providers.shared", "providers.machine", "catalog"}
SEAM = tuple(f"cloudgpu.providers.{name}." for name in ("base", "abilities", "account_abilities", "cluster_abilities"))
MAY_IMPORT = {  # a room -> the rooms of ours that it may import, besides itself
    "": BASE | {"control"},  # cloudgpu/__init__.py, the library's face
    "__main__": {"cli"},  # `python -m cloudgpu`
    "errors": set(),
    "parallel": set(),
    "underway": set(),
    "core": {"errors"},  # values may refuse in the words of the error tree
    "config": BASE,
    "ledger": BASE,
    "access": ASKING,
    "catalog": BASE,
    "views": BASE,
    "agent": {"core"},  # core.activity.idle alone, whose lines it carries
    "providers": BASE | {"catalog"},  # the seam, and what finds a provider
    "providers.shared": ASKING | {"providers", "catalog"},  # what several clouds do alike; what drives a GPU is a fact
    "providers.local": ASKING | {"providers", "providers.shared", "access"},
    "providers.ssh": ASKING | {"providers", "providers.shared", "access"},
    "providers.rest": ASKING | {"providers", "providers.shared"},  # what clouds without an SDK stand on
    "providers.machine": BASE | {"providers", "providers.shared"},  # sent to machines in clouds: no SDK, no catalogue
    "providers.aws": CLOUD,
    "providers.gcp": CLOUD,
    "providers.azure": CLOUD,
    "providers.runpod": CLOUD | {"providers.rest"},
    "providers.vast": CLOUD | {"providers.rest"},
    "providers.lambdalabs": CLOUD | {"providers.rest"},
    "control": ASKING
    | {"underway", "config", "providers", "providers.shared", "ledger", "access", "catalog", "views", "agent"},
    "cli": ASKING | {"underway", "control", "config", "access", "views"},
    "testing": ASKING | {"providers"},
}
HOMES = {  # a library -> the only rooms that may import it
    "boto3": {"providers.aws"},
    "botocore": {"providers.aws"},
    "fsspec": {"providers.shared"},
    "urllib3": {"providers.rest"},
    "google": {"providers.gcp"},
    "azure": {"providers.azure"},
    "asyncssh": {"providers.local", "providers.ssh"},
    "psutil": {"providers.local"},
    "paramiko": {"access"},
    "websocket": {"access"},
    "tomlkit": {"config"},
    "yaml": {"config"},
    "jinja2": {"config", "views"},
    "sqlite3": {"ledger"},
    "psycopg": {"ledger"},
    "typer": {"cli"},
    "rich": {"cli"},
    "pytest": {"testing"},
    "cryptography": {"access", "testing", "providers.lambdalabs", "providers.ssh"},
    "apprise": {"control"},
    "apscheduler": {"control"},
    "concurrent": set(),  # its pools keep the process after Ctrl-C; ours is cloudgpu.parallel
}
IMPURE_MODULES = {
    "asyncio", "fcntl", "ftplib", "getpass", "glob", "http", "importlib", "io", "logging", "multiprocessing", "os",
    "pathlib", "platform", "pty", "random", "secrets", "select", "shutil", "signal", "smtplib", "socket",
    "socketserver", "sqlite3", "ssl", "subprocess", "sys", "tempfile", "threading", "time", "urllib", "uuid",
}  # fmt: skip
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "breakpoint", "__import__"}
CLOCKS = {"now", "utcnow", "today", "getenv"}
PRINTERS = {"cli", "agent"}  # the agent is a command line of its own, on the machine


def room_of(path: Path) -> str:
    """Return the room of a file: `core`, `providers.local`, `errors`; empty for the library's face."""
    parts = path.with_suffix("").parts
    if parts[0] == "__init__":
        return ""
    if parts[0] == "providers" and len(parts) > 2:
        return f"providers.{parts[1]}"
    return parts[0]


def imports(tree: ast.AST, path: Path) -> Iterator[tuple[int, str]]:
    """Yield every imported module with its line, relative ones resolved, also those inside functions."""
    package = ("cloudgpu", *path.parent.parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join((*above, *filter(None, [node.module])))
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def room_of_module(module: str) -> str:
    """Return the room of an imported module of ours: `cloudgpu.providers.local.sshd` is in `providers.local`."""
    parts = module.split(".")[1:]
    concrete = parts[0] == "providers" and f"providers.{parts[1] if len(parts) > 1 else ''}" in MAY_IMPORT
    return ".".join(parts[:2]) if concrete else parts[0]


def library_faults(room: str, module: str) -> str | None:
    top = module.split(".", maxsplit=1)[0]
    if top in HOMES and room not in HOMES[top]:
        return f"imports {top}, which only {', '.join(sorted(HOMES[top])) or 'nobody'} may"
    if room in ("core", "errors", "agent") and top not in sys.stdlib_module_names:
        return f"imports {top}, which is not in the standard library"
    if room == "core" and top in IMPURE_MODULES:
        return f"imports {top}: core has no clock, file, network, randomness"
    return None


def import_fault(room: str, module: str) -> str | None:
    """Return why this room may not import this module, or None."""
    if module.split(".", maxsplit=1)[0] != "cloudgpu":
        return library_faults(room, module)
    if module in ("cloudgpu.__version__", "cloudgpu.__future__"):
        return None
    wanted = room_of_module(module)
    if wanted == room or wanted in MAY_IMPORT.get(room, BASE):
        if room == "testing" and wanted == "providers" and not module.startswith(SEAM):
            return f"imports {module}; testing knows only providers.base and the abilities"
        if room == "agent" and wanted == "core" and not module.startswith("cloudgpu.core.activity.idle."):
            return f"imports {module}; the agent carries core.activity.idle alone"
        return None
    return f"imports {module}; {room or 'the face'} may not import {wanted}"


def call_faults(tree: ast.AST, room: str) -> Iterator[tuple[int, str]]:
    """Yield what a room may not call: print outside the command line, clocks and files in core."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", None)
        if name == "print" and room not in PRINTERS:
            yield node.lineno, "prints; only the command line does"
        elif room == "core" and name in IMPURE_CALLS:
            yield node.lineno, f"calls {name}()"
        elif room == "core" and getattr(node.func, "attr", None) in CLOCKS:
            yield node.lineno, f"reads a clock or the environment: {ast.unparse(node.func)}()"


def faults(path: Path, source: str) -> list[str]:
    """Return every broken rule in the file at `path` below cloudgpu/, as `line N ...`."""
    tree, room = ast.parse(source), room_of(path)
    found = [(number, fault) for number, module in imports(tree, path) if (fault := import_fault(room, module))]
    return [f"line {number} {fault}" for number, fault in sorted(found + list(call_faults(tree, room)))]


def sleeps(source: str) -> list[int]:
    """Return the lines of a test that sleep time away: outside a loop, or for more than half a second."""
    tree = ast.parse(source)
    polling = {
        id(call)
        for loop in ast.walk(tree)
        if isinstance(loop, (ast.While, ast.For))
        for call in ast.walk(loop)
        if isinstance(call, ast.Call) and call.args and _is_short(call.args[0])
    }
    return [call.lineno for call in ast.walk(tree) if _is_sleep(call) and id(call) not in polling]


def _is_short(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and 0 <= node.value <= 0.5


def _is_sleep(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("sleep", "time.sleep", "asyncio.sleep")


OURS = sorted((CHECKOUT / "cloudgpu").rglob("*.py"))
TESTS = sorted((CHECKOUT / "tests").rglob("*.py"))


@pytest.mark.parametrize("file", OURS, ids=lambda file: str(file.relative_to(CHECKOUT)))
def test_every_file_keeps_the_rules_of_its_room(file: Path) -> None:
    assert faults(file.relative_to(CHECKOUT / "cloudgpu"), file.read_text()) == []


def test_every_room_has_its_rule() -> None:
    rooms = {room_of(file.relative_to(CHECKOUT / "cloudgpu")) for file in OURS if "_data" not in file.parts}
    assert rooms <= set(MAY_IMPORT)


def test_no_test_sleeps_time_away() -> None:
    found = {str(file.relative_to(CHECKOUT)): sleeps(file.read_text()) for file in TESTS}
    assert {file: lines for file, lines in found.items() if lines} == {}


BAD = [
    ("core/stock.py", "import socket"),
    ("core/stock.py", "import urllib.request"),
    ("core/stock.py", "from random import choice"),
    ("core/stock.py", "import numpy"),
    ("core/stock.py", "def f():\n    import time"),
    ("core/stock.py", "from datetime import datetime\nx = datetime.now()"),
    ("core/stock.py", "import datetime\nx = datetime.date.today()"),
    ("core/stock.py", "x = open('file')"),
    ("core/stock.py", "from cloudgpu.ledger.log.base import Ledger"),
    ("core/stock.py", "from ..ledger import base"),
    ("core/stock.py", "from cloudgpu import ledger"),
    ("errors.py", "from cloudgpu.core.values.money import Money"),
    ("ledger/sqlite.py", "from cloudgpu.providers.base import Provider"),
    ("ledger/sqlite.py", "import cloudgpu.control.launch.launch"),
    ("config/settings.py", "from cloudgpu.access.ssh.client_files import client_key"),
    ("access/tunnel.py", "from cloudgpu.config.files.user_files import Home"),
    ("access/tunnel.py", "import asyncssh"),
    ("views/report/html.py", "import sqlite3"),
    ("agent/agent.py", "from cloudgpu.core.values.times import iso"),
    ("agent/agent.py", "import psutil"),
    ("control/launch.py", "from cloudgpu.cli import render"),
    ("control/launch.py", "from cloudgpu.providers.local.provider import make"),
    ("control/launch.py", "from cloudgpu.testing import FakeProvider"),
    ("control/launch.py", "import boto3"),
    ("cli/up.py", "from cloudgpu.providers.local import provider"),
    ("cli/up.py", "from cloudgpu.ledger.open import open_ledger"),
    ("providers/registry.py", "from cloudgpu.providers.local.provider import make"),
    ("providers/registry.py", "from cloudgpu.access.ssh.client_files import client_key"),
    ("providers/aws/client.py", "from cloudgpu.access.ssh.client_files import client_key"),
    ("providers/aws/client.py", "from cloudgpu.providers.gcp import client"),
    ("providers/local/sshd.py", "import boto3"),
    ("testing/fake.py", "from cloudgpu.providers.registry import load"),
    ("testing/fake.py", "from cloudgpu.control.launch.launch import up"),
    ("control/launch.py", "print('launched')"),
    ("__init__.py", "from cloudgpu.cli.app import main"),
]


@pytest.mark.parametrize(("file", "source"), BAD)
def test_a_broken_rule_is_found(file: str, source: str) -> None:
    assert len(faults(Path(file), source)) == 1


GOOD = [
    ("core/stock.py", "from cloudgpu.core.values.money import Money\nimport re"),
    ("core/stock.py", "from .money import Money"),
    ("cli/up.py", "from cloudgpu.control.launch.launch import up\nprint(up)"),
    ("cli/app.py", "from cloudgpu import __version__"),
    ("control/launch.py", "from cloudgpu.providers import registry\nfrom cloudgpu.providers.base import Provider"),
    ("providers/local/provider.py", "from cloudgpu.access.ssh import client_files\nimport asyncssh"),
    ("providers/local/store.py", "from cloudgpu.providers.local import layout\nfrom . import build"),
    ("providers/aws/client.py", "def f():\n    import boto3"),
    ("testing/contract.py", "import pytest\nfrom cloudgpu.providers.base import Provider"),
]


@pytest.mark.parametrize(("file", "source"), GOOD)
def test_what_is_allowed_is_not_called_a_fault(file: str, source: str) -> None:
    assert faults(Path(file), source) == []


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("import time\ntime.sleep(1)", [2]),
        ("time.sleep(0.01)", [1]),
        ("while not done():\n    time.sleep(0.05)", []),
        ("while not done():\n    time.sleep(2)", [2]),
        ("for _ in range(3):\n    sleep(wait)", [2]),
        ("async def f():\n    await asyncio.sleep(5)", [2]),
        ("child = 'time.sleep(1000)'", []),
    ],
)
def test_a_sleeping_test_is_found(source: str, lines: list[int]) -> None:
    assert sleeps(source) == lines
