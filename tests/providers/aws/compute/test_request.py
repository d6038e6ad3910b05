"""User data of EC2: one gzip, with every shipped template below the limit."""

from __future__ import annotations

import gzip
import random
from dataclasses import asdict, replace

import pytest

from cloudgpu.agent.program import source as agent_source
from cloudgpu.config.templates.find import load_template, template_names
from cloudgpu.config.templates.render import _values, render_parts
from cloudgpu.core.model.launch import BootPart, Volume
from cloudgpu.core.model.offers import MachineConfiguration, Market
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.aws.compute.request import MAX_USER_DATA, Call, boot_options, user_data
from cloudgpu.providers.machine import user_data as bootdata
from cloudgpu.testing import make_attempt
from tests.providers.aws.attempts import USUAL, saved

CALL = Call(
    region="us-east-1",
    zone="us-east-1b",
    image="ami-0123456789abcdef0",
    root_device="/dev/sda1",
    disk_gb=64,
    subnet="subnet-1",
    vpc="vpc-1",
    group=None,
    callers={"caller": "203.0.113.7/32"},
    profile="cloudgpu-machine",
    ssh_port=2222,
    volume="vol-0123456789abcdef0",
)
ITEM = MachineConfiguration("aws", "lab", "us-east-1", "us-east-1b", "p3.2xlarge", Market.SPOT)


def attempt(*parts, call=CALL, volume=None, **more):
    made = make_attempt(ITEM, parts=parts, agent_source=agent_source(), **more)
    setup = replace(USUAL, volume=volume)
    return replace(made, call=asdict(call), request=replace(made.request, setup=setup))


def template_parts(name, made):
    """Return a template's parts, and its command of Jupyter's, as a launch of `made` gets them."""
    template = load_template(name, search=())
    return render_parts(template, _values(made.request, made.offer)), template.jupyter


def with_everything(name):
    """Return an attempt with a template's parts after those that install a driver, a volume and a profile."""
    made = attempt(volume=Volume("data", 100))
    driver, _ = template_parts("cuda", made)
    own, jupyter = template_parts(name, made)
    parts = (*(driver if name != "cuda" else ()), *own)
    return attempt(*parts, volume=Volume("data", 100), jupyter=jupyter)


@pytest.mark.parametrize("name", template_names(search=()))
def test_every_shipped_template_fits_with_a_driver_a_volume_and_a_profile(name):
    room = 750 if load_template(name, search=()).container else 1_800  # for a lab's own lines
    assert len(user_data(with_everything(name))) < MAX_USER_DATA - room


def test_all_shipped_templates_together_fit():
    made = attempt()
    found = [part for name in template_names(search=()) for part in template_parts(name, made)[0]]
    parts = [part for part in found if part.kind != "container"]  # a machine has one
    assert len(user_data(attempt(*parts, volume=Volume("data"), jupyter=("jupyter", "lab")))) <= MAX_USER_DATA


def test_what_is_too_large_is_refused_with_its_size():
    noise = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=30_000))
    with pytest.raises(InvalidRequest, match=r"makes [\d,]+ bytes of boot data; EC2 takes 16,384") as caught:
        user_data(attempt(BootPart("on_start", f"# {noise}\n")))
    assert (caught.value.field, caught.value.value) == ("template", "jupyter")


def test_the_same_attempt_makes_the_same_bytes_in_another_process():
    made = with_everything("d2l")
    assert user_data(made) == user_data(saved(made))


def test_it_is_the_boot_data_of_what_was_looked_up():
    made = attempt(volume=Volume("data"))
    assert boot_options(made) == bootdata.BootOptions(
        "aws", ssh_port=2222, reports=True, volume="vol-0123456789abcdef0"
    )
    assert gzip.decompress(user_data(made)).decode() == bootdata.user_data(made, boot_options(made))
    lean = replace(CALL, profile=None, volume=None, ssh_port=22)
    assert boot_options(attempt(call=lean)) == bootdata.BootOptions("aws")
