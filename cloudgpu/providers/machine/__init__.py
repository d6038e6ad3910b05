"""Programs that run on a cloud machine in addition to the agent, sent as text in its user data."""

from __future__ import annotations

from pathlib import Path


def source(name: str) -> str:
    """Return the text of the file `name` here as it is sent: a shell script without comments, to be short.

    EC2 accepts 16 kB of user data.
    """
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    if not name.endswith(".sh"):
        return text
    shebang, *lines = text.splitlines()
    code_lines = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    return "".join(f"{line}\n" for line in (shebang, *code_lines))
