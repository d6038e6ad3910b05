#!/bin/sh
# From nothing to a notebook and back to nothing, on this computer: launch, Jupyter, one command, end.
# Everything it makes stands in a directory of its own. Needs cloudgpu with the extra `local`.
set -eu

CLOUDGPU_HOME=$(mktemp -d)
export CLOUDGPU_HOME
unset CLOUDGPU_LEDGER

finish() {
    status=$?
    trap - EXIT
    # Only when every end is proved may the directory go: it holds what is needed to try again.
    cloudgpu down --all --yes && rm -rf "$CLOUDGPU_HOME"
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

cloudgpu up --name notebook --lease 1h --yes
cloudgpu tunnel notebook --background
cloudgpu exec notebook -- ls
if [ -t 0 ]; then
    printf 'Jupyter is open at the address above. Press Enter to end the machine. '
    read -r _
fi
