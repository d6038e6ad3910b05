#!/bin/sh
# Starts cloudgpu in a rented container: it has no systemd and no cloud-init, it runs as root, and only $keep lasts.
# First the lease's end is watched, then host key and SSH, then the agent, last the template's packages and on_start.
#
# Assignments above this text: machine token made expires renew_until keep port packages jupyter, and two shell commands:
# $end ends the container's billing, $ask prints its current tags. Either may be empty. $base holds what a stop retains.
# The host key is copied to the container's own disk, since sshd refuses a key that others can read, and a network volume
# may have no file modes.
set -u
umask 022
: "${CLOUDGPU_HOME:=/root}" "${CLOUDGPU_ETC:=/etc}" "${CLOUDGPU_RUN:=/run/cloudgpu}" "${CLOUDGPU_LOG=/proc/1/fd/1}"
: "${CLOUDGPU_LISTEN=}" "${CLOUDGPU_EVERY:=60}" "${CLOUDGPU_AGAIN:=5}"
GRACE=300
HOME="$CLOUDGPU_HOME" CLOUDGPU_MACHINE="$machine" CLOUDGPU_ENVIRONMENTS="$base/environments"
export HOME CLOUDGPU_MACHINE CLOUDGPU_ENVIRONMENTS

say() { # LINE: write to the container's log, also if this is not process 1
  echo "$1"
  if [ $$ != 1 ] && [ -n "$CLOUDGPU_LOG" ]; then echo "$1" 2>/dev/null >>"$CLOUDGPU_LOG"; fi
}

pause() {
  sleep "$1" &
  wait $!
}

with_timeout() { # COMMAND: run it with a timeout, so that the lease is checked in time
  if command -v timeout >/dev/null; then timeout 50 "$@"; else "$@"; fi
}

number() {
  case "$1" in '' | *[!0-9]*) echo 0 ;; *) if [ ${#1} -lt 12 ]; then echo "$1"; else echo 0; fi ;; esac
}

later() { # TIMES: print the latest
  last=0
  for one in "$@"; do
    one="$(number "$one")"
    if [ "$one" -gt "$last" ]; then last="$one"; fi
  done
  echo "$last"
}

tag() { sed -n "s/.*\"cloudgpu-$1\" *: *\"\{0,1\}\([0-9]*\).*/\1/p" "$base/tags.json" 2>/dev/null | head -n 1; }

store_tags() { # JSON: replace tags.json atomically; fails for anything else
  case "$1" in
    '{'*'"cloudgpu-'*'}') printf '%s\n' "$1" >"$base/tags.json.new" && mv "$base/tags.json.new" "$base/tags.json" ;;
    *) return 1 ;;
  esac
}

set_lease() { # EXPIRES RENEW_UNTIL: write both into tags.json
  if [ -n "$(tag expires)" ] && [ -n "$(tag renew-until)" ]; then
    sed -i "s/\(\"cloudgpu-expires\" *: *\"\{0,1\}\)[0-9]*/\1$1/; \
      s/\(\"cloudgpu-renew-until\" *: *\"\{0,1\}\)[0-9]*/\1$2/" "$base/tags.json"
  else
    store_tags "{\"cloudgpu-expires\": \"$1\", \"cloudgpu-renew-until\": \"$2\"}"
  fi
}

read_renew_until() { # Set $until to the last renew-until, else that of the launch
  until="$(number "$(tag renew-until)")"
  if [ "$until" = 0 ]; then until="$renew_until"; fi
}

ask_for_tags() { # Read the tags with $ask; without an answer the lease may have been extended, so only renew-until counts
  store_tags "$(with_timeout sh -c "$ask" 2>/dev/null | tr -d '\n')" && return
  read_renew_until
  if [ "$(number "$(tag expires)")" -lt "$until" ]; then set_lease "$until" "$until"; fi
  return 1
}

take_given_tags() { # Take the tags of the environment at a start, but each value only once: later changes are newer
  given="${CLOUDGPU_TAGS:-}"
  [ "$(cat "$base/tags.given" 2>/dev/null)" != "$given" ] || return 0
  store_tags "$given"
  printf '%s\n' "$given" >"$base/tags.given"
}

end_reason() { # Print the reason why the machine has to end now; nothing if it may run
  now="$(later "$(date +%s)" "$made")"
  read_renew_until
  if [ "$now" -ge "$until" ]; then
    echo renew-until
    return
  fi
  ends="$(number "$(tag expires)")"
  if [ "$ends" = 0 ]; then ends="$expires"; fi
  ends="$(later "$ends" "$(cat "$base/expires" 2>/dev/null)" "$(tag hold-until)")"
  [ "$now" -ge "$ends" ] || return 0
  if [ -n "$(find "$base/heartbeat.json" -mmin -2 2>/dev/null)" ] && [ "$now" -lt $((ends + GRACE)) ]; then return; fi
  echo lease
}

