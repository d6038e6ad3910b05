#!/bin/sh
# Google Cloud's metadata service, guest attributes, and the device names of disks.
# A shutdown ends billing. The address is that of metadata.google.internal, without DNS.
# Sources: Compute Engine's pages "About VM metadata", "Handle GPU host maintenance events", "Spot VMs" (preempted; 30 s)
# and "Set and query guest attributes"; 65-gce-disk-naming.rules of google-guest-configs.
: "${IMDS:=http://169.254.169.254/computeMetadata/v1/instance}"

begin() { :; }
get() { fetch -H 'Metadata-Flavor: Google' "$IMDS/$1"; }
tag() { get "attributes/$1"; }

events() {
  get maintenance-event
  [ "$code" = 200 ] || return 0
  case "$said" in
    *[!A-Z_]* | '' | NONE) rm -f "$RUN/events.json" ;;
    *) store events.json "{\"events\": [{\"Code\": \"$said\"}]}" ;;
  esac
}

notice() { # The 30 s count from when the notice is first seen, because Google gives no time
  [ ! -e "$RUN/notice.json" ] || return 0
  get preempted
  [ "$code$said" = 200TRUE ] || return 0
  store notice.json "{\"action\": \"stop\", \"time\": \"$(date -u -d "@$((NOW + 30))" +%Y-%m-%dT%H:%M:%SZ)\"}"
}

report() { fetch -X PUT -H 'Metadata-Flavor: Google' --data "$1" "$IMDS/guest-attributes/cloudgpu/last-active"; }

device() { first_disk "$DEV/disk/by-id/google-$volume"; }
