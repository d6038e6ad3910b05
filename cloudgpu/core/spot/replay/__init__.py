"""What policies cost on recorded or generated availability, next to the exact optimum; and the quotation made of it."""
