#!/bin/sh
# What Lambda tells a machine: nothing. It has no metadata that could be changed, no notice and no identity.
#
# A shutdown from inside goes on being billed (Lambda's documentation, billing of on-demand instances), and would hide
# the machine from whoever comes to end it. So release says no: nothing is shut down here, and a pass from outside ends
# the machine.
begin() { :; }

tag() { code=000 said=''; }

planned() { :; }

notice() { :; }

report() { code=000; }

release() { return 1; }

device() { :; }
