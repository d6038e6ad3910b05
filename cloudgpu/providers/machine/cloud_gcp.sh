#!/bin/sh
# What Google Cloud tells a machine, what the machine tells by guest attributes, and how its disks are called.
# A shutdown ends its billing. The address stands for metadata.google.internal and needs no name service.
# Sources: Compute Engine's pages "About VM metadata", "Handle GPU host maintenance events", "Spot VMs" (preempted; 30 s)
# and "Set and query guest attributes"; 65-gce-disk-naming.rules of google-guest-configs.
: "${IMDS:=http://169.254.169.254/computeMetadata/v1/instance}"

begin() { :; }
get() { ask -H 'Metadata-Flavor: Google' "$IMDS/$1"; }
tag() { get "attributes/$1"; }

planned() {
  get maintenance-event
  [ "$code" = 200 ] || return 0
  case "$said" in
    *[!A-Z_]* | '' | NONE) rm -f "$RUN/events.json" ;;
    *) keep events.json "{\"events\": [{\"Code\": \"$said\"}]}" ;;
  esac
}

notice() { # Nobody says when the 30 s are over: they count from when they were seen, and a second look moves nothing
  [ ! -e "$RUN/notice.json" ] || return 0
  get preempted
  [ "$code$said" = 200TRUE ] || return 0
  keep notice.json "{\"action\": \"stop\", \"time\": \"$(date -u -d "@$((NOW + 30))" +%Y-%m-%dT%H:%M:%SZ)\"}"
}

report() { ask -X PUT -H 'Metadata-Flavor: Google' --data "$1" "$IMDS/guest-attributes/cloudgpu/last-active"; }

device() { first_disk "$DEV/disk/by-id/google-$volume"; }
