"""Named images: nothing is saved under a name that may be taken: the image that has it would pass for the new one."""

from __future__ import annotations

import pytest

from cloudgpu.control.resources.named import save_image
from cloudgpu.core.model.resources import Kind
from cloudgpu.errors import InvalidRequest, ProviderUnavailable


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


def test_an_image_that_another_machine_has_got_meanwhile_is_not_returned_as_the_new_one(lab):
    fox, owl = (lab.up(name=name, key=name).machine for name in ("fox", "owl"))

    def save_another():
        save_image(lab.session, fox, "keras")

    lab.cloud.fail_next("save_image", save_another)
    with pytest.raises(InvalidRequest, match="There is an image called keras already"):
        save_image(lab.session, owl, "keras")
