"""Append-only record of intents, observations, prices and decisions; every amount is computed from it."""
