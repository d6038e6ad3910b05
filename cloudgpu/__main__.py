"""`python -m cloudgpu`: the command line."""

from cloudgpu.cli.app import main

main()
