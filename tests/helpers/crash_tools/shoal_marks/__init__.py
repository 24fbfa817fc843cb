"""Tools whose effects can be counted: lines and files in the folder that MARKS names."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Annotated

import msgspec

from shared.crash_points import crash_point
from worker.agent.tools.tool import Safety, ToolContext
from worker.attempt import attempt, quarantine

if "NO_QUARANTINE" in os.environ:
    # What the quarantine costs is measured against workers that have none.
    attempt.__dict__["AFTER_CRASHES"] = attempt.__dict__["CRASH_LIMIT"] = 1_000_000
if "SILENT_TICKS" in os.environ:
    quarantine.__dict__["SILENT_TICKS"] = int(os.environ["SILENT_TICKS"])


class Word(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to write."""

    word: Annotated[str, msgspec.Meta(description="One word.")]


class Mark:
    """Adds a line: called twice, there are two. `unsafe`."""

    name = "mark"
    description = "Add a mark to the list."
    parameters = Word
    safety: Safety = "unsafe"
    trusted_result = True
    timeout_s = 5.0

    async def run(self, arguments: Word, context: ToolContext) -> str:
        crash_point("before_effect")
        with (_folder() / "marks").open("a") as file:
            file.write(f"{arguments.word}\n")
        crash_point("after_effect")
        return "marked"


class Keep:
    """Writes a file of its own: called twice, it is the same. `idempotent`."""

    name = "keep"
    description = "Keep a word."
    parameters = Word
    safety: Safety = "idempotent"
    trusted_result = True
    timeout_s = 5.0

    async def run(self, arguments: Word, context: ToolContext) -> str:
        (_folder() / f"kept-{arguments.word}").write_text(arguments.word)
        return "kept"


class Look:
    """Shows a word, which anybody may have written: a result that is not trusted. `read_only`."""

    name = "look"
    description = "Look at a word."
    parameters = Word
    safety: Safety = "read_only"
    timeout_s = 5.0

    async def run(self, arguments: Word, context: ToolContext) -> str:
        return arguments.word


def _folder() -> Path:
    return Path(os.environ["MARKS"])


class Sleep:
    """Sleeps for long, and notes when it is cancelled. `unsafe`."""

    name = "sleep"
    description = "Sleep."
    parameters = Word
    safety: Safety = "unsafe"
    trusted_result = True
    timeout_s = 60.0

    async def run(self, arguments: Word, context: ToolContext) -> str:
        (_folder() / "asleep").touch()
        try:
            await asyncio.sleep(50)
        except asyncio.CancelledError:
            (_folder() / "woken").write_text("cancelled")
            raise
        return "slept"


class Die:
    """Kills the process it runs in: `exit`, `memory` (more than a machine has) or `loop` (the event loop never turns).

    `read_only`, so nothing of it is in the ledger when the process is gone.
    """

    name = "die"
    description = "Die."
    parameters = Word
    safety: Safety = "read_only"
    timeout_s = 60.0

    async def run(self, arguments: Word, context: ToolContext) -> str:
        match arguments.word:
            case "exit":
                os._exit(137)
            case "memory":
                hoard = []
                while True:
                    hoard.append(bytearray(64 * 1024 * 1024))
            case _:
                while True:
                    time.sleep(1)  # and not a loop that takes a core from everybody else
