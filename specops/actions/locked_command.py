"""Runs one command and holds a lock until it ends, though the guard that started it was killed.

    python -I locked_command.py DESCRIPTOR COMMAND …

The lock belongs to the open file DESCRIPTOR, which was locked before this began. The command does not inherit
it, so that a server which it leaves behind holds no lock. Standard library only: it starts in milliseconds.
"""

import subprocess
import sys

if __name__ == "__main__":
    try:
        code = subprocess.call(sys.argv[2:], stdin=subprocess.DEVNULL)
    except OSError as error:
        print(f"{sys.argv[2]}: {error.strerror}", file=sys.stderr)
        code = 127
    sys.exit(code if code >= 0 else 128 - code)
