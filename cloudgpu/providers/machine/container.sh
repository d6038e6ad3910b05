#!/bin/sh
# Starts cloudgpu in a rented container: it has no systemd and no cloud-init, it runs as root, and only $keep lasts.
# First the end of the lease, then the host key and SSH, then the agent, and last what the template asks for.
#
# Above this stand the facts of the launch: machine token made expires renew_until keep port packages jupyter, and two
# commands for sh: $end ends the container's bill, $ask prints its tags as they are now. Either may be empty.
# What is to be found again after a stop lies in $base. The host key is copied to the container's own disk, since sshd
# refuses a key that others may read, and a network volume may know no modes.
set -u
umask 022
: "${CLOUDGPU_HOME:=/root}" "${CLOUDGPU_ETC:=/etc}" "${CLOUDGPU_RUN:=/run/cloudgpu}" "${CLOUDGPU_LOG=/proc/1/fd/1}"
: "${CLOUDGPU_LISTEN=}" "${CLOUDGPU_EVERY:=60}" "${CLOUDGPU_AGAIN:=5}"
GRACE=300
HOME="$CLOUDGPU_HOME" CLOUDGPU_MACHINE="$machine" CLOUDGPU_ENVIRONMENTS="$base/environments"
export HOME CLOUDGPU_MACHINE CLOUDGPU_ENVIRONMENTS

say() { # LINE: into the container's log, also where somebody else has the number 1 here
  echo "$1"
  if [ $$ != 1 ] && [ -n "$CLOUDGPU_LOG" ]; then echo "$1" 2>/dev/null >>"$CLOUDGPU_LOG"; fi
}

pause() {
  sleep "$1" &
  wait $!
}

limited() { # COMMAND: what hangs keeps nobody from the next look at the clock
  if command -v timeout >/dev/null; then timeout 50 "$@"; else "$@"; fi
}

number() {
  case "$1" in '' | *[!0-9]*) echo 0 ;; *) if [ ${#1} -lt 12 ]; then echo "$1"; else echo 0; fi ;; esac
}

later() { # TIMES: the latest of them
  last=0
  for one in "$@"; do
    one="$(number "$one")"
    if [ "$one" -gt "$last" ]; then last="$one"; fi
  done
  echo "$last"
}

tag() { sed -n "s/.*\"cloudgpu-$1\" *: *\"\{0,1\}\([0-9]*\).*/\1/p" "$base/tags.json" 2>/dev/null | head -n 1; }

keep_tags() { # JSON: whole or not at all; fails where it is none
  case "$1" in
    '{'*'"cloudgpu-'*'}') printf '%s\n' "$1" >"$base/tags.json.new" && mv "$base/tags.json.new" "$base/tags.json" ;;
    *) return 1 ;;
  esac
}

ends_at() { # EXPIRES RENEW_UNTIL: into the tags, for the agent, too
  if [ -n "$(tag expires)" ] && [ -n "$(tag renew-until)" ]; then
    sed -i "s/\(\"cloudgpu-expires\" *: *\"\{0,1\}\)[0-9]*/\1$1/; \
      s/\(\"cloudgpu-renew-until\" *: *\"\{0,1\}\)[0-9]*/\1$2/" "$base/tags.json"
  else
    keep_tags "{\"cloudgpu-expires\": \"$1\", \"cloudgpu-renew-until\": \"$2\"}"
  fi
}

until_last() { # The renew-until that was read last, else that of the launch
  until="$(number "$(tag renew-until)")"
  if [ "$until" = 0 ]; then until="$renew_until"; fi
}

asked_tags() { # While nobody tells the tags, the lease may be longer than it was: only renew-until ends it then
  keep_tags "$(limited sh -c "$ask" 2>/dev/null | tr -d '\n')" && return
  until_last
  if [ "$(number "$(tag expires)")" -lt "$until" ]; then ends_at "$until" "$until"; fi
  return 1
}

first_tags() { # What the place was given beside the container wins once: later words are newer than it
  given="${CLOUDGPU_TAGS:-}"
  [ "$(cat "$base/tags.given" 2>/dev/null)" != "$given" ] || return 0
  keep_tags "$given"
  printf '%s\n' "$given" >"$base/tags.given"
}

