#!/bin/sh
# Runs a command in this machine's container, with the same directory, environment and user; a shell without a command.
# Values of variables are in no argument, because they may be secret.
#
# docker exec forwards no signals. A job's processes are ended by the variable CLOUDGPU_ATTEMPT in their environment. Other
# commands write their process id to a file, and end when the caller has ended.
set -u
base="$HOME/.cloudgpu" told='' mark="${CLOUDGPU_ATTEMPT-}" state="${CLOUDGPU_RUN:-/run/cloudgpu}/container"
until [ -e "$state.ready" ]; do
  if [ -e "$state.failed" ]; then
    echo "cloudgpu: the container could not be started: ~/.cloudgpu/container.log has the reason" >&2
    exit 125
  fi
  [ -n "$told" ] || echo "cloudgpu: waiting for the container: ~/.cloudgpu/container.log says how far it is" >&2
  told=yes
  sleep 1
done
[ $# != 0 ] || set -- sh -c 'command -v bash >/dev/null && exec bash; exec sh'
number="$base/inside.$$"
if [ -n "$mark" ]; then
  set -- cloudgpu "$@"
  set -- -e "CLOUDGPU_ATTEMPT=$mark" "$@"
else
  follow='(while kill -0 "$1" && kill -0 $$; do sleep 1; done; kill -0 "$1" || { kill $$; sleep 5; kill -9 $$; })'
  follow="( $follow >/dev/null 2>&1 </dev/null & )"
  set -- cloudgpu sh -c "$follow; echo \$\$ >\"\$0\"; shift; exec \"\$@\"" "$number" $$ "$@"
fi
for name in $(env | sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/\1/p'); do
  case "$name" in
    PATH | LD_* | PYTHONPATH | PYTHONHOME | VIRTUAL_ENV | CONDA_* | SHELL | PWD | OLDPWD | SHLVL | _ | MAIL) continue ;;
    XDG_* | SSH_* | SUDO_* | DBUS_* | CLOUDGPU_ATTEMPT) continue ;;
  esac
  set -- -e "$name" "$@"
done
unset CLOUDGPU_ATTEMPT
if [ -t 0 ] && [ -t 1 ]; then
  sudo -n -E docker exec -i -t -w "$PWD" "$@"
  status=$?
  rm -f "$number"
  exit $status
fi
trap '[ -n "$mark" ] || kill "$(cat "$number" 2>/dev/null)" 2>/dev/null' TERM INT HUP
exec 3<&0
setsid sudo -n -E docker exec -i -w "$PWD" "$@" <&3 3<&- &
docker=$!
exec 3<&-
while :; do
  wait "$docker"
  status=$?
  kill -0 "$docker" 2>/dev/null || break
done
rm -f "$number"
exit $status
