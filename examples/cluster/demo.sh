#!/bin/sh
# Four machines of this computer as one cluster: its queue, a job on all of them, what it cost; nothing is left.
# `make demo-cluster` runs it. It needs Slurm: sudo apt-get install slurm-wlm munge (see docs/clusters.md).
set -eu

name=demo-$$ # of this run, so that it ends no other machine
work=$(mktemp -d)
finish() {
    status=$?
    trap - EXIT
    rm -rf "$work"
    cloudgpu down "$name" --yes || ended=$?
    # 7: it was never launched. Anything else is worth more than how the rest went.
    [ "${ended:-0}" = 0 ] || [ "${ended:-0}" = 7 ] || status=$ended
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

PATH=$PATH:/usr/sbin
for need in slurmctld slurmd munged; do
    if ! command -v "$need" >/dev/null; then
        echo "There is no $need here: sudo apt-get install slurm-wlm munge" >&2
        exit 2
    fi
done

run() {
    printf '\n$ cloudgpu %s\n' "$*"
    cloudgpu "$@"
}
run up --name "$name" --nodes 4 --provider local --template bare --lease 1h --yes
run ls
run exec "$name" -- sh -c 'SLURM_CONF=$(echo ~/.cloudgpu/slurm/*/0/slurm.conf) sinfo -N'
cp "$(dirname "$0")/sum.sh" "$work"
run run --on "$name" --nodes 4 --timeout 5m --workdir "$work" sum-$$ -- ./sum.sh
run jobs --all
run cost --by job
printf '\n'
