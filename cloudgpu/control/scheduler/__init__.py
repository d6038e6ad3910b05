"""Runs what is due: cron, watch, metrics."""
