"""Rows of the bench: what was measured, what it must reach, whether it does."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement.

    Attributes:
        name: what was measured.
        value: the figure, in `unit`.
        unit: ms, /s, MB/s, MiB, x (ratio).
        goal: what it must reach, None for information only.
        at_most: True when smaller is better.
        n: how many samples.
        floor: the engine's (or kernel's) own figure measured in the same run, same unit.
    """

    name: str
    value: float
    unit: str
    goal: float | None = None
    at_most: bool = True
    n: int = 0
    floor: float | None = None
    note: str = ""
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def reached(self) -> bool | None:
        if self.goal is None:
            return None
        return self.value <= self.goal if self.at_most else self.value >= self.goal


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
    }


def show(rows: list[Row], target: Path | None, more: dict[str, Any]) -> None:
    table = Table(title="Boxwright bench", caption=str({**machine(), **more}))
    for title in ("what", "measured", "floor", "goal", "", "n", "note"):
        table.add_column(title, justify="right" if title in {"measured", "floor", "goal", "n"} else "left")
    for row in rows:
        goal = "" if row.goal is None else f"{'≤' if row.at_most else '≥'} {row.goal:g}"
        verdict = {True: "[green]ok[/]", False: "[red]MISSED[/]", None: ""}[row.reached]
        floor = "" if row.floor is None else f"{row.floor:.2f}"
        table.add_row(
            row.name, f"{row.value:.2f} {row.unit}", floor, goal, verdict, str(row.n or ""), row.note
        )
    Console(width=140).print(table)
    if target is not None:
        content = {
            "machine": machine(),
            **more,
            "rows": [{**asdict(row), "reached": row.reached} for row in rows],
        }
        target.write_text(json.dumps(content, indent=2) + "\n")
