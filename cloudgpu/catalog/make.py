"""Makes catalog.json from facts/*.csv and checks it: `python -m cloudgpu.catalog.make [--check | --take DIR]`."""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cloudgpu.catalog import rules
from cloudgpu.catalog.checks import catalogue_errors, facts_errors, unconfirmed_prices
from cloudgpu.catalog.compiled import Catalogue, Facts, compile_catalogue

CATALOG_DIRECTORY = Path(__file__).parent
COPIED_TABLES = ("gpus", "gpu_instances", "prices", "storage_prices", "quotas")
HAND_EDITED_TABLES = (
    "drivers",
    "machine_images",
    "history",
    "storage_regions",
    "confirmations",  # prices that a newer source confirms
    "networks",
    "spot_interruption",
    "flat_price_clouds",  # clouds whose machine types have one price in every region
)  # edited here, so they have no source to copy from


def main(argv: Sequence[str] | None = None) -> int:
    """Make the catalogue, or with --check only compare; return 1 and print every error if there are any."""
    parser = argparse.ArgumentParser(prog="python -m cloudgpu.catalog.make", description=__doc__)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true", help="change nothing; fail when catalog.json is not current")
    mode.add_argument("--take", metavar="DIR", type=Path, help="take the facts again from this directory first")
    parser.add_argument(
        "--here", metavar="DIR", type=Path, default=CATALOG_DIRECTORY, help="where facts/ and catalog.json are"
    )
    options = parser.parse_args(argv)
    if options.take:
        empty_tables = copy_facts(options.take, options.here / "facts")
        if empty_tables:
            sys.stderr.write(f"{options.take}: nothing to take from {', '.join(empty_tables)}; no table was changed\n")
            return 1
    facts = read_facts(options.here / "facts")
    errors = [*facts_errors(facts)]
    if not errors:
        catalogue = compile_catalogue(facts)
        errors = [*catalogue_errors(catalogue), *unconfirmed_prices(facts)] or _write(
            catalogue, options.here / "catalog.json", check=options.check
        )
    for error in errors:
        sys.stderr.write(f"{error}\n")
    return 1 if errors else 0


def _write(catalogue: Catalogue, file: Path, *, check: bool) -> list[str]:
    text = as_text(catalogue)
    if not check:
        file.write_text(text, encoding="utf-8")
    elif not file.exists() or file.read_text(encoding="utf-8") != text:
        return [f"{file.name} is not what the facts make: run python -m cloudgpu.catalog.make"]
    return []


def read_facts(directory: Path) -> Facts:
    """Return the rows of every table of facts in a directory."""
    return rules.add_flat_price_clouds(
        {name: read_table(directory / f"{name}.csv") for name in (*COPIED_TABLES, *HAND_EDITED_TABLES)}
    )


def read_table(file: Path) -> list[rules.CsvRow]:
    """Return the rows of one CSV file."""
    with file.open(encoding="utf-8", newline="") as text:
        return list(csv.DictReader(text))


def copy_facts(source: Path, target: Path) -> list[str]:
    """Copy the rows of `rules.PROVIDERS_LISTED_BY_REGION`, in regions that anyone may use, to `target`.

    Where that leaves a table without rows, nothing is copied; returns the files of such tables.
    """
    tables = {
        f"{name}.csv": [
            row
            for row in read_table(source / f"{name}.csv")
            if rules.is_supported(row) and row.get("cloud", "aws") in rules.PROVIDERS_LISTED_BY_REGION
        ]
        for name in COPIED_TABLES
    }
    empty_tables = [file_name for file_name, rows in tables.items() if not rows]
    if not empty_tables:
        target.mkdir(parents=True, exist_ok=True)
        for file_name, rows in tables.items():
            (target / file_name).write_text(_as_csv(rows), encoding="utf-8", newline="")
    return empty_tables


def _as_csv(rows: list[rules.CsvRow]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        row | {"source": rules.without_search_notes(row["source"])} if "source" in row else row for row in rows
    )
    return text.getvalue()


def as_text(catalogue: Catalogue) -> str:
    """Return the catalogue as JSON with one line per type, so that a diff can be read."""
    parts = [f"{json.dumps(key)}: {_json_lines(value)}" for key, value in catalogue.items()]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _json_lines(value: Any, depth: int = 2) -> str:
    if depth and isinstance(value, dict) and value:
        lines = [f"{json.dumps(key)}: {_json_lines(item, depth - 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(lines) + "\n}"
    if depth and isinstance(value, list) and value:
        return "[\n" + ",\n".join(_json_lines(item, 0) for item in value) + "\n]"
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


if __name__ == "__main__":
    sys.exit(main())
