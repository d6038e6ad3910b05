"""What clouds without an SDK stand on: one REST client, and launches that are sent once."""
