"""Spot machines: what was seen of them, by place and by interruption."""
