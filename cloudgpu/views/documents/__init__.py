"""The documents of `-o json`, as types: each key with what it is."""
