"""What there is: asks the providers, writes down what they say, proves what is gone."""
