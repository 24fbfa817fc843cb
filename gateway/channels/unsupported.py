"""Methods of `Platform` for platforms without that feature; by their `abilities` none is called."""

from __future__ import annotations

import asyncio

from gateway.platform.protocol import HookAnswer, HookRequest, Inlet, Post, PostRefused, PostTarget


async def cannot_find(post: Post) -> str | None:
    """Find nothing: the platform cannot be asked, or the key of a post prevents duplicates."""
    return None


async def cannot_edit(id: str, post: Post) -> None:
    """Raise PostRefused."""
    raise PostRefused("this platform has no edits")


async def cannot_type(target: PostTarget) -> None:
    """Do nothing: bots there have no typing indicator."""


async def cannot_hook(request: HookRequest, inlet: Inlet) -> HookAnswer:
    """Answer 404: the platform calls no webhook."""
    return HookAnswer(404)


async def cannot_listen(inlet: Inlet, until: asyncio.Event) -> None:
    """Raise NotImplementedError: events arrive by the webhook alone."""
    raise NotImplementedError("this platform only calls the webhook")
