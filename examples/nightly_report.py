"""Ends what nobody uses, checks the budgets, and writes the report of the last seven days.

For cron, each night:

    python nightly_report.py report.html

It prints what has changed. Its exit code is 0, or that of the reaper's run: 8 where an account did not answer, 9 where
a stop could not be proved.
"""

from __future__ import annotations

import sys
from decimal import Decimal
from pathlib import Path

import cloudgpu


def main(path: str) -> int:
    """Do the night's work; return the exit code."""
    with cloudgpu.connect() as gpu:
        run = gpu.automation.reap(nightly=True)
        for end in run["ended"]:
            print(f"ended {end['name']}: {end['why']}")
        for gap in run["unanswered"]:
            print(f"no answer from {gap['scope']}: {gap['why']}")
        for name in gpu.money.check_budgets()["exhausted"]:
            print(f"the budget {name} is exhausted")
        report = gpu.money.report(to=Path(path), since="7d")
        total = report["total"]["usd"]  # exact, as text; None where a price is missing
        print(f"{'an unknown sum of' if total is None else round(Decimal(total), 2)} USD in seven days: {path}")
        for sentence in report["summary"]:
            print(sentence)
    return run["exit_code"]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python nightly_report.py FILE")
    try:
        sys.exit(main(sys.argv[1]))
    except cloudgpu.CloudgpuError as error:
        print(f"error: {error.message} {error.next or ''}", file=sys.stderr)
        sys.exit(error.exit_code)
