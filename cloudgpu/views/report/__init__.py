"""The report as a page, as Markdown and as text."""
