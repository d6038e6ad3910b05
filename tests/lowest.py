"""Says whether what is installed here is the lowest that pyproject.toml allows; `make lowest` runs it.

A bound that something else here asks more than is never installed, and so never tested: it has to be raised.
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TOOLS = ("all", "dev", "test")  # extras that are no part of what a user runs


def bounds() -> dict[str, str]:
    """Return the lower bound of each package that cloudgpu runs with."""
    extras = PROJECT["optional-dependencies"]
    lists = [PROJECT["dependencies"], *(wanted for extra, wanted in extras.items() if extra not in TOOLS)]
    found = (re.fullmatch(r"([\w-]+)(?:\[\w+\])?>=([\w.]+)(?:,.*)?", one) for wanted in lists for one in wanted)
    return {one[1]: one[2] for one in found if one}


def parts(text: str) -> list[int]:
    """Return a version's numbers without zeros at its end: 6.0.0 is 6."""
    numbers = [int(part) for part in re.findall(r"\d+", text)]
    while numbers and not numbers[-1]:
        numbers.pop()
    return numbers


def main() -> int:
    """Name each package whose lowest version is not what is here."""
    wrong = [(name, low, version(name)) for name, low in bounds().items() if parts(version(name)) != parts(low)]
    for name, low, here in wrong:
        sys.stderr.write(f"pyproject.toml allows {name} {low}, and {here} is the lowest that can be installed.\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
