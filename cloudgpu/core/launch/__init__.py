"""The plan of a launch, and its attempts."""
