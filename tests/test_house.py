"""Holds the shape of the house: sizes of folders and modules, no circles, the order of packages, names of modules.

Each rule is a function that takes the directory of a package and returns its faults as sentences. Who may import whom
between the rooms is held by `tests/test_imports.py`.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parents[1] / "cloudgpu"
DESIGN = Path(__file__).parents[1] / "docs" / "design.md"

ORDER = {  # of the packages of a layer: each may import those before it; docs/design.md lists them in this order
    "core": (
        "values",
        "model",
        "catalog",
        "billing",
        "events",
        "activity",
        "policies",
        "clusters",
        "team",
        "alerts",
        "budgets",
        "reaper",
        "reconciliation",
        "resources",
        "launch",
        "spot",
        "jobs",
        "advice",
    ),
    "control": (
        "session",
        "inputs",
        "team",
        "pricing",
        "network",
        "inventory",
        "activity",
        "policies",
        "alerts",
        "outage",
        "budgets",
        "catalog",
        "access",
        "lifecycle",
        "clusters",
        "launch",
        "resources",
        "reaper",
        "advice",
        "cost",
        "spot",
        "jobs",
        "scheduler",
        "setup",
        "api",
    ),
}
MOST_MODULES = 15  # in a folder, its __init__.py aside
MOST_LINES, FEW_LINES, MOST_SMALL = 450, 60, 40
MOST_IN_AN_INIT = 75
LARGE = {
    "providers/ssh/host.py": "one text that is sent to a host",
}
SMALL = {  # what `ls` loads: merged with its neighbours it would bring their imports
    "catalog/location.py",
    "config/policies/choices.py",
}
LONG_INITS = {"__init__.py": 100, "testing/__init__.py": 100}  # faces for users and authors of providers
BANNED = frozenset(
    """alive anywhere aside asked bare door doors doubt even face heard hearing kept lane left nothing plainly promise
    promises relet retired shapes shelf sides spans standing strand strands stray strays thing things tidy told trees
    unbegun whole wish wishes words worked""".split()
)
ALLOWED_IN_A_NAME = {"left", "even", "whole", "nothing"}  # fine beside another word
FACES = {"__init__.py", "open.py", "app.py"}  # join what lies below them
CLOUDS = re.compile(r"providers/(aws|gcp|azure)\b")


class House(NamedTuple):
    """What is read of a package: the number of lines of each file, and which files each one imports."""

    lines: Mapping[str, int]
    imports: Mapping[str, frozenset[str]]


@cache
def read(package: Path) -> House:
    """Return what the rules look at. Files are named by their path below the package."""
    files = {path.relative_to(package).as_posix(): path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
    by_module = {module_of(package.name, name): name for name in files}
    imports = {name: _targets(package.name, name, text, by_module) for name, text in files.items()}
    return House({name: text.count("\n") for name, text in files.items()}, imports)


def module_of(root: str, name: str) -> str:
    parts = [root, *name.removesuffix(".py").split("/")]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _targets(root: str, name: str, text: str, by_module: Mapping[str, str]) -> frozenset[str]:
    tree = ast.parse(text)
    folder = [root, *name.split("/")[:-1]]
    named = [one for statement in _statements(tree.body) for one in _modules(statement, folder)]
    if "import_module" in text:
        named += _called(tree)
    found = (by_module.get(one) or by_module.get(one.rpartition(".")[0]) for one in named)
    return frozenset(one for one in found if one is not None and one != name)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield every statement, also those in functions and under TYPE_CHECKING."""
    for node in body:
        yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from _statements(getattr(node, part, []))


def _modules(node: ast.stmt, folder: list[str]) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    above = folder[: len(folder) - node.level + 1] if node.level else []
    base = ".".join((*above, *filter(None, [node.module])))
    return [f"{base}.{alias.name}" for alias in node.names]


def _called(tree: ast.AST) -> list[str]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    mine = [one for one in calls if getattr(one.func, "attr", getattr(one.func, "id", "")) == "import_module"]
    return [str(arg.value) for one in mine for arg in one.args if isinstance(arg, ast.Constant)]


def package_of(name: str) -> str:
    """Return the folder of a file; a face, a file of the root and a cloud's provider.py stand for themselves."""
    alone = Path(name).name in FACES or "/" not in name or re.fullmatch(r"providers/\w+/provider\.py", name)
    return name if alone else str(Path(name).parent)


