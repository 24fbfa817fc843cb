"""Writing a whole file, and editing a part of one."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from shared.errors import ToolFailed
from worker.agent.tools.text import shorten
from worker.agent.tools.tool import Safety, ToolContext
from worker.documents.text import decode_content
from worker.skills.written import skill_note


class WriteFileArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """A file, and its new text."""

    path: Annotated[str, Meta(description="Such as `MEMORY.md` or `notes/todo.md`.")]
    content: Annotated[str, Meta(description="The whole new text of the file.")]


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
        note = skill_note(arguments.path, arguments.content)
        return f"{arguments.path} now has {lines} line{'' if lines == 1 else 's'}.{note}"


class EditFileArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """A file, and the text to replace."""

    path: Annotated[str, Meta(description="Such as `MEMORY.md` or `notes/todo.md`.")]
    old_text: Annotated[
        str, Meta(description="Text that stands in the file exactly once, copied character by character.")
    ]
    new_text: Annotated[str, Meta(description="What shall stand there instead; empty to remove it.")]


class EditFile:
    """Returns `MEMORY.md is changed`. A change that was made already is not an error, so that a
    turn that continues on another worker may repeat it."""

    name = "edit_file"
    description = "Replace one piece of text in a file by another. The rest of the file stays as it is."
    parameters = EditFileArguments
    safety: Safety = "idempotent"
    timeout_s = 20.0

    async def run(self, arguments: EditFileArguments, context: ToolContext) -> str:
        path = arguments.path
        old = arguments.old_text
        new = arguments.new_text
        if not old:
            raise ToolFailed("old_text is empty; name the text to replace, or write the whole file with write_file")
        shown = repr(shorten(old, 80))
        found = await decode_content(path, await context.files.content(path))
        text = found.text
        # A Windows file: the model never saw its line ends.
        if "\r\n" in text and "\r\n" not in old:
            old = old.replace("\n", "\r\n")
            new = new.replace("\n", "\r\n")
        # The new text is there, and the old one only in it, as after adding a line to a line.
        if new and new in text and not any(old in part for part in text.split(new)):
            return f"Nothing to do: the new text is in {path} already, and the old one is not."
        if not (times := text.count(old)):
            if not new:
                return f"Nothing to do: the text to remove is not in {path}."
            raise ToolFailed(
                f"{shown} is not in {path!r}. Read the file and copy the text exactly; it may have changed"
            )
        if times > 1:
            raise ToolFailed(f"{shown} is {times} times in {path!r}. Take more of the text around the right one")
        # `was` refuses the write if the file changed after it was read, say from another turn.
        changed = text.replace(old, new)
        await context.files.replace(path, changed, was=text)
        kept = "" if found.plain else f"; it is still saved as {found.name}"
        return f"{path} is changed{kept}.{skill_note(path, changed)}"
