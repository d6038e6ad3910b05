"""Jobs: what they are, the fold of their lines, and what comes next for one."""
