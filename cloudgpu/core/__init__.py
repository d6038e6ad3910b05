"""Pure decisions and values: standard library only; no clock, file, network, randomness, print."""
