"""What the lambda provider sends, and what it makes of each answer: codes, lost replies, late listings, ends."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from datetime import timedelta

import pytest

from cloudgpu.core.model.instances import TAG_SEQ, State
from cloudgpu.core.model.launch import BootPart
from cloudgpu.core.model.offers import Requirements
from cloudgpu.errors import (
    AnswerTimeout,
    AuthFailed,
    CloudgpuError,
    InstanceNotFound,
    InvalidRequest,
    LaunchUncertain,
    NoCapacity,
    ProviderUnavailable,
    QuotaExceeded,
    RateLimited,
)
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.lambdalabs.client import TOKEN_RULE
from cloudgpu.providers.lambdalabs.errors import ERROR_MAPPINGS, error_of_answer
from cloudgpu.providers.lambdalabs.offers import accelerators, price_list
from cloudgpu.providers.lambdalabs.provider import make
from cloudgpu.providers.rest.client import Answer
from cloudgpu.testing import make_attempt, new_host_key
from tests.clouds.lambdalabs.server import KEY
from tests.clouds.lambdalabs.stock import TYPES, described

DEADLINE = timedelta(minutes=2)
THEIR_TAG = {"key": "team", "value": "x"}


@pytest.fixture
def settings(lambdalabs, tmp_path):
    return ProviderSettings("lab", {}, tmp_path / "lambda", lambdalabs.clock.now, lambda _: None)


@pytest.fixture
def provider(settings):
    return make(settings)


@pytest.fixture
def attempt(provider, settings):
    (item,) = provider.available(Requirements(gpu="a10", region="us-east-1")).items
    return make_attempt(item, now=settings.clock(), host_key=new_host_key())


def launch(provider, attempt):
    return provider.launch(attempt, deadline=attempt.made_at + DEADLINE)


def actions(server):
    return [call.action for call in server.calls]


# --- what is sent ---


def test_a_launch_is_four_calls_the_last_one_changes_and_it_carries_tags_and_host_key(lambdalabs, provider, attempt):
    lambdalabs.calls.clear()
    launch(provider, attempt)
    assert actions(lambdalabs) == ["list", "keys", "add-key", "keys", "launch"]
    (machine,) = lambdalabs.instances()
    asked = machine.asked
    assert asked["ssh_key_names"] == ["cloudgpu"]
    assert {one["key"]: one["value"] for one in asked["tags"]} == dict(attempt.tags)
    config = next(part.text for part in lambdalabs.user_data(machine.id) if part.type == "text/cloud-config")
    given = json.loads(config.partition("\n")[2])
    assert given["ssh_deletekeys"] is True
    assert given["ssh_keys"]["ed25519_private"] == attempt.boot.host_private_key
    assert "authorized" in config


def test_its_own_jupyter_and_the_tunnel_to_it_are_off_before_anything_else(lambdalabs, provider, attempt):
    launch(provider, attempt)
    (machine,) = lambdalabs.instances()
    hook = next(part.text for part in lambdalabs.user_data(machine.id) if part.type == "text/cloud-boothook")
    off = next(number for number, line in enumerate(hook.splitlines()) if "systemctl mask --now" in line)
    ready = next(number for number, line in enumerate(hook.splitlines()) if "touch /run/cloudgpu/began" in line)
    assert off < ready
    assert "lambda-jupyter.service" in hook.splitlines()[off]
    assert "cloudflared.service" in hook.splitlines()[off]


def test_a_listing_is_one_call_and_so_is_a_look_at_what_is_for_sale_with_its_prices(lambdalabs, provider, attempt):
    launch(provider, attempt)
    lambdalabs.calls.clear()
    assert len(provider.list().instances) == 1
    assert actions(lambdalabs) == ["list"]
    lambdalabs.advance(60)
    lambdalabs.calls.clear()
    items = provider.available(Requirements()).items
    prices = provider.prices(items)
    assert actions(lambdalabs) == ["types"]
    assert None not in prices
    by_type = {item.instance_type: price.per_hour.dollars * 100 for item, price in zip(items, prices, strict=True)}
    assert by_type == {name: shape.cents for name, shape in TYPES.items()}


def test_the_key_to_its_own_jupyter_is_shown_nowhere(lambdalabs, provider, attempt, tmp_path):
    made = launch(provider, attempt)
    shown = repr(provider.get(made.id)) + repr(provider.list()) + repr(provider.findings())
    provider.terminate(made.id)
    kept = "".join(path.read_text() for path in (tmp_path / "lambda").rglob("*") if path.is_file())
    assert "jupyter" not in shown + kept
    assert KEY not in shown + kept


def test_boot_data_beyond_a_megabyte_are_refused_before_anything_is_asked(lambdalabs, provider, attempt):
    lambdalabs.calls.clear()
    big = replace(attempt, boot=replace(attempt.boot, parts=(BootPart("on_start", "#" * (1 << 20)),)))
    with pytest.raises(InvalidRequest, match="takes 1,048,576"):
        launch(provider, big)
    assert actions(lambdalabs) == []


# --- what may have happened ---


def test_a_key_that_is_revoked_after_a_lost_answer_leaves_the_launch_uncertain(lambdalabs, provider, attempt):
    lambdalabs.faults.lose_reply("launch")
    seen = provider._lambda.get

    def revoked(path, action):
        if action == "list" and lambdalabs.instances():
            raise AuthFailed("the key was revoked")
        return seen(path, action)

    provider._lambda.get = revoked
    with pytest.raises(LaunchUncertain, match="revoked"):
        launch(provider, attempt)
    provider._lambda.get = seen
    assert launch(provider, attempt).id == lambdalabs.instances()[0].id
    assert actions(lambdalabs).count("launch") == 1


@pytest.mark.parametrize("how", ["lost", "after"])
def test_a_launch_that_was_made_and_not_answered_is_found_by_the_listing(lambdalabs, provider, attempt, how):
    if how == "lost":
        lambdalabs.faults.lose_reply("launch")
    else:
        lambdalabs.fail_after("launch")
    made = launch(provider, attempt)
    assert [one.id for one in lambdalabs.instances()] == [made.id]
    assert len(lambdalabs.called("launch")) == 1


@pytest.mark.parametrize("how", ["lost", "after", "before"])
def test_one_that_the_listing_does_not_show_yet_is_uncertain_and_never_sent_again(lambdalabs, provider, attempt, how):
    lambdalabs.late_s = 300
    if how == "lost":
        lambdalabs.faults.lose_reply("launch")
    elif how == "after":
        lambdalabs.fail_after("launch")
    else:
        lambdalabs.faults.add("launch", error="global/internal-error")
    for _ in range(3):
        with pytest.raises(LaunchUncertain):
            launch(provider, attempt)
    lambdalabs.advance(301)
    assert len(lambdalabs.called("launch")) == 1
    if how == "before":
        assert lambdalabs.instances() == []
    else:
        assert launch(provider, attempt).id == lambdalabs.instances()[0].id
    assert len(lambdalabs.called("launch")) == 1


def test_a_machine_that_is_not_shown_yet_is_returned_by_its_id_while_a_listing_may_be_late(
    lambdalabs, provider, attempt, settings
):
    lambdalabs.late_s = 500
    made = launch(provider, attempt)
    assert made.state is State.PENDING
    assert launch(provider, attempt).id == launch(make(settings), attempt).id == made.id
    with pytest.raises(InstanceNotFound):
        provider.get(made.id)
    assert TOKEN_RULE.not_found_proves_end_after >= timedelta(seconds=500)
    assert len(lambdalabs.called("launch")) == 1


def test_a_machine_whose_id_cannot_be_written_down_is_returned_all_the_same(lambdalabs, provider, attempt, settings):
    def lose_records(_number, action, phase):
        if (action, phase) == ("launch", "after"):
            for file in (settings.home / "sent").glob("*.sent"):
                file.unlink()  # as if the disk could not be written to

    lambdalabs.on_call = lose_records
    made = launch(provider, attempt)
    assert launch(provider, attempt).id == made.id
    assert len(lambdalabs.called("launch")) == 1


def test_from_a_fresh_home_an_old_call_is_only_looked_for(lambdalabs, provider, attempt, settings, tmp_path):
    lambdalabs.advance(180)
    fresh = make(replace(settings, home=tmp_path / "restored"))
    with pytest.raises(LaunchUncertain):
        launch(fresh, attempt)
    assert lambdalabs.called("launch") == []


def test_where_no_connection_was_made_the_call_is_sent_again(lambdalabs, provider, attempt, settings, tmp_path):
    provider.identity()
    not_found_error = {"endpoint": "http://127.0.0.1:9/api/v1"}
    away = make(replace(settings, options=not_found_error, home=tmp_path / "away", patience=0.3))
    with pytest.raises(ProviderUnavailable, match="cannot be reached"):
        launch(away, attempt)
    assert launch(provider, attempt).id


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("instance-operations/launch/insufficient-capacity", 400, NoCapacity),
        ("global/quota-exceeded", 400, QuotaExceeded),
        ("global/invalid-api-key", 401, AuthFailed),
        ("global/account-inactive", 403, AuthFailed),
        ("global/invalid-address", 403, AuthFailed),
        ("global/invalid-parameters", 400, InvalidRequest),
        ("global/object-does-not-exist", 400, InvalidRequest),
        ("global/object-does-not-exist", 404, InvalidRequest),
        ("instance-operations/launch/file-system-in-wrong-region", 400, InvalidRequest),
        ("global/too-many-requests", 429, RateLimited),
    ],
)
def test_a_launch_that_was_surely_refused_says_why_and_may_be_sent_again(
    lambdalabs, provider, attempt, code, status, kind
):
    lambdalabs.faults.add("launch", error=code, status=status)
    with pytest.raises(kind) as raised:
        launch(provider, attempt)
    assert not isinstance(raised.value, LaunchUncertain)
    assert lambdalabs.instances() == []
    made = launch(provider, attempt)
    assert [one.id for one in lambdalabs.instances()] == [made.id]


@pytest.mark.parametrize(
    ("code", "status"),
    [("global/internal-error", 500), ("provider/internal-unavailable", 503), ("global/new-word", 400)],
)
def test_what_nobody_can_tell_leaves_a_launch_uncertain(lambdalabs, provider, attempt, code, status):
    lambdalabs.faults.add("launch", error=code, status=status)
    with pytest.raises(LaunchUncertain):
        launch(provider, attempt)
    with pytest.raises(LaunchUncertain):
        launch(provider, attempt)
    assert len(lambdalabs.called("launch")) == 1


def test_an_answer_without_an_id_is_uncertain(lambdalabs, provider, attempt):
    lambdalabs.faults.add("launch", status=200, body={"data": {"instance_ids": []}})
    with pytest.raises(LaunchUncertain):
        launch(provider, attempt)


@pytest.mark.parametrize("action", ["list", "keys"])
def test_no_listing_says_that_something_is_not_there(lambdalabs, provider, attempt, action):
    lambdalabs.faults.add(action, error="global/object-does-not-exist", status=404)
    with pytest.raises(ProviderUnavailable, match="cannot be read"):
        launch(provider, attempt)


def test_a_key_that_is_refused_and_not_there_is_said_with_the_refusal(lambdalabs, provider, attempt):
    lambdalabs.faults.add("add-key", error="global/invalid-parameters", status=400)
    with pytest.raises(InvalidRequest):
        launch(provider, attempt)
    assert lambdalabs.called("launch") == []


def test_a_key_that_cannot_be_added_leaves_a_launch_unsent_and_open(lambdalabs, provider, attempt):
    lambdalabs.faults.add("add-key", error="global/object-does-not-exist", status=404)
    with pytest.raises(ProviderUnavailable, match="does not show the SSH key"):
        launch(provider, attempt)
    assert lambdalabs.called("launch") == []


def test_each_code_of_the_description_is_mapped_and_an_unknown_one_is_no_not_found():
    for code in ERROR_MAPPINGS:
        found = error_of_answer(Answer(400, {}, {"error": {"code": code, "message": "no"}}))
        assert isinstance(found, ERROR_MAPPINGS[code].kind), code
    for status in (400, 404, 418, 502):
        unknown = error_of_answer(Answer(status, {}, {"error": {"code": "global/brand-new", "message": "no"}}))
        assert type(unknown) is ProviderUnavailable
        assert type(error_of_answer(Answer(status, {}, "<html>a proxy</html>"))) is ProviderUnavailable
    assert isinstance(error_of_answer(Answer(401, {}, None)), AuthFailed)


def test_no_key_is_in_an_error_even_where_the_cloud_repeats_it(lambdalabs, provider):
    lambdalabs.faults.add("list", error="global/invalid-api-key", message=f"no such key: {KEY}")
    with pytest.raises(AuthFailed) as raised:
        provider.list()
    assert KEY not in f"{raised.value!r} {raised.value.as_dict()}"


# --- looks and ends ---


def test_a_listing_that_is_refused_or_silent_is_never_an_empty_one(lambdalabs, provider, settings):
    lambdalabs.faults.add("list", error="global/internal-error", times=99)
    with pytest.raises(ProviderUnavailable):
        make(replace(settings, patience=0.3)).list()
    lambdalabs.faults.clear()
    lambdalabs.faults.hang("list")
    with pytest.raises(AnswerTimeout):
        make(replace(settings, patience=0.3)).list()
    lambdalabs.faults.clear()
    lambdalabs.faults.add("list", status=200, body={"instances": []})
    with pytest.raises(ProviderUnavailable, match="cannot be read"):
        provider.list()


def test_a_listing_that_comes_too_often_is_sent_again(lambdalabs, provider, attempt):
    made = launch(provider, attempt)
    lambdalabs.faults.add("list", error="global/too-many-requests", status=429, retry_after=3)
    assert [one.id for one in provider.list().instances] == [made.id]


@pytest.mark.parametrize("code", ["global/account-inactive", "global/invalid-api-key", "global/object-does-not-exist"])
def test_no_refusal_of_a_listing_is_an_empty_account(lambdalabs, provider, attempt, code):
    launch(provider, attempt)
    lambdalabs.faults.add("list", error=code)
    with pytest.raises(CloudgpuError):
        provider.list()


def test_a_machine_of_ours_whose_tags_are_not_shown_is_a_gap_and_not_absent(lambdalabs, provider, attempt):
    made = launch(provider, attempt)
    answer = provider._lambda.rest.get("/instances", action="list")
    del answer["data"][0]["tags"]
    for status, scopes in (("active", [made.id]), ("terminated", [])):
        answer["data"][0]["status"] = status
        lambdalabs.faults.add("list", status=200, body=answer)
        found = provider.list()
        assert found.instances == ()
        assert [gap.scope for gap in found.unanswered] == scopes
    assert provider.list().is_complete_in(made.region)


def test_an_answer_about_another_machine_is_none_about_this_one(lambdalabs, provider, attempt):
    made = launch(provider, attempt)
    answer = provider._lambda.rest.get(f"/instances/{made.id}", action="get")
    answer["data"]["id"] = "0" * 32
    lambdalabs.faults.add("get", status=200, body=answer)
    with pytest.raises(ProviderUnavailable):
        provider.get(made.id)
    assert provider.get(made.id).id == made.id


def test_machines_of_others_are_not_listed(lambdalabs, provider, attempt):
    made = launch(provider, attempt)
    shutil.rmtree(provider._lambda.home / "sent")  # nothing here says that the machine is ours
    ours = lambdalabs.instances()[0].asked
    for theirs in (
        dict(ours, tags=[]),
        dict(ours, tags=[THEIR_TAG]),
        dict(ours, tags=[], ssh_key_names=["theirs"]),
    ):
        lambdalabs.state.machines[made.id].asked = theirs
        assert (provider.list().instances, provider.list().unanswered) == ((), ())


def test_no_tags_of_a_machine_with_our_key_are_a_gap_on_every_computer_while_it_boots(lambdalabs, provider, attempt):
    made = launch(provider, attempt)
    shutil.rmtree(provider._lambda.home / "sent")
    machine = lambdalabs.state.machines[made.id]
    for tags, status, scopes in (([], "booting", [made.id]), ([], "active", []), ([THEIR_TAG], "booting", [])):
        machine.asked, machine.status = dict(machine.asked, tags=tags), status
        assert [gap.scope for gap in provider.list().unanswered] == scopes


def test_a_launch_is_not_answered_with_the_machine_of_an_earlier_one_that_is_still_listed(
    lambdalabs, provider, attempt, settings
):
    first = launch(provider, attempt)
    answer = provider._lambda.rest.get("/instances", action="list")
    provider.terminate(first.id)
    lambdalabs.advance(120)
    answer["data"][0]["status"] = "preempted"
    lambdalabs.faults.add("list", status=200, body=answer)
    again = make_attempt(attempt.offer.configuration, now=settings.clock(), number=2, tags={TAG_SEQ: "7"})
    assert launch(provider, again).id != first.id
    assert len(lambdalabs.called("launch")) == 2


def test_a_new_machine_is_of_the_account_as_it_is_called_now(lambdalabs, settings, attempt):
    renamed = make(replace(settings, account="renamed"))
    assert launch(renamed, attempt).account == "renamed"


def test_a_machine_that_this_home_launched_is_a_gap_where_its_tags_are_gone(lambdalabs, provider, attempt):
    made = launch(provider, attempt)
    lambdalabs.state.machines[made.id].asked = dict(lambdalabs.instances()[0].asked, tags=[])
    found = provider.list()
    assert (found.instances, [gap.scope for gap in found.unanswered]) == ((), [made.id])


@pytest.mark.parametrize(
    ("status", "state", "billed"),
    [
        ("booting", State.PENDING, True),
        ("active", State.RUNNING, True),
        ("unhealthy", State.RUNNING, True),
        ("terminating", State.STOPPING, True),
    ],
)
def test_each_status_has_a_state_and_only_an_ended_machine_is_free(
    lambdalabs, provider, attempt, status, state, billed
):
    made = launch(provider, attempt)
    lambdalabs.state.machines[made.id].status = status
    found = provider.get(made.id)
    assert (found.state, found.billed) == (state, billed)
    assert found.launched_at is None


def test_an_end_that_lambda_has_confirmed_is_proved_however_young_the_machine_is(lambdalabs, provider, attempt):
    made = launch(provider, attempt)
    lambdalabs.dwell(terminating=60.0)
    provider.terminate(made.id)
    assert (provider.get(made.id).state, provider.get(made.id).billed) == (State.STOPPING, True)
    lambdalabs.advance(61)
    gone = provider.get(made.id)
    assert (gone.state, gone.billed, gone.region) == (State.TERMINATED, False, "us-east-1")
    assert dict(gone.tags) == dict(attempt.tags)


def test_not_found_without_such_a_word_is_no_proof_of_an_end_for_ten_minutes(lambdalabs, provider, attempt):
    lambdalabs.late_s = 300
    made = launch(provider, attempt)
    lambdalabs.faults.add("terminate", error="global/object-does-not-exist")
    provider.terminate(made.id)
    with pytest.raises(InstanceNotFound):
        provider.get(made.id)
    lambdalabs.advance(301)
    assert provider.get(made.id).state is State.RUNNING


def test_an_end_whose_answer_was_lost_is_asked_for_again(lambdalabs, provider, attempt):
    made = launch(provider, attempt)
    lambdalabs.faults.lose_reply("terminate")
    provider.terminate(made.id)
    assert lambdalabs.billable() == []


def test_a_shutdown_from_inside_ends_no_bill(lambdalabs, provider, attempt):
    made = launch(provider, attempt)
    lambdalabs.power("shut-down", made.id)
    lambdalabs.advance(3600)
    assert provider.get(made.id).billed
    assert lambdalabs.minutes(made.id) >= 60


def test_a_machine_that_was_taken_away_says_so(lambdalabs, provider, attempt):
    made = launch(provider, attempt)
    lambdalabs.preempt(made.id)
    with pytest.raises(InstanceNotFound):
        provider.get(made.id)


# --- which account it is ---


def test_everybody_with_a_key_to_the_account_finds_the_same_one_and_another_account_is_another(
    lambdalabs, provider, settings, tmp_path, monkeypatch
):
    first = provider.register()
    assert make(replace(settings, home=tmp_path / "another-computer")).identity() == first
    lambdalabs.key = "secret_another-key-of-the-account_0123456789"
    monkeypatch.setenv("LAMBDA_API_KEY", lambdalabs.key)
    assert make(settings).identity() == first
    lambdalabs.state.keys.clear()  # another account
    lambdalabs.key = "secret_key-of-another-account_0123456789"
    monkeypatch.setenv("LAMBDA_API_KEY", lambdalabs.key)
    assert make(settings).identity() != first


def test_a_look_puts_nothing_into_the_account_and_tells_of_the_one_that_a_launch_will_be_in(
    lambdalabs, provider, settings, attempt
):
    before = provider.identity()
    assert not provider.is_registered()
    assert make(settings).identity() == before  # the next process
    provider.findings()
    assert lambdalabs.state.keys == {}
    assert "which is not there yet" in before.display_name
    launch(provider, attempt)
    after = provider.identity()
    assert (after.kind, after.id) == (before.kind, before.id)
    assert "not there yet" not in after.display_name


def test_two_computers_are_of_one_account_once_either_has_put_the_ssh_key_there(
    lambdalabs, provider, settings, tmp_path
):
    other = make(replace(settings, home=tmp_path / "another-computer"))
    assert other.identity().id != provider.identity().id  # nobody can say
    known = other.register()
    lambdalabs.advance(30)
    assert provider.identity() == known
    assert provider.register() == known
    assert len(lambdalabs.called("add-key")) == 1


def test_accounts_without_the_ssh_key_are_not_taken_for_each_other(lambdalabs, provider, monkeypatch):
    first = provider.identity()
    lambdalabs.key = "secret_key-of-another-account_0123456789"
    monkeypatch.setenv("LAMBDA_API_KEY", lambdalabs.key)
    assert provider.identity().id != first.id


def test_an_ssh_key_that_was_deleted_is_put_back_and_one_that_was_replaced_refuses_a_launch(
    lambdalabs, provider, attempt
):
    first = provider.register()
    lambdalabs.state.keys.clear()
    launch(provider, attempt)
    assert provider.identity() == first
    (kept,) = lambdalabs.state.keys.values()
    kept["public_key"] = new_host_key()[0]
    with pytest.raises(InvalidRequest, match="was replaced"):
        launch(provider, replace(attempt, token="another-token", machine="cg-another"))
    assert len(lambdalabs.instances()) == 1


def test_no_private_half_of_that_ssh_key_is_kept_anywhere(lambdalabs, provider, tmp_path):
    provider.register()
    kept = [path.read_text() for path in (tmp_path / "lambda").rglob("*") if path.is_file()]
    assert len(kept) == 1
    assert re.fullmatch(r"ssh-ed25519 \S+\n", kept[0])


# --- names of GPUs ---


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        ("gpu_1x_a10", "A10"),
        ("gpu_1x_a100_sxm4", "A100-40GB"),
        ("gpu_8x_a100_80gb_sxm4", "A100-80GB"),
        ("gpu_1x_h100_pcie", "H100-PCIe"),
        ("gpu_1x_h100_sxm5", "H100"),
        ("gpu_1x_gh200", "GH200"),
        ("gpu_8x_v100", "V100-16GB"),
        ("gpu_1x_rtx6000", "QuadroRTX6000"),
        ("gpu_1x_a6000", "A6000"),
    ],
)
def test_gpus_are_called_as_in_the_catalogue(name, gpu):
    (found,) = accelerators(described(name))
    assert (found.name, found.count) == (gpu, TYPES[name].count)


@pytest.mark.parametrize("cents", [129.0, "129", True, None])
def test_a_price_that_is_no_whole_number_of_cents_is_refused_and_not_taken_for_dollars(lambdalabs, settings, cents):
    (name, *_), provider = TYPES, make(settings)
    answer = provider._lambda.rest.get("/instance-types", action="types")
    answer["data"][name]["instance_type"]["price_cents_per_hour"] = cents
    lambdalabs.faults.add("types", status=200, body=answer)
    (part,) = price_list(settings).parts
    assert name not in {row.key.item for row in part.rows}
    assert {refused.name.split()[0] for refused in part.refused} == {name}
    assert all("cents" in refused.why for refused in part.refused)


@pytest.mark.parametrize("entry", [None, {}, {"instance_type": None, "regions_with_capacity_available": None}])
def test_a_type_that_is_described_in_part_hides_no_other_one(lambdalabs, settings, entry):
    answer = make(settings)._lambda.rest.get("/instance-types", action="types")
    answer["data"]["gpu_of_tomorrow"] = entry
    lambdalabs.faults.add("types", status=200, body=answer)
    provider = make(settings)
    assert len(provider.regions()) > 10
    (item,) = provider.available(Requirements(gpu="a10", region="us-east-1")).items
    (price,) = provider.prices([item])
    assert price is not None


def test_a_type_without_a_gpu_has_none():
    assert accelerators(described("cpu_4x_general")) == ()


# --- bad input ---


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"regions": "us-east-1"}, "has to be a list of regions"),
        ({"regions": ["Virginia"]}, "which is not a valid region"),
        ({"region": ["us-east-1"]}, "is not an option of a lambda account"),
        ({"key_file": ""}, "has to be text"),
        ({"key_file": KEY}, "does not belong into config.toml"),
        ({"key_variable": KEY}, "does not belong into config.toml"),
        ({"key_variable": "two words"}, "is not the name of an environment variable"),
        ({"key_variable": "A", "key_file": "/b"}, "goes with key_file as well"),
        ({"api_key": KEY}, "is not an option of a lambda account"),
        ({"endpoint": "cloud.lambda.ai"}, "which is not a valid address"),
        ({"endpoint": "https://["}, "is not a URL"),
        ({"endpoint": "http://192.0.2.1/api/v1"}, "is not https"),
        ({"ssh_port": 0}, "is not a port"),
    ],
)
def test_a_bad_option_is_named_and_no_key_is_shown(settings, options, says):
    with pytest.raises(InvalidRequest) as raised:
        make(replace(settings, options=options))
    assert says in raised.value.message
    assert raised.value.next
    assert KEY not in str(raised.value.as_dict())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "cannot be read"),
        ("", "holds no API key"),
        ("api_key = two words", "holds no API key"),
        ("k" * 9, "holds no"),
    ],
)
def test_a_key_that_cannot_be_one_is_refused_without_being_shown(settings, tmp_path, text, says):
    file = tmp_path / "keys"
    if text is not None:
        file.write_text(text)
    with pytest.raises(AuthFailed, match=says) as raised:
        make(replace(settings, options={"key_file": str(file)})).list()
    assert "words" not in str(raised.value.as_dict())


def test_no_key_at_all_is_said_with_the_way_out(settings, monkeypatch):
    monkeypatch.delenv("LAMBDA_API_KEY")
    with pytest.raises(AuthFailed) as raised:
        make(settings).list()
    assert "LAMBDA_API_KEY" in raised.value.next


@pytest.mark.parametrize(
    "line", [f"api_key = {KEY}", f"# mine\napi_key={KEY}\n", KEY, f'export LAMBDA_API_KEY="{KEY}"']
)
def test_a_key_is_read_from_a_file_however_it_is_written_there(settings, tmp_path, monkeypatch, line):
    monkeypatch.delenv("LAMBDA_API_KEY")
    (tmp_path / "user" / ".lambda_cloud").mkdir(parents=True)
    (tmp_path / "user" / ".lambda_cloud" / "lambda_keys").write_text(line)
    provider = make(settings)
    assert provider.list().instances == ()
    assert "lambda_keys" in provider.login().what


def test_what_is_no_id_reaches_no_path(lambdalabs, provider):
    lambdalabs.calls.clear()
    for wrong in ("../ssh-keys", "a b c d e f g h", "", "x" * 65, "%2e%2e%2fssh-keys"):
        for ask in (provider.get, provider.terminate):
            with pytest.raises(CloudgpuError):
                ask(wrong)
    assert actions(lambdalabs) == []


# --- at its rates ---


def test_calls_keep_lambdas_rates(lambdalabs, settings, monkeypatch):
    monkeypatch.setattr("cloudgpu.providers.lambdalabs.client.is_loopback", lambda _: False)
    lambdalabs.rates = True
    paced = make(replace(settings, pause=lambdalabs.advance))
    (item,) = paced.available(Requirements(gpu="a10", region="us-east-1")).items
    for number in range(2):
        launch(paced, make_attempt(item, key=f"paced-{number}", now=settings.clock()))
    assert len(lambdalabs.instances()) == 2
    assert not [call for call in lambdalabs.calls if call.status == 429]
