"""A template with a container at a launch: refused where it cannot run, planned with what its pull takes."""

from __future__ import annotations

import pytest

from cloudgpu.core.model.launch import Setup
from cloudgpu.errors import InvalidRequest, LaunchUncertain
from cloudgpu.ledger import saved_calls as saved

NGC = "nvcr.io/nvidia/pytorch:25.06-py3"


def refused(lab, **more):
    with pytest.raises(InvalidRequest) as caught:
        lab.up(**more)
    assert lab.machines() == []
    assert lab.rows() == []
    return caught.value


def own(lab, name, text):
    path = lab.session.home.root / "templates" / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def test_an_image_that_is_too_new_for_a_v100_is_refused_with_the_newest_tag_that_works(lab):
    error = refused(lab, template="ngc")
    assert error.message == f"{NGC} needs CUDA compute capability 7.5 or more, and v100 has 7.0."
    assert '[templates.ngc] and tag = "24.12-py3"' in error.next


def test_that_tag_is_taken_from_the_settings_and_launched(lab):
    config = lab.home / "config.toml"
    config.write_text(f'{config.read_text()}[templates.ngc]\ntag = "24.12-py3"\n')
    lab.session = lab.opened()
    row = lab.up(template="ngc").machine
    boot = saved.load(lab.session.home.attempts, row.token).boot
    assert [part.text for part in boot.parts if part.kind == "container"] == ["nvcr.io/nvidia/pytorch:24.12-py3"]


def test_where_other_gpus_fit_the_wish_those_that_cannot_run_it_are_passed_over(lab):
    prepared = lab.prepare(gpu=None, template="ngc")
    assert f"passed over: v100, which {NGC} does not support" in prepared.plan.remarks
    assert {gpu.name for offer in prepared.offers for gpu in offer.configuration.accelerators} == {
        "a100-40gb",
        "a100-80gb",
    }


def test_an_interrupted_launch_that_was_not_made_goes_on_with_no_gpu_that_cannot_run_it(make_lab):
    lab = make_lab('prices = { "fake.cpu" = 99 }')
    lab.cloud.fail_next("launch", LaunchUncertain("no answer"))
    with pytest.raises(LaunchUncertain):
        lab.up(gpu=None, template="ngc")
    lab.later(hours=1)  # a v100 costs less
    row = lab.up(gpu=None, template="ngc").machine
    assert [gpu.name for gpu in row.accelerators] == ["a100-40gb"]


def test_the_plan_says_what_the_pull_takes_and_costs_and_whose_licence_is_accepted(lab):
    said = "\n".join(lab.prepare(gpu="a100-40gb", template="ngc").plan.remarks)
    assert f"container {NGC}: 10 GB to pull, 23 GB on the disk; 4 to 10 minutes" in said
    assert "billed: $0.60 at most" in said
    assert "accepts NVIDIA's licence" in said


def test_a_disk_that_is_too_small_for_the_image_is_refused(lab):
    error = refused(lab, gpu="a100-40gb", template="ngc", setup=Setup(disk_gb=50))
    assert (error.field, error.value) == ("--disk", "50")
    assert "it needs 60 GB" in error.message


def test_an_unknown_image_is_launched_and_what_is_not_known_is_said(lab):
    own(lab, "mine", "container: docker.io/ada/work:1.2\n")
    said = "\n".join(lab.prepare(template="mine").plan.remarks)
    assert "assumed: its size is not known" in said
    assert "which GPUs docker.io/ada/work:1.2 supports is not known" in said
    assert "licence" not in said


def test_a_provider_without_containers_refuses_instead_of_leaving_it_out(lab):
    own(lab, "mine", "container: docker.io/ada/work:1.2\n")
    error = refused(lab, template="mine", provider="local", gpu=None)
    assert error.message.startswith("The local provider runs no containers, and the template mine is one")


def test_a_queue_does_not_run_its_jobs_in_a_container_so_both_together_are_refused(lab):
    error = refused(lab, gpu="a100-40gb", template="ngc", nodes=2, engine="slurm", name="train")
    assert "engine: slurm" in error.message
    assert lab.prepare(gpu="a100-40gb", template="ngc", nodes=2, engine="none", name="train").plan.nodes == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("container: ubuntu\n", "has no fixed tag"),
        ("container: ubuntu:latest\n", "has no fixed tag"),
        ("container: 'ubuntu:1; reboot'\n", "is not the name of a container image"),
        ("container: 'ubuntu:{{ settings.tga }}'\nsettings:\n  tag: '1'\n", "did you mean 'tag'?"),
        ("container: 'ubuntu:{{ gpu }}'\n", "is not the name of a container image"),
        ("container: 'ubuntu:{{ settings.tag }}'\nsettings:\n  tag: '1 --privileged'\n", "is not the name"),
    ],
)
def test_what_cannot_be_pulled_the_same_twice_is_a_fault_of_the_template(lab, text, says):
    own(lab, "mine", text)
    error = refused(lab, template="mine")
    assert says in str(error)
    assert error.field == "mine.yaml: container"
