"""What a job leaves on this host if its launcher and mpiexec are killed at once, and its removal.

The launcher removes what is left of a job, and so does mpiexec. If both are killed by SIGKILL,
nobody of the job is left who could: MPI ends the processes at once. So a shell waits beside the
launcher, until the pipe between them is closed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from graphc.runtime.supervision.local_processes import SharedFile

PLAIN = re.compile(r"[\w./+-]+")  # paths that need no quotes
# $1: mpiexec's process, $2: its folder. First the inodes and paths of files, a line each; `over`
# says that the launcher has removed all. Without that it has been killed: mpiexec then ends within
# moments, if it lives, and removes its folder itself; processes of the job end meanwhile.
SCRIPT = """
set -f
files=
while read -r inode path; do
    [ "$inode" = over ] && exit
    files="$files $inode $path"
done
turns=0
while kill -0 "$1" 2>&- && [ $turns -lt 100 ]; do sleep 0.1; turns=$((turns + 1)); done
sleep 1
kill -0 "$1" 2>&- || { [ -O "$2" ] && rm -rf "$2"; }
set -- $files
while [ $# -gt 1 ]; do
    [ "$(stat -c %i "$2" 2>&-)" = "$1" ] && rm -f "$2"
    shift 2
done
"""


def folder_of(mpiexec: int) -> Path:
    """Where Open MPI's mpiexec with this process number has files of its own."""
    return Path(tempfile.gettempdir()) / f"ompi.{mpiexec}"


class Remover:
    """Removes what is left of a job, once this process is gone. mpiexec: its process number"""

    def __init__(self, mpiexec: int) -> None:
        self._told: set[SharedFile] = set()
        self._shell: subprocess.Popen[bytes] | None = None
        if sys.platform != "linux":
            return
        with suppress(OSError):  # no shell: nothing is removed
            self._shell = subprocess.Popen(
                ["sh", "-c", SCRIPT, "sh", str(mpiexec), str(folder_of(mpiexec))],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True, bufsize=0,
            )  # fmt: skip

    def note(self, files: Iterable[SharedFile]) -> None:
        """The job has these files now."""
        new = {x for x in files if x not in self._told and PLAIN.fullmatch(x.path)}
        self._told |= new
        self._say("".join(f"{x.inode} {x.path}\n" for x in new))

    def close(self) -> None:
        """Everything has been removed."""
        self._say("over\n")
        if self._shell is not None and self._shell.stdin is not None:
            self._shell.stdin.close()
            self._shell.wait()

    def _say(self, text: str) -> None:
        if text and self._shell is not None and self._shell.stdin is not None:
            with suppress(OSError):  # somebody has killed it
                self._shell.stdin.write(text.encode())
