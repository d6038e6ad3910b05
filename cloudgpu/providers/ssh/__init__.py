"""The user's own machines as a provider: starts and ends cloudgpu's processes there, never the machine."""
