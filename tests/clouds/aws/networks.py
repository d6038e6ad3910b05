"""Networks and key pairs: what hangs on a security group keeps it, a key pair has an id, an interface its tags."""

from __future__ import annotations

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.responses import EC2Response


class Networks(EC2Response):
    """The calls about networks."""

    def delete_key_pair(self) -> ActionResult:
        """Delete a key pair, also by its id, which moto leaves unread."""
        self.error_on_dryrun()
        id_, name = self._get_param("KeyPairId"), self._get_param("KeyName")
        named = {one.id: one_name for one_name, one in self.ec2_backend.key_pairs.items()}
        gone = self.ec2_backend.delete_key_pair(named.get(id_, name))
        return ActionResult({"Return": True, "KeyPairId": gone and gone.id})

    def delete_network_interface(self) -> ActionResult:
        """Delete an interface that no machine uses."""
        self.error_on_dryrun()
        wanted = self.ec2_backend.get_network_interface(self._get_param("NetworkInterfaceId"))
        if wanted.instance is not None:
            raise EC2ClientError("InvalidNetworkInterface.InUse", f"Interface: [{wanted.id}] in use.")
        return super().delete_network_interface()

    def delete_security_group(self) -> ActionResult:
        """Delete a group that no interface uses."""
        self.error_on_dryrun()
        wanted = self._get_param("GroupId") or self._get_param("GroupName")
        for interface in self.ec2_backend.enis.values():
            if any(wanted in {one.id, one.name} for one in interface.group_set):
                raise EC2ClientError("DependencyViolation", f"resource {wanted} has a dependent object")
        return super().delete_security_group()
