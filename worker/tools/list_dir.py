"""What files there are."""

from __future__ import annotations

from typing import Annotated

import msgspec

from shared.errors import ToolFailed
from worker.agent.tool import Safety, ToolContext


class ListDirArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which folder."""

    path: Annotated[str, msgspec.Meta(description="A folder such as `skills/recap`; leave out for the whole.")] = ""


class ListDir:
    """Answers one name a line, folders with a `/` behind."""

    name = "list_dir"
    description = "List the files and folders in a folder of your workspace."
    parameters = ListDirArguments
    safety: Safety = "read_only"
    timeout_s = 20.0

    async def run(self, arguments: ListDirArguments, context: ToolContext) -> str:
        names = await context.files.names()
        folder = "".join(f"{part}/" for part in arguments.path.strip().split("/") if part not in ("", "."))
        inside = [name.removeprefix(folder) for name in names if name.startswith(folder)]
        if not inside:
            folders = sorted({name.rpartition("/")[0] for name in names if "/" in name})
            known = f"Folders: {', '.join(folders)}" if folders else "There are no folders"
            raise ToolFailed(f"there is no folder {arguments.path!r}. {known}")
        entries = {name.partition("/")[0] + ("/" if "/" in name else "") for name in inside}
        return "\n".join(sorted(entries))
