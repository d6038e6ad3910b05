#!/bin/sh
# Jupyter on a GPU of your own AWS account: launch, tunnel, work, stop. Whatever follows is for cloudgpu up:
#   sh examples/aws-keras.sh --gpu v100 --spot --ssh-from 203.0.113.7
# At the end the machine is stopped, or parked where it cannot be: it costs its disk alone until `start` or `down`.
# Where anything fails before that, it is ended with all that was made with it.
set -eu

name=keras-$$ # of this run, so that it ends no other machine
finish() {
    status=$?
    trap - EXIT
    cloudgpu down "$name" --yes || ended=$?
    # 7: it was never launched. Anything else is worth more than how the rest went: it may still be billed.
    [ "${ended:-0}" = 0 ] || [ "${ended:-0}" = 7 ] || status=$ended
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

cloudgpu up --provider aws --name "$name" --lease 4h --yes "$@"
cloudgpu tunnel "$name" --background

# What a notebook cell would see. Replace it by your own work, or open the address above.
cloudgpu exec "$name" -- sh -c 'nvidia-smi -L 2>/dev/null || echo "no GPU is visible here"; ls'
if [ -t 0 ]; then
    printf 'Jupyter is open at the address above. Press Enter to stop the machine. '
    read -r _
fi

cloudgpu tunnel "$name" --stop
cloudgpu stop "$name" --yes
trap - EXIT INT TERM
cloudgpu ls
echo "Go on another day: cloudgpu start $name. Or end it: cloudgpu down $name"
