"""The picture in the README shows what the program prints today, and needs nothing from elsewhere."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


sys.path.insert(0, str(ROOT / "docs"))
import picture  # noqa: E402  (docs/ is no package)


def test_the_picture_shows_what_the_program_prints():
    now = list(picture.told(picture.drawn(picture.run_all())))
    assert list(picture.told(picture.PICTURE.read_text())) == now, "run: python docs/picture.py"


def test_times_amounts_and_sizes_are_no_difference():
    def lines(*shown):
        return list(picture.told(picture.drawn([("cloudgpu cost", "\n".join(shown))])))

    one = lines("first: local, no GPU, 2 CPUs, 23.5 GiB", "first  0.02  $0.0002", "seen 1s ago", "(in 8h)")
    other = lines("first: local, RTX 3090, 8 CPUs, 64 GiB", "first  0.00  <$0.0001", "seen just now", "(in 7h 59m)")
    assert one == other
    assert one != lines("first: local, no GPU, 2 CPUs, 23.5 GiB", "first  0.02  $0.0002", "seen 1s ago", "(at 8h)")


def test_the_picture_needs_nothing_from_elsewhere():
    svg = picture.PICTURE.read_text()
    assert set(re.findall(r"https?://[^\"' )]+", svg)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<script|<image|@import|@font-face|href", svg)


def test_the_readme_shows_the_picture():
    assert f"]({picture.PICTURE.relative_to(ROOT)})" in (ROOT / "README.md").read_text()