restart_lease() { # Started again after its end without new tags: the lease of the launch begins again
  [ "$(cat "$base/launch" 2>/dev/null)" = "$token" ] && [ -n "$(end_reason)" ] || return 0
  if [ -n "$ask" ] && { ask_for_tags || [ -z "$(end_reason)" ]; }; then return; fi
  now="$(later "$(date +%s)" "$made")"
  expires=$((now + expires - made)) renew_until=$((now + renew_until - made))
  set_lease "$expires" "$renew_until"
  rm -f "$base/state.json" "$base/heartbeat.json" "$base/expires"
}

watch_lease() { # End the container when the lease is over and the agent has not, repeatedly
  while :; do
    if [ -n "$ask" ]; then ask_for_tags; fi
    why="$(end_reason)"
    if [ -n "$why" ] && [ -n "$end" ]; then with_timeout sh -c "$end" cloudgpu "$why" >>"$base/end.log" 2>&1; fi
    pause "$CLOUDGPU_EVERY"
  done
}

keep_running() { # NAME COMMAND: restart it whenever it ends
  name="$1"
  shift
  while :; do
    "$@" >"$CLOUDGPU_RUN/$name.log" 2>&1
    pause "$CLOUDGPU_AGAIN"
  done
}

install_all() { # PACKAGES: with the image's package manager
  apt='apt-get -q -o DPkg::Lock::Timeout=600'
  export DEBIAN_FRONTEND=noninteractive
  if command -v apt-get; then
    $apt update
    $apt install -y --no-install-recommends "$@"
  elif command -v dnf; then
    dnf -y install "$@"
  elif command -v microdnf; then
    microdnf -y install "$@"
  elif command -v yum; then
    yum -y install "$@"
  elif command -v apk; then
    apk add --no-cache "$@"
  elif command -v zypper; then
    zypper -n install "$@"
  else
    echo "no package manager that we know: $*"
    return 1
  fi >>"$CLOUDGPU_RUN/install.log" 2>&1
}

server() { PATH="$PATH:/usr/sbin:/usr/local/sbin:/sbin" command -v sshd; }

make_host_key() { # Create the host key once per machine: clients have pinned it
  [ ! -s "$base/host_key" ] || return 0
  rm -f "$base/new_key" "$base/new_key.pub"
  ssh-keygen -q -t ed25519 -N '' -C '' -f "$base/new_key" && mv "$base/new_key" "$base/host_key"
}

write_authorized_keys() { # Add the launch's keys once, so that a removed key stays removed; and the image's own keys
  file="$HOME/.ssh/authorized_keys"
  mkdir -p "$HOME/.ssh" && chmod 700 "$HOME/.ssh"
  (
    umask 077
    touch "$base/authorized_keys"
    if [ -f "$file" ] && [ ! -L "$file" ]; then cat "$file"; fi >"$CLOUDGPU_RUN/keys"
    if [ "$(cat "$base/launch" 2>/dev/null)" != "$token" ]; then cat "$base/client_keys" >>"$CLOUDGPU_RUN/keys"; fi
    while read -r line; do
      grep -qxF -e "$line" "$base/authorized_keys" || printf '%s\n' "$line" >>"$base/authorized_keys"
    done <"$CLOUDGPU_RUN/keys"
  )
  ln -sfn "$base/authorized_keys" "$file"
}

session_environment() { # Print the image's environment for SSH sessions, without possible secrets
  for name in $(env | sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/\1/p'); do
    case "$name" in
      *KEY* | *TOKEN* | *SECRET* | *PASS* | *CREDENTIAL*) continue ;;
      PWD | OLDPWD | SHLVL | TERM | HOSTNAME | SSH_* | _) continue ;;
      CLOUDGPU_MACHINE | CLOUDGPU_ENVIRONMENTS | HOME) ;;
      CLOUDGPU_*) continue ;;
    esac
    eval "value=\"\${$name-}\""
    case "$value" in '' | *[\"\\]* | *'
'*) continue ;; esac
    printf ' "%s=%s"' "$name" "$value"
  done
}

configure() { # Write sshd_config: keys only. Servers before 7.8 have no SetEnv
  config="$CLOUDGPU_RUN/sshd_config"
  cat >"$config" <<CONFIG
Port $port
${CLOUDGPU_LISTEN:+ListenAddress $CLOUDGPU_LISTEN}
HostKey $CLOUDGPU_RUN/host_key
AuthorizedKeysFile $base/authorized_keys
PidFile none
LogLevel ERROR
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PubkeyAuthentication yes
PasswordAuthentication no
ChallengeResponseAuthentication no
AllowAgentForwarding no
AllowTcpForwarding local
X11Forwarding no
ClientAliveInterval 30
PrintMotd no
Subsystem sftp internal-sftp
CONFIG
  sed -i 's/^root:!/root:*/' "$CLOUDGPU_ETC/shadow" 2>/dev/null
  echo "SetEnv$(session_environment)" >"$config.more"
  cp "$config" "$config.all" && cat "$config.more" >>"$config.all"
  if "$(server)" -t -f "$config.all" 2>/dev/null; then mv "$config.all" "$config"; fi
  case "$PATH" in *\'*) return ;; esac
  mkdir -p "$CLOUDGPU_ETC/profile.d" && echo "PATH='$PATH'; export PATH" >"$CLOUDGPU_ETC/profile.d/cloudgpu.sh"
}

