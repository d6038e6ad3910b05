"""Jobs: from a request to its results, continued by whoever watches."""
