#!/bin/sh
# Prints what has been spent so far as one line of JSON. For cron, every hour into a log:
#   PATH=/home/ada/.local/bin:/usr/bin:/bin
#   0 * * * * sh /home/ada/spend.sh >> /home/ada/spend.jsonl
# Cron knows few directories: PATH has to name the one that holds `cloudgpu`.
set -eu
spent=$(cloudgpu cost -o json)
printf '%s' "$spent" | tr -d '\n'
echo
