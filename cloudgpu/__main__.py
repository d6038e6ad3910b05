"""The command: `cloudgpu`, or `python -m cloudgpu`."""

import sys

from cloudgpu.cli import interrupt


def main() -> None:
    """Run the command line, and end on Ctrl-C also while that is being loaded."""
    interrupt.heed()
    try:
        from cloudgpu.cli.app import main as run
    except KeyboardInterrupt:
        interrupt.over()
        sys.exit(interrupt.CODE)
    run()


if __name__ == "__main__":
    main()
