"""Four machines of this computer as one cluster with the real engine: set up, used, broken, ended."""

from __future__ import annotations

import base64
import os
import re
import shutil
import socket
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from cloudgpu.access.slurm.node import ALL_ADDRESSES, EngineNode
from cloudgpu.access.slurm.remote_processes import engine_processes
from cloudgpu.control.access.reach import connected_to
from cloudgpu.control.clusters.engine import read_engine_state, remove_engine, set_up_engine
from cloudgpu.core.clusters.conf import Files, process_tag_of
from cloudgpu.core.clusters.layout import engine_paths
from cloudgpu.errors import InvalidRequest, Unreachable
from tests.control.clusters.gang import Gang, needs_slurm, until
from tests.control.clusters.outside import answer_to_garbage, asked, is_open_elsewhere, listening, stranger

pytestmark = pytest.mark.timeout(600)
NODES = 4
EXAMPLES = Path(__file__).parents[3] / "examples" / "cluster"
PRINTS_ENVIRONMENT = (
    "env | grep -E '^(CLOUDGPU_|MASTER_|SLURM_PROCID|SLURM_CONF|HOME|CUDA)' | sort | tr '\\n' ';'; echo"
)


@pytest.fixture(scope="module")
def gang(tmp_path_factory):
    """Four machines, two of which say that they have GPUs: device files that are /dev/null."""
    needs_slurm()
    made = Gang(tmp_path_factory.mktemp("cluster"), NODES)
    try:
        for node in (2, 3):
            devices = "mkdir fake; for i in 0 1 2 3 4 5 6 7; do ln -s /dev/null fake/nvidia$i; done; "
            made.sh(f'{devices} for i in fake/*; do echo "$HOME/$i"; done > .cloudgpu/gpu-devices', node=node)
        set_up_engine(made.session, made.machines)
        yield made
    finally:
        made.end()
    assert made.engine_processes() == {}


@pytest.mark.soak
def test_all_nodes_are_ready_and_a_second_time_changes_nothing(gang):
    state = read_engine_state(gang.session, gang.machines)
    assert [(one.name, one.state) for one in state.nodes] == [(f"train-{n}", "idle") for n in range(NODES)]
    assert (state.answers, state.running_count, state.waiting_count) == (True, 0, 0)
    before = gang.engine_processes()
    set_up_engine(gang.session, gang.machines)
    assert gang.engine_processes() == before


def test_the_files_are_this_users_alone_and_the_key_is_the_clusters(gang):
    keys = set()
    for node in range(NODES):
        files = engine_paths("cg-test", node)
        _, out, _ = gang.sh(
            f"stat -c '%a %n' {files.directory} {files.directory}/* {files.socket_directory}", node=node
        )
        modes = {line.split()[1].rpartition("/")[2]: line.split()[0] for line in out.splitlines()}
        assert (modes["munge.key"], modes["slurm.conf"], modes["task-prolog"], modes[str(node)]) == (
            "600",
            "600",
            "700",
            "700",
        )
        _, key, _ = gang.sh(f"od -An -tx1 {files.directory}/munge.key | tr -d ' \\n'", node=node)
        keys.add(key)
    assert [len(key) for key in keys] == [256]


def test_versions_that_differ_are_refused_before_anything_is_changed(gang):
    old = '$(dirname "$(command -v python3)")/slurmd'  # the machine's own programs come first
    gang.sh(f"printf '#!/bin/sh\\necho slurm 20.02.7\\n' > {old} && chmod +x {old}", node=1)
    others = [row._replace(cluster=row.cluster._replace(id="cg-other")) for row in gang.machines]
    with pytest.raises(InvalidRequest) as refused:
        set_up_engine(gang.session, others)
    assert re.fullmatch(
        r"train-0 has Slurm [\d.]+ and train-1 has 20\.02\.7: a controller takes nodes up to \d releases back, .*",
        refused.value.message,
    )
    assert {gang.sh("ls .cloudgpu/slurm", node=node)[1] for node in range(NODES)} == {"cg-test\n"}
    assert gang.sh(f"rm {old}", node=1)[0] == 0


