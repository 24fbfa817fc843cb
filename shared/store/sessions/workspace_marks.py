"""The mark of each session's workspace: sources of strangers' text that lies in its files."""

from __future__ import annotations

from shared.messages.sources import Sources, merge_sources, pack_sources, parse_sources
from shared.store import keys
from shared.store.client.redis_client import RedisClient


def folder_scope(folder: str) -> str:
    """Return the scope of the mark of an operator's folder: one for all chats that work on it."""
    return f"folder:{folder}"


class WorkspaceMarks:
    """Reads and adds to marks. A workspace is marked as a whole, because a command can copy and
    rename any file. Methods raise RedisAway."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def folder(self, session: str) -> str:
        """Return the name of the operator's folder that was chosen for a chat, `""` if none was."""
        return (await self._client.command("HGET", keys.session(session), "folder") or b"").decode(errors="replace")

    async def read(self, session: str, folder: str = "") -> Sources:
        """Return the sources that mark a workspace, and the folder that the chat works on."""
        asked = [("HGET", keys.session(session), "file_sources")]
        if folder:
            asked.append(("HGET", keys.memory(folder_scope(folder)), "sources"))
        return merge_sources(*map(parse_sources, await self._client.pipeline(asked)))

    async def add(self, session: str, sources: Sources, folder: str = "") -> None:
        """Mark a workspace, and the folder that the chat works on. Called before the text is
        written, so that a crash cannot wash it clean."""
        scope = folder_scope(folder) if folder else ""
        await self._client.run("sessions/mark_files", session=session, sources=pack_sources(sources), scope=scope)
