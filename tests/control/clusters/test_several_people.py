"""A queue for several people: slurmd as root by `sudo -n`, asked for by name; munge and the controller stay the user's.

`daemon`, whom every Debian has, is the second person. Where the tests are root already, a stand-in for sudo checks that
it is never asked to wait for a password, and runs what it is given. Where they are not, sudo itself is needed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import psutil
import pytest

from cloudgpu.access.slurm.remote_processes import engine_processes
from cloudgpu.control.clusters.engine import queue_users, read_engine_state, remove_engine, set_up_engine
from cloudgpu.control.outage.opening import open_session
from cloudgpu.core.clusters.conf import process_tag_of
from cloudgpu.core.clusters.layout import engine_paths
from cloudgpu.errors import InvalidRequest
from tests.control.clusters.gang import Gang, needs_slurm, until
from tests.core.machines import machine

PERSON, OTHERS, CLUSTER = "daemon", 1, "cg-several"
SUDO = '#!/bin/sh\n[ "$1" = -n ] || exit 1\nshift\nexec "$@"\n'


def can_be_root():
    if os.getuid() == 0:
        return True
    return bool(shutil.which("sudo")) and subprocess.run(["sudo", "-n", "true"], check=False).returncode == 0


@pytest.fixture(scope="module")
def gang(tmp_path_factory):
    needs_slurm()
    made = Gang(tmp_path_factory.mktemp("cluster"), 2, cluster=CLUSTER)
    try:
        yield made
    finally:
        made.end()
    assert made.engine_processes() == {}


@pytest.fixture(scope="module")
def rooted(gang):
    """The machines, on which the login user becomes root without a password."""
    if os.getuid() == 0:
        at = '$(dirname "$(command -v python3)")/sudo'  # the machine's own programs come first
        for node in range(2):
            gang.sh(f"cat > {at} <<'END'\n{SUDO}END\nchmod +x {at}", node=node)
    return gang


def as_person(gang, *words, home="/"):
    """What one of Slurm's commands says to the other person, who has no part in cloudgpu."""
    environ = {
        "SLURM_CONF": f"{gang.files.socket_directory}/slurm.conf",
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": home,
    }
    given = [f"{name}={value}" for name, value in environ.items()]
    if os.getuid() == 0:
        become = ["setpriv", f"--reuid={OTHERS}", "--clear-groups", "--reset-env"]
    else:
        become = ["sudo", "-n", "-u", PERSON]
    done = subprocess.run(
        [*become, "env", *given, *words], cwd="/", capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_refused(gang):
    """Where sudo asks for a password, no queue for several people is set up, and nothing is changed."""
    with pytest.raises(InvalidRequest, match="sudo without a password"):
        set_up_engine(gang.session, gang.machines, people=[PERSON])
    assert gang.sh("ls -d .cloudgpu/slurm")[0] != 0
    assert gang.engine_processes() == {}


def test_the_account_says_whom_its_queue_is_for_and_no_cloud_has_such_a_setting(tmp_path):
    (tmp_path / "config.toml").write_text(
        '[accounts.lab]\nprovider = "ssh"\nqueue_for = ["ada", "ben"]\nhosts = []\n'
        '[accounts.alone]\nprovider = "local"\n'
    )
    session = open_session({"CLOUDGPU_HOME": str(tmp_path), "USER": "ada"}, tell=lambda _said: None)
    assert list(queue_users(session, machine(provider="ssh", account="lab"))) == ["ada", "ben"]
    assert list(queue_users(session, machine(provider="local", account="alone"))) == []
    assert list(queue_users(session, machine(provider="ssh", account="gone"))) == []
    session.ledger.close()


def test_without_sudo_or_an_account_it_is_refused_and_nothing_is_changed(gang):
    with pytest.raises(InvalidRequest) as refused:
        set_up_engine(gang.session, gang.machines, people=["nobody-of-this-name"])
    assert "an account of nobody-of-this-name on train-0 and nobody-of-this-name on train-1" in refused.value.message
    if os.getuid() == 0 and not shutil.which("sudo"):
        assert "sudo without a password" in refused.value.message
    assert gang.sh("ls -d .cloudgpu/slurm")[0] != 0
    assert gang.engine_processes() == {}


def test_each_persons_job_runs_under_their_own_name_on_every_node(rooted, tmp_path):
    if not can_be_root():
        check_refused(rooted)
        return
    set_up_engine(rooted.session, rooted.machines, people=[PERSON])
    assert read_engine_state(rooted.session, rooted.machines).usable_nodes == 2
    says = 'echo "$(id -un) $SLURMD_NODENAME $CLOUDGPU_NODE_RANK $CLOUDGPU_ENGINE"'
    lines = as_person(rooted, "srun", "-N2", "--time=1", "sh", "-c", says).splitlines()
    assert sorted(lines) == [f"{PERSON} train-{n} {n} {CLUSTER}/{n}" for n in range(2)]
    own = f"srun -N2 --time=1 sh -c '{says.replace('id -un', 'id -u')}'"
    assert sorted(rooted.sh(own)[1].splitlines()) == [f"{os.getuid()} train-{n} {n} {CLUSTER}/{n}" for n in range(2)]
    again = rooted.engine_processes()
    set_up_engine(rooted.session, rooted.machines, people=[PERSON])
    assert rooted.engine_processes() == again


def test_others_read_the_settings_and_never_the_key(rooted):
    if not can_be_root():
        check_refused(rooted)
        return
    for node in range(2):
        short = Path(engine_paths(CLUSTER, node).socket_directory)
        modes = {one.name: oct(one.stat().st_mode & 0o777) for one in short.iterdir() if one.is_file()}
        assert (modes["slurm.conf"], modes["job-environment"], modes["task-prolog"]) == ("0o644", "0o644", "0o755")
        assert oct(short.stat().st_mode & 0o777) == oct(short.parent.stat().st_mode & 0o777) == "0o711"
        assert not list(short.rglob("*key*"))
    assert "SlurmdUser=root\n" in as_person(rooted, "cat", f"{rooted.files.socket_directory}/slurm.conf")


def test_the_end_ends_everybodys_jobs_and_leaves_nothing(rooted):
    if not can_be_root():
        check_refused(rooted)
        return
    as_person(rooted, "sbatch", "--time=5", "-N2", "-D", "/", "-o", "/dev/null", "--wrap", "srun sleep 211")
    sleeps = until(lambda: found if len(found := _sleeping()) == 2 else None)
    assert {one.username() for one in sleeps} == {PERSON}
    remove_engine(rooted.session, rooted.machines)
    assert rooted.engine_processes() == {}
    assert not any(one.is_running() for one in sleeps)
    for node in range(2):
        files = engine_paths(CLUSTER, node)
        assert not Path(files.socket_directory).exists()
        assert engine_processes(Path("/nowhere"), Path(files.socket_directory), process_tag_of(CLUSTER, node)) == []


def _sleeping():
    return [one for one in psutil.process_iter(["cmdline"]) if (one.info["cmdline"] or [])[1:] == ["211"]]
