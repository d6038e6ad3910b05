"""The error for a login that was refused: it says nothing about what stands on the host."""

from __future__ import annotations

from cloudgpu.errors import AuthFailed


class LoginUnsure(AuthFailed):
    """Our login was refused, so that nothing is known; a launch may have been accepted earlier."""
