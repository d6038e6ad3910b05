#!/bin/sh
# Powers this machine off when its lease is over, whatever else has failed: cloudgpu-lease.timer runs it each minute.
# Also: `lease end REASON` powers it off now, `lease report` reports to the cloud when it was last in use, and
# `lease watch` checks for a spot notice every few seconds: the earlier it is seen, the more can be copied.
#
# The lease is over when renew-until has passed, or when both the lease (the tag, or the agent's renewal) and the hold
# have passed. While the agent lives it decides about the lease, because it knows the activity: it renews or ends within
# two minutes. If it has not after GRACE seconds, this script ends the machine.
#
# Tags are read from the cloud's metadata service ($HERE/cloud). A tag that cannot be read keeps its last value, else that
# of the launch ($HERE/launch). A clock that is set back during a boot, or is before the launch, prolongs nothing.
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

later() { # A B: the later of two times; an invalid one counts as 0
  is_time "$1" || set -- 0 "$2"
  is_time "$2" || set -- "$1" 0
  if [ "$1" -gt "$2" ]; then echo "$1"; else echo "$2"; fi
}

count() { # FILE: increment and print the count of tries in FILE; fails if it cannot be written
  tries=$(($(later "$(cat "$RUN/$1" 2>/dev/null)" 0) + 1))
  echo "$tries" && echo "$tries" 2>/dev/null >"$RUN/$1"
}

halt() { # REASON: a shutdown that hangs is tried again each minute, and forced from the sixth time on
  logger -t cloudgpu "ending: $1" 2>/dev/null
  release || exit 0
  if [ "$(count tries)" -gt 5 ]; then systemctl poweroff --force --force; fi
  shutdown -h now || systemctl poweroff --force || poweroff -f
  exit 0
}

fetch() { # CURL-ARGUMENTS: sets $said to the body and $code to the HTTP status, 000 without an answer
  answer="$(curl -s -m 5 -w '\n%{http_code}' "$@" 2>/dev/null)"
  code="${answer##*
}"
  said="${answer%
*}"
}

store() { # FILE TEXT: replace FILE in $RUN atomically
  echo "$2" >"$RUN/$1.$$" && mv "$RUN/$1.$$" "$RUN/$1"
}

read_tag() { # NAME AT_LAUNCH: sets $value to the current tag, else its last value, else that of the launch
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

reported() { # Report the time of the last activity, unless it was reported before
  last="$(later "$(cat "$AGENT/last-active" 2>/dev/null)" 0)"
  [ "$last" -gt "$(later "$(cat "$RUN/reported" 2>/dev/null)" 0)" ] || exit 0
  report "$last"
  case "$code" in 20[0-9]) echo "$last" >"$RUN/reported" ;; *) echo "cloudgpu: not reported: $code" >&2 ;; esac
}

case "${1:-}" in
  end) halt "${2:-asked}" ;;
  report)
    reported
    exit
    ;;
  watch)
    until [ -e "$RUN/notice.json" ]; do
      NOW="$(date +%s)"
      begin
      events
      notice
      sleep 5
    done
    exit
    ;;
esac

# Tags stored by another launch are removed: this disk was made from an image.
if [ "$(cat "$STATE/launch" 2>/dev/null)" != "$token" ]; then
  rm -f "$STATE/expires" "$STATE/renew-until" "$STATE/hold-until"
  echo "$token" >"$STATE/launch"
fi

begin
fresh=''
read_tag expires "$expires"
expires="$value"
read_tag renew-until "$renew_until"
renew_until="$value"
read_tag hold-until 0
hold_until="$value"
json="{\"cloudgpu-expires\": \"$expires\", \"cloudgpu-renew-until\": \"$renew_until\", "
store tags.json "$json\"cloudgpu-hold-until\": \"$hold_until\"}"
events
if [ -n "$spot" ]; then notice; fi

up="$(cut -d. -f1 <"$UPTIME")"
if [ -e "$RUN/clock" ]; then
  read -r then_now then_up <"$RUN/clock"
  NOW="$(later "$NOW" $((then_now + up - then_up)))"
else
  echo "$NOW $up" >"$RUN/clock"
fi
NOW="$(later "$NOW" $((made + up)))"

# First boot from an image, before cloud-init has written this launch's files: only tags read now are valid.
if [ -z "$fresh" ] && [ ! -e "$RUN/began" ] && [ "$up" -lt 900 ]; then exit 0; fi

[ "$NOW" -lt "$(later "$renew_until" 0)" ] || halt renew-until
ends="$(later "$expires" "$(cat "$AGENT/expires" 2>/dev/null)")"
ends="$(later "$ends" "$hold_until")"
[ "$NOW" -ge "$ends" ] || exit 0
if [ -n "$(find "$AGENT/heartbeat.json" -mmin -2 2>/dev/null)" ] && [ "$NOW" -lt $((ends + GRACE)) ]; then exit 0; fi
halt lease