def packages(house: House) -> dict[str, set[str]]:
    """Return which packages each one imports; those of one cloud may know each other."""
    graph: dict[str, set[str]] = defaultdict(set)
    for name, targets in house.imports.items():
        here, cloud = package_of(name), CLOUDS.match(package_of(name))
        graph[here] |= {
            there for there in map(package_of, targets) if there != here and not (cloud and there.startswith(cloud[0]))
        }
    return graph


def circles(graph: Mapping[str, set[str] | frozenset[str]]) -> list[str]:
    """Return circles of a graph, enough that each knot is named: one edge of each is taken away for the next."""
    rest, found = {node: set(targets) for node, targets in graph.items()}, []
    while len(found) < 20:
        try:
            TopologicalSorter(rest).prepare()
        except CycleError as fault:
            circle = fault.args[1]  # each is imported by the next
            found.append(" imports ".join(reversed(circle)))
            rest[circle[1]].discard(circle[0])
        else:
            break
    return found


# -- the rules


def large_folders(package: Path) -> list[str]:
    count = Counter(str(Path(name).parent) for name in read(package).lines if not name.endswith("__init__.py"))
    return [f"{folder} has {many} modules" for folder, many in sorted(count.items()) if many > MOST_MODULES]


def large_modules(package: Path) -> list[str]:
    return [
        f"{name} has {lines} lines"
        for name, lines in sorted(read(package).lines.items())
        if lines > (LONG_INITS.get(name, MOST_IN_AN_INIT) if name.endswith("__init__.py") else MOST_LINES)
        and name not in LARGE
    ]


def many_small_modules(package: Path) -> list[str]:
    lines, aside = read(package).lines, ("__init__.py", "__main__.py")
    small = sorted(name for name, many in lines.items() if many < FEW_LINES and not name.endswith(aside))
    small = [name for name in small if name not in SMALL]
    said = f"{len(small)} modules have fewer than {FEW_LINES} lines: {', '.join(small)}"
    return [said] if len(small) > MOST_SMALL else []


def circles_of_files(package: Path) -> list[str]:
    return circles(read(package).imports)


def circles_of_packages(package: Path) -> list[str]:
    return circles(packages(read(package)))


def packages_out_of_order(package: Path) -> list[str]:
    found = []
    for layer, order in ORDER.items():
        place = {f"{layer}/{name}": number for number, name in enumerate(order)}
        for name, targets in read(package).imports.items():
            here = "/".join(name.split("/")[:2])
            for target in targets if name.startswith(f"{layer}/") else ():
                there = "/".join(target.split("/")[:2])
                if here in place and there in place and place[there] > place[here]:
                    found.append(f"{name} imports {target}, whose package comes later")
    return sorted(found)


def packages_without_a_place(package: Path) -> list[str]:
    """Name the folders that the order does not have, and what it has that is no folder."""
    found = []
    for layer, order in ORDER.items():
        below = {name.split("/")[1] for name in read(package).lines if re.match(rf"{layer}/\w+/", name)}
        found += [f"{layer}/{name} has no place in the order" for name in sorted(below - set(order))]
        found += [f"{layer}/{name} has a place in the order and is not there" for name in sorted(set(order) - below)]
    return found


def names_of_the_house(package: Path) -> list[str]:
    """Name the modules that bear a word which nobody outside would search for."""
    stems = ((name, Path(name).stem) for name in read(package).lines)
    bad = BANNED - ALLOWED_IN_A_NAME
    return sorted(name for name, stem in stems if stem in BANNED or bad & set(stem.strip("_").split("_")))


