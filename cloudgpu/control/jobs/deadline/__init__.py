"""Jobs with a deadline: what is planned for one, and where it is to run at each sync."""
