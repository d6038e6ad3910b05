"""`cloudgpu doctor`."""

from __future__ import annotations

import os

import typer

from cloudgpu.cli.common import Format, Output, emit


def command(*, output: Output = Format.TEXT) -> None:
    """Check Python, files, settings, ledger, keys, installed extras and every configured account.

    Changes nothing. Exit code 0 when nothing stands in the way, else that of the gravest fault.
    """
    from cloudgpu.cli.render import facts
    from cloudgpu.control.doctor import Verdict, examine
    from cloudgpu.control.documents import examined

    checks = examine(os.environ)
    failed = [check for check in checks if check.verdict is Verdict.FAIL]
    lines = []
    for check in checks:
        mark = {"ok": "ok  ", "warn": "note", "fail": "FAIL"}[check.verdict]
        lines.append(facts([(f"{mark} {check.name:14}", check.said + (f" -> {check.next}" if check.next else ""))]))
    lines.append(
        f"{len(failed)} of {len(checks)} checks failed." if failed else "Nothing stands in the way. Try: cloudgpu demo"
    )
    emit(output, examined(checks), "\n".join(lines))
    codes = {check.exit_code for check in failed}
    if codes:
        raise typer.Exit(9 if 9 in codes else 8 if 8 in codes else max(codes))  # noqa: PLR2004
