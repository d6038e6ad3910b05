"""The answers of compare, estimate, recommend and rent-or-buy as plain values."""
