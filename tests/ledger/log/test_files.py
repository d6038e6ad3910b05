"""Network file systems are told from local ones by the mount table alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudgpu.errors import InvalidRequest
from cloudgpu.ledger.log import files as filesystem
from cloudgpu.ledger.log.files import filesystem_of, is_network, mount_output, mountinfo, refuse_network
from cloudgpu.ledger.open import open_ledger
from tests.ledger.lines import Clock, note

MOUNTINFO = r"""
22 28 0:20 / /proc rw,nosuid shared:12 - proc proc rw
28 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
90 28 0:45 / /home rw,relatime shared:50 master:3 propagate_from:2 - nfs4 server:/export/home rw,vers=4.2
91 90 8:2 / /home/ada/local rw,relatime - xfs /dev/sdb1 rw
92 28 0:46 / /mnt/my\040share\134x rw - cifs //server/share rw
93 28 0:47 / /mnt/c rw - 9p drvfs rw
94 28 0:48 / /over rw - ext4 /dev/sdc1 rw
95 28 0:49 / /over rw - fuse.sshfs ada@server: rw
96 28 0:50 / /tie rw - nfs server:/a rw
97 28 0:51 / /tie rw - tmpfs tmpfs rw
a line that is none
"""
MOUNT = """
/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)
/dev/disk3s5 on /System/Volumes/Data (apfs, local, journaled, nobrowse)
//ada@server/share on /Volumes/share (1) (smbfs, nodev, nosuid, mounted by ada)
server:/export on /Volumes/home (nfs)
ada@server: on /Users/ada/remote (macfuse_sshfs, synchronous)
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/var/lib/x", "ext4"),
        ("/home", "nfs4"),
        ("/home/ada/.local/share/cloudgpu", "nfs4"),
        ("/home/ada/local", "xfs"),
        ("/home/ada/local/deep/er", "xfs"),
        ("/home/ada/locality", "nfs4"),
        ("/homework", "ext4"),
        ("/mnt/my share\\x/ledger.db", "cifs"),
        ("/mnt/c/Users", "9p"),
        ("/over/x", "fuse.sshfs"),
        ("/tie/x", "tmpfs"),
    ],
)
def test_the_longest_and_last_mount_point_holds_the_path(path: str, kind: str) -> None:
    assert filesystem_of(Path(path), mountinfo(MOUNTINFO)) == kind


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/Users/ada", "apfs"),
        ("/Volumes/share (1)/x", "smbfs"),
        ("/Volumes/home/x", "nfs"),
        ("/Users/ada/remote/x", "macfuse_sshfs"),
    ],
)
def test_what_mount_prints_on_macos_is_understood(path: str, kind: str) -> None:
    assert filesystem_of(Path(path), mount_output(MOUNT)) == kind


def test_an_unknown_table_says_nothing() -> None:
    assert filesystem_of(Path("/x"), mountinfo("")) is None


@pytest.mark.parametrize(
    "kind", "nfs nfs4 NFS cifs smb2 smb3 smbfs 9p afs lustre ceph fuse.sshfs fuse.s3fs fuse.ceph-fuse beegfs".split()
)
def test_a_network_file_system_is_known_as_one(kind: str) -> None:
    assert is_network(kind)


@pytest.mark.parametrize(
    "kind", "ext4 xfs btrfs zfs tmpfs overlay apfs hfs fuse.encfs fuseblk vfat nfsd f2fs bcachefs ecryptfs".split()
)
def test_a_local_file_system_is_not_refused(kind: str) -> None:
    assert not is_network(kind)


def test_a_ledger_on_a_network_file_system_is_refused_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = [("/", "ext4"), (str(tmp_path.resolve()), "nfs4")]
    monkeypatch.setattr(filesystem, "_mounts", lambda: table)
    ledger = open_ledger(None, tmp_path / "home" / "ledger", actor="somebody", clock=Clock())
    for attempt in (lambda: ledger.append([note(1)]), ledger.machines, ledger.integrity_problem):
        with pytest.raises(InvalidRequest, match="network file system") as caught:
            attempt()
        assert "CLOUDGPU_LEDGER=sqlite:///" in (caught.value.next or "")
        assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_link_to_a_network_file_system_is_seen_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "near").symlink_to(tmp_path / "far")
    monkeypatch.setattr(filesystem, "_mounts", lambda: [("/", "ext4"), (str((tmp_path / "far").resolve()), "cifs")])
    with pytest.raises(InvalidRequest):
        refuse_network(tmp_path / "near" / "ledger.db")
    refuse_network(tmp_path / "ledger.db")


def test_this_machines_own_mounts_are_read(tmp_path: Path) -> None:
    assert filesystem_of(tmp_path.resolve(), filesystem._mounts())
