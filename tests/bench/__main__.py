"""`make bench`: one command, a table and JSON, floors measured in the same run."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from images import bundle
from tests.bench import load, rows
from tests.bench.client import Api
from tests.bench.report import Row, show
from tests.live import ROOT, boxwright
from tests.raw_engine import Engine

IMAGE = "boxwright/debian:local"
PARTS = (
    "commands",
    "streams",
    "start",
    "cold",
    "sdk",
    "memory",
    "proxy",
    "bursts",
    "churn",
    "lists",
    "restart",
)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure Boxwright beside the engine's own floor.")
    parser.add_argument("--quick", action="store_true", help="fewer samples, for a first look")
    parser.add_argument("--json", type=Path, default=ROOT / "bench-results.json", help="where the figures go")
    parser.add_argument("--only", choices=PARTS, action="append", help="measure only this part (repeatable)")
    asked = parser.parse_args()
    wanted = asked.only or list(PARTS)
    made = bundle.build("frozen", source_root=ROOT, cache=bundle.default_cache(os.environ), report=tell)
    found: list[Row] = []
    folder = load.shared_folder()
    try:
        with tempfile.TemporaryDirectory(prefix="boxwright-bench-") as scratch:
            config = Path(scratch) / "bench.toml"
            # The engine's floor runs without limits; a cpu quota alone adds 0.1 to 0.5 ms to a command here.
            config.write_text(
                f'[storage]\nallowed_host_paths = ["{folder}"]\n[gateway]\nbundle = "frozen"\n'
                '[limits]\ndefault_cpus = ""\ndefault_memory_mib = ""\n'
            )
            with boxwright({"BOXWRIGHT_CONFIG": str(config)}) as live:
                api, engine = Api(live.domain, live.key), Engine()
                volume = {"name": "bench", "mountPath": "/mnt/bench", "host": {"path": str(folder)}}
                warm = api.create(IMAGE, volumes=[volume])
                sandbox = api.endpoint(warm)
                quick = asked.quick
                parts: dict[str, Callable[[], Iterable[Row]]] = {
                    "commands": lambda: [
                        *rows.commands(sandbox, quick=quick),
                        *rows.plain_shell(api, quick=quick),
                    ],
                    "streams": lambda: rows.streams(sandbox, quick=quick),
                    "start": lambda: rows.start_up(engine, api, warm, made.path, quick=quick),
                    "cold": lambda: rows.cold(engine, api, IMAGE, quick=quick),
                    "sdk": lambda: rows.sdk(live.domain, live.key, IMAGE, quick=quick),
                    "memory": lambda: rows.memory(engine, api, IMAGE, quick=quick),
                    "proxy": lambda: load.proxied(live, engine, warm, folder, quick=quick),
                    "bursts": lambda: load.bursts(live, IMAGE, quick=quick),
                    "churn": lambda: load.churn(live, IMAGE, quick=quick),
                    "lists": lambda: load.lists(live, quick=quick),
                    "restart": lambda: load.restart(live, IMAGE, quick=quick),
                }
                for part in PARTS:
                    if part in wanted:
                        tell(f"measuring {part}")
                        found += parts[part]()
                engine.close()
    finally:
        load.drop_folder(folder)
        show(found, asked.json, {"image": IMAGE, "bundle": made.kind, "bundle_mb": round(made.size / 1e6, 1)})
    return 0 if all(row.reached is not False for row in found) else 1


def tell(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
