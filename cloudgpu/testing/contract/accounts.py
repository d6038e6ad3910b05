"""What a provider promises about an account: its regions, its limits, what its credential may do."""

# ruff: noqa: S101  (a suite is asserts, and one class with many tests)

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import cast

import pytest

from cloudgpu.core.model.account import BudgetAlert, ProviderRole, Quota
from cloudgpu.core.model.offers import Requirements
from cloudgpu.core.values.money import Money
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.account_abilities import (
    ChecksPermissions,
    Examines,
    HasBudgetAlert,
    HasLogin,
    HasMachineRole,
    HasQuota,
    HasRegions,
    HasTimerRole,
    NarrowsSsh,
    RaisesQuota,
    ReadsCredit,
    Registers,
)
from cloudgpu.providers.base import Factory, Provider, ProviderSettings
from cloudgpu.testing.contract.base import ContractBase

HIGHEST_PORT = 65535


class HasRegionsContract(ContractBase):
    """An account's regions have names and an address to connect to."""

    def test_each_region_has_an_endpoint_of_its_own_name(self, provider: Provider) -> None:
        """A host and a port that can be connected to; no region twice."""
        regions = list(cast("HasRegions", provider).regions())
        assert regions
        assert len({region.name for region in regions}) == len(regions)
        assert all(region.name and region.host and 0 < region.port <= HIGHEST_PORT for region in regions)

    def test_what_is_available_lies_in_a_region(self, provider: Provider) -> None:
        """Offers and regions use the same names."""
        names = {region.name for region in cast("HasRegions", provider).regions()}
        assert {configuration.region for configuration in provider.available(Requirements()).items} <= names


class QuotasBase(ContractBase):
    """What both suites about quotas use."""

    def list_quotas(self, provider: Provider) -> list[Quota]:
        """Return the quotas of the first region where something is available."""
        region = min(configuration.region for configuration in provider.available(Requirements()).items)
        listed_quotas = list(cast("HasQuota", provider).quotas(region))
        assert {(quota.provider, quota.account, quota.region) for quota in listed_quotas} == {
            (provider.kind, provider.account, region)
        }
        return listed_quotas


class HasQuotaContract(QuotasBase):
    """An account's quotas are read, with the page on which a person requests a higher one."""

    def test_a_limit_says_what_it_counts(self, provider: Provider) -> None:
        """Each quota has a code of its own, a name, a unit, and no negative number."""
        listed_quotas = self.list_quotas(provider)
        assert len({quota.code for quota in listed_quotas}) == len(listed_quotas)
        for quota in listed_quotas:
            assert quota.name
            assert quota.unit
            assert all(figure is None or figure >= 0 for figure in (quota.limit, quota.used))

    def test_nothing_is_used_in_an_empty_account(self, provider: Provider) -> None:
        """`used` is 0, or None where it is not known."""
        assert {quota.used for quota in self.list_quotas(provider)} <= {0, None}

    def test_each_limit_has_a_page_of_its_own(self, provider: Provider) -> None:
        """There a person requests a higher quota; its address is https."""
        listed_quotas = self.list_quotas(provider)
        pages = {cast("HasQuota", provider).quota_page(quota.region, quota.code) for quota in listed_quotas}
        assert all(page.startswith("https://") for page in pages)


class RaisesQuotaContract(QuotasBase):
    """A higher quota can be requested; a request launches nothing and lowers no quota."""

    def test_a_higher_limit_can_be_requested(self, provider: Provider) -> None:
        """The request has an id, and the present limit is not lowered."""
        quota = self.list_quotas(provider)[0]
        request_id = cast("RaisesQuota", provider).request_quota(quota.region, quota.code, (quota.limit or 0) + 8)
        assert request_id
        quota_now = next(
            current_quota for current_quota in self.list_quotas(provider) if current_quota.code == quota.code
        )
        assert (quota_now.limit or 0) >= (quota.limit or 0)

    def test_a_limit_that_is_none_cannot_be_raised(self, provider: Provider) -> None:
        """A mistyped code is refused."""
        quota = self.list_quotas(provider)[0]
        with pytest.raises(InvalidRequest):
            cast("RaisesQuota", provider).request_quota(quota.region, "L-00000000", 8)


class HasLoginContract(ContractBase):
    """A credential is described, with its expiry if it has one; reading it changes nothing."""

    def test_a_credential_is_described_with_its_expiry(self, provider: Provider) -> None:
        """A credential that lasts has no expiry; an expiry is an aware time."""
        login = cast("HasLogin", provider).login()
        assert login.what.strip()
        assert login.lasts in (True, False, None)
        assert login.until is None or (login.until.tzinfo is not None and login.lasts is not True)

    def test_asking_twice_says_the_same(self, provider: Provider) -> None:
        """It renews nothing and logs in nowhere."""
        assert cast("HasLogin", provider).login() == cast("HasLogin", provider).login()


