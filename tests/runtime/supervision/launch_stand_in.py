"""python launch_stand_in.py '{"count": 2, "limits": {...}, "hosts": [...]}' '{stand-in}'"""

from __future__ import annotations

import json
import os
import sys
import time

from graphc.runtime.supervision.job import HostLayout, mpi_launcher
from graphc.runtime.supervision.supervise import Limits, ProcessLost, supervise

HERE = os.path.dirname(os.path.abspath(__file__))


def main() -> int:
    options = json.loads(sys.argv[1])
    layout = HostLayout(tuple(options.get("hosts", ())), options.get("count", 2))
    program = [sys.executable, os.path.join(HERE, "stand_in.py"), sys.argv[2]]
    try:
        return supervise(mpi_launcher(), program, layout, Limits(**options.get("limits", {})))
    except ProcessLost as error:
        said = {"code": error.code, "message": error.message, "help": error.help}
        said |= {"notes": getattr(error, "__notes__", []), "at": time.time()}
        print("LOST " + json.dumps(said), file=sys.stderr, flush=True)
        return 75
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
