"""Writing a whole file."""

from __future__ import annotations

from typing import Annotated

import msgspec

from worker.agent.tools.tool import Safety, ToolContext


class WriteFileArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file, and its new text."""

    path: Annotated[str, msgspec.Meta(description="Such as `MEMORY.md` or `notes/todo.md`.")]
    content: Annotated[str, msgspec.Meta(description="The whole new text of the file.")]


class WriteFile:
    """Returns `MEMORY.md now has 3 lines`."""

    name = "write_file"
    description = (
        "Write a whole file; what it held before is gone. To change a part of one, use edit_file: it keeps the rest."
    )
    parameters = WriteFileArguments
    safety: Safety = "idempotent"
    timeout_s = 20.0

    async def run(self, arguments: WriteFileArguments, context: ToolContext) -> str:
        await context.files.replace(arguments.path, arguments.content, was=None)
        lines = len(arguments.content.splitlines())
        return f"{arguments.path} now has {lines} line{'' if lines == 1 else 's'}."
