"""Which words of `exec` are its own options, and which are the command's."""

from __future__ import annotations

import pytest

from cloudgpu.cli.access.exec import order_arguments
from cloudgpu.cli.common import NO_NAME


@pytest.mark.parametrize(
    ("typed", "ordered"),
    [
        ("fox --tty -- htop", "--tty fox -- htop"),
        ("fox --all-nodes --no-tty -- ls", "--all-nodes --no-tty fox -- ls"),
        ("--tty fox htop --tty", "--tty fox htop --tty"),
        ("fox -- --tty", "fox -- --tty"),
        ("-- htop --tty", f"{NO_NAME} -- htop --tty"),
        ("fox", "fox"),
        ("", ""),
    ],
)
def test_options_of_exec_may_follow_the_name_and_the_commands_stay_its_own(typed, ordered):
    assert order_arguments(typed.split()) == ordered.split()
