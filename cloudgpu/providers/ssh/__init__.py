"""The user's own machines as a provider: started and ended are cloudgpu's processes there, never the machine."""
