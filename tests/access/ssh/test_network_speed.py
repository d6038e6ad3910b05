"""What iperf3 and nccl-tests say, and a real measurement between two SSH servers, which leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import subprocess

import psutil
import pytest

from cloudgpu.access.ssh import network_speed
from cloudgpu.access.ssh.connection import connect
from cloudgpu.access.ssh.network_speed import (
    Tools,
    iperf3_result,
    measure_with_iperf3,
    measure_with_nccl,
    nccl_result,
    no_iperf3_error,
    read_tools,
)
from cloudgpu.errors import Unreachable
from tests.access.sshserver import Server, wait_for

needs_iperf3 = pytest.mark.skipif(shutil.which("iperf3") is None, reason="iperf3 is not installed")
DONE = (
    b'{"start": {"version": "iperf 3.12"}, "end": {"sum_received": {"seconds": 5.0, "bytes": 5000000000, '
    b'"bits_per_second": 8000000000.0}}}'
)
# The end of all_reduce_perf, as nccl-tests prints it.
NCCL = b"""\
# Using devices
#  Rank  0 Group  0 Pid   2748 on    node-0 device  0 [0x01] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid   2751 on    node-1 device  0 [0x01] NVIDIA H100 80GB HBM3
#
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
   134217728      33554432     float     sum      -1   3355.4   40.00   70.00      0   3355.4   40.00   70.00      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 42.5
#
"""


@pytest.fixture
def second(tmp_path):
    """One more SSH server, logged in."""
    made = Server(tmp_path / "second")
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / "connections").touch()
    with connect(made.start().pin().target, timeout=10) as connection:
        yield connection
    made.kill()


def running(port):
    """The processes of iperf3 on this port."""
    found = psutil.process_iter(["cmdline"])
    return [one for one in found if "iperf3" in (words := one.info["cmdline"] or []) and str(port) in words]


@needs_iperf3
def test_one_machine_sends_to_another_and_nothing_stays(connection, second):
    ready = read_tools(connection)
    assert ready.address == "127.0.0.1"
    assert ready.iperf3.startswith("iperf 3.")
    found = measure_with_iperf3(connection, second, ready.address, seconds=1)
    assert found.gbit_per_s > 0.01
    assert found.seconds == pytest.approx(1, abs=1)
    assert found.program.startswith("iperf 3.")


@needs_iperf3
def test_whoever_hangs_up_ends_what_it_started(connection, monkeypatch):
    monkeypatch.setattr(network_speed, "PORT_RANGE", (28123, 28123))
    with network_speed._iperf3_server(connection, "127.0.0.1", 28123, 8) as listens:
        assert listens
        assert running(28123)
        connection.close()
    wait_for(lambda: not running(28123), 60)


def test_a_timeout_that_passes_no_signal_on_leaves_nothing(tmp_path):
    """As one of coreutils does that has forked and does not know its child's number yet."""
    program = tmp_path / "timeout"
    program.write_text('#!/bin/sh\nexec setsid -w sh -c \'"$@" & wait\' sh "$4" "$5"\n')
    program.chmod(0o755)
    text = network_speed._WHILE_CONNECTED.format(limit=60, command="sleep 61.25")
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    begun = subprocess.Popen(["sh", "-c", text], stdin=subprocess.PIPE, env={"PATH": path})

    def sleeps():
        return [one for one in psutil.process_iter(["cmdline"]) if one.info["cmdline"] == ["sleep", "61.25"]]

    wait_for(sleeps)
    begun.stdin.close()
    begun.wait(20)
    assert wait_for(lambda: not sleeps())


@needs_iperf3
def test_a_machine_that_is_not_reached_is_named(connection, second):
    with pytest.raises(Unreachable, match=r"box did not reach 127\.0\.0\.1: .*refused"):
        network_speed._measure_upload(second, "127.0.0.1", 1, 1)


