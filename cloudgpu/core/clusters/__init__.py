"""Several machines under one name: what their engine says, and what is decided for all of them."""
