"""cloudgpu: a GPU in one command, never a surprise bill, always the honest comparison."""

__version__ = "0.1.0"
