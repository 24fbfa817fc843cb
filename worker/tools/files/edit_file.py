"""Editing a part of a file."""

from __future__ import annotations

from typing import Annotated

import msgspec

from shared.errors import ToolFailed
from worker.agent.tools.tool import Safety, ToolContext, shorten


class EditFileArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file, and the text to replace."""

    path: Annotated[str, msgspec.Meta(description="Such as `MEMORY.md` or `notes/todo.md`.")]
    old_text: Annotated[
        str, msgspec.Meta(description="Text that stands in the file exactly once, copied character by character.")
    ]
    new_text: Annotated[str, msgspec.Meta(description="What shall stand there instead; empty to remove it.")]


class EditFile:
    """Returns `MEMORY.md is changed`. A change that was made already is not an error, so that a
    turn that continues on another worker may repeat it."""

    name = "edit_file"
    description = "Replace one piece of text in a file by another. The rest of the file stays as it is."
    parameters = EditFileArguments
    safety: Safety = "idempotent"
    timeout_s = 20.0

    async def run(self, arguments: EditFileArguments, context: ToolContext) -> str:
        path, old, new = arguments.path, arguments.old_text, arguments.new_text
        if not old:
            raise ToolFailed("old_text is empty; name the text to replace, or write the whole file with write_file")
        text = await context.files.read(path)
        if "\r\n" in text and "\r\n" not in old:  # a Windows file: the model never saw its line ends
            old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
        if _applied(text, old, new):
            return f"Nothing to do: the new text is in {path} already, and the old one is not."
        if not (times := text.count(old)):
            if not new:
                return f"Nothing to do: the text to remove is not in {path}."
            raise ToolFailed(
                f"{shorten(old, 80)!r} is not in {path!r}. Read the file and copy the text exactly; it may have changed"
            )
        if times > 1:
            raise ToolFailed(
                f"{shorten(old, 80)!r} is {times} times in {path!r}. Take more of the text around the right one"
            )
        # `was` refuses the write if the file changed after it was read, say from another turn.
        await context.files.replace(path, text.replace(old, new), was=text)
        return f"{path} is changed."


def _applied(text: str, old: str, new: str) -> bool:
    """Return whether the new text exists, and the old one only as a part of it, as after adding a
    line to a line."""
    return bool(new) and new in text and not any(old in part for part in text.split(new))