class ChecksPermissionsContract(ContractBase):
    """What the credential may do is known without doing it."""

    def test_every_action_is_named_with_its_use(self, provider: Provider) -> None:
        """No action twice; what is not known says why."""
        permissions = list(cast("ChecksPermissions", provider).permissions())
        assert permissions
        assert len({permission.action for permission in permissions}) == len(permissions)
        assert all(permission.action and permission.used_for for permission in permissions)
        assert all(permission.unknown_reason for permission in permissions if permission.allowed is None)

    def test_a_credential_that_may_do_everything_is_denied_nothing(self, provider: Provider) -> None:
        """The tests of a provider run under one that may."""
        permissions = cast("ChecksPermissions", provider).permissions()
        assert [permission.action for permission in permissions if permission.allowed is False] == []
        assert any(permission.allowed for permission in permissions)

    def test_asking_makes_nothing(self, provider: Provider) -> None:
        """No machine is there after it."""
        cast("ChecksPermissions", provider).permissions()
        assert self.list_living(provider) == []


class RoleBase(ContractBase):
    """What the suites about the roles of machines and of timers share."""

    def check_made_once(
        self, read: Callable[[], ProviderRole], make: Callable[[], None], remove: Callable[[], None]
    ) -> None:
        """Check that creating the role twice and deleting it twice is no error, and that all its parts come and go.

        A part that exists before is somebody else's: then this fails, and changes nothing.
        """
        existing = [part.name for part in read().parts if part.exists]
        assert existing == [], f"{', '.join(existing)} existed before: the test would delete it"
        try:
            for _ in range(2):
                make()
                assert all(part.exists and part.is_ours for part in read().parts)
        finally:
            remove()
        for _ in range(2):
            assert not any(part.exists for part in read().parts)
            remove()

    def check_not_made(self, read: Callable[[], ProviderRole]) -> None:
        """Check that reading a role creates nothing, and names its parts and its place."""
        for _ in range(2):
            role = read()
            assert [part for part in role.parts if part.exists] == []
            assert role.account
            assert role.parts
            assert all(part.description and part.name for part in role.parts)


class HasMachineRoleContract(RoleBase):
    """The role of machines is created once, read, and deleted with all its parts."""

    # The policy of the role, in the language of the cloud
    policy_document = (
        '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "ec2:CreateTags", "Resource": "*"}]}'
    )

    def test_a_role_that_was_not_made_is_not_there(self, provider: Provider) -> None:
        """Reading it creates nothing; its parts and its place are shown before it is created."""
        role = cast("HasMachineRole", provider)
        self.check_not_made(partial(role.machine_role, self.policy_document))

    def test_a_role_is_made_once_and_taken_away_whole(self, provider: Provider) -> None:
        """Creating it twice and deleting it twice is no error."""
        role, document = cast("HasMachineRole", provider), self.policy_document
        self.check_made_once(
            partial(role.machine_role, document), partial(role.make_machine_role, document), role.remove_machine_role
        )


class HasBudgetAlertContract(ContractBase):
    """The provider's own budget is created, read, changed and deleted."""

    def test_a_budget_alert_that_was_not_made_is_not_there(self, provider: Provider) -> None:
        """Reading it creates nothing."""
        for _ in range(2):
            assert cast("HasBudgetAlert", provider).budget_alert() is None

    def test_a_budget_alert_is_as_it_was_set_last(self, provider: Provider) -> None:
        """With its amount to the cent and its recipients; setting or deleting it twice is no error.

        An alert that exists before is somebody else's: then this fails, and changes nothing.
        """
        alerts = cast("HasBudgetAlert", provider)
        assert alerts.budget_alert() is None, "the account has a budget alert: the test would replace and delete it"
        try:
            for alert in (
                BudgetAlert(Money.usd("300"), ("ada@example.org",)),
                BudgetAlert(Money.usd("49.99"), ("ada@example.org", "lab@example.org")),
            ):
                for _ in range(2):
                    alerts.set_budget_alert(alert)
                    assert alerts.budget_alert() == alert
        finally:
            alerts.remove_budget_alert()
        for _ in range(2):
            assert alerts.budget_alert() is None
            alerts.remove_budget_alert()


