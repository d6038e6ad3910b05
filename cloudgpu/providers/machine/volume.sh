#!/bin/sh
# Mounts the data volume at /data: waits until it is attached, makes a file system only on a disk that is blank.
set -u
: "${HERE:=/usr/local/lib/cloudgpu}" "${DEV:=/dev}" "${MOUNT:=/data}" "${FSTAB:=/etc/fstab}" "${TRIES:=900}" "${IS_DISK:=-b}"
volume="${1:-}" # the cloud's name of it; empty: a new volume on AWS, whose id is not known yet
options=defaults,nofail,x-systemd.device-timeout=30s
user=cloudgpu
. "$HERE/launch"
. "$HERE/cloud"

first_disk() { # PATHS: the first of them that is a disk
  for one in "$@"; do
    if [ "$IS_DISK" "$one" ]; then
      readlink -f "$one"
      return
    fi
  done
  return 1
}

is_blank() { # No signature, and the first MiB is zero
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
    [ -z "${made:-}" ] || chown "$user:" "$MOUNT"
    exit
  fi
  TRIES=$((TRIES - 1))
  [ "$TRIES" -gt 0 ] || exit 1
  sleep 2
done
