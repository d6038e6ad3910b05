#!/bin/sh
# Prepares JupyterLab once, then runs the template's on_start: at each start of the machine, as the user.
set -u
here=/usr/local/lib/cloudgpu base="$HOME/.cloudgpu" place=/opt/cloudgpu/jupyter
jupyter=''
. "$here/launch"
cd "$HOME" || exit
PATH="$place/bin:/usr/local/cuda/bin:$PATH"
export PATH

environment() { # Debian's Python needs another package for venv
  /usr/bin/python3 -m venv --clear "$place" && return
  for verb in update "install -y python3-venv"; do
    sudo -n env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=600 $verb
  done
  /usr/bin/python3 -m venv --clear "$place"
}

prepare() {
  [ ! -e "$place/ready" ] || return 0
  sudo -n install -d -o "$(id -un)" -g "$(id -gn)" /opt/cloudgpu
  environment && "$place/bin/python" -m pip install --quiet --disable-pip-version-check --retries 10 $jupyter &&
    touch "$place/ready"
}

if [ -n "$jupyter" ]; then
  rm -f "$base/jupyter.failed"
  prepare >"$base/jupyter.log" 2>&1 || touch "$base/jupyter.failed"
fi
if [ -s "$here/on_start.sh" ]; then
  echo running >"$base/on_start.status"
  sh -e "$here/on_start.sh" >"$base/on_start.log" 2>&1
  echo $? >"$base/on_start.status"
fi
