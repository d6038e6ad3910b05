"""What exists: queries the providers, records their answers, verifies what is gone."""
