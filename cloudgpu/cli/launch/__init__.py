"""What verbs that launch, start and end share: options, plans as text, and what is shown before a question."""
