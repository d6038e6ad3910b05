"""Named images: nothing is saved under a name that may be taken: the image that has it would pass for the new one."""

from __future__ import annotations

import resource
from datetime import timedelta

import pytest

from cloudgpu.cli.output import Format
from cloudgpu.cli.storage.image import _save as ask_and_save
from cloudgpu.control.lifecycle.lifecycle import stop
from cloudgpu.control.resources.named import find_named, remove, save_image
from cloudgpu.core.model.resources import Kind
from cloudgpu.errors import InvalidRequest, LedgerUnavailable, ProviderUnavailable

pytestmark = pytest.mark.usefixtures("no_bytecode")  # a limit on files would cut it off


def test_no_image_is_saved_while_it_is_not_known_whether_its_name_is_free(lab):
    fox, owl = (lab.up(name=name, key=name).machine for name in ("fox", "owl"))
    save_image(lab.session, fox, "keras")
    lab.cloud.hide(owl.region)
    with pytest.raises(ProviderUnavailable):
        save_image(lab.session, owl, "keras")
    lab.cloud.show(owl.region)
    (image,) = [one for one in lab.cloud.resources().items if one.kind is Kind.IMAGE]
    save_image(lab.session, owl, "torch")
    assert len([one for one in lab.cloud.resources().items if one.kind is Kind.IMAGE]) == 2, image.name


def test_an_image_is_not_taken_for_the_only_one_of_its_name_while_a_region_does_not_answer(lab):
    save_image(lab.session, lab.up(name="fox").machine, "keras")
    image = find_named(lab.session, Kind.IMAGE, "keras", None)
    lab.cloud.hide("south")
    with pytest.raises(ProviderUnavailable, match="There may be another image called keras") as unknown:
        find_named(lab.session, Kind.IMAGE, "keras", None)
    assert f"--region {image.region}, or name it by its id: {image.id}" in unknown.value.next
    for name, region in ((image.id, None), ("keras", image.region)):
        assert find_named(lab.session, Kind.IMAGE, name, region) == image
    lab.cloud.hide(image.region)
    with pytest.raises(ProviderUnavailable, match="did not answer") as nowhere:
        find_named(lab.session, Kind.IMAGE, "torch", None)
    assert nowhere.value.next == "Run it again."


def test_an_image_that_another_machine_has_got_meanwhile_is_not_returned_as_the_new_one(lab):
    fox, owl = (lab.up(name=name, key=name).machine for name in ("fox", "owl"))

    def save_another():
        save_image(lab.session, fox, "keras")

    lab.cloud.fail_next("save_image", save_another)
    with pytest.raises(InvalidRequest, match="There is an image called keras already"):
        save_image(lab.session, owl, "keras")


def test_the_question_before_an_image_is_about_the_machine_as_it_is_not_as_it_was_last_seen(lab):
    """One that runs is restarted for its image: whoever is asked has to be told so."""
    row = stop(lab.session, lab.up(name="fox").machine, why="a test")
    lab.later(minutes=5)
    lab.cloud.start(row.provider_id)
    with pytest.raises(InvalidRequest) as unasked:
        ask_and_save(lab.session, "fox", None, restart=True, yes=False, output=Format.TEXT)
    assert unasked.value.field == "--yes"
    assert lab.session.ledger.machine(row.id).state == "running"


@pytest.fixture
def fill():
    """Return what takes all room from the ledger's file; the fake cloud's file is smaller."""
    soft, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, most))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, most))


def test_an_image_that_cannot_be_recorded_is_not_waited_for_as_if_it_were_in_the_making(lab, fill):
    fox, begun = lab.up(name="fox").machine, lab.clock()
    lab.cloud.fail_next("save_image", fill)
    with pytest.raises(LedgerUnavailable):
        save_image(lab.session, fox, "keras")
    assert lab.clock() - begun < timedelta(minutes=1)


def test_a_removal_that_cannot_be_recorded_is_not_called_unproved(lab, fill):
    image = save_image(lab.session, lab.up(name="fox").machine, "keras")
    lab.cloud.fail_next("remove", fill)
    with pytest.raises(LedgerUnavailable):
        remove(lab.session, image)
    assert lab.cloud.calls["remove"] == 1
