"""What is said, sent and looked up in one chat shows in that chat alone, and in no log."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import urllib.request
import uuid
from pathlib import Path

from shared.store.client.redis_client import RedisClient
from tests.gateway.harness import Client, free_port
from tests.gateway.harness import client as connected
from tests.helpers.fleet import warm
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.worker.mcp.peers import PEER

CHATS = 20
TOKENS = {"ann": "token-canary-of-ann", "bob": "token-canary-of-bob"}
SERVER_SECRET = "secret-canary-of-the-server"
CANARY = re.compile(r"canary-\d{4}")
LONG_S = 60.0


def upload(port: int, principal: str, chat: str, data: bytes) -> str:
    """The reference of a file that was sent."""
    headers = {"Authorization": f"Bearer {TOKENS[principal]}", "Shoal-File-Name": "note.txt"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/media/{chat}", data, headers)
    with urllib.request.urlopen(request, timeout=LONG_S) as answer:
        return str(json.loads(answer.read())["ref"])


async def say(web: Client, port: int, principal: str, chat: str, canary: str) -> None:
    """A message with a canary, and a file that holds it."""
    ref = await asyncio.to_thread(upload, port, principal, chat, f"this is {canary}".encode())
    await web.send("message", id=str(uuid.uuid4()), chat=chat, text=f"look up {canary}", media=[ref])


async def answered(web: Client, chats: set[str]) -> None:
    """Read until each of these chats has the end of its turn."""
    async with asyncio.timeout(LONG_S):
        while not chats <= {one["chat"] for one in web.seen if one["type"] == "reply" and one["kind"] != "notice"}:
            web.seen.append(json.loads(await web.socket.recv()))


async def test_canaries_of_twenty_chats_over_shared_workers_never_cross(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path
) -> None:
    """Two people, two workers, files, a tool of an MCP server and the message tool, all at once: no model call and no
    line has the canary of another chat, and no log has one at all, nor a token or a server's secret."""
    canaries = {f"chat{number}": f"canary-{number + 1000}" for number in range(CHATS)}
    for canary in canaries.values():
        number = int(canary.removeprefix("canary-"))
        tools = [
            Call("read_file", '{"path": "inbox/1-note.txt"}'),
            Call("mcp_peer_add", json.dumps({"a": number, "b": 0})),
            Call("mcp_peer_environ", "{}"),
        ]
        message = Call(
            "message", json.dumps({"text": f"found {canary}", "buttons": [canary], "media": ["inbox/1-note.txt"]})
        )
        model.script(
            *(Answer(match=canary, calls=calls) for calls in (tools, [message])), Answer(match=canary, text=".")
        )
    config = tmp_path / "shoal.toml"
    command = json.dumps([sys.executable, PEER, str(tmp_path)])
    server = f'command = {command}\nsafety = "read_only"\nenv = {{ PEER_KEY = "{SERVER_SECRET}" }}'
    people_of = "\n".join(f'{name} = "{secret}"' for name, secret in TOKENS.items())
    config.write_text(f"[mcp.peer]\nsandbox = false\n{server}\n[web.tokens]\n{people_of}\n")
    port = free_port()
    shared = {"MEDIA__DIR": str(tmp_path / "media"), "env": {"SHOAL_CONFIG": str(config)}}
    gateway = spawn("gateway", WEB__PORT=str(port), **shared)
    fleet = [
        spawn("worker", MODEL__CLIENT="direct", WORKSPACE__ROOT=str(tmp_path / "workspaces"), **shared) for _ in "ab"
    ]
    await warm(*fleet)
    address = f"127.0.0.1:{port}"
    async with connected(address, TOKENS["ann"]) as ann, connected(address, TOKENS["bob"]) as bob:
        people = {"ann": ann, "bob": bob}
        owners = {chat: "ann" if at % 2 else "bob" for at, chat in enumerate(canaries)}
        for chat, name in owners.items():
            await say(people[name], port, name, chat, canaries[chat])
        for name, web in people.items():
            await answered(web, {chat for chat, owner in owners.items() if owner == name})
    for name, web in people.items():
        for frame in web.seen:
            found = set(CANARY.findall(json.dumps(frame)))
            assert found <= {canaries.get(frame.get("chat", ""), "")}, (name, frame)
    result = [json.dumps(request.body) for request in model.requests()]
    assert len(result) == 3 * CHATS
    for body in result:
        [canary] = set(CANARY.findall(body))
        assert "this is" not in body or f"this is {canary}" in body
        assert SERVER_SECRET not in body
        assert not any(secret in body for secret in TOKENS.values())
    logs = "".join(process.log for process in (gateway, *fleet))
    assert "file stored" in logs
    assert CANARY.search(logs) is None
    assert not any(secret in logs for secret in (*TOKENS.values(), SERVER_SECRET))
