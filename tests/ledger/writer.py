"""A process that writes lines until it is killed or done, and says which ones were acknowledged.

Arguments: directory, name, first number, how many; CLOUDGPU_LEDGER is the ledger's URL. Prints each number
after `append` has returned.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from cloudgpu.ledger.open import open_ledger
from tests.ledger.lines import note, seen


def main(directory: str, name: str, first: str, count: str) -> None:
    """Append one note and one observation in each transaction."""
    ledger = open_ledger(
        os.environ.get("CLOUDGPU_LEDGER"), Path(directory), actor=name, clock=lambda: datetime.now(UTC)
    )
    for number in range(int(first), int(first) + int(count)):
        ledger.append([note(number, f"scope:{name}"), seen(f"cg-{name}", "running", number)])
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
    ledger.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
