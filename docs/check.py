"""Checks that README, CONTRIBUTING, CHANGELOG, docs and examples say what the code does.

`--write` makes the generated pages anew. Generated pages are compared; links, anchors, verbs, options, exit codes,
kinds of errors, settings, environment variables and make targets have to exist; every page of docs/ has to be in its
index; a path or an address that only one machine has is refused.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from generate import classes, commands, exit_codes, generated
from pages import Page, find_pages, unquoted

from cloudgpu.config.alerts.alerts import SETTING_READERS as ALERT_KEYS, Alerts
from cloudgpu.config.desktops.desktops import KEYS as DESKTOP_KEYS
from cloudgpu.config.money.currencies import KEYS as CURRENCY_KEYS
from cloudgpu.config.money.discounts import CREDIT_KEYS, DISCOUNT_KEYS
from cloudgpu.config.money.fees import KEYS as FEE_KEYS
from cloudgpu.config.policies.schema import LIMITS, POLICY, Keys, flattened_keys
from cloudgpu.config.settings import ADDRESS_SERVICES, JobSettings, Settings
from cloudgpu.config.templates.find import KEYS as TEMPLATE_KEYS
from cloudgpu.core.values.times import duration_text
from cloudgpu.providers.local.options import local_options

Fault = tuple[int, str]  # line, sentence
ROOT = Path(__file__).parents[1]
INDEX = "docs/README.md"
# Whatever else begins with a slash is a path of the machine on which a page was written.
PATHS = ("a", "bin", "data", "dev", "etc", "home/ada", "mnt", "proc", "tmp", "usr", "workspace")
RESOURCES = ("account", "machines", "stock")  # of the REST cloud on the page for authors of providers
PROJECTS = ("github.com", "hc-ping.com", "healthchecks.io", "jinja.palletsprojects.com", "www.apache.org")
HOSTS = ("127.0.0.1", "localhost", *PROJECTS, *(urlsplit(url).hostname for url in ADDRESS_SERVICES))
_PATH = re.compile(r"(?<![\w.~/:$}\])*<>-])/([a-z][\w.-]*(?:/[\w.-]+)?)")
_URL = re.compile(r"https?://([\w.-]+)\S*")
_COMMAND = re.compile(r"(?<![\w./-])cloudgpu +([^|;&>`#]*)")
_CODE = re.compile(r"\bexit(?:s with| codes?) +(\d+)(?:,? \(?`(\w+)`)?", re.IGNORECASE)
_VARIABLE = re.compile(r"\bCLOUDGPU_[A-Z_]+[A-Z]\b")
_MAKE = re.compile(r"\bmake ([a-z]+)\b")


def main() -> int:
    """Check, or with --write make the generated pages; return 1 when there are faults."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the generated pages")
    parser.add_argument("--root", type=Path, default=ROOT, help="where README.md and docs/ are")
    asked = parser.parse_args()
    if asked.write:
        for name, text in generated(asked.root).items():
            (asked.root / name).parent.mkdir(exist_ok=True)
            (asked.root / name).write_text(text, encoding="utf-8")
        return 0
    faults = list(check(asked.root))
    for fault in faults:
        print(fault)
    return 1 if faults else 0


def check(root: Path) -> Iterator[str]:
    """Yield `file:line: sentence` for everything that is wrong."""
    yield from _check_generated(root)
    pages = find_pages(root)
    yield from _check_index(pages)
    for page in pages:
        for one in CHECKS:
            for line, sentence in one(page):
                yield f"{page.name}:{line}: {sentence}"


def _check_generated(root: Path) -> Iterator[str]:
    for name, text in generated(root).items():
        path = root / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            yield f"{name}:1: is not what the code says; run: python docs/check.py --write"


def _check_index(pages: list[Page]) -> Iterator[str]:
    """Yield the pages that are more than two links away from the README: those that the index does not name."""
    by_name = {page.name: page for page in pages}
    for page, wanted in (("README.md", {INDEX}), (INDEX, {name for name in by_name if name.startswith("docs/")})):
        for name in sorted(wanted - _targets(by_name.get(page)) - {page}):
            yield f"{page}:1: has no link to {name}"


