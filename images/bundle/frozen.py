"""Freeze execd and its part of the standard library into one static program."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any, Final

from images.bundle import folder, spawn_program, target
from images.bundle.cache import Report, log_path, made
from images.bundle.errors import ImportsUnmet
from images.bundle.interpreter import Interpreter
from images.bundle.keys import key_of
from images.bundle.model import ENTRYPOINTS, Manifest
from images.bundle.sources import HOUSE, MAIN_C, STANDINS, need_source, own_source_root, roots, source_digest
from images.bundle.steps import run
from images.bundle.zig import Zig
from specs.names import MOUNT_BUNDLE

ROOM: Final = "bundles"
COLLECT_SECONDS = 120.0
LINK_SECONDS = 600.0

# musl gives threads 128 KiB of stack unless the program asks for more; Python's
# recursion limit is reckoned with a megabyte.
STACK_BYTES: Final = 1 << 20


def key(source_root: Path, interpreter: Interpreter) -> str:
    """Return the cache key of the bundle of these sources and this interpreter."""
    return "frozen-" + key_of({"interpreter": interpreter.key, "sources": source_digest(source_root)})


def freeze(source_root: Path, cache: Path, interpreter: Interpreter, zig: Zig, report: Report) -> Path:
    """
    Return the bundle directory, making it if the cache does not have it.

    Raises:
        ImportsUnmet: execd imports what the interpreter does not have.
        SourceMissing: a C source or execd's entry module is not there.
        StepFailed: a build step failed; its log is named.
    """
    log = log_path(cache, "frozen")
    name = key(source_root, interpreter)

    def make(aside: Path) -> None:
        began = time.monotonic()
        report("freezing execd")
        work = aside / "work"
        work.mkdir()
        blob = work / "modules.bin"
        answer = ask(
            interpreter.program,
            {
                "house": dict.fromkeys(HOUSE, str(source_root)),
                "roots": roots(source_root),
                "standins": str(source_root / STANDINS),
                "stdlib": str(interpreter.stdlib),
                "dynload": "",
                "blob": str(blob),
            },
            log,
        )
        table = work / "table.c"
        table.write_text(render_table(answer["modules"], str(blob)))
        _link(source_root, work, aside / "execd", interpreter, zig, log)
        compiler = spawn_program.with_zig(zig)
        spawn_program.compile_spawn(source_root, aside / spawn_program.NAME, compiler, log)
        shutil.rmtree(work)
        manifest = Manifest(
            kind="frozen",
            python=answer["python"],
            arch=interpreter.record.target.partition("-")[0],
            key=name,
            spawn=compiler.name,
            entrypoint=ENTRYPOINTS["frozen"],
            files=(),
        )
        folder.finish(aside, manifest)
        report(f"froze {len(answer['modules'])} modules in {time.monotonic() - began:.1f} s")

    return made(cache, ROOM, name, make, report)


def ask(
    program: Path, plan: dict[str, Any], log: Path, prefix: tuple[str | Path, ...] = ()
) -> dict[str, Any]:
    """
    Run the target part of the build in the interpreter being bundled.

    Args:
        program: that interpreter.
        plan: see `images.bundle.target`.
        log: where its errors go.
        prefix: a loader to run the interpreter through.

    Raises:
        ImportsUnmet: house modules import what is not there.
    """
    argv = [*prefix, program, "-I", "-S", "-B", "-c", target.BOOTSTRAP]
    argv += [own_source_root() / "images", plan["dynload"]]
    stdin = json.dumps(plan).encode()
    output = run("collect modules", argv, log=log, seconds=COLLECT_SECONDS, stdin=stdin)
    answer: dict[str, Any] = json.loads(output)
    if answer["unmet"]:
        raise ImportsUnmet(answer["unmet"])
    return answer


def render_table(modules: list[dict[str, Any]], blob: str) -> str:
    """
    Write the frozen table as C: one blob of code objects and where each begins.

    The blob is included by the assembler; as an array in C it would take the
    compiler a minute.
    """
    rows = "\n".join(
        f'    {{.name = "{m["name"]}", .code = bundle_code + {m["offset"]}, '
        f".size = {m['size']}, .is_package = {int(m['package'])}}},"
        for m in modules
    )
    quoted = blob.replace("\\", "\\\\").replace('"', '\\"')
    return f"""#include <Python.h>

__asm__(
    ".section .rodata\\n"
    ".balign 16\\n"
    ".global bundle_code\\n"
    "bundle_code:\\n"
    ".incbin \\"{quoted}\\"\\n"
    ".previous\\n");

extern const unsigned char bundle_code[];

const struct _frozen bundle_modules[] = {{
{rows}
    {{0}},
}};
"""


def _link(source_root: Path, work: Path, out: Path, interpreter: Interpreter, zig: Zig, log: Path) -> None:
    main = need_source(source_root / MAIN_C)
    argv: list[str | Path] = [*zig.cc(), "-static", "-s", "-O2", "-g0", "-fno-sanitize=all"]
    argv += [f'-DBUNDLE_MOUNT="{MOUNT_BUNDLE}"', "-Wall", "-I", interpreter.include]
    argv += [f"-Wl,-z,stack-size={STACK_BYTES}", "-o", out, main, work / "table.c"]
    argv += [*interpreter.archives, "-ldl", "-lm"]
    run("link execd", argv, log=log, seconds=LINK_SECONDS, env=zig.env)
