"""The contract that every provider passes, one ability a module."""
