"""Shows: rows and plans as values, tables and charts."""
