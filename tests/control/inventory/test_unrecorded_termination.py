"""The ledger takes nothing any more once a launch was sent: what that launch made is ended, and that is proved."""

from __future__ import annotations

import resource
from datetime import timedelta

import pytest

from cloudgpu.control.inventory.unrecorded_termination import EndedUnrecorded, terminate_without_ledger
from cloudgpu.core.model.instances import State
from cloudgpu.core.values.times import iso
from cloudgpu.errors import EndRefused, InstanceNotFound, LedgerUnavailable, ProviderUnavailable, RateLimited
from tests.control.inventory.test_shared_ledger import Laptop

pytestmark = pytest.mark.usefixtures("no_bytecode")  # a limit on files would cut it off

CLOUDS = 40_000  # bytes: the file of the fake cloud is a fifth of that, the ledger's is larger by then


@pytest.fixture
def fill():
    """Return what takes all room from the ledger's file."""
    soft, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (CLOUDS, most))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, most))


def test_a_machine_that_no_listing_shows_yet_is_ended_by_the_id_that_the_launch_returned(make_lab, fill):
    lab = make_lab("lag_s = 300")
    lab.cloud.fail_next("launch", fill)
    with pytest.raises(EndedUnrecorded, match="was ended and nothing of it is left"):
        lab.up(name="fox")
    lab.later(seconds=301)
    assert lab.machines() == []


def test_a_machine_is_ended_though_the_ledger_cannot_be_read_either(tmp_path, monkeypatch, postgres):
    ada = Laptop(tmp_path, monkeypatch, "ada", postgres.schema())
    ada.cloud.fail_next("launch", postgres.kill)
    try:
        with pytest.raises(EndedUnrecorded, match="fox was ended and nothing of it is left"):
            ada.up(name="fox")
    finally:
        postgres.start()
    assert ada.cloud.calls["launch"] == 1
    assert ada.machines() == []


def test_one_404_right_after_a_launch_is_no_proof_and_the_end_is_requested_again(make_lab):
    lab = make_lab("lag_s = 300\nstop_s = 60")
    row = lab.up(name="fox").machine
    # EC2: a machine that was just launched may be unknown for a while ("eventual consistency")
    lab.cloud.fail_next("get", InstanceNotFound("not visible yet", field="id", value=row.provider_id))
    terminate_without_ledger(lab.session, row, LedgerUnavailable("The disk is full."))
    assert lab.cloud.get(row.provider_id).state is State.TERMINATED
    assert lab.cloud.calls["terminate"] > 1


@pytest.mark.parametrize("method", ["terminate", "get", "resources"])
def test_an_end_without_an_answer_is_requested_again(lab, method):
    row = lab.up(name="fox").machine
    lab.cloud.fail_next(method, RateLimited("too many calls"))
    with pytest.raises(EndedUnrecorded):
        raise terminate_without_ledger(lab.session, row, LedgerUnavailable("It is full."), with_retained=True)
    assert lab.machines() == []


@pytest.mark.parametrize("options", ["", "lag_s = 60"])
def test_an_end_is_proved_though_the_clock_is_behind_the_record_of_the_launch(make_lab, options):
    lab = make_lab(options)
    row = lab.up(name="fox").machine
    ahead = iso(lab.clock() + timedelta(hours=2))  # another computer's clock
    lab.cloud.terminate(row.provider_id)
    lab.cloud.fail_next("get", InstanceNotFound("unknown", field="id", value=row.provider_id), times=1000)
    began = lab.clock()
    with pytest.raises(EndedUnrecorded):
        raise terminate_without_ledger(lab.session, row._replace(intended_at=ahead), LedgerUnavailable("It is full."))
    assert lab.clock() - began < timedelta(minutes=2)


def test_a_machine_whose_repeated_end_is_refused_is_requested_to_stop(lab):
    row = lab.up(name="fox").machine
    lab.cloud.fail_next("terminate", ProviderUnavailable("silence"))
    lab.cloud.fail_next("terminate", EndRefused("It is locked.", lifts="unlock it"))
    with pytest.raises(EndRefused) as raised:
        terminate_without_ledger(lab.session, row, LedgerUnavailable("It is full."))
    assert "It was asked to stop instead." in raised.value.message
    assert lab.machines() == []