RULES: tuple[Callable[[Path], list[str]], ...] = (
    large_folders,
    large_modules,
    many_small_modules,
    circles_of_files,
    circles_of_packages,
    packages_out_of_order,
    packages_without_a_place,
    names_of_the_house,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_house_keeps_its_rules(rule: Callable[[Path], list[str]]) -> None:
    assert rule(PACKAGE) == []


def test_an_exemption_is_of_a_file_that_is_there_and_needs_it() -> None:
    lines = read(PACKAGE).lines
    assert [name for name in LARGE if lines.get(name, 0) <= MOST_LINES] == []
    assert [name for name in SMALL if lines.get(name, FEW_LINES) >= FEW_LINES] == []


@pytest.mark.parametrize("layer", ORDER)
def test_the_page_of_the_design_lists_the_packages_in_this_order(layer: str) -> None:
    page = " ".join(DESIGN.read_text(encoding="utf-8").split())
    assert ", ".join(f"`{name}`" for name in ORDER[layer]) in page


# -- each rule finds what breaks it

GOOD = {
    "__init__.py": "from cloudgpu.errors import Fault\n",
    "errors.py": "class Fault: ...\n",
    **{f"{layer}/{name}/__init__.py": "" for layer, order in ORDER.items() for name in order},
    "core/values/money.py": "from cloudgpu.errors import Fault\n",
    "core/model/machine.py": "from cloudgpu.core.values import money\n",
    "control/session/session.py": "def f():\n    from cloudgpu.core.model.machine import Machine\n",
    "control/api/client.py": "from ..session.session import f\n",
    "providers/aws/ids.py": "",
    "providers/aws/compute/launch.py": "from cloudgpu.providers.aws.network.rules import Rule\n",
    "providers/aws/network/rules.py": "",
    "providers/aws/network/groups.py": "from cloudgpu.providers.aws.compute import listing\n",
    "providers/aws/compute/listing.py": "from cloudgpu.providers.aws.network import rules\n",
}
BAD = [
    (large_folders, {f"cli/verb{number}.py": "" for number in range(16)}, ["cli has 16 modules"]),
    (large_modules, {"cli/up.py": "\n" * 451}, ["cli/up.py has 451 lines"]),
    (large_modules, {"cli/__init__.py": "\n" * 76}, ["cli/__init__.py has 76 lines"]),
    (many_small_modules, {f"cli/v{n // 15}/a{n}.py": "" for n in range(41)}, ["modules have fewer than 60 lines"]),
    (circles_of_files, {"core/values/units.py": "import cloudgpu.core.values.times\n",
                        "core/values/times.py": "def f():\n    from . import units\n"},
     ["core/values/times.py imports core/values/units.py imports core/values/times.py"]),
    (circles_of_files, {"core/values/units.py": "if TYPE_CHECKING:\n    from cloudgpu.core.values.times import T\n",
                        "core/values/times.py": "import_module('cloudgpu.core.values.units')\n"},
     ["core/values/units.py"]),
    (circles_of_packages, {"config/settings.py": "from cloudgpu.config.money import fees\n",
                           "config/money/fees.py": "from cloudgpu.config.paths import Home\n", "config/paths.py": ""},
     ["config imports config/money imports config"]),
    (packages_out_of_order, {"core/values/units.py": "from cloudgpu.core.model.machine import Machine\n"},
     ["core/values/units.py imports core/model/machine.py, whose package comes later"]),
    (packages_out_of_order, {"control/session/locks.py": "def f():\n    from cloudgpu.control.api import client\n"},
     ["control/session/locks.py imports control/api/client.py, whose package comes later"]),
    (packages_without_a_place, {"core/misc/odd.py": ""}, ["core/misc has no place in the order"]),
    (names_of_the_house, {"core/values/end_words.py": ""}, ["core/values/end_words.py"]),
    (names_of_the_house, {"core/values/left.py": ""}, ["core/values/left.py"]),
]  # fmt: skip


def build(where: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = where / "cloudgpu" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return where / "cloudgpu"


def test_a_package_that_keeps_the_rules_has_no_fault(tmp_path: Path) -> None:
    package = build(tmp_path, GOOD)
    assert [fault for rule in RULES for fault in rule(package)] == []


@pytest.mark.parametrize(("rule", "files", "faults"), BAD)
def test_what_breaks_a_rule_is_found_by_it_alone(tmp_path, rule, files, faults) -> None:
    package = build(tmp_path, GOOD | files)
    found = rule(package)
    assert len(found) == len(faults), found
    assert all(said in one for said, one in zip(faults, found, strict=True)), found
    also = {circles_of_packages: {packages_out_of_order}, packages_out_of_order: {circles_of_packages}}.get(rule, set())
    assert [other.__name__ for other in RULES if other not in {rule, *also} and other(package)] == []
