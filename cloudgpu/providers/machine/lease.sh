#!/bin/sh
# Powers this machine off when its lease is over, whatever else has failed: cloudgpu-lease.timer runs it each minute.
# Beside that: `lease end REASON` powers it off now, `lease report` tells the outside when it was last in use, and
# `lease watch` looks for a spot notice every few seconds: the sooner it is seen, the more is copied before the end.
#
# Over is: renew-until has passed; or the lease has passed (the tag's, or what the agent has renewed it to), and the
# hold, too. The lease is the agent's to judge while it lives, since it knows whether anybody works here: it renews
# or ends within two minutes. What it has not done after GRACE seconds is done here.
#
# The tags are read from the cloud's metadata service, as $HERE/cloud knows it. What cannot be read is as it was last
# read; what was never read is as it was at the launch ($HERE/launch). A clock that is set back during a boot prolongs
# nothing, nor does one that shows a time before the launch.
set -u
: "${HERE:=/usr/local/lib/cloudgpu}" "${STATE:=/var/lib/cloudgpu}" "${RUN:=/run/cloudgpu}" "${UPTIME:=/proc/uptime}"
: "${NOW:=$(date +%s)}"
GRACE=300
token='' made=0 expires='' renew_until='' spot='' user=cloudgpu deallocates=''
code=000 said=''
release() { :; }
. "$HERE/launch"
[ ! -r "$HERE/cloud" ] || . "$HERE/cloud"
: "${AGENT:=/home/$user/.cloudgpu}"
umask 022
mkdir -p "$STATE" "$RUN"

is_time() {
  case "$1" in '' | *[!0-9]*) return 1 ;; esac
  [ ${#1} -lt 12 ]
}

later() { # A B: the later of two times; what is none counts as 0
  is_time "$1" || set -- 0 "$2"
  is_time "$2" || set -- "$1" 0
  if [ "$1" -gt "$2" ]; then echo "$1"; else echo "$2"; fi
}

counted() { # FILE: how often it was tried, this time included; fails where that cannot be written down
  tries=$(($(later "$(cat "$RUN/$1" 2>/dev/null)" 0) + 1))
  echo "$tries" && echo "$tries" 2>/dev/null >"$RUN/$1"
}

off() { # REASON: a shutdown that hangs is tried again each minute, and from the sixth time on without asking anybody
  logger -t cloudgpu "ending: $1" 2>/dev/null
  release || exit 0
  if [ "$(counted tries)" -gt 5 ]; then systemctl poweroff --force --force; fi
  shutdown -h now || systemctl poweroff --force || poweroff -f
  exit 0
}

ask() { # WORDS of curl's: what the metadata service says; $code is the status, 000 for silence
  answer="$(curl -s -m 5 -w '\n%{http_code}' "$@" 2>/dev/null)"
  code="${answer##*
}"
  said="${answer%
*}"
}

keep() { # FILE TEXT: whole or not at all
  echo "$2" >"$RUN/$1.$$" && mv "$RUN/$1.$$" "$RUN/$1"
}

remembered() { # NAME AT_LAUNCH: sets $value to the tag now, else as it was last read, else as it was at the launch
  tag "cloudgpu-$1"
  if [ "$code" = 200 ] && is_time "$said"; then
    fresh=yes value="$said"
    echo "$value" >"$STATE/$1.new" && mv "$STATE/$1.new" "$STATE/$1"
    return 0
  fi
  if [ "$code" = 404 ] && [ "$1" = hold-until ]; then rm -f "$STATE/$1"; fi
  value="$(cat "$STATE/$1" 2>/dev/null)"
  is_time "$value" || value="$2"
}

reported() { # The agent writes its time seldom; what was sent is not sent again
  last="$(later "$(cat "$AGENT/last-active" 2>/dev/null)" 0)"
  [ "$last" -gt "$(later "$(cat "$RUN/reported" 2>/dev/null)" 0)" ] || exit 0
  report "$last"
  case "$code" in 20[0-9]) echo "$last" >"$RUN/reported" ;; *) echo "cloudgpu: not reported: $code" >&2 ;; esac
}

case "${1:-}" in
  end) off "${2:-asked}" ;;
  report)
    reported
    exit
    ;;
  watch)
    until [ -e "$RUN/notice.json" ]; do
      NOW="$(date +%s)"
      begin
      planned
      notice
      sleep 5
    done
    exit
    ;;
esac

# What was read before belongs to another launch where this disk came from an image.
if [ "$(cat "$STATE/launch" 2>/dev/null)" != "$token" ]; then
  rm -f "$STATE/expires" "$STATE/renew-until" "$STATE/hold-until"
  echo "$token" >"$STATE/launch"
fi

begin
fresh=''
remembered expires "$expires"
expires="$value"
remembered renew-until "$renew_until"
renew_until="$value"
remembered hold-until 0
hold_until="$value"
json="{\"cloudgpu-expires\": \"$expires\", \"cloudgpu-renew-until\": \"$renew_until\", "
keep tags.json "$json\"cloudgpu-hold-until\": \"$hold_until\"}"
planned
if [ -n "$spot" ]; then notice; fi

up="$(cut -d. -f1 <"$UPTIME")"
if [ -e "$RUN/clock" ]; then
  read -r then_now then_up <"$RUN/clock"
  NOW="$(later "$NOW" $((then_now + up - then_up)))"
else
  echo "$NOW $up" >"$RUN/clock"
fi
NOW="$(later "$NOW" $((made + up)))"

# Started from an image, and this boot's own data are not here yet: only what is read now is about this machine.
if [ -z "$fresh" ] && [ ! -e "$RUN/began" ] && [ "$up" -lt 900 ]; then exit 0; fi

[ "$NOW" -lt "$(later "$renew_until" 0)" ] || off renew-until
ends="$(later "$expires" "$(cat "$AGENT/expires" 2>/dev/null)")"
ends="$(later "$ends" "$hold_until")"
[ "$NOW" -ge "$ends" ] || exit 0
if [ -n "$(find "$AGENT/heartbeat.json" -mmin -2 2>/dev/null)" ] && [ "$NOW" -lt $((ends + GRACE)) ]; then exit 0; fi
off lease
