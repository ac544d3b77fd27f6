"""`make bench`: one command, a table and JSON, floors measured in the same run."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from images import bundle
from tests.bench import rows
from tests.bench.client import Api
from tests.bench.report import Row, show
from tests.live import ROOT, boxwright
from tests.raw_engine import Engine

IMAGE = "boxwright/debian:local"


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure Boxwright beside the engine's own floor.")
    parser.add_argument("--quick", action="store_true", help="fewer samples, for a first look")
    parser.add_argument("--json", type=Path, default=ROOT / "bench-results.json", help="where the figures go")
    parser.add_argument(
        "--only", choices=["commands", "streams", "start", "memory", "cold", "sdk"], action="append"
    )
    asked = parser.parse_args()
    wanted = set(asked.only or ["commands", "streams", "start", "memory", "cold", "sdk"])
    made = bundle.build(
        "frozen",
        source_root=ROOT,
        cache=bundle.default_cache(os.environ),
        report=lambda text: print(text, file=sys.stderr),
    )
    found: list[Row] = []
    with boxwright({"BOXWRIGHT_GATEWAY_BUNDLE": "frozen"}) as live:
        api, engine = Api(live.domain, live.key), Engine()
        warm = api.create(IMAGE)
        sandbox = api.endpoint(warm)
        if "commands" in wanted:
            found += rows.commands(sandbox, quick=asked.quick)
        if "streams" in wanted:
            found += rows.streams(sandbox, quick=asked.quick)
        if "start" in wanted:
            found += rows.start_up(engine, api, warm, made.path, quick=asked.quick)
        if "cold" in wanted:
            found += rows.cold(engine, api, IMAGE, quick=asked.quick)
        if "sdk" in wanted:
            found += rows.sdk(live.domain, live.key, IMAGE, quick=asked.quick)
        if "memory" in wanted:
            found += rows.memory(engine, api, IMAGE, quick=asked.quick)
        api.delete(warm)
    show(found, asked.json, {"image": IMAGE, "bundle": made.kind, "bundle_mb": round(made.size / 1e6, 1)})
    return 0 if all(row.reached is not False for row in found) else 1


if __name__ == "__main__":
    sys.exit(main())
