"""What else runs on an EC2 machine, run for real: the report of the last activity, the data volume, Jupyter's wait."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from datetime import UTC, datetime

import boto3
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from cloudgpu.providers.machine import report_aws, source
from tests.providers.aws.accounts import account, machine, own
from tests.providers.machine.metadata import KEY, metadata

# The report


def run_report(aws, home, imds):
    place = {"IMDS": imds, "AGENT": home, "RUN": home, "EC2_URL": f"{aws.url}/"}
    environ = {"PATH": os.environ["PATH"], **{name: str(value) for name, value in place.items()}}
    return subprocess.run(
        [sys.executable, report_aws.__file__], env=environ, capture_output=True, text=True, check=False, timeout=30
    )


def test_a_machine_writes_its_own_last_active_tag_once_per_change(aws, tmp_path):
    found = machine()
    (tmp_path / "last-active").write_text("1800000000\n")
    with metadata() as imds:
        imds.said["meta-data/instance-id"] = own(found)
        for _ in range(2):
            done = run_report(aws, tmp_path, imds.url)
            assert (done.returncode, done.stderr) == (0, "")
    sent = aws.called("CreateTags")
    assert [call.access_key for call in sent] == [KEY["AccessKeyId"]]
    assert sent[0].parameters["Tags"] == [{"Key": "cloudgpu-last-active", "Value": "1800000000"}]
    assert account(tmp_path).get(found).last_active == datetime.fromtimestamp(1_800_000_000, UTC)


def test_a_machine_in_china_reports_to_the_host_of_its_own_partition(tmp_path, monkeypatch):
    asked, find = [], socket.getaddrinfo

    def found(host, *more, **named):
        asked.append(host)
        if host != "127.0.0.1":
            raise socket.gaierror
        return find(host, *more, **named)

    monkeypatch.setattr("socket.getaddrinfo", found)
    monkeypatch.delenv("EC2_URL", raising=False)
    with metadata() as imds:
        imds.said |= {"meta-data/placement/region": "cn-north-1", "meta-data/services/domain": "amazonaws.com.cn"}
        monkeypatch.setattr(report_aws, "IMDS", imds.url)
        with pytest.raises(OSError, match="urlopen"):
            report_aws.send(1_800_000_000)
    assert asked[-1] == "ec2.cn-north-1.amazonaws.com.cn"
    assert f"https://{asked[-1]}" == boto3.client("ec2", region_name="cn-north-1").meta.endpoint_url


def test_silence_is_tried_again_a_minute_later(aws, tmp_path):
    (tmp_path / "last-active").write_text("1800000000\n")
    done = run_report(aws, tmp_path, "http://127.0.0.1:1/latest")
    assert done.returncode == 1
    assert done.stderr.startswith("cloudgpu-report: ")
    assert not (tmp_path / "reported").exists()


def test_a_machine_where_nobody_worked_reports_nothing(aws, tmp_path):
    assert run_report(aws, tmp_path, "http://127.0.0.1:1/latest").returncode == 0
    assert not aws.calls


def test_the_signature_is_the_one_that_the_sdk_makes(monkeypatch):
    now = datetime(2026, 11, 21, 8, 15, 30, tzinfo=UTC)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda: now.replace(tzinfo=None))
    url, body = "https://ec2.eu-west-1.amazonaws.com/", "Action=CreateTags&Version=2016-11-15"
    asked = AWSRequest("POST", url, data=body.encode())
    signer = SigV4Auth(Credentials(KEY["AccessKeyId"], KEY["SecretAccessKey"], KEY["Token"]), "ec2", "eu-west-1")
    signer.add_auth(asked)
    signed = report_aws.sign(url, "eu-west-1", body, KEY, now.timestamp())
    assert signed["Authorization"] == asked.headers["Authorization"]


# The data volume. Disks are files here; what mounts is a stand-in that takes notes, what looks and formats is not.


DISK_TOOLS = ("blkid", "cmp", "mkfs.ext4", "wipefs")
ROOTS_PATH = f"{os.environ['PATH']}:/sbin:/usr/sbin"


@pytest.fixture
def disks(tmp_path):
    missing = [name for name in DISK_TOOLS if shutil.which(name, path=ROOTS_PATH) is None]
    if missing:
        pytest.skip(f"this system has no {', '.join(missing)}")
    for name in ("dev/disk/by-id", "dev/disk/azure/scsi1", "dev/disk/azure/data/by-lun", "bin"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "fstab").touch()
    (tmp_path / "launch").write_text("user=cloudgpu\n")
    (tmp_path / "cloud").write_text(source("cloud_aws.sh"))
    stands_in = {
        "mount": f'echo "mount $*" >>{tmp_path}/done',
        "chown": f'echo "chown $*" >>{tmp_path}/done',
        "mountpoint": "exit 1",
        "findmnt": "echo /dev/nvme0n1p1",
        "lsblk": "echo nvme0n1",
        "sleep": "exit 0",
    }
    for name, text in stands_in.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def disk(disks, name, *links, megabytes=8, under="by-id"):
    path = disks / "dev" / name
    with path.open("wb") as file:
        file.truncate(megabytes << 20)
    for link in links:
        (disks / "dev" / "disk" / under / link).symlink_to(path)
    return path


def mount(disks, *words, tries=2):
    environ = {
        "PATH": f"{disks}/bin:{ROOTS_PATH}",
        "HERE": f"{disks}",
        "SYS": f"{disks}/sys",
        "DEV": f"{disks}/dev",
        "MOUNT": f"{disks}/data",
        "FSTAB": f"{disks}/fstab",
        "IS_DISK": "-f",
        "TRIES": str(tries),
    }
    (disks / "done").unlink(missing_ok=True)
    command = ["/bin/sh", "-c", source("volume.sh"), "volume", *words]
    status = subprocess.run(command, env=environ, capture_output=True, check=False, timeout=30).returncode
    notes = disks / "done"
    return status, notes.read_text().splitlines() if notes.exists() else []


def label(path):
    command = [shutil.which("blkid", path=ROOTS_PATH), "-p", "-o", "value", "-s", "LABEL", path]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def test_a_blank_volume_gets_a_file_system_and_one_that_has_it_keeps_it(disks):
    root = disk(disks, "nvme0n1", "nvme-Amazon_Elastic_Block_Store_vol0root")
    new = disk(disks, "nvme1n1", "nvme-Amazon_Elastic_Block_Store_vol0new", "nvme-Amazon_Elastic_Block_Store_vol0new_1")
    assert mount(disks) == (0, [f"mount {new} {disks}/data", f"chown cloudgpu: {disks}/data"])
    assert (label(new), label(root)) == ("cloudgpu-data", "")
    before = new.read_bytes()
    assert mount(disks) == (0, [f"mount {new} {disks}/data"])
    assert new.read_bytes() == before
    (line,) = (disks / "fstab").read_text().splitlines()
    assert line.split()[1:4] == [f"{disks}/data", "auto", "defaults,nofail,x-systemd.device-timeout=30s"]


def test_a_volume_is_found_by_its_own_id_and_no_other_disk_is_touched(disks):
    other = disk(disks, "nvme1n1", "nvme-Amazon_Elastic_Block_Store_vol0other")
    assert mount(disks, "vol-0abc")[0] == 1
    wanted = disk(disks, "nvme2n1", "nvme-Amazon_Elastic_Block_Store_vol0abc")
    assert mount(disks, "vol-0abc")[1][0] == f"mount {wanted} {disks}/data"
    assert label(other) == ""


def test_a_volume_is_found_by_the_name_that_xen_gives_it(disks):
    wanted = disk(disks, "xvdf")
    assert mount(disks, "vol-0abc")[1][0] == f"mount {wanted} {disks}/data"


def test_a_disk_that_holds_something_unknown_is_not_formatted(disks):
    held = disk(disks, "sdf")
    with held.open("r+b") as file:
        file.seek(1000)
        file.write(b"somebody's data")
    before = held.read_bytes()
    mount(disks)
    assert held.read_bytes() == before


def test_a_volume_of_google_s_is_found_by_its_device_name(disks):
    (disks / "cloud").write_text(source("cloud_gcp.sh"))
    other = disk(disks, "sdb", "google-scratch", "google-cloudgpu-data-1-part1")
    assert mount(disks, "cloudgpu-data-1")[0] == 1
    wanted = disk(disks, "sdc", "google-cloudgpu-data-1")
    assert mount(disks, "cloudgpu-data-1") == (
        0,
        [f"mount {wanted} {disks}/data", f"chown cloudgpu: {disks}/data"],
    )
    assert label(other) == ""


@pytest.mark.parametrize(("under", "link"), [("azure/scsi1", "lun0"), ("azure/data/by-lun", "0")])
def test_a_volume_of_azure_s_is_found_by_its_lun(disks, under, link):
    (disks / "cloud").write_text(source("cloud_azure.sh"))
    assert mount(disks, "0")[0] == 1
    wanted = disk(disks, "sdc", link, under=under)
    assert mount(disks, "0")[1][0] == f"mount {wanted} {disks}/data"


def test_a_volume_of_azure_s_is_found_where_no_rules_name_it(disks):
    (disks / "cloud").write_text(source("cloud_azure.sh"))
    for controller, model in (("nvme0", "Microsoft NVMe Direct Disk"), ("nvme1", "MSFT NVMe Accelerator v1.0")):
        (disks / "sys" / "class" / "nvme" / controller).mkdir(parents=True)
        (disks / "sys" / "class" / "nvme" / controller / "model").write_text(f"{model}  \n")
    local, system = disk(disks, "nvme0n2"), disk(disks, "nvme1n1")
    assert mount(disks, "0")[0] == 1
    wanted = disk(disks, "nvme1n2")
    assert mount(disks, "0")[1][0] == f"mount {wanted} {disks}/data"
    assert label(local) == label(system) == ""


# Jupyter's first start


def test_jupyter_says_why_it_could_not_be_installed(tmp_path):
    (tmp_path / ".cloudgpu").mkdir()
    (tmp_path / ".cloudgpu" / "jupyter.failed").touch()
    done = subprocess.run(
        ["/bin/sh", "-c", source("jupyter.sh"), "jupyter", "jupyterlab"],
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
        timeout=10,
    )
    assert done.returncode == 1
    assert done.stderr == "Jupyter could not be installed; ~/.cloudgpu/jupyter.log has the reason\n"


# What a template does at each start


def test_on_start_says_that_it_runs_and_then_how_it_ended(tmp_path):
    (tmp_path / ".cloudgpu").mkdir()
    (tmp_path / "launch").write_text("jupyter=''\n")
    (tmp_path / "on_start.sh").write_text("cat .cloudgpu/on_start.status\nexit 7\n")
    script = source("start.sh").replace("/usr/local/lib/cloudgpu", str(tmp_path))
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    subprocess.run(["/bin/sh", "-c", script], env=environ, check=True, timeout=10)
    assert (tmp_path / ".cloudgpu" / "on_start.log").read_text() == "running\n"
    assert (tmp_path / ".cloudgpu" / "on_start.status").read_text() == "7\n"


# The agent's start


@pytest.mark.parametrize("user", ["cloudgpu", "ada"])
def test_an_agent_that_starts_forgets_what_another_machine_knew_and_belongs_to_its_user(tmp_path, user):
    """A disk that came from an image bears the agent's files of the machine that it was made of."""
    here, base = tmp_path / "here", tmp_path / user / ".cloudgpu"
    for place in (here, base, tmp_path / "bin"):
        place.mkdir(parents=True)
    stands_in = {
        "getent": f'echo "$2:x:1000:1000::{tmp_path}/$2:/bin/bash"',
        "id": "echo people",
        "install": f'echo "$*" >>{tmp_path}/done',
    }
    for name, text in stands_in.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    script = source("settle.sh").replace("/usr/local/lib/cloudgpu", str(here))
    for launch in ("first", "first", "second"):
        (here / "launch").write_text(f"token={launch}\nuser={user}\n")
        (base / "expires").touch()
        environ = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
        subprocess.run(["/bin/sh", "-c", script], env=environ, check=True, timeout=10)
        assert (base / "launch").read_text() == f"{launch}\n"
        assert (base / "expires").exists() == ((base / "seen").exists() and launch == "first")
        (base / "seen").touch()
    done = (tmp_path / "done").read_text().splitlines()
    assert all(f"-o {user} -g people" in line for line in done)
    assert done[0] == f"-d -m 700 -o {user} -g people {base}"
