"""What `up` and `run` share: the options of a launch, and its plan as text."""
