"""Which tests of the contract run in `make soak` alone where each takes half a second: real processes on real hosts."""

from __future__ import annotations

import pytest

# What the providers of clouds show as well, and other tests of these two.
LONG = {
    "TestSsh": """
        test_a_running_machine_is_billed test_a_token_of_64_characters_is_accepted
        test_another_token_makes_another_machine test_every_end_that_a_pass_decides_can_be_carried_out
        test_no_change_is_fine test_no_secret_is_in_a_repr
        test_ten_launches_at_once_make_ten_machines test_terminating_one_leaves_the_others
        test_terminating_twice_is_fine test_times_are_aware_utc test_what_is_unknown_can_neither_stop_nor_start
        test_what_is_unknown_cannot_be_tagged
    """.split(),
    "TestLocal": """
        test_another_token_makes_another_machine test_every_end_that_a_pass_decides_can_be_carried_out
        test_no_secret_is_in_a_repr test_ten_launches_at_once_make_ten_machines
        test_terminating_one_leaves_the_others test_times_are_aware_utc
    """.split(),
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if item.parent is not None and item.name in LONG.get(item.parent.name, ()):
            item.add_marker("soak")