over() { # Says why the machine is to end now; nothing where it may go on
  now="$(later "$(date +%s)" "$made")"
  until_last
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

renewed() { # Started again after its end, and nobody tells it another one: it has the span of its launch anew
  [ "$(cat "$base/launch" 2>/dev/null)" = "$token" ] && [ -n "$(over)" ] || return 0
  if [ -n "$ask" ] && { asked_tags || [ -z "$(over)" ]; }; then return; fi
  now="$(later "$(date +%s)" "$made")"
  expires=$((now + expires - made)) renew_until=$((now + renew_until - made))
  ends_at "$expires" "$renew_until"
  rm -f "$base/state.json" "$base/heartbeat.json" "$base/expires"
}

watch() { # The agent ends the lease; what it has not done is done here, and tried again until it is done
  while :; do
    if [ -n "$ask" ]; then asked_tags; fi
    why="$(over)"
    if [ -n "$why" ] && [ -n "$end" ]; then limited sh -c "$end" cloudgpu "$why" >>"$base/end.log" 2>&1; fi
    pause "$CLOUDGPU_EVERY"
  done
}

keep_running() { # NAME COMMAND: again whenever it ends
  name="$1"
  shift
  while :; do
    "$@" >"$CLOUDGPU_RUN/$name.log" 2>&1
    pause "$CLOUDGPU_AGAIN"
  done
}

install_all() { # NAMES: by the package manager that the image has
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

made_key() { # Once per machine: it is pinned, and holds over a stop
  [ ! -s "$base/host_key" ] || return 0
  rm -f "$base/new_key" "$base/new_key.pub"
  ssh-keygen -q -t ed25519 -N '' -C '' -f "$base/new_key" && mv "$base/new_key" "$base/host_key"
}

let_in() { # The keys of the launch once, so that one that was taken out stays out; and whom the image lets in
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

session_words() { # What the image sets for its programs, for those who log in: but nothing that may be secret
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

configure() { # Keys only. Older servers than 7.8 know no SetEnv: there, who logs in does without
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
  echo "SetEnv$(session_words)" >"$config.more"
  cp "$config" "$config.all" && cat "$config.more" >>"$config.all"
  if "$(server)" -t -f "$config.all" 2>/dev/null; then mv "$config.all" "$config"; fi
  case "$PATH" in *\'*) return ;; esac
  mkdir -p "$CLOUDGPU_ETC/profile.d" && echo "PATH='$PATH'; export PATH" >"$CLOUDGPU_ETC/profile.d/cloudgpu.sh"
}

serve() {
  server >/dev/null && command -v ssh-keygen >/dev/null || install_all openssh-server || install_all openssh
  if ! server >/dev/null || ! made_key; then
    say "cloudgpu-error: no SSH server: this image has none, and none could be installed"
    tail -n 5 "$CLOUDGPU_RUN/install.log" 2>/dev/null
    return 1
  fi
  mkdir -p /run/sshd && chmod 755 /run/sshd
  (umask 077 && cat "$base/host_key" >"$CLOUDGPU_RUN/host_key")
  let_in
  configure
  say "cloudgpu-host-key: $(ssh-keygen -y -f "$CLOUDGPU_RUN/host_key" | cut -d' ' -f1,2)"
  keep_running sshd "$(server)" -D -e -f "$config" &
}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null; }

find_python() { # The first that the agent can run with
  for one in python3 /opt/conda/bin/python3 /usr/bin/python3 python3.12 python3.11 python3.10 python3.9 python3.8; do
    if new_enough "$one"; then
      command -v "$one"
      return
    fi
  done
  return 1
}

watch_over() { # The agent, by whatever Python can run it
  python="$(find_python)" || { install_all python3 && python="$(find_python)"; }
  if [ -z "$python" ]; then
    say "cloudgpu-error: no agent: this image has no Python 3.8 or newer, and none could be installed"
    return 1
  fi
  printf '#!/bin/sh\nexec %s %s/agent.py "$@"\n' "$python" "$base" >"$base/agent" && chmod 700 "$base/agent"
  keep_running agent "$base/agent" run &
}

has_lab() { "$1" -c 'import sys, importlib.util as u; sys.exit(u.find_spec("jupyterlab") is None)' 2>/dev/null; }

lab() { # Where the image has no JupyterLab, it gets one of its own that sees what the image's Python has
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
  if [ -n "$jupyter" ] && [ -n "$python" ]; then lab; fi
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
first_tags
renewed
watch &
python=''
if serve; then printf '%s\n' "$token" >"$base/launch"; fi
watch_over
prepare &
if [ $$ = 1 ]; then trap 'trap "" TERM; kill -TERM -1; sleep 5; exit 0' TERM; fi
while :; do wait; pause 3600; done