def _targets(page: Page | None) -> set[str]:
    """Return the names of the pages that a page links to."""
    links = page.links() if page else ()
    found = ((page.path.parent / target.partition("#")[0]).resolve() for _, target in links if page)
    root = page.path.parents[page.name.count("/")].resolve() if page else Path()
    return {path.relative_to(root).as_posix() for path in found if path.is_relative_to(root)}


def check_links(page: Page) -> Iterator[Fault]:
    """Yield links and anchors that lead nowhere."""
    for line, target in page.links():
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        path = page.path.parent / name if name else page.path
        if not path.exists():
            yield line, f"the link {target} leads nowhere"
        elif anchor and anchor not in _anchors(path):
            yield line, f"the link {target} names no heading"


@cache
def _anchors(path: Path) -> set[str]:
    from pages import read_page

    return read_page(path.parent, path).anchors() if path.suffix == ".md" else set()


def check_commands(page: Page) -> Iterator[Fault]:
    """Yield verbs and options that do not exist. What is output, not typed, may hold `cloudgpu` as a mere word."""
    for code in page.code():
        text = code.text.partition(" #")[0] if not code.text.lstrip().startswith("#") else ""
        for found in _COMMAND.finditer(text):
            for sentence in _command_faults(_words(found[1]), typed=code.typed):
                yield code.number, sentence


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quote that ends on the next line
        return text.split()


def _command_faults(words: list[str], *, typed: bool) -> Iterator[str]:
    verb = words[0] if words else "--help"
    known = _options()
    if verb.startswith("-"):
        words, verb = ["", *words], ""
    if " ".join(words[:2]) in known and words[1:]:
        words, verb = words[1:], " ".join(words[:2])
    if verb not in known:
        if typed and not verb.isupper():  # VERB stands for any of them
            yield f"there is no verb {verb!r}"
        return
    for word in words[1:]:
        if word == "--":
            return
        option = word.partition("=")[0].rstrip(".,:)")
        if option.startswith("-") and option not in known[verb]:
            yield f"{f'cloudgpu {verb}'.strip()} has no option {option}"


@cache
def _options() -> dict[str, set[str]]:
    """Return the options of every verb; those of the empty verb stand before it."""
    general = {"-h", "--help"}
    found = {
        "": general | {"--version", "--install-completion", "--show-completion"},
        "help": general,
        "version": general,
    }
    for verb, command in commands().items():
        shown = [param for param in command.params if not getattr(param, "hidden", False)]
        found[verb] = general | {name for param in shown for name in (*param.opts, *param.secondary_opts)}
    return found


def check_codes(page: Page) -> Iterator[Fault]:
    """Yield exit codes that no command has, and kinds of errors under another code than theirs."""
    kinds = {one.kind: one.exit_code for one in classes()}
    for line in page.lines:
        for found in _CODE.finditer(line.text):
            if int(found[1]) not in exit_codes():
                yield line.number, f"no command exits with {found[1]}"
            elif found[2] in kinds and kinds[found[2]] != int(found[1]):
                yield line.number, f"`{found[2]}` is exit code {kinds[found[2]]}, not {found[1]}"
    for _, start, head, rows in page.tables():
        if head[0] == "exit code":
            yield from ((start, sentence) for row in rows for sentence in _code_row_faults(row, kinds))


def _code_row_faults(row: list[str], kinds: dict[str, int]) -> Iterator[str]:
    for kind in re.findall(r"`(\w+)`", " ".join(row)):
        if kind in kinds and str(kinds[kind]) != row[0]:
            yield f"`{kind}` is exit code {kinds[kind]}, not {row[0]}"


def check_places(page: Page) -> Iterator[Fault]:
    """Yield paths and addresses that a reader cannot have."""
    for line in page.lines:
        for found in _PATH.finditer(_URL.sub("", line.text)):
            if found[1].split("/")[0] not in (*PATHS, *RESOURCES) and found[1] not in PATHS:
                yield line.number, f"/{found[1]} is a path of one machine"
        for found in _URL.finditer(line.text):
            if found[1] not in HOSTS and not found[1].endswith(".example"):  # RFC 2606: nobody has one
                yield line.number, f"{found[1]} is not among the hosts that a page may name"


