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


def luminance(colour):
    """Return what WCAG 2 calls the relative luminance of `#rrggbb`."""
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_every_text_of_the_picture_is_readable_on_its_own_ground():
    svg = picture.PICTURE.read_text()
    ground = re.search(r'<rect fill="(#\w{6})" stroke=', svg)[1]
    inks = re.findall(r"\.terminal-r\d+ \{ fill: (#\w{6})", svg)
    assert len(inks) > 3
    for ink in inks:
        light, dark = sorted((luminance(ink), luminance(ground)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, ink


def test_the_readme_shows_the_picture():
    assert f"]({picture.PICTURE.relative_to(ROOT)})" in (ROOT / "README.md").read_text()