def test_every_task_finds_its_rank_its_nodes_and_its_own_machine(gang):
    status, out = gang.job(f'srun sh -c "{PRINTS_ENVIRONMENT}"', "-N4")
    assert status == 0
    found = [dict(re.findall(r"(\w+)=([^;]*);", line)) for line in out.splitlines() if "CLOUDGPU_NODE_RANK" in line]
    found.sort(key=lambda one: one["CLOUDGPU_NODE_RANK"])
    assert [one["CLOUDGPU_NODE_RANK"] for one in found] == ["0", "1", "2", "3"]
    assert [one["SLURM_PROCID"] for one in found] == ["0", "1", "2", "3"]
    assert [one["CLOUDGPU_MACHINE"] for one in found] == [gang.mark(node) for node in range(NODES)]
    assert len({one["HOME"] for one in found}) == NODES
    same = ("CLOUDGPU_NUM_NODES", "CLOUDGPU_GPUS_PER_NODE", "MASTER_ADDR", "MASTER_PORT", "CLOUDGPU_NODE_IPS")
    assert {tuple(one[name] for name in same) for one in found} == {
        ("4", "0", "127.0.0.1", found[0]["MASTER_PORT"], "127.0.0.1 127.0.0.1 127.0.0.1 127.0.0.1")
    }
    assert 20_000 <= int(found[0]["MASTER_PORT"]) < 30_000


def test_a_batch_script_reads_the_addresses_one_a_line_and_a_file_of_hosts(gang):
    reads = f'. "$HOME/{gang.files.job_environment}"; echo "$CLOUDGPU_NODE_IPS" | wc -l; cat "$CLOUDGPU_HOSTFILE"'
    _, out = gang.job(f"{reads}; srun -N1 -n1 sh -c 'echo \"$CLOUDGPU_NODE_IPS\" | wc -l'", "-N3")
    assert out == "3\ntrain-0 slots=1\ntrain-1 slots=1\ntrain-2 slots=1\n3\n"


def test_a_sum_over_all_nodes_is_right(gang):
    part = "i=$SLURM_PROCID; s=0; while [ $i -lt 1000 ]; do s=$((s + i)); i=$((i + SLURM_NTASKS)); done; echo $s"
    _, out = gang.job(f"srun sh -c '{part}' | awk '{{ s += $1 }} END {{ print \"sum\", s }}'", "-N4", "-n8")
    assert "sum 499500\n" in out


def test_mpirun_in_an_allocation_passes_a_token_around_all_nodes(gang):
    options = "--mca oob_tcp_if_include lo --mca btl tcp,self --mca btl_tcp_if_include lo"
    root = "--allow-run-as-root" if os.getuid() == 0 else ""
    example = f"MPIRUN_OPTIONS='{root} {options}' sh {EXAMPLES / 'mpirun.sh'}"
    status, out = gang.job(f"{example} python3 {Path(__file__).with_name('ring.py')}", "-N4", "-n4")
    assert status == 0, out
    assert sorted(re.findall(r"rank \d of 4 on train-\d, cg-test/\d", out)) == [
        f"rank {n} of 4 on train-{n}, cg-test/{n}" for n in range(4)
    ], out
    assert "the token came back with 6, the sum is 6" in out


def test_torchrun_is_told_the_ranks_by_the_example(gang):
    """PyTorch is a gigabyte: what the script starts stands in for it, and says what it was told."""
    says = 'bin=$(mktemp -d); printf "#!/bin/sh\\necho \\$*\\n" > $bin/torchrun; chmod +x $bin/torchrun'
    _, out = gang.job(f"{says}; PATH=$bin:$PATH; srun sh {EXAMPLES / 'torchrun.sh'} train.py", "-N3")
    found = [dict(re.findall(r"--([\w-]+)=(\S+)", line)) for line in out.splitlines() if line.endswith(" train.py")]
    assert sorted(one.pop("node-rank") for one in found) == ["0", "1", "2"]
    port = found[0]["master-port"]
    same = {"nnodes": "3", "nproc-per-node": "1", "master-addr": "127.0.0.1", "master-port": port}
    assert found == [same] * 3


CLIENT = """
from distributed import Client

if __name__ == "__main__":
    with Client() as client:
        client.wait_for_workers(3)
        workers = client.scheduler_info(n_workers=-1)["workers"]
        print("sum", sum(client.gather(client.map(lambda n: n * n, range(100)))), "by", len(workers))
"""


