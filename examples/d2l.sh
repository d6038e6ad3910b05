#!/bin/sh
# Dive into Deep Learning: a machine with its notebooks and their environment, opened in Jupyter, ended at the end.
# Runs on this computer as it stands. On a GPU: sh examples/d2l.sh --provider NAME --gpu v100 --spot
set -eu

name=d2l-$$ # of this run, so that it ends no other machine
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

cloudgpu up --name "$name" --template d2l --lease 4h --yes "$@"
cloudgpu tunnel "$name" --background

# Jupyter is open already; the notebooks and what they need come in the background.
echo 'Cloning the notebooks and preparing their environment; this takes minutes ...'
waited=0
until cloudgpu exec "$name" -- test -e .venvs/d2l/prepared; do
    waited=$((waited + 5))
    if [ "$waited" -gt 1800 ]; then
        cloudgpu show "$name" --refresh # says what failed, and where its log is
        exit 1
    fi
    sleep 5
done
cloudgpu exec "$name" -- ls d2l
if [ -t 0 ]; then
    printf 'Open the folder d2l in Jupyter. Press Enter to end the machine. '
    read -r _
fi
cloudgpu cost
