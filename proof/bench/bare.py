"""A web socket server that does nothing: the gateway's server with its settings, and an app that says one word.

`python -m proof.bench.bare` prints its address.
"""

from __future__ import annotations

import asyncio
import sys

from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from gateway.channels.web.http.server import WebServer, bind
from gateway.channels.web.socket.connection import connection_of
from shared.process.listening import address_of
from shared.process.service import loop_factory


async def _serve(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.receive()
    place = connection_of(websocket.scope).place
    assert place is not None
    place.become_known()  # 5,000 strangers would give way to each other
    await websocket.send_text('{"type":"welcome"}')
    try:
        while True:
            message = await websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
    except WebSocketDisconnect:
        return


async def _main() -> None:
    listener = bind("127.0.0.1", 0)
    app = Starlette(routes=[WebSocketRoute("/ws", _serve)])
    server = WebServer(app, on_started=lambda: print(address_of(listener), flush=True))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.stop()
    await serving


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_main())
