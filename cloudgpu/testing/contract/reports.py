"""What a provider promises that asks machines, or the account, for what no listing tells."""

# ruff: noqa: S101  (a suite is asserts, and one class with many tests)

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from cloudgpu.core.model.instances import State
from cloudgpu.errors import InstanceNotFound
from cloudgpu.providers.abilities import Pausable, ReadsHostKeys, ReportsActivity
from cloudgpu.providers.account_abilities import Examines, NarrowsSsh
from cloudgpu.providers.base import Provider, ProviderSettings
from cloudgpu.testing.contract.base import ContractBase, MakeAttempt


class ReportsActivityContract(ContractBase):
    """A machine's own word of its use is its own: never another's, and nothing where it has said nothing."""

    def report_use(self, provider: Provider, id: str, at: datetime) -> None:  # noqa: A002
        """Make the machine report that it was in use at `at`; every test class has to override this."""
        raise NotImplementedError

    def test_a_machine_tells_when_it_was_in_use(
        self, provider: Provider, make_attempt: MakeAttempt, settings: ProviderSettings
    ) -> None:
        """To the second; one that has said nothing is not idle, and not in use."""
        busy, silent = (self.launch_and_wait(provider, make_attempt(key=key)) for key in ("busy", "silent"))
        at = (busy.launched_at or settings.clock()).replace(microsecond=0) + timedelta(seconds=1)
        self.report_use(provider, busy.id, at)
        found = cast("ReportsActivity", provider).activity([busy.id, silent.id])
        assert dict(found) == {busy.id: at, silent.id: None}

    def test_what_is_unknown_says_so_in_its_place(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """One that is gone keeps no other one from being heard."""
        made = self.launch_and_wait(provider, make_attempt())
        unknown = made.id[:-4] + "0000"
        found = cast("ReportsActivity", provider).activity([unknown, made.id])
        assert isinstance(found[unknown], InstanceNotFound)
        assert found[made.id] is None

    def test_no_ids_need_no_call(self, provider: Provider) -> None:
        """No machine is not all machines."""
        assert dict(cast("ReportsActivity", provider).activity([])) == {}


class ReadsHostKeysContract(ContractBase):
    """A machine's own host keys are read where nobody in between can change them."""

    def report_host_keys(self, provider: Provider, id: str) -> None:  # noqa: A002
        """Make the machine report its host keys, as at the first boot; every test class has to override this."""
        raise NotImplementedError

    def test_a_machine_tells_its_host_keys_once_it_has_some(
        self, provider: Provider, make_attempt: MakeAttempt
    ) -> None:
        """None before; then OpenSSH lines, the same at each look, which no other machine shows."""
        reader = cast("ReadsHostKeys", provider)
        first, second = (self.launch_and_wait(provider, make_attempt(key=key)) for key in ("first", "second"))
        assert list(reader.host_keys(first.id)) == []
        self.report_host_keys(provider, first.id)
        self.wait_until(lambda: bool(reader.host_keys(first.id)))
        lines = list(reader.host_keys(first.id))
        assert [self.algorithm(line) for line in lines] == [line.split(" ")[0] for line in lines]
        assert list(reader.host_keys(first.id)) == lines
        assert list(reader.host_keys(second.id)) == []

    def test_a_key_that_is_new_after_a_start_is_shown(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """So that whoever pinned the one before can say that it has changed; what never stops keeps the one it has."""
        reader = cast("ReadsHostKeys", provider)
        made = self.launch_and_wait(provider, make_attempt())
        self.report_host_keys(provider, made.id)
        self.wait_until(lambda: bool(reader.host_keys(made.id)))
        before = list(reader.host_keys(made.id))
        if not isinstance(provider, Pausable):
            self.let_time_pass(provider, made.launched_at or datetime.now(UTC))
            assert list(reader.host_keys(made.id)) == before
            return
        provider.stop(made.id)
        self.wait_for_state(provider, made.id, State.STOPPED)
        provider.start(made.id)
        self.wait_for_state(provider, made.id, State.RUNNING)
        self.report_host_keys(provider, made.id)
        self.wait_until(lambda: bool(set(reader.host_keys(made.id)) - set(before)))

    def test_what_is_unknown_has_no_host_key(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """No key yet is not the same as no machine."""
        unknown = self.launch(provider, make_attempt()).id[:-4] + "0000"
        with pytest.raises(InstanceNotFound):
            cast("ReadsHostKeys", provider).host_keys(unknown)

    def algorithm(self, line: str) -> str:
        """Return the name that the key itself carries: a length and a name lead the blob (RFC 4253, 6.6)."""
        blob = base64.b64decode(line.split(" ")[1], validate=True)
        return blob[4 : 4 + int.from_bytes(blob[:4], "big")].decode()


class NarrowsSshContract(ContractBase):
    """SSH is open to whom a person has named, and to nobody else, on all machines of the account."""

    def test_only_the_networks_that_were_named_last_get_in(self, provider: Provider) -> None:
        """Those named before do not stay; asking twice is fine."""
        door = cast("NarrowsSsh", provider)
        for wanted in (["203.0.113.7/32"], ["203.0.113.7/32"], ["192.0.2.0/24", "198.51.100.9/32"]):
            door.narrow_ssh(wanted)
            assert sorted(door.ssh_sources()) == wanted


class ExaminesContract(ContractBase):
    """What an account lacks is told with the way out, and looking changes nothing."""

    def test_every_finding_says_what_it_found(self, provider: Provider) -> None:
        """And what to do, where it is not good."""
        found = list(cast("Examines", provider).findings())
        assert found
        assert len({one.what for one in found}) == len(found)
        for one in found:
            assert one.what
            assert one.says
            assert one.good or one.next

    def test_looking_twice_finds_the_same(self, provider: Provider) -> None:
        """It repairs nothing."""
        examiner = cast("Examines", provider)
        assert list(examiner.findings()) == list(examiner.findings())

    def test_looking_makes_nothing(self, provider: Provider) -> None:
        """No machine to try something out."""
        list(cast("Examines", provider).findings())
        assert self.list_living(provider) == []
