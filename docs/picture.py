"""Makes docs/images/terminal.svg, the picture in the README, from a real run on the local provider.

`python docs/picture.py` runs the commands of `COMMANDS` on a terminal of 80 columns, with a home of its own, and writes
what they print. `tests/docs/test_picture.py` runs them again, and compares all but times, amounts and sizes.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from xml.etree import ElementTree as ET

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "terminal.svg"
COMMANDS = ("up --name first", "ls", "cost", "down")
COLUMNS, ROWS = 80, 60
ASKS = b"[y/N] "
FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"
# A dark window of its own: it is as readable on a light page as on a dark one.
THEME = TerminalTheme(
    (13, 17, 23),
    (230, 237, 243),
    [(72, 79, 88), (255, 123, 114), (63, 185, 80), (210, 153, 34),
     (88, 166, 255), (188, 140, 255), (57, 197, 207), (177, 186, 196)],
)  # fmt: skip
SVG = "{http://www.w3.org/2000/svg}"

# What differs between two runs: times, amounts, sizes, and the computer that they ran on.
_MASKS = (
    (re.compile(r"(first: local), .*"), r"\1, HERE"),
    (re.compile(r"<?\$\d[\d,.]*(?: to \$\d[\d,.]*)?"), "$"),
    (re.compile(r"\d+[smhd](?: \d+[smhd])?|just now"), "SPAN"),
    (re.compile(r"\d[\d.:-]*"), "0"),
    (re.compile(r"SPAN ago"), "SPAN"),
)


def main() -> int:
    """Write the picture."""
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(drawn(run_all()), encoding="utf-8")
    return 0


def run_all() -> list[tuple[str, str]]:
    """Return each command with what it showed on a terminal. Its machine is gone afterwards, whatever happens."""
    with tempfile.TemporaryDirectory(prefix="cloudgpu-picture-") as home:
        usual = {key: value for key, value in os.environ.items() if not key.startswith("CLOUDGPU_")}
        usual |= {"CLOUDGPU_HOME": home, "TERM": "xterm-256color", "FORCE_COLOR": "1"}
        environ = {key: value for key, value in usual.items() if key not in ("NO_COLOR", "COLUMNS")}
        try:
            return [(f"cloudgpu {words}", shown_by(words.split(), environ)) for words in COMMANDS]
        finally:
            ends = [sys.executable, "-m", "cloudgpu", "down", "--all", "--yes"]
            subprocess.run(ends, env=environ, cwd=ROOT, capture_output=True, check=True)


def shown_by(words: list[str], environ: Mapping[str, str]) -> str:
    """Return what a command leaves on a terminal, with its colours; its questions are answered with yes."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    argv = [sys.executable, "-m", "cloudgpu", *words]
    with subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, env=environ, cwd=ROOT) as process:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # the program has closed its side
            while more := os.read(ours, 4096):
                shown += more
                if shown.endswith(ASKS):
                    os.write(ours, b"y\n")
    os.close(ours)
    if process.returncode:
        raise SystemExit(f"cloudgpu {' '.join(words)} exits with {process.returncode}:\n{shown.decode()}")
    return "\n".join(_left_of(line) for line in shown.decode().rstrip().split("\r\n"))


def _left_of(line: str) -> str:
    """Return what stays of a line: the spinner draws, and clears the line before the next text."""
    return line.rpartition("\x1b[K")[2].strip("\r")


def drawn(run: list[tuple[str, str]]) -> str:
    """Return the run as a picture that needs nothing from elsewhere: no font, no script."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for number, (command, shown) in enumerate(run):
        if number:
            console.print()
        console.print(Text.assemble(("$ ", "dim"), (command, "bold")))
        console.print(Text.from_ansi(shown))
    svg = console.export_svg(title="cloudgpu on this computer", theme=THEME, unique_id="terminal")
    svg = re.sub(r"\s*(?:@font-face \{.*?\}|<!--.*?-->)", "", svg, flags=re.DOTALL)
    svg = svg.replace("Fira Code, monospace", FONTS)
    return "".join(f"{line.rstrip()}\n" for line in svg.splitlines() if line.strip())


def told(svg: str) -> Iterator[str]:
    """Yield the lines of a picture, without what differs between two runs."""
    rows: dict[str, list[str]] = {}
    for text in ET.fromstring(svg).iter(f"{SVG}text"):  # noqa: S314  (a file of our own)
        rows.setdefault(text.get("clip-path", ""), []).append(text.text or "")
    for parts in rows.values():
        line = " ".join("".join(parts).split())
        for what, mask in _MASKS:
            line = what.sub(mask, line)
        if line:
            yield line


if __name__ == "__main__":
    sys.exit(main())
