"""Kill -9 at every recorded step and around every change of the real engine, then a restart that makes it good."""

from __future__ import annotations

import asyncio
import multiprocessing
import multiprocessing.context
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from gateway.__main__ import have_bundle
from gateway.config import load
from gateway.operations.steps import MAKING, Step
from gateway.runtimes.docker.engine import Engine, EngineSettings
from gateway.sandboxes.model import BundleMount
from images.local import ensure, reference
from tests.integration.crash.fate import AFTER, asked, closed, recorded, verbs
from tests.integration.crash.victim import DURING, GOOD, Case, die, judge
from tests.integration.crash.world import request_of

pytestmark = pytest.mark.engine

AT_ONCE: Final = 3
# Calls that change nothing in the engine, or nothing of a sandbox.
READING: Final = {
    "close",
    "image_labels",
    "info",
    "inspect_container",
    "inspect_image",
    "inspect_volume",
    "list_containers",
    "list_images",
    "ping",
    "version",
    "wait_container",
}
OF_IMAGES: Final = {"import_image", "remove_image", "tag_image"}
CHANGING: Final = verbs(Engine) - READING - OF_IMAGES
IN_LIFE: Final = (
    *(recorded(step) for step in Step if step is not Step.UNDOING),
    *(closed(step) for step in Step if step not in MAKING and step is not Step.UNDOING),
    closed(Step.STARTED),
    "record",
)
MOMENTS: Final = (
    *((name, AFTER, "life") for name in IN_LIFE),
    *((name, AFTER, "refused") for name in (recorded(Step.UNDOING), closed(Step.UNDOING))),
    *((asked(verb), when, "life") for verb in sorted(CHANGING) for when in (DURING, AFTER)),
)


@pytest.fixture(scope="module")
def bundle() -> BundleMount:
    return have_bundle(load(None, {"BOXWRIGHT_API_KEY": "k" * 32}), os.environ)


@pytest.fixture(scope="module")
def image() -> str:
    async def make() -> None:
        engine = Engine(EngineSettings())
        try:
            await ensure(["busybox"], engine, print, deadline=300.0)
        finally:
            await engine.close()

    asyncio.run(make())
    return reference("busybox")


def killed(case: Case, processes: multiprocessing.context.ForkServerContext) -> str | None:
    """Let one gateway die and the next one judge; return what is wrong, if anything is."""
    case.home.mkdir(parents=True)
    first = processes.Process(target=die, args=(case,))
    first.start()
    first.join(60)
    if first.exitcode != -signal.SIGKILL:
        first.kill()
        return f"{case.name}, {case.when}: the moment did not come (exit {first.exitcode})"
    second = processes.Process(target=judge, args=(case,))
    second.start()
    second.join(90)
    if second.exitcode is None:
        second.kill()
        return f"{case.name}, {case.when}: the restart hung"
    verdict = case.verdict.read_text() if case.verdict.exists() else f"exit {second.exitcode}"
    if verdict == GOOD:
        return None
    log = (case.home / "log").read_text()
    report = case.report.read_text() if case.report.exists() else ""
    return f"{case.name}, {case.when}:\n{verdict}\nanswered:\n{report}\nlog:\n{log}"


def test_killed_at_every_step_on_the_engine(bundle: BundleMount, image: str, tmp_path: Path) -> None:
    """Whatever the moment, no container or volume is left without a record, and what was answered holds."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["tests.integration.crash.victim"])

    def run(number: int) -> str | None:
        name, when, scenario = MOMENTS[number]
        entrypoint = ["/no/such/program"] if scenario == "refused" else ["tail", "-f", "/dev/null"]
        request = request_of(image={"uri": image}, entrypoint=entrypoint)
        case = Case(
            name, when, scenario, tmp_path / str(number), bundle, request.model_dump_json(by_alias=True)
        )
        return killed(case, processes)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        wrong = [text for text in pool.map(run, range(len(MOMENTS))) if text is not None]
    assert not wrong, "\n\n".join(wrong)


def test_no_step_and_no_call_was_left_out() -> None:
    """Each step and each call that changes the engine has its death here; a new one must be sorted in."""
    died = {name for name, _, _ in MOMENTS}
    assert {recorded(step) for step in Step} <= died
    assert {asked(verb) for verb in CHANGING} <= died
    assert verbs(Engine) >= READING | OF_IMAGES
