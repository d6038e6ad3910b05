#!/bin/sh
# PyTorch on all nodes of a cluster, started once on each of them:
#   cloudgpu run --on train --nodes 4 -- ./torchrun.sh train.py
set -eu

# A node without GPUs gets one process, which computes on its cores.
each=$CLOUDGPU_GPUS_PER_NODE
[ "$each" -gt 0 ] || each=1
exec torchrun --nnodes="$CLOUDGPU_NUM_NODES" --node-rank="$CLOUDGPU_NODE_RANK" --nproc-per-node="$each" \
    --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" "$@"