@pytest.fixture
def with_programs(tmp_path, monkeypatch):
    """A machine that has programs of these names with these texts, and no iperf3."""
    made = []

    def serve(**programs):
        directory = tmp_path / "bin"
        directory.mkdir()
        for name in ("sh", "head", "grep", "cat", "timeout"):
            (directory / name).symlink_to(shutil.which(name))
        for name, text in programs.items():
            (directory / name.replace("_", "-") if name == "nvidia_smi" else directory / name).write_text(text)
        for file in directory.iterdir():
            if not file.is_symlink():
                file.chmod(0o755)
        (tmp_path / "machine").mkdir()
        (tmp_path / "machine" / "connections").touch()
        with monkeypatch.context() as patch:
            patch.setenv("PATH", str(directory))
            made.append(Server(tmp_path / "machine").start().pin())
        return made[0].target

    yield serve
    for server in made:
        server.kill()


def test_nccl_tests_are_started_by_slurm_on_all_nodes(with_programs):
    run = '#!/bin/sh\necho "# $SLURM_CONF $*"\n' + f"cat <<'END'\n{NCCL.decode()}END\n"
    gpus = "#!/bin/sh\necho 'GPU 0: NVIDIA H100'\n"
    target = with_programs(salloc=run, mpirun="", all_reduce_perf_mpi="", nvidia_smi=gpus)
    with connect(target, timeout=10) as connection:
        ready = read_tools(connection)
        assert (ready.iperf3, ready.nccl, ready.gpus) == ("", "all_reduce_perf_mpi", 1)
        with network_speed._run_in_session(connection, ["sh", "-c", "exit 7"], 5) as channel:
            assert channel.recv_exit_status() == 7
        found = measure_with_nccl(connection, "all_reduce_perf_mpi", 2, 1, ".cloudgpu/slurm/x/0/slurm.conf")
        assert found.gbit_per_s == pytest.approx(340)
        with pytest.raises(Unreachable, match="instead of 4"):
            measure_with_nccl(connection, "all_reduce_perf_mpi", 4, 1, ".cloudgpu/slurm/x/0/slurm.conf")


def test_how_to_install_what_is_missing_is_a_command():
    error = no_iperf3_error(["train-0", "train-1"])
    assert error.exit_code == 2
    assert error.message == "iperf3 is not installed on train-0 and train-1."
    assert "cloudgpu exec train-1 -- sudo apt-get install -y iperf3" in error.next


def test_what_was_received_counts():
    found = iperf3_result(b"warning: something\n" + DONE, "b", "10.0.0.1")
    assert found == (8.0, 5.0, "iperf 3.12")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b'{"start": {}, "error": "unable to connect to server: No route to host"}', "No route to host"),
        (b"sh: 1: iperf3: not found", "not found"),
        (b"", "did not answer in time"),
        (b"[1, 2]", "1, 2"),
    ],
)
def test_where_nothing_was_received_the_programs_own_words_are_the_reason(said, why):
    with pytest.raises(Unreachable, match=f"b did not reach 10.0.0.1: .*{why}"):
        iperf3_result(said, "b", "10.0.0.1")


def test_the_bus_bandwidth_of_nccl_tests_is_in_bits():
    assert nccl_result(NCCL, "train-0", "all_reduce_perf", 2).gbit_per_s == pytest.approx(340)
    alone = NCCL.replace(b"Rank  1 ", b"Rank  0 ") + NCCL
    for said, why in (
        (NCCL.replace(b"42.5", b"0"), "Avg bus"),
        (b"salloc: error: no nodes\n", "no nodes"),
        (b"", "did not answer in time"),
    ):
        with pytest.raises(Unreachable, match=why):
            nccl_result(said, "train-0", "all_reduce_perf", 2)
    with pytest.raises(Unreachable, match="ran 2 connected ranks instead of 16: it is built without MPI"):
        nccl_result(alone, "train-0", "all_reduce_perf", 16)


def test_nccl_tests_need_all_that_starts_them():
    every = frozenset({"mpirun", "salloc", "all_reduce_perf"})
    assert Tools("a", "", every, 8).nccl == "all_reduce_perf"
    assert Tools("a", "", every | {"all_reduce_perf_mpi"}, 8).nccl == "all_reduce_perf_mpi"
    assert Tools("a", "", every, 0).nccl is None
    assert all(Tools("a", "", every - {one}, 8).nccl is None for one in every)