def check_variables(page: Page) -> Iterator[Fault]:
    """Yield environment variables that the code does not know, and make targets that there are not."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for line in page.lines:
        for name in _VARIABLE.findall(line.text):
            if name not in _variables():
                yield line.number, f"nothing reads {name}"
    for code in page.code():
        for name in _MAKE.findall(code.text) if code.typed else ():
            if name not in targets:
                yield code.number, f"there is no make {name}"


@cache
def _variables() -> set[str]:
    files = (ROOT / "cloudgpu").rglob("*.py")
    return {name for file in files for name in _VARIABLE.findall(file.read_text(encoding="utf-8"))}


def check_settings(page: Page) -> Iterator[Fault]:
    """Yield keys and defaults of reference/config.md that differ from the code's."""
    if page.name != "docs/reference/config.md":
        return
    expected = {
        "Settings": _defaults(),
        "Accounts of local": _local_defaults(),
        "Alerts": _alert_defaults(),
        "Jobs": {field.name: field.default for field in fields(JobSettings)},
        "Currencies": dict.fromkeys(CURRENCY_KEYS, MISSING),
        "Fees": dict.fromkeys(FEE_KEYS, MISSING),
        "Discounts": dict.fromkeys(DISCOUNT_KEYS, MISSING),
        "Credits": dict.fromkeys(CREDIT_KEYS, MISSING),
        "Templates": dict.fromkeys(TEMPLATE_KEYS, MISSING),
        "Policies": _flat_defaults(POLICY),
        "Limits": _flat_defaults(LIMITS),
        "Desktops": dict.fromkeys(DESKTOP_KEYS, MISSING),
    }
    for heading, start, _, rows in page.tables():
        if heading in expected:
            yield from ((start, sentence) for sentence in _key_faults(heading, rows, expected.pop(heading)))
    yield from ((1, f"there is no table under the heading {heading}") for heading in expected)


def _key_faults(heading: str, rows: list[list[str]], expected: dict[str, Any]) -> Iterator[str]:
    said = {unquoted(row[0]): row[1] for row in rows}
    for key in sorted(set(said) ^ set(expected)):
        yield f"{heading}: {key} is {'no key' if key in said else 'missing'}"
    for key in set(said) & set(expected):
        cell, default = said[key], expected[key]
        literal = tomllib.loads(f"x = {unquoted(cell)}")["x"] if cell.startswith("`") else None
        if default is not MISSING and literal != default:
            yield f"{heading}: {key} is {default!r} by default, not {cell}"


# Tables of config.toml that have headings of their own.
_TABLES = ("accounts", "alerts", "credits", "currencies", "discounts", "fees", "jobs", "policies", "templates")


def _defaults() -> dict[str, Any]:
    """Return config.toml's keys with their defaults as TOML holds them; None for one that depends or is none."""
    found = {}
    for field in fields(Settings):
        default = None if field.default is MISSING else field.default
        key = "ledger" if field.name == "ledger_url" else field.name
        found[key] = duration_text(default) if hasattr(default, "total_seconds") else default
        found[key] = list(default) if isinstance(default, tuple) else found[key]
    for table in _TABLES:
        del found[table]
    return found


def _flat_defaults(keys: Keys) -> dict[str, Any]:
    return {
        path: list(key.default) if isinstance(key.default, tuple) else key.default for path, key in flattened_keys(keys)
    }


def _alert_defaults() -> dict[str, Any]:
    usual = Alerts()
    return {key: list(value) if isinstance(value := getattr(usual, key), tuple) else value for key in ALERT_KEYS}


def _local_defaults() -> dict[str, Any]:
    options = local_options("local", {})
    return {
        "watts": float(options.watts.value),
        "usd_per_kwh": float(options.usd_per_kwh.value),
        "interruption_notice": duration_text(options.notice),
        "machine_start_timeout": duration_text(options.start_timeout),
    }


CHECKS: tuple[Callable[[Page], Iterator[Fault]], ...] = (
    check_links,
    check_commands,
    check_codes,
    check_places,
    check_variables,
    check_settings,
)

if __name__ == "__main__":
    sys.exit(main())
