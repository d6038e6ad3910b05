#!/bin/sh
# Azure's metadata service, calls with the machine's managed identity, and the device names of its disks.
#
# A shutdown from inside leaves a machine allocated and billed: release deallocates it first.
# Sources: Microsoft's pages "Azure Instance Metadata Service", "Scheduled Events", "Managed identities: use a token",
# "Virtual Machines - Deallocate", "Tags - Update At Scope"; 66-azure-storage.rules of WALinuxAgent; 80-azure-disk.rules
# of azure-vm-utils (data disk N is NVMe namespace N + 2).
: "${IMDS:=http://169.254.169.254/metadata}" "${ARM:=https://management.azure.com}" "${SYS:=/sys}"
AGAIN=30

get() { fetch -H 'Metadata: true' --noproxy '*' "$IMDS/$1"; }

begin() {
  get 'instance/compute/tagsList?api-version=2021-02-01'
  tags="$(printf %s "$said" | tr '}' '\n')" tags_code="$code"
}

tag() {
  said="$(printf %s "$tags" | sed -n "s/.*\"name\" *: *\"$1\".*\"value\" *: *\"\([^\"]*\)\".*/\1/p")"
  code="$tags_code"
  if [ "$code" = 200 ] && [ -z "$said" ]; then code=404; fi
}

events() { # The first request enables the service and may take two minutes
  get 'scheduledevents?api-version=2020-07-01'
  [ "$code" = 200 ] || return 0
  events="$(printf %s "$said" | tr -d '\r\n' | sed -n 's/.*"Events" *: *\(\[.*\]\).*/\1/p')"
  case "$events" in
    *[!\[\]\ ]*) store events.json "{\"events\": $events}" ;;
    *) rm -f "$RUN/events.json" ;;
  esac
}

notice() { # By what events has just written; NotBefore is empty once it has begun
  [ ! -e "$RUN/notice.json" ] && [ -e "$RUN/events.json" ] || return 0
  preempt="$(tr '}' '\n' <"$RUN/events.json" | grep '"EventType" *: *"Preempt"' | head -n 1)"
  [ -n "$preempt" ] || return 0
  at="$(printf %s "$preempt" | sed -n 's/.*"NotBefore" *: *"\([^"]*\)".*/\1/p')"
  store notice.json "{\"action\": \"stop\", \"time\": \"$(date -u -d "${at:-@$NOW}" +%Y-%m-%dT%H:%M:%SZ)\"}"
}

call_azure() { # PATH CURL-ARGUMENTS: call this machine's resource with its own token, which no process list shows
  get 'identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F%2Fmanagement.azure.com%2F'
  token="$(printf %s "$said" | sed -n 's/.*"access_token" *: *"\([^"]*\)".*/\1/p')"
  get 'instance/compute/resourceId?api-version=2021-02-01&format=text'
  below="$1" here="$said"
  if [ -z "$token" ] || [ "$code" != 200 ]; then
    code=000
    return
  fi
  shift
  fetch -m 20 "$@" -H 'Content-Type: application/json' --config - "$ARM$here/$below" <<TOKEN
header = "Authorization: Bearer $token"
TOKEN
}

report() {
  merge="{\"operation\": \"Merge\", \"properties\": {\"tags\": {\"cloudgpu-last-active\": \"$1\"}}}"
  call_azure 'providers/Microsoft.Resources/tags/default?api-version=2021-04-01' -X PATCH --data "$merge"
}

release() { # Retried each minute; after AGAIN tries the machine is powered off without, for others to deallocate
  [ -n "$deallocates" ] || return 0
  call_azure 'deallocate?api-version=2024-07-01' -X POST --data ''
  case "$code" in 20[0-9]) return 0 ;; esac
  logger -t cloudgpu "Azure did not deallocate this machine: $code" 2>/dev/null
  times="$(count releases)" || return 0
  [ "$times" -gt "$AGAIN" ]
}

namespace() { # Without udev rules: namespace N + 2 of the controller for remote disks
  for one in "$SYS"/class/nvme/nvme*; do
    grep -qs 'MSFT NVMe Accelerator' "$one/model" && echo "$DEV/${one##*/}n$((volume + 2))" && return
  done
}

device() { first_disk "$DEV/disk/azure/data/by-lun/$volume" "$DEV/disk/azure/scsi1/lun$volume" "$(namespace)"; }