serve() {
  server >/dev/null && command -v ssh-keygen >/dev/null || install_all openssh-server || install_all openssh
  if ! server >/dev/null || ! make_host_key; then
    say "cloudgpu-error: no SSH server: this image has none, and none could be installed"
    tail -n 5 "$CLOUDGPU_RUN/install.log" 2>/dev/null
    return 1
  fi
  mkdir -p /run/sshd && chmod 755 /run/sshd
  (umask 077 && cat "$base/host_key" >"$CLOUDGPU_RUN/host_key")
  write_authorized_keys
  configure
  say "cloudgpu-host-key: $(ssh-keygen -y -f "$CLOUDGPU_RUN/host_key" | cut -d' ' -f1,2)"
  keep_running sshd "$(server)" -D -e -f "$config" &
}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null; }

find_python() { # Print the first Python that can run the agent
  for one in python3 /opt/conda/bin/python3 /usr/bin/python3 python3.12 python3.11 python3.10 python3.9 python3.8; do
    if new_enough "$one"; then
      command -v "$one"
      return
    fi
  done
  return 1
}

start_agent() { # Run the agent
  python="$(find_python)" || { install_all python3 && python="$(find_python)"; }
  if [ -z "$python" ]; then
    say "cloudgpu-error: no agent: this image has no Python 3.8 or newer, and none could be installed"
    return 1
  fi
  printf '#!/bin/sh\nexec %s %s/agent.py "$@"\n' "$python" "$base" >"$base/agent" && chmod 700 "$base/agent"
  keep_running agent "$base/agent" run &
}

has_lab() { "$1" -c 'import sys, importlib.util as u; sys.exit(u.find_spec("jupyterlab") is None)' 2>/dev/null; }

prepare_jupyter() { # Install JupyterLab if the image has none, in an environment that sees the image's packages
  if has_lab "$python"; then
    echo "$python" >"$base/jupyter.python"
    return
  fi
  env="$base/lab"
  if ! [ -e "$env/ready" ] || ! has_lab "$env/bin/python"; then
    "$python" -m venv --clear --system-site-packages "$env" ||
      { install_all python3-venv && "$python" -m venv --clear --system-site-packages "$env"; }
    "$env/bin/python" -m pip install --quiet --disable-pip-version-check $jupyter && touch "$env/ready"
  fi >"$base/jupyter.log" 2>&1
  if [ -e "$env/ready" ]; then echo "$env/bin/python" >"$base/jupyter.python"; else touch "$base/jupyter.failed"; fi
}

prepare() {
  if [ -n "$packages" ]; then install_all $packages || say "cloudgpu-error: not installed: $packages"; fi
  if [ -n "$jupyter" ] && [ -n "$python" ]; then prepare_jupyter; fi
  [ -s "$base/on_start.sh" ] || return 0
  (cd "$keep" && exec sh -e "$base/on_start.sh") >"$base/on_start.log" 2>&1
  echo $? >"$base/on_start.status"
}

mkdir -p "$CLOUDGPU_RUN" "$base/environments" && chmod 700 "$CLOUDGPU_RUN" "$base"
if [ "$(cat "$base/launch" 2>/dev/null)" != "$token" ]; then
  rm -f "$base/state.json" "$base/heartbeat.json" "$base/expires" "$base/last-active" "$base/notice" \
    "$base/samples" "$base/samples.old" "$base/sample" "$base/tags.json" "$base/tags.given"
fi
rm -f "$base/jupyter/server.json" "$base/jupyter.python" "$base/jupyter.failed"
if [ -s "$base/on_start.sh" ]; then echo running >"$base/on_start.status"; fi
if [ -d "$HOME/.cloudgpu" ] && [ ! -L "$HOME/.cloudgpu" ]; then mv "$HOME/.cloudgpu" "$HOME/.cloudgpu.image"; fi
ln -sfn "$base" "$HOME/.cloudgpu"
take_given_tags
restart_lease
watch_lease &
python=''
if serve; then printf '%s\n' "$token" >"$base/launch"; fi
start_agent
prepare &
if [ $$ = 1 ]; then trap 'trap "" TERM; kill -TERM -1; sleep 5; exit 0' TERM; fi
while :; do wait; pause 3600; done
