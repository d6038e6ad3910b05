"""The command: `cloudgpu`, or `python -m cloudgpu`."""

import os
import sys

from cloudgpu.cli import interrupt


def main() -> None:
    """Run the command line, and end on Ctrl-C also while that is being loaded."""
    _open_closed_streams()
    # As on stderr: an answer is shown, if escaped, where the terminal's encoding lacks a character of it.
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    interrupt.install_handlers()
    try:
        from cloudgpu.cli.app import main as run
    except KeyboardInterrupt:
        interrupt.ignore_interrupts()
        sys.exit(interrupt.EXIT_CODE)
    run()


def _open_closed_streams() -> None:
    """Open /dev/null for closed standard streams: else the next opened file gets their number, and is written to."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None and os.open(os.devnull, os.O_RDWR) == fd:  # open() gives the lowest free number
            setattr(sys, name, os.fdopen(fd, "w" if fd else "r", closefd=False))


if __name__ == "__main__":
    main()
