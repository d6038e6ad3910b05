"""Networks: what still hangs on a security group keeps it from being deleted."""

from __future__ import annotations

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.responses import EC2Response


class Networks(EC2Response):
    """The calls about networks."""

    def delete_security_group(self) -> ActionResult:
        """Delete a group that no interface uses."""
        self.error_on_dryrun()
        wanted = self._get_param("GroupId") or self._get_param("GroupName")
        for interface in self.ec2_backend.enis.values():
            if any(wanted in {one.id, one.name} for one in interface.group_set):
                raise EC2ClientError("DependencyViolation", f"resource {wanted} has a dependent object")
        return super().delete_security_group()
