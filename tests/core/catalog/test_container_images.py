"""Which GPUs an image is made for, by its dated tag; what a reference may look like; how much room it takes."""

from __future__ import annotations

import pytest

from cloudgpu.core.catalog.container_images import (
    IMAGE_FAMILIES,
    ImageReference,
    min_disk_gb,
    misfit,
    parse_reference,
    pull_minutes,
)

PYTORCH = "nvcr.io/nvidia/pytorch"
K80, P100, V100, T4, A100, H100, B200 = "3.7", "6.0", "7.0", "7.5", "8.0", "9.0", "10.0"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"{PYTORCH}:24.12-py3", ImageReference(PYTORCH, "24.12-py3", "")),
        ("ubuntu:24.04", ImageReference("ubuntu", "24.04", "")),
        ("127.0.0.1:5000/a/b__c:1", ImageReference("127.0.0.1:5000/a/b__c", "1", "")),
        ("a/b@sha256:" + "0" * 64, ImageReference("a/b", "", "sha256:" + "0" * 64)),
        ("a b:1", None),
        ("a:1; rm -rf /", None),
        ("$(id):1", None),
        ("-v:1", None),
        ("a:", None),
        ("https://nvcr.io/a:1", None),
        ("a:1\n", None),
        ("a" * 300, None),
        ("", None),
    ],
)
def test_a_reference_is_read_as_docker_writes_it_and_nothing_else_is(text, found):
    assert parse_reference(text) == found


@pytest.mark.parametrize(
    ("image", "gpu", "newest"),
    [
        (f"{PYTORCH}:25.01-py3", V100, "24.12-py3"),
        (f"{PYTORCH}:25.01-py3", P100, "24.12-py3"),
        (f"{PYTORCH}:25.01-py3", K80, ""),
        (f"{PYTORCH}:24.12-py3", K80, ""),
        (f"{PYTORCH}:24.12-py3", B200, "25.06-py3"),
        ("nvcr.io/nvidia/tensorflow:25.02-tf2-py3", V100, "24.12-tf2-py3"),
        ("nvcr.io/nvidia/rapidsai/base:25.06-cuda12.8-py3.12", P100, "23.12-cuda12.0-py3.10"),
        ("nvcr.io/nvidia/rapidsai/base:25.12-cuda13-py3.13", V100, "25.06-cuda12.8-py3.12"),
    ],
)
def test_an_image_that_a_gpu_cannot_run_is_told_with_the_newest_tag_that_it_can(image, gpu, newest):
    found = misfit(image, gpu)
    assert found is not None
    assert (found.gpu_capability, found.newest_tag) == (gpu, newest)
    if newest:
        assert misfit(f"{parse_reference(image).repository}:{newest}", gpu) is None


@pytest.mark.parametrize(
    ("image", "gpu"),
    [
        (f"{PYTORCH}:24.12-py3", V100),
        (f"{PYTORCH}:24.12-py3", H100),
        (f"{PYTORCH}:25.01-py3", T4),
        (f"{PYTORCH}:25.06-py3", B200),
        ("nvcr.io/nvidia/rapidsai/base:25.06-cuda12.8-py3.12", V100),
        (f"{PYTORCH}:experimental", K80),  # nothing is known of it
        ("somebody/else:25.01", K80),
        (f"{PYTORCH}:25.01-py3", "gfx942"),  # no compute capability of NVIDIA's
        (f"{PYTORCH}:25.01-py3", ""),
    ],
)
def test_an_image_is_refused_by_what_is_known_alone(image, gpu):
    assert misfit(image, gpu) is None


def test_the_ranges_of_a_family_follow_each_other_and_each_newest_tag_is_of_its_own_range():
    for family in IMAGE_FAMILIES:
        assert [one.since for one in family.ranges] == sorted(one.since for one in family.ranges)
        for era in family.ranges:
            assert era.source
            assert misfit(f"{family.repository}:{era.newest_tag}", str(float(era.min_capability))) is None


def test_a_disk_holds_the_system_the_packed_and_the_unpacked_image():
    assert min_disk_gb(f"{PYTORCH}:25.06-py3") == 60
    assert min_disk_gb("somebody/else:1") == 40
    assert pull_minutes(f"{PYTORCH}:25.06-py3") == (4, 10)