@pytest.mark.soak
def test_dask_has_a_worker_on_each_node_and_ends_with_its_client(gang, tmp_path):
    dask = shutil.which("dask", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if dask is None:
        pytest.skip("There is no Dask here: it comes with cloudgpu[test]")
    (tmp_path / "client.py").write_text(CLIENT)
    runs = f"srun sh {EXAMPLES / 'dask.sh'} {tmp_path / 'client.py'}"
    status, out = gang.job(f"export PATH={Path(dask).parent}:$PATH; {runs}", "-N3")
    assert "sum 328350 by 3" in out
    assert status == 0, out


def test_two_jobs_on_one_node_have_their_own_gpus(gang):
    waits = "for i in $(seq 300); do [ $(ls $HOME/met-* 2>/dev/null | wc -l) = 2 ] && break; sleep .1; done"
    has = "echo $CUDA_VISIBLE_DEVICES $CLOUDGPU_GPUS_PER_NODE > $HOME/has-$SLURM_JOB_ID"
    says = f"touch $HOME/met-$SLURM_JOB_ID; {waits}; {has}"
    submits = f"sbatch --time=5 -w train-3 --gres=gpu:3 -n1 -o /dev/null --wrap '{says}'"
    gang.sh(f"cd; rm -f met-* has-*; {submits}; {submits}")
    both = "for i in $(seq 300); do [ $(ls has-* 2>/dev/null | wc -l) = 2 ] && break; sleep .1; done; cat has-*"
    _, out, _ = gang.sh(both, node=3)
    assert sorted(out.splitlines()) == ["0,1,2 3", "3,4,5 3"]


def test_a_rank_that_exits_7_ends_the_others_and_says_so(gang):
    fails = "[ $SLURM_PROCID = 2 ] && exit 7; sleep 60"
    status, out = gang.job(f"srun sh -c '{fails}'", "-N4")
    assert "task 2: Exited with exit code 7" in out
    assert status in (143, 137)  # of those that were ended: SIGTERM, and SIGKILL for one that is busy for too long


@pytest.fixture
def busy(gang):
    """What listens while a job runs on all nodes: (kind, address, port) with the program's name."""
    gang.sh("cd; sbatch --time=5 -N4 -o /dev/null --wrap 'srun sleep 200'")
    until(lambda: all(_sleeping(gang, n, "200") for n in range(NODES)))
    yield listening(_all_processes(gang))
    gang.sh("scancel --full -u $(id -un)")
    until(lambda: read_engine_state(gang.session, gang.machines).running_count == 0)


def _all_processes(gang):
    found = {one.pid: one for node in range(NODES) for one in gang.processes(node)}
    for node in range(NODES):
        files = engine_paths("cg-test", node)
        whole = gang.sh(f'echo -n "$HOME/{files.directory}"', node=node)[1]
        for pid in engine_processes(Path(whole), Path(files.socket_directory), process_tag_of("cg-test", node)):
            with suppress(psutil.Error):
                found.setdefault(pid, psutil.Process(pid))
    return list(found.values())


@pytest.mark.soak
def test_no_port_of_a_cluster_is_open_to_other_computers_where_slurm_can_be_told(gang, busy):
    """It can where the host's name means the address at which the nodes reach each other, as it does on a cloud."""
    assert {"slurmctld", "slurmd", "srun"} < set(busy.values()), busy  # and the SSH servers of the machines
    slurms = {place for place, name in busy.items() if name.startswith(("slurm", "srun"))}
    narrow = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)[0][4][0] == "127.0.0.1"
    wide = {place for place in busy if not place[1].startswith("127.") and place[1] != "::1"}
    assert wide == (set() if narrow else slurms), busy
    for kind, address, port in busy:
        assert kind is socket.SOCK_STREAM
        assert is_open_elsewhere(port) == ((kind, address, port) in wide), (port, busy)


