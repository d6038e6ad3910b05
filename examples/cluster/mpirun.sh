#!/bin/sh
# An MPI program on all nodes of a cluster, started once, on the first of them:
#   cloudgpu run --on train --nodes 4 --once -- ./mpirun.sh ./ring
# Open MPI finds the nodes of the job, and starts its daemons there by srun: it needs no SSH between the nodes.
set -eu

ranks=$CLOUDGPU_NUM_NODES
[ "$CLOUDGPU_GPUS_PER_NODE" -eq 0 ] || ranks=$((CLOUDGPU_NUM_NODES * CLOUDGPU_GPUS_PER_NODE))
exec mpirun -n "$ranks" --map-by node ${MPIRUN_OPTIONS-} "$@"
