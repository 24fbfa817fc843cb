"""Every answer is signed."""

from __future__ import annotations

from shoal.plugin import AgentHook


class Signed(AgentHook):
    """Adds a line to the final text."""

    async def finalize_content(self, text: str) -> str:
        return f"{text}\n\nYours, Shoal"
