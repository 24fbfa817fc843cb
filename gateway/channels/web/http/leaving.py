"""Requests whose client may leave before its response is written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial

from starlette.types import Receive

from shared.tasks import cancel_all, close_all


async def serve_until_left(
    serve: Coroutine[object, object, None], receive: Receive, close: Callable[[], Awaitable[None]]
) -> bool:
    """Serve a request whose body was read, until its end or until its client leaves; then call
    `close`, which may use what serving used. Return whether the client left first. Raises what
    serving raises."""
    serving = asyncio.create_task(serve)
    leaving = asyncio.create_task(_wait_for_disconnect(receive))
    try:
        await asyncio.wait({serving, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not serving.done():
            return True
        serving.result()
        return False
    finally:
        await close_all(partial(cancel_all, [serving, leaving]), close)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
