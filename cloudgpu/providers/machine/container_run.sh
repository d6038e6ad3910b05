#!/bin/sh
# Starts the template's container at each start of the machine, as root. Its log is ~/.cloudgpu/container.log.
#
# The container only sleeps, and `inside` runs commands in it as the machine's user. It shares the machine's network, so no
# port is published and Docker opens nothing in the firewall. It shares the machine's process ids, so the agent sees its
# processes and jobs can be ended. It has no access to docker.sock.
# Sources: NVIDIA's installation guide of the container toolkit; the images' release notes (--ipc and ulimits).
set -u
: "${HERE:=/usr/local/lib/cloudgpu}" "${HOMES:=/home}" "${DATA:=/data}" "${ETC:=/etc}" "${KEYS:=/usr/share/keyrings}"
: "${PAUSE:=20}" "${DEV:=/dev}" "${RUN:=/run/cloudgpu}" "${BIN:=/usr/local/bin}"
container='' jupyter='' user=cloudgpu
. "$HERE/launch"
home="$HOMES/$user" base="$HOMES/$user/.cloudgpu"
repository=https://nvidia.github.io/libnvidia-container
until [ -d "$base" ]; do sleep 1; done
umask 022
exec >>"$base/container.log" 2>&1

apt() { env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=600 "$@"; }
has_gpu() { ls "$DEV"/nvidia[0-9]* >/dev/null 2>&1 || command -v nvidia-smi >/dev/null; }

add_docker() {
  command -v docker >/dev/null || { apt update && apt install -y docker.io; } || return 1
  has_gpu || return 0
  if ! command -v nvidia-ctk >/dev/null; then
    curl -fsSL "$repository/gpgkey" | gpg --dearmor --yes -o "$KEYS/cloudgpu-nvidia.gpg" || return 1
    echo "deb [signed-by=$KEYS/cloudgpu-nvidia.gpg] $repository/stable/deb/$(dpkg --print-architecture) /" \
      >"$ETC/apt/sources.list.d/cloudgpu-nvidia.list"
    apt update && apt install -y nvidia-container-toolkit || return 1
  fi
  if ! docker info --format '{{json .Runtimes}}' 2>/dev/null | grep -q nvidia; then
    nvidia-ctk runtime configure --runtime=docker && systemctl restart docker
  fi
}

retry() { # COMMAND: retry, because a registry or a mirror may not answer for a while
  for _ in 1 2 3 4 5; do
    "$@" && return
    sleep "$PAUSE"
  done
  return 1
}

pull() { docker image inspect "$container" >/dev/null 2>&1 || retry docker pull --quiet "$container"; }

running() { [ "$(docker inspect -f '{{.Config.Image}} {{.State.Running}}' cloudgpu 2>/dev/null)" = "$container true" ]; }

start() {
  running && return
  docker rm -f cloudgpu >/dev/null 2>&1
  mkdir -p "$DATA"
  gpus=''
  if has_gpu; then gpus='--gpus all'; fi
  docker run -d --name cloudgpu --restart unless-stopped $gpus --network host --pid host --ipc host \
    --ulimit memlock=-1 --ulimit stack=67108864 --user "$(id -u "$user"):$(id -g "$user")" \
    -e "HOME=$home" -e "USER=$user" -v "$home:$home" -v "$DATA:$DATA:rslave" \
    -v "$ETC/passwd:/etc/passwd:ro" -v "$ETC/group:/etc/group:ro" -w "$home" --entrypoint sleep "$container" infinity
}

kernel() { # JupyterLab runs on the machine; its default kernel is the container's Python
  docker exec cloudgpu python3 -c 'import ipykernel' ||
    docker exec -e PIP_BREAK_SYSTEM_PACKAGES=1 cloudgpu python3 -m pip install --user --quiet ipykernel || return
  place="$home/.local/share/jupyter/kernels/python3"
  install -d -o "$user" -g "$(id -gn "$user")" "$home/.local" "$home/.local/share" "$home/.local/share/jupyter" \
    "$home/.local/share/jupyter/kernels" "$place"
  cat >"$place/kernel.json" <<KERNEL
{"argv": ["$base/inside", "python3", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
 "display_name": "Python 3 (container)", "language": "python", "interrupt_mode": "message"}
KERNEL
}

date
ln -sf "$HERE/inside" "$BIN/inside"
rm -f "$RUN"/container.*
if retry add_docker && pull && retry start; then
  if [ -n "$jupyter" ]; then kernel || echo "no kernel of $container: without python3, or ipykernel"; fi
  touch "$RUN/container.ready"
else
  touch "$RUN/container.failed"
fi
