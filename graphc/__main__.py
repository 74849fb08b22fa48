"""The command line from its first line on: `python -m graphc` and the script `graphc` start here.

Ctrl-C may come at any moment, also while modules are imported or the interpreter ends. Little is
imported here, and all else inside of what catches it.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any


def main() -> None:
    """Run `graphc.cli.main`; Ctrl-C outside of a command ends in one line and status 130, too."""
    sys.unraisablehook = _interrupted_again
    try:
        from graphc.cli import main as run

        run()
    except KeyboardInterrupt:
        _at_the_end()
        os.write(2, b"interrupted\n")
        sys.exit(130)
    finally:
        _at_the_end()


def _at_the_end() -> None:
    """All is done and printed: a Ctrl-C changes nothing any more."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _interrupted_again(unraisable: Any, /) -> None:
    """Where an exception can't be raised (in a callback, or as an object goes) Ctrl-C would be
    printed and lost: let it come again."""
    if not isinstance(unraisable.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
        return
    import _thread
    from threading import Timer

    again = Timer(0.01, _thread.interrupt_main)  # from here it could not be raised either
    again.daemon = True
    again.start()


if __name__ == "__main__":
    main()
