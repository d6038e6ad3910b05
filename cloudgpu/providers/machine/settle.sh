#!/bin/sh
# Installs the agent's files in the user's home before each start of the agent. Runs as root.
set -eu
here=/usr/local/lib/cloudgpu user=cloudgpu
. "$here/launch"
base="$(getent passwd "$user" | cut -d: -f6)/.cloudgpu"
group="$(id -gn "$user")"
install -d -m 700 -o "$user" -g "$group" "$base"
# From an image: remove the state of another machine's lease and activity.
if [ "$(cat "$base/launch" 2>/dev/null)" != "$token" ]; then
  rm -f "$base/state.json" "$base/heartbeat.json" "$base/expires" "$base/last-active" "$base/notice" \
    "$base/samples" "$base/samples.old" "$base/sample" "$base/jupyter/server.json" "$base/on_start.status" \
    "$base/inside"
fi
install -m 600 -o "$user" -g "$group" "$here/agent.py" "$here/agent.json" "$base"
install -m 700 -o "$user" -g "$group" "$here/agent" "$base/agent"
echo "$token" >"$base/launch"
