#!/bin/sh
# What EC2's instance metadata (IMDSv2) tell the lease. A shutdown ends a machine's billing here.
# Source: EC2 user guide, "Instance metadata categories".
: "${IMDS:=http://169.254.169.254/latest}"

begin() { session="$(curl -s -f -m 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' "$IMDS/api/token" 2>/dev/null)"; }
get() { ask -H "X-aws-ec2-metadata-token: $session" "$IMDS/$1"; }
tag() { get "meta-data/tags/instance/$1"; }

planned() {
  get meta-data/events/maintenance/scheduled
  if [ "$code" = 200 ]; then keep events.json "{\"events\": $said}"; fi
  if [ "$code" = 404 ]; then rm -f "$RUN/events.json"; fi
}

notice() {
  get meta-data/spot/instance-action
  if [ "$code" = 200 ]; then keep notice.json "$said"; fi
}
