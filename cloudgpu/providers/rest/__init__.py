"""What providers of clouds without an SDK use: one REST client, and launches that are sent once."""
