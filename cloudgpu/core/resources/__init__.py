"""What a machine leaves that goes on costing: retained disks, orphans."""
