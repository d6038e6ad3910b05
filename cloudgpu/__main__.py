"""The command: `cloudgpu`, or `python -m cloudgpu`."""

import sys

from cloudgpu.cli import interrupt


def main() -> None:
    """Run the command line, and end on Ctrl-C also while that is being loaded."""
    interrupt.install_handlers()
    try:
        from cloudgpu.cli.app import main as run
    except KeyboardInterrupt:
        interrupt.ignore_interrupts()
        sys.exit(interrupt.CODE)
    run()


if __name__ == "__main__":
    main()
