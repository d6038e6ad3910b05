#!/bin/sh
# Mounts the data volume at /data: waits until it is attached, makes a file system only on a disk that is blank.
set -u
: "${DEV:=/dev}" "${MOUNT:=/data}" "${FSTAB:=/etc/fstab}" "${TRIES:=900}" "${IS_DISK:=-b}"
volume="${1:-}" # vol-..., where it is known
EBS="$DEV/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol"
options=defaults,nofail,x-systemd.device-timeout=30s

root_disk() { lsblk -no PKNAME "$(findmnt -no SOURCE /)" | head -n 1; }

device() { # By the volume's own name; by EC2's, which Xen changes to xvdf; a volume that is new: the EBS disk beside root's
  for one in "$EBS${volume#vol-}" "$DEV/sdf" "$DEV/xvdf"; do
    if [ "$IS_DISK" "$one" ]; then
      readlink -f "$one"
      return
    fi
  done
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

is_blank() { # No signature of anything, and the first MiB is zero
  signatures="$(wipefs --noheadings --no-act "$1")" || return 1
  [ -z "$signatures" ] && cmp -s -n 1048576 "$1" /dev/zero
}

until mountpoint -q "$MOUNT"; do
  disk="$(device)"
  if [ -n "$disk" ]; then
    if is_blank "$disk"; then
      mkfs.ext4 -q -L cloudgpu-data "$disk" || exit
      made=yes
    fi
    mkdir -p "$MOUNT"
    id="$(blkid -o value -s UUID "$disk")"
    grep -q "$id" "$FSTAB" || echo "UUID=$id $MOUNT auto $options 0 2" >>"$FSTAB"
    mount "$disk" "$MOUNT" || exit
    [ -z "${made:-}" ] || chown cloudgpu: "$MOUNT"
    exit
  fi
  TRIES=$((TRIES - 1))
  [ "$TRIES" -gt 0 ] || exit 1
  sleep 2
done
