"""Jobs: from a request to its results, carried on by whoever watches."""
