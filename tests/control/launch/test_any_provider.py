"""`--provider any`: the cheapest of all accounts, never two machines, and nobody passed over without a word."""

from __future__ import annotations

import resource
from datetime import timedelta

import pytest

from cloudgpu.control.budgets.commands import BudgetOptions, budget_of_options
from cloudgpu.control.budgets.store import set_budget
from cloudgpu.control.catalog.market import parse_filters
from cloudgpu.control.inputs.launch_request import UpRequest
from cloudgpu.control.launch.budget_preview import budgets_document, build_plan_document
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.plan import prepare
from cloudgpu.control.lifecycle.lifecycle import terminate_one
from cloudgpu.control.resources.named import save_image
from cloudgpu.control.session.accounts import account_of
from cloudgpu.control.setup.init import parse_setup_value
from cloudgpu.core.model.instances import TAG_ID, TAG_IMAGE, TAG_VOLUME
from cloudgpu.core.model.launch import Network, Setup, Volume
from cloudgpu.core.model.offers import Market, Requirements
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import (
    AuthFailed,
    BudgetRefused,
    EndRefused,
    InvalidRequest,
    LaunchUncertain,
    NoCapacity,
    ProviderUnavailable,
    QuotaExceeded,
    StopUnproved,
)
from cloudgpu.testing import FAKE, write_plugin
from tests.address_service import AddressService
from tests.control.conftest import Lab

pytestmark = pytest.mark.usefixtures("no_bytecode")  # a limit on files would cut it off

TYPE = "fake.v100.1"
DOLLARS = {"dear": 9, "fair": 3, "cheap": 2}


