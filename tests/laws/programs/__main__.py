"""`python -m laws.programs FIRST LAST [--strategies] [--log FILE] [--jobs N]`, in `tests/`."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from laws.programs.campaign import Tally, campaign, one, worker


def main() -> int:
    parser = argparse.ArgumentParser(prog="laws.programs", description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("--strategies", action="store_true", help="each under a strategy, too")
    parser.add_argument("--log", type=Path, help="what is in this file is not tried again")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    seeds = range(given.first, given.last)
    tally, refused = Tally(), Counter[str]()
    for found in campaign(seeds, given.strategies, given.log, given.jobs):
        tally.found.append(found)
        refused.update(r.split(", ")[0].split(":")[0] + r.split(":")[1][:6] for r in found.refused)
        if found.defect:
            print(f"=== seed {found.seed}: {found.defect}\n\n{found.program}", flush=True)
    seconds = sum(f.seconds for f in tally.found)
    print(f"{len(tally.defects)} of {len(tally.found)} fail; {seconds:.0f} s of CPU")
    print(*(f"{n:6} refused: {what}" for what, n in refused.most_common()), sep="\n")
    return bool(tally.defects)


match sys.argv[1:]:
    case ["--worker"]:
        worker()
    case ["--program", text, strategy]:
        one(text, strategy)
    case _:
        sys.exit(main())
