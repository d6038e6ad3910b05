#!/bin/sh
# Dask on all nodes of a cluster, started once on each of them; the first also has the scheduler and the client:
#   cloudgpu run --on train --nodes 4 -- ./dask.sh client.py
# The client finds the scheduler's address in DASK_SCHEDULER_ADDRESS, as `distributed.Client()` does by itself.
set -eu

export DASK_SCHEDULER_ADDRESS="tcp://$MASTER_ADDR:$MASTER_PORT"
# The scheduler ends the workers: each waits so long for it at the beginning, and ends with it.
worker() {
    dask worker "$DASK_SCHEDULER_ADDRESS" --nthreads 1 --no-dashboard --death-timeout 120 --local-directory "$(mktemp -d)"
}
if [ "$CLOUDGPU_NODE_RANK" -ne 0 ]; then
    worker
    exit
fi
dask scheduler --port "$MASTER_PORT" --no-dashboard &
scheduler=$!
worker &
trap 'kill "$scheduler" 2>/dev/null || true; wait' EXIT
python "$@"
