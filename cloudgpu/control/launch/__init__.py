"""From a request to a running machine: candidates, plan, attempts."""
