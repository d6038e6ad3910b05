#!/bin/sh
# Lambda has no changeable metadata, no spot notice and no identity of machines.
#
# A machine that is shut down from inside is still billed (Lambda's documentation, billing of on-demand instances), and
# would seem ended. So release fails: nothing is shut down here, and a run of the reaper ends the machine.
begin() { :; }

tag() { code=000 said=''; }

events() { :; }

notice() { :; }

report() { code=000; }

release() { return 1; }

device() { :; }
