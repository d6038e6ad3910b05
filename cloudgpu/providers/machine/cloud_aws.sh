#!/bin/sh
# EC2's metadata service, and the device names of its disks. A shutdown ends billing; report.py reports activity.
# Sources: EC2 user guide, "Instance metadata categories", "Device names", "Map NVMe disks to EBS volumes".
: "${IMDS:=http://169.254.169.254/latest}"
EBS="${DEV:-/dev}/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol"

begin() { session="$(curl -s -f -m 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' "$IMDS/api/token" 2>/dev/null)"; }
get() { fetch -H "X-aws-ec2-metadata-token: $session" "$IMDS/$1"; }
tag() { get "meta-data/tags/instance/$1"; }

events() {
  get meta-data/events/maintenance/scheduled
  if [ "$code" = 200 ]; then store events.json "{\"events\": $said}"; fi
  if [ "$code" = 404 ]; then rm -f "$RUN/events.json"; fi
}

notice() {
  get meta-data/spot/instance-action
  if [ "$code" = 200 ]; then store notice.json "$said"; fi
}

root_disk() { lsblk -no PKNAME "$(findmnt -no SOURCE /)" | head -n 1; }

device() { # By the volume's id; by EC2's device name, which Xen changes to xvdf; for a new volume: the EBS disk that is not root
  first_disk "$EBS${volume#vol-}" "$DEV/sdf" "$DEV/xvdf" && return
  [ -z "$volume" ] || return
  for one in "$EBS"*; do
    case "$one" in *_[0-9] | *-part*) continue ;; esac
    found="$(readlink -f "$one")"
    if [ "$IS_DISK" "$found" ] && [ "${found##*/}" != "$(root_disk)" ]; then
      echo "$found"
      return
    fi
  done
}
