"""Soak a Boxwright: `python -m tests.soak --minutes 20`."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path

from tests.soak.gateways import gateways, image
from tests.soak.run import Soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--gateways", type=int, default=2)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="repeat a run's choices")
    asked = parser.parse_args()
    print(f"soak: {asked.minutes:g} minutes, seed {asked.seed}", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="boxwright-soak-") as folder,
        gateways(Path(folder), asked.gateways) as made,
    ):
        soak = Soak(made, image(), asked.seed)
        asyncio.run(soak.run(asked.minutes * 60, clients=asked.clients))
        for what, count in sorted(soak.done.items()):
            print(f"{count:8} {what}")
        for line in soak.wrong:
            print(f"WRONG: {line}")
        if soak.wrong:
            print(made.log.read_text()[-20_000:])
    print("soak: good" if not soak.wrong else f"soak: {len(soak.wrong)} things were wrong")
    return 1 if soak.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