class HasTimerRoleContract(RoleBase):
    """The role of timers is created once, read, and deleted with all its parts."""

    # The policy of the role, in the language of the cloud
    timer_policy_document = (
        '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "ec2:StopInstances", "Resource": "*"}]}'
    )

    def test_a_timer_role_that_was_not_made_is_not_there(self, provider: Provider) -> None:
        """Reading it creates nothing; each part has a name and a description."""
        role = cast("HasTimerRole", provider)
        self.check_not_made(partial(role.timer_role, self.timer_policy_document))

    def test_a_timer_role_is_made_once_and_taken_away_whole(self, provider: Provider) -> None:
        """Creating it twice and deleting it twice is no error."""
        role, document = cast("HasTimerRole", provider), self.timer_policy_document
        self.check_made_once(
            partial(role.timer_role, document), partial(role.make_timer_role, document), role.remove_timer_role
        )


class ReadsCreditContract(ContractBase):
    """The remaining credit of a prepaid account is read without changing it."""

    def test_the_credit_says_what_is_left_since_when_and_where_to_pay(self, provider: Provider) -> None:
        """The time is aware UTC, an hour's cost is not negative, and there is a page for payments.

        The account of the tests is paid in advance.
        """
        credit = cast("ReadsCredit", provider).credit()
        assert credit is not None
        assert credit.as_of.utcoffset() == timedelta(0)
        assert credit.spent_per_hour is None or credit.spent_per_hour >= Money(0)
        assert credit.threshold <= Money(0) or credit.threshold <= credit.remaining
        assert credit.payment_page.startswith("https://")

    def test_reading_the_credit_twice_spends_nothing_of_it(self, provider: Provider) -> None:
        """It is read at each plan, launch and run of the reaper; machines that run may cost meanwhile."""
        credit_reader = cast("ReadsCredit", provider)
        first, second = credit_reader.credit(), credit_reader.credit()
        assert first is not None
        assert second is not None
        assert second.remaining <= first.remaining
        assert second.payment_page == first.payment_page
        assert second.as_of >= first.as_of


class RegistersContract(ContractBase):
    """Only a launch and `init` register an account; its identity is the same before and after."""

    def test_the_identity_before_is_that_after_and_registering_twice_is_fine(
        self, provider: Provider, factory: Factory, settings: ProviderSettings
    ) -> None:
        """Also for another process, and for another computer once it is registered."""
        registrar = cast("Registers", provider)
        identity_before = provider.identity()
        registered = registrar.is_registered()
        assert factory(settings).identity() == identity_before
        assert cast("Registers", factory(settings)).is_registered() == registered
        identities = [registrar.register(), registrar.register()]
        assert registrar.is_registered()
        elsewhere = factory(replace(settings, home=settings.home.with_name("elsewhere")))
        assert {(identity.kind, identity.id) for identity in (identity_before, *identities, elsewhere.identity())} == {
            (identity_before.kind, identity_before.id)
        }


class NarrowsSshContract(ContractBase):
    """SSH is open to the networks that were named, and to no others, on all machines of the account."""

    def test_only_the_networks_that_were_named_last_get_in(self, provider: Provider) -> None:
        """Networks named before are removed; the same call twice is no error.

        Afterwards the networks that were let in before are let in again.
        """
        firewall = cast("NarrowsSsh", provider)
        cidrs_before = list(firewall.ssh_sources())
        try:
            for cidrs in (["203.0.113.7/32"], ["203.0.113.7/32"], ["192.0.2.0/24", "198.51.100.9/32"]):
                firewall.narrow_ssh(cidrs)
                assert sorted(firewall.ssh_sources()) == cidrs
        finally:
            firewall.narrow_ssh(cidrs_before)
        assert sorted(firewall.ssh_sources()) == sorted(cidrs_before)


class ExaminesContract(ContractBase):
    """What an account lacks is reported with a remedy, and reading it changes nothing."""

    def test_every_finding_says_what_it_found(self, provider: Provider) -> None:
        """And what to do where something is wrong."""
        findings = list(cast("Examines", provider).findings())
        assert findings
        assert len({finding.what for finding in findings}) == len(findings)
        for finding in findings:
            assert finding.what
            assert finding.message
            assert finding.is_ok or finding.next

    def test_looking_twice_finds_the_same(self, provider: Provider) -> None:
        """Reading them repairs nothing."""
        examiner = cast("Examines", provider)
        assert list(examiner.findings()) == list(examiner.findings())

    def test_looking_makes_nothing(self, provider: Provider) -> None:
        """No machine is launched to try something."""
        list(cast("Examines", provider).findings())
        assert self.list_living(provider) == []
