"""Verbs that run without anybody looking on."""
