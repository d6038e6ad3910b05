#!/bin/sh
# A part of a sum on each node of a job; the parts of all nodes make 499500:
#   cloudgpu run --on train --nodes 4 -- ./sum.sh
set -eu

number=$CLOUDGPU_NODE_RANK
sum=0
while [ "$number" -lt 1000 ]; do
    sum=$((sum + number))
    number=$((number + CLOUDGPU_NUM_NODES))
done
echo "node $CLOUDGPU_NODE_RANK of $CLOUDGPU_NUM_NODES ($SLURMD_NODENAME): $sum"
