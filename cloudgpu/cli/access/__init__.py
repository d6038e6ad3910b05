"""Verbs that get a user onto a machine: ssh, exec, cp, tunnel, share."""
