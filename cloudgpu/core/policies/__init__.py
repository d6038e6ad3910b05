"""Policies, limits and schedules, and how they are described."""
