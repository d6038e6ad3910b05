"""What every fault owes the user: one `error:` sentence, no traceback, the right exit code, one JSON document."""

from __future__ import annotations

import json


def check_said(done, *codes: int) -> str:
    """Check a failed command's text answer; return its sentence."""
    sentences = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert done.code in codes, (done.code, done.out, done.err)
    assert len(sentences) == 1, done.err
    assert "Traceback" not in done.err, done.err
    assert "A defect in cloudgpu" not in done.err, done.err
    assert sentences[0].endswith((".", "?", "!")), sentences
    return sentences[0].removeprefix("error: ")


def check_document(done, *codes: int) -> dict[str, str | None]:
    """Check a failed command's JSON answer: exactly one document, a way out in it; return the error."""
    assert done.code in codes, (done.code, done.out, done.err)
    assert "Traceback" not in done.err, done.err
    error = json.loads(done.out)["error"]
    assert error["next"], error
    return error
