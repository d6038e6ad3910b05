"""The library: what `cloudgpu.connect()` returns, in four parts."""
