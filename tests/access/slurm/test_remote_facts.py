"""What a node says it has, read here."""

from __future__ import annotations

import pytest

from cloudgpu.access.slurm.remote_facts import gpus, memory_mb

DEVICES = ("/dev/null", "/dev/zero", "/dev/full")  # stand-ins: device files that are on every computer
MINORS = (2, 0, 1)  # of the GPUs in the order of the PCI bus, which may be another one: the driver numbers them
SECTION = """GPU 00000000:{bus}1:00.0
    Product Name                          : Some GPU
    GPU UUID                              : GPU-{number}a-4f3e
    Minor Number                          : {minor}
    Processes                             : None
"""
LISTED = "".join(SECTION.format(bus=n + 1, number=n, minor=minor) for n, minor in enumerate(MINORS))


@pytest.fixture
def computer(tmp_path, monkeypatch):
    """A computer with three GPUs; that `nvidia-smi -q` prints sections of this form is our belief."""
    program = tmp_path / "bin/nvidia-smi"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\n[ "$*" = -q ] && cat {tmp_path}/listed\n')
    (tmp_path / "listed").write_text(f"Attached GPUs                             : 3\n{LISTED}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".cloudgpu").mkdir()
    (tmp_path / ".cloudgpu/gpu-devices").write_text("\n".join(DEVICES))


@pytest.mark.parametrize(
    ("visible", "indexes"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("0,2", [0, 2]),
        ("-1", []),
        ("1,-1,2", [1]),  # what follows an entry that names none is not visible, says the CUDA C++ Programming Guide
        ("GPU-2a-4f3e,GPU-0a-4f3e", [0, 2]),  # so a machine on the user's own host gets its GPUs
        ("GPU-1a", [1]),
        ("GPU-", []),
        ("MIG-1a-4f3e", []),
        ("7", []),
    ],
)
def test_only_the_gpus_that_this_machine_may_use_are_its_own(computer, monkeypatch, visible, indexes):
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpus() == [DEVICES[index] for index in indexes]


@pytest.mark.parametrize(
    ("visible", "numbers"),
    [
        (None, [0, 1, 2]),
        ("GPU-0a-4f3e", [2]),
        ("GPU-2a,GPU-1a", [0, 1]),
        ("0,1", [0, 2]),
    ],
)
def test_a_gpu_is_the_device_file_that_its_driver_gave_it(computer, tmp_path, monkeypatch, visible, numbers):
    """By its place in the list Slurm would get the GPU of another user."""
    (tmp_path / ".cloudgpu/gpu-devices").unlink()
    (tmp_path / "dev").mkdir()
    for number in range(3):
        (tmp_path / f"dev/nvidia{number}").symlink_to("/dev/null")
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpus(tmp_path / "dev") == [f"{tmp_path}/dev/nvidia{number}" for number in numbers]


@pytest.mark.parametrize("minor", ["N/A", "7"])
def test_a_gpu_whose_device_file_is_not_known_is_left_out(computer, tmp_path, monkeypatch, minor):
    (tmp_path / ".cloudgpu/gpu-devices").unlink()
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").symlink_to("/dev/null")
    (tmp_path / "listed").write_text(SECTION.format(bus=1, number=0, minor=minor))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-0a-4f3e")
    assert gpus(tmp_path / "dev") == []


@pytest.mark.parametrize(
    ("cgroup", "limits", "mib"),
    [
        ("0::/\n", {}, 64_000),
        ("0::/\n", {"memory.max": "max\n"}, 64_000),
        ("0::/\n", {"memory.max": f"{8 << 30}\n"}, 8192),  # a container sees its own group as the first one
        ("0::/a/b\n", {"a/memory.max": f"{4 << 30}\n", "a/b/memory.max": "max\n"}, 4096),
        ("0::/a\n", {"a/memory.max": f"{128 << 30}\n"}, 64_000),
        ("4:memory:/a\n0::/\n", {"memory/a/memory.limit_in_bytes": f"{2 << 30}\n"}, 2048),
        ("4:cpu,memory:/a\n", {"memory/memory.limit_in_bytes": f"{2 << 30}\n"}, 2048),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, 64_000),  # no limit
    ],
)
def test_the_memory_of_a_container_is_its_limit(tmp_path, cgroup, limits, mib):
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal:       {64_000 * 1024} kB\nMemFree: 1 kB\n")
    (proc / "self/cgroup").write_text(cgroup)
    for name, text in limits.items():
        (groups / name).parent.mkdir(parents=True, exist_ok=True)
        (groups / name).write_text(text)
    assert memory_mb(proc, groups) == mib


def test_the_memory_of_this_computer_is_known():
    assert memory_mb() > 100