@pytest.mark.soak
def test_whoever_has_another_munge_key_gets_nothing_from_slurm(gang, busy, tmp_path):
    """Somebody who knows every port and slurm.conf itself: neither the controller nor a node's daemon takes a word."""
    _, conf, _ = gang.sh(f'cat "$HOME/{gang.files.conf}"')
    _, key, _ = gang.sh(f'base64 -w0 "$HOME/{gang.files.directory}/munge.key"')
    does = {
        "queue": ("squeue", "-h"),
        "a job": ("sbatch", "--time=1", "-o", "/dev/null", "--wrap", "true"),
        "an end": ("scancel", "--full", "--state=RUNNING"),
        "a node": ("scontrol", "show", "slurmd"),
    }
    with stranger(conf, os.urandom(128), tmp_path / "stranger") as other:
        for what, words in does.items():
            status, said = asked({**other, "SLURMD_NODENAME": "train-1"}, *words)
            assert status != 0, (what, said)
            assert re.search("authentication|Zero Bytes|Unable to contact|credential", said), (what, said)
    with stranger(conf, base64.b64decode(key), tmp_path / "friend") as own:  # the same words with the cluster's key
        for what in ("queue", "a node"):
            status, said = asked({**own, "SLURMD_NODENAME": "train-1"}, *does[what])
            assert (status, said.count("train-")) != (0, 0), (what, said)
    for kind, address, port in (place for place, name in busy.items() if name.startswith(("slurm", "srun"))):
        assert kind is socket.SOCK_STREAM
        assert answer_to_garbage("127.0.0.1" if address == ALL_ADDRESSES else address, port) == b""
    assert all(_sleeping(gang, n, "200") for n in range(NODES))


@pytest.mark.soak
def test_a_controller_that_was_killed_comes_back_and_the_job_goes_on(gang):
    gang.sh("cd; rm -f done; sbatch --time=5 -N4 -o /dev/null --wrap 'srun sleep 6 && touch $HOME/done'")
    until(lambda: read_engine_state(gang.session, gang.machines).running_count == 1)
    gang.sh("sleep 4.5")  # what the controller knows is on its disk after a few seconds
    (controller,) = [one for one in gang.processes(0) if one.name() == "slurmctld"]
    controller.kill()
    state = until(lambda: None if (now := read_engine_state(gang.session, gang.machines)).answers else now)
    assert (state.nodes, state.why) == ((), "slurmctld does not run")
    set_up_engine(gang.session, gang.machines)
    assert gang.sh("for i in $(seq 300); do [ -e done ] && break; sleep .1; done; ls done")[1] == "done\n"
    set_up_engine(gang.session, gang.machines)  # takes a node into use again that Slurm drained after the restart
    state = read_engine_state(gang.session, gang.machines)
    assert state.usable_nodes == NODES, state.nodes


def test_a_node_that_is_killed_takes_its_tasks_along_and_nothing_of_others(gang):
    gang.sh("cd; sbatch --time=5 -N4 -o /dev/null --wrap 'srun sleep 300'")
    sleeps = {n: until(lambda n=n: _sleeping(gang, n)) for n in range(NODES)}
    daemons = [one.pid for n in range(3) for one in gang.processes(n) if one.name() == "slurmd"]
    gang.kill(3)
    until(lambda: not psutil.pid_exists(sleeps[3]))
    assert len(daemons) == 3
    assert all(map(psutil.pid_exists, daemons))  # the other tasks Slurm may end, as soon as it hears of the lost one
    until(lambda: not list(gang.processes(3)))


def _sleeping(gang, node, seconds="300"):
    for one in gang.processes(node):
        with suppress(psutil.Error):
            if one.cmdline()[-1:] == [seconds] and one.name() == "sleep":
                return one.pid
    return None


def test_what_a_power_cut_left_is_removed_by_the_next_cluster_on_this_host(gang):
    files = engine_paths("cg-lost", 0)
    gang.sh(f"mkdir -p {files.socket_directory}; echo -n /nowhere/slurm > {files.socket_directory}/of", node=1)
    with connected_to(gang.session, gang.machine(1)) as connection, EngineNode(connection, "cg-test", 1) as node:
        node.write(Files({}, ()), b"key of another cluster")
    assert not Path(files.socket_directory).exists()
    assert Path(engine_paths("cg-test", 0).socket_directory).exists()


def test_everything_ends_and_nothing_is_left(gang):
    with pytest.raises(Unreachable):  # node 3 was killed; the others are done all the same
        remove_engine(gang.session, gang.machines)
    assert gang.engine_processes() == {}
    assert list(Path(gang.files.socket_directory).parent.glob("[012]")) == []
    assert gang.sh("ls -d .cloudgpu/slurm")[0] != 0
