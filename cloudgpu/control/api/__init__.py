"""The library: what `cloudgpu.connect()` returns, in five parts."""
