"""What a machine leaves that still costs: retained disks, orphans."""