class Labs(Lab):
    """A user of three accounts of the fake cloud, each with its own price of a V100."""

    def __init__(self, tmp_path, monkeypatch, head='provider = "any"', options=""):
        for name in ("AWS_ACCESS_KEY_ID", "GOOGLE_APPLICATION_CREDENTIALS", "AZURE_CLIENT_ID"):
            monkeypatch.delenv(name, raising=False)
        for name in ("CLOUDGPU_GCP_ENDPOINT", "CLOUDGPU_AZURE_ENDPOINT"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", str(tmp_path))
        super().__init__(tmp_path, monkeypatch)
        tables = [
            f'[accounts.{name}]\nprovider = "fake"\nstate_file = "{tmp_path / name}.json"\n'
            f'prices = {{ "{TYPE}" = {usd} }}\n{options}\n'
            for name, usd in DOLLARS.items()
        ]
        (self.home / "config.toml").write_text(f"{head}\n" + "".join(tables))
        self.session = self.opened()

    def __getattr__(self, name):
        if name in DOLLARS:
            return self.session.provider(name)
        raise AttributeError(name)

    @property
    def clouds(self):
        return {name: self.session.provider(name) for name in DOLLARS}

    def prepare(self, *, gpu="v100", **more):
        want = Requirements(gpu=gpu, region=more.pop("region", None), max_price=more.pop("max_price", None))
        return prepare(self.session, UpRequest(want, **more))

    def there(self):
        """Where machines cost money, whatever the ledger says."""
        return sorted(name for name, one in self.clouds.items() for each in one.list().instances if each.billed)

    def full(self, *accounts):
        for account in accounts:
            for zone in ("north-a", "north-b", "south-a", "south-b"):
                self.session.provider(account).exhaust(zone)


@pytest.fixture
def labs(tmp_path, monkeypatch):
    return Labs(tmp_path, monkeypatch)


def accounts(prepared):
    return list(dict.fromkeys(offer.configuration.account for offer in prepared.offers))


def test_the_offers_of_all_accounts_stand_in_the_order_of_their_prices(labs):
    prepared = labs.prepare()
    assert accounts(prepared) == ["cheap", "fair", "dear"]
    prices = [offer.price.per_hour for offer in prepared.offers]
    assert prices == sorted(prices)
    assert prepared.plan.request.account == "cheap"
    row = launch(labs.session, prepared, wait=False).machine
    assert (row.account, labs.there()) == ("cheap", ["cheap"])


def test_the_plan_says_which_account_why_and_what_the_others_ask(labs):
    plan = build_plan_document(labs.session, labs.prepare())["plan"]
    each = [(one["account"], one["offers"], one["usd_per_hour"]) for one in plan["by_account"]]
    assert each == [("cheap", 4, "2"), ("fair", 4, "3"), ("dear", 4, "9")]
    assert (plan["account"], plan["further_offers"], plan["highest_usd_per_hour"]) == ("cheap", 11, "9")


def test_an_account_that_is_named_is_the_only_one(labs):
    prepared = labs.prepare(account="dear")
    assert accounts(prepared) == ["dear"]
    assert prepared.plan.by_account == ()
    with pytest.raises(InvalidRequest, match="means every cloud account") as refused:
        labs.prepare(account="dear", provider="any")
    assert refused.value.field == "--account"


def test_several_accounts_of_a_provider_have_to_be_told_apart_or_any_is(labs):
    with pytest.raises(InvalidRequest, match="3 accounts of fake") as refused:
        labs.prepare(provider="fake")
    assert "--provider any" in refused.value.next


def test_this_computer_and_own_hosts_are_no_part_of_any(labs):
    assert "local" in labs.session.settings.accounts
    assert "local" not in accounts(labs.prepare(gpu=None))


def test_without_any_cloud_the_way_out_is_said(labs):
    (labs.home / "config.toml").write_text('provider = "any"\n')
    labs.session = labs.opened()
    with pytest.raises(InvalidRequest, match="No cloud account is configured") as refused:
        labs.prepare()
    assert "--provider local" in refused.value.next


def test_no_capacity_goes_on_to_the_next_account(labs):
    prepared = labs.prepare()
    labs.full("cheap", "fair")  # after the plan, as it happens
    done = launch(labs.session, prepared, wait=False)
    assert (done.machine.account, labs.there()) == ("dear", ["dear"])
    row = labs.session.ledger.machine(done.machine.id)
    assert (row.provider, row.price.nanos_per_hour) == ("fake", 9_000_000_000)


def test_where_nobody_has_capacity_the_first_says_so_for_all(labs):
    prepared = labs.prepare()
    labs.full(*DOLLARS)
    with pytest.raises(NoCapacity) as refused:
        launch(labs.session, prepared, wait=False)
    assert refused.value.message.startswith("None of the 12 offers that fit could be launched; the first: ")
    assert labs.there() == []


def test_a_quota_known_before_passes_over_its_account_alone(labs):
    for region in ("north", "south"):
        labs.cheap.set_quota(region, Market.ON_DEMAND, 0)
    prepared = labs.prepare()
    assert prepared.plan.request.account == "fair"
    assert any("account cheap" in one and "allows 0 GPUs" in one for one in prepared.plan.remarks)


def test_a_quota_that_refuses_the_launch_passes_over_its_account_alone(labs):
    prepared = labs.prepare()
    labs.cheap.fail_next("launch", QuotaExceeded("no more of these", field="quota", value="Q"), times=9)
    row = launch(labs.session, prepared, wait=False).machine
    assert (row.account, labs.there()) == ("fair", ["fair"])
    assert labs.cheap.calls["launch"] == 2  # a region each, not each zone of it


def test_one_account_that_was_named_still_stops_at_its_quota(labs):
    labs.cheap.fail_next("launch", QuotaExceeded("no more of these", field="quota", value="Q"))
    with pytest.raises(QuotaExceeded):
        launch(labs.session, labs.prepare(account="cheap"), wait=False)


def test_an_account_without_credentials_is_said_once_and_passed_over(labs):
    labs.cheap.fail_next("available", AuthFailed("the credential has expired"), times=9)
    prepared = labs.prepare()
    assert accounts(prepared) == ["fair", "dear"]
    said = [one for one in (*labs.said, *prepared.plan.remarks) if "the credential has expired" in one]
    assert said == ["passed over: account cheap: the credential has expired"]


def test_a_credential_that_ends_before_the_launch_passes_over_all_of_its_account(labs):
    prepared = labs.prepare()
    labs.cheap.fail_next("launch", AuthFailed("the credential has expired"), times=9)
    assert launch(labs.session, prepared, wait=False).machine.account == "fair"
    assert labs.cheap.calls["launch"] == 1


def test_a_cloud_that_does_not_answer_is_named_and_passed_over(labs):
    labs.cheap.fail_next("available", ProviderUnavailable("no answer"), times=9)
    prepared = labs.prepare()
    assert launch(labs.session, prepared, wait=False).machine.account == "fair"
    assert "passed over: account cheap: no answer" in prepared.plan.remarks


def test_where_nobody_answers_that_is_the_error_and_where_some_do_not_nothing_is_called_absent(labs):
    for one in labs.clouds.values():
        one.fail_next("available", AuthFailed("expired"))
    with pytest.raises(AuthFailed):
        labs.prepare()
    labs.full("fair", "dear")
    labs.cheap.fail_next("available", ProviderUnavailable("no answer"))
    with pytest.raises(ProviderUnavailable) as silent:
        labs.prepare()
    assert "cheap: no answer" in silent.value.message
    assert "fair: " in silent.value.message


def test_a_wish_that_nobody_can_mean_is_said_once(labs):
    with pytest.raises(InvalidRequest) as refused:
        labs.prepare(setup=Setup(persistent=True))
    assert (refused.value.field, refused.value.message.count("on demand")) == ("--persistent", 1)


def test_the_same_request_finds_its_machine_wherever_it_is(labs):
    labs.full("cheap", "fair")
    first = launch(labs.session, labs.prepare(), wait=False)
    assert first.machine.account == "dear"
    for name in ("cheap", "fair"):
        for zone in ("north-a", "north-b", "south-a", "south-b"):
            labs.session.provider(name).refill(zone)
    labs.session = labs.opened()
    again = labs.prepare()
    assert (again.existing.id, again.plan.request.account) == (first.machine.id, "dear")
    assert launch(labs.session, again, wait=False).already_existed
    assert labs.there() == ["dear"]


def test_a_machine_that_is_there_needs_no_answer_of_the_others(labs):
    first = launch(labs.session, labs.prepare(), wait=False)
    for name in ("fair", "dear"):
        labs.session.provider(name).fail_next("available", ProviderUnavailable("no answer"), times=9)
    prepared = labs.prepare()
    assert prepared.existing.id == first.machine.id
    assert not [one for one in prepared.plan.remarks if "passed over" in one]


def test_any_and_a_name_are_two_requests(labs):
    launch(labs.session, labs.prepare(), wait=False)
    assert labs.prepare(account="cheap").existing is None
    labs.prepare(key="k", account="cheap")
    launch(labs.session, labs.prepare(key="k"), wait=False)
    with pytest.raises(InvalidRequest, match="launched by a different request"):
        labs.prepare(key="k", account="cheap")


def test_no_other_cloud_before_an_uncertain_launch_is_settled(labs):
    labs.cheap.lose_reply("launch")
    with pytest.raises(ProviderUnavailable):
        launch(labs.session, labs.prepare(), wait=False)
    assert labs.there() == ["cheap"]
    labs.session = labs.opened()
    done = launch(labs.session, labs.prepare(), wait=False)
    assert (done.machine.account, done.machine.launch_status, labs.there()) == ("cheap", "made", ["cheap"])


def test_an_uncertain_launch_that_was_not_made_goes_on_at_the_next_account(labs):
    labs.cheap.fail_next("launch", LaunchUncertain("no answer"))
    with pytest.raises(LaunchUncertain):
        launch(labs.session, labs.prepare(), wait=False)
    labs.full("cheap")
    labs.session = labs.opened()
    done = launch(labs.session, labs.prepare(), wait=False)
    assert (done.machine.account, labs.there()) == ("fair", ["fair"])


def test_while_the_account_of_an_uncertain_launch_is_silent_nothing_is_launched(labs):
    labs.cheap.fail_next("launch", LaunchUncertain("no answer"))
    with pytest.raises(LaunchUncertain):
        launch(labs.session, labs.prepare(), wait=False)
    labs.session = labs.opened()
    for call in ("available", "launch", "list"):
        labs.cheap.fail_next(call, ProviderUnavailable("no answer"), times=9)
    with pytest.raises(ProviderUnavailable):
        launch(labs.session, labs.prepare(), wait=False)
    assert labs.fair.calls["launch"] == 0


def test_an_image_that_one_account_has_is_launched_there(labs):
    machine = launch(labs.session, labs.prepare(account="dear"), wait=False).machine
    tags = labs.dear.get(machine.provider_id).tags
    while not labs.dear.save_image(machine.provider_id, "mine", tags | {TAG_IMAGE: "mine"}).ready:
        labs.later(minutes=1)
    prepared = labs.prepare(setup=Setup(image="mine"))
    assert accounts(prepared) == ["dear"]
    assert sum("passed over: account" in one for one in prepared.plan.remarks) == 2
    with pytest.raises(InvalidRequest) as refused:
        labs.prepare(setup=Setup(image="nobodys"))
    assert refused.value.field in ("--image", "image")


def _with_data(labs, account):
    machine = launch(labs.session, labs.prepare(account=account, new=True), wait=False).machine
    tags = labs.session.provider(account).get(machine.provider_id).tags
    tags = {key: value for key, value in tags.items() if key != TAG_ID} | {TAG_VOLUME: "data"}
    labs.session.provider(account).attach(machine.provider_id, Volume("data", 20), tags)
    terminate_one(labs.session, machine, why="test")


def test_what_may_mean_something_else_in_each_account_needs_one(labs):
    with pytest.raises(InvalidRequest, match="names a group of one account") as refused:
        labs.prepare(setup=Setup(network=Network(security_group="sg-1")))
    assert (refused.value.field, "--account" in refused.value.next) == ("--security-group", True)


def test_an_account_that_cannot_be_looked_into_has_no_part_in_the_plan(labs):
    labs.cheap.fail_next("resolve", InvalidRequest("your organisation forbids it"))
    prepared = labs.prepare()
    assert accounts(prepared) == ["fair", "dear"]
    assert [one.first.configuration.account for one in prepared.plan.by_account] == ["fair", "dear"]
    assert "passed over: account cheap: your organisation forbids it" in prepared.plan.remarks
    assert prepared.plan.further_offers == 7


def test_a_volume_that_is_there_draws_the_machine_to_its_account(labs):
    both = Setup(volume=Volume("data", 20))
    assert accounts(labs.prepare(setup=both)) == ["cheap", "fair", "dear"]  # it may be made at each
    _with_data(labs, "dear")
    assert accounts(labs.prepare(setup=both)) == ["dear"]
    assert accounts(labs.prepare(setup=Setup(volume=Volume("data")))) == ["dear"]
    _with_data(labs, "fair")
    with pytest.raises(InvalidRequest, match="each have a volume data") as refused:
        labs.prepare(setup=both)
    assert refused.value.next.endswith("--account dear | fair")


def test_an_image_of_a_volumes_name_is_no_volume_and_its_new_volume_is_counted(labs):
    wish = {"setup": Setup(volume=Volume("data", 20)), "account": "dear", "new": True, "name": "fox"}
    set_budget(labs.session, budget_of_options(labs.session, BudgetOptions("all", "9999", period="total")))
    before = labs.prepare(**wish)
    asked_before = budgets_document(labs.session, before)[0]["requested_usd"]
    machine = launch(labs.session, labs.prepare(account="dear", name="owl"), wait=False).machine
    save_image(labs.session, machine, "data")
    after = labs.prepare(**wish)
    assert after.plan.to_lease_end == before.plan.to_lease_end
    assert budgets_document(labs.session, after)[0]["requested_usd"] == asked_before
    assert accounts(labs.prepare(setup=Setup(volume=Volume("data", 20)))) == ["cheap", "fair", "dear"]


def test_while_an_account_that_may_have_the_volume_is_silent_no_second_one_is_made(labs):
    labs.dear.fail_next("placement_constraint", ProviderUnavailable("no answer"), times=9)
    with pytest.raises(ProviderUnavailable, match="no answer"):
        labs.prepare(setup=Setup(volume=Volume("data", 20)))


def test_the_address_of_this_client_is_asked_for_once(tmp_path, monkeypatch):
    with AddressService() as service:
        labs = Labs(
            tmp_path, monkeypatch, f'provider = "any"\naddress_services = ["{service.url}"]', "reachable = true"
        )
        row = launch(labs.session, labs.prepare(), wait=False).machine
        assert labs.cheap.allowed(row.provider_id) == {"caller": "203.0.113.7/32"}
        assert len(service.asked) == 1
        service.said = b"no address"
        with pytest.raises(InvalidRequest) as refused:
            labs.prepare(new=True)
    assert refused.value.field == "--ssh-from"


def test_a_price_limit_holds_for_all_and_names_the_cheapest(labs):
    assert accounts(labs.prepare(max_price=Money.usd("2.5"))) == ["cheap"]
    with pytest.raises(NoCapacity) as refused:
        labs.prepare(max_price=Money.usd("1.5"))
    assert (refused.value.field, refused.value.message.count("Nothing at or under")) == ("--max-price", 3)
    with pytest.raises(NoCapacity, match=r"Nothing at or under \$0.0000 an hour fits") as refused:
        labs.prepare(max_price=Money(0))
    assert "$0.0000 an hour" in refused.value.message


def test_a_budget_of_the_next_account_is_asked_before_it_launches_there(labs):
    file = labs.session.home.policies / "budgets" / "fair.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("amount: 1\nperiod: total\nscope: account=fair\n")
    prepared = labs.prepare(lease=timedelta(hours=8))
    labs.full("cheap")
    with pytest.raises(BudgetRefused, match="fair") as refused:
        launch(labs.session, prepared, wait=False)
    assert "It does not cover account cheap: --account cheap." in refused.value.next
    assert labs.there() == []


def test_each_account_has_the_policy_that_is_its_own(tmp_path, monkeypatch):
    head = 'provider = "any"\n[policies.tags]\n"account=fair" = "short"'
    labs = Labs(tmp_path, monkeypatch, head)
    file = labs.session.home.policies / "short.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("lease: 1h\nrenew_until: 2h\n")
    prepared = labs.prepare()
    assert any(
        "if it is launched at account fair, policy short holds: lease 1h" in one for one in prepared.plan.remarks
    )
    labs.full("cheap")
    row = launch(labs.session, prepared, wait=False).machine
    assert (row.account, row.policy) == ("fair", "short")
    lives = from_iso(row.renew_until) - from_iso(row.expires)
    assert lives == timedelta(hours=1)


def test_a_cloud_of_another_maker_counts_and_a_table_with_a_fault_is_named(labs, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(write_plugin(tmp_path / "more", {"mine": FAKE}, name="more"))
    with (labs.home / "config.toml").open("a") as file:
        file.write('[accounts.mine]\nprovider = "mine"\nprices = { "fake.v100.1" = 1 }\n')
        file.write('[accounts.broken]\nprovider = "fake"\nno_such_key = 1\n')
    labs.session = labs.opened()
    prepared = labs.prepare()
    assert accounts(prepared)[0] == "mine"
    assert any("account broken" in one and "no_such_key" in one for one in prepared.plan.remarks)


def test_the_catalogue_shows_all_clouds_for_any():
    asked = parse_filters("v100", None, None, "any", None, spot=False, with_legacy=False)
    assert asked == parse_filters("v100", None, None, None, None, spot=False, with_legacy=False)


def test_what_is_about_one_account_says_which_there_are(labs):
    with pytest.raises(InvalidRequest, match="--provider any means all") as refused:
        account_of(labs.session, account=None, provider=None)
    assert refused.value.next == "Name one: --account cheap | dear | fair"


def test_any_can_be_the_usual_provider_of_the_settings():
    assert parse_setup_value("provider", "any") == "any"


def test_a_policy_of_ones_own_is_said_once_for_all_accounts(labs):
    file = labs.session.home.policies / "own.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("lease: 1h\nrenew_until: 2h\n")
    labs.prepare(policy="own")
    assert [one for one in labs.said if "the policy own" in one] == [f"the policy own is from {file}"]
    with pytest.raises(InvalidRequest, match="owl") as refused:
        labs.prepare(policy="owl")
    assert refused.value.message.count("owl") == 1


@pytest.mark.parametrize("refusal", [AuthFailed("not allowed"), NoCapacity("odd"), EndRefused("It is locked.")])
def test_a_machine_that_can_be_neither_recorded_nor_ended_is_no_refusal_and_nothing_else_is_launched(labs, refusal):
    soft, most = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill():  # 40 kB: the files of the clouds are smaller, the ledger's is larger by then
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, most))

    def restore():
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, most))  # the disk has room again
        return refusal

    prepared = labs.prepare()
    labs.cheap.fail_next("launch", fill)
    labs.cheap.fail_next("terminate", restore)
    try:
        with pytest.raises(StopUnproved) as raised:
            launch(labs.session, prepared, wait=False)
    finally:
        restore()
    (row,) = labs.session.ledger.machines()
    assert raised.value.message.startswith(f"{row.name} may still be billed: it ")
    assert refusal.message.rstrip(".") in raised.value.message
    assert f"cloudgpu down {row.name}" in raised.value.next
    assert [cloud.calls["launch"] for cloud in labs.clouds.values()] == [0, 0, 1]
