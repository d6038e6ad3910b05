"""What a home remembers of the accounts it has asked, and what a killed writer of that leaves."""

from __future__ import annotations

from cloudgpu.control.session.base import remember_identity, remembered_identities
from cloudgpu.core.model.identity import AccountIdentity


def test_what_a_killed_writer_left_goes_when_the_next_one_writes(lab):
    left = lab.home / ".identities.json.31844"
    left.write_text('{"at": [')
    remember_identity(lab.session, "lab", None, AccountIdentity("test-account", "one", "the account one"))
    assert not left.exists()
    assert [path.name for path in lab.home.glob(".identities*")] == []
    assert remembered_identities(lab.session)["lab"] == {"": ["test-account", "one"]}
