"""The nouns: instances, offers, launches, resources, accounts, the machine."""
