"""The fake server against the vendor's own library: what passes for Feishu with that, passes for Feishu."""

from __future__ import annotations

import asyncio
import base64
import importlib.util
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.channels.feishu.frames import DATA, FeishuFrame, ping, read_frame, write_frame
from tests.contracts.channels.bench import PersonAction
from tests.contracts.channels.benches.feishu import KEY, TOKEN, FeishuBench
from tests.fakes.feishu import APP_ID, FakeFeishu
from tests.helpers.wait import eventually

CHAT = "oc_1000"
FRAMES = [
    FeishuFrame(),
    ping(33554678),
    FeishuFrame(
        seq_id=(1 << 64) - 1, log_id=1 << 63, service=-1, method=DATA, payload=b"\x00\xff" * 300,
        headers=(("type", "event"), ("", ""), ("trace_id", "日本")),
    ),
]  # fmt: skip

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.skipif(importlib.util.find_spec("lark_oapi") is None, reason="needs lark-oapi"),
]


class Peer:
    """What the library made of everything."""

    def __init__(self) -> None:
        self.reports: dict[str, Any] = {}
        self.fake = FakeFeishu({CHAT})
        self.bench = FeishuBench(self.fake, "socket")


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    """The library has used the API, answered a webhook, read frames, and heard three events over a connection."""
    peer = Peer()
    async with peer.fake.serving() as fake:
        fake.received["om_in"] = CHAT
        fake.files.data["file_1"] = b"bytes"
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", f"{__package__}.sdk_peer",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 24,
        )  # fmt: skip
        try:
            await _talk(peer, process)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
        yield peer


async def _talk(peer: Peer, process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    fake, bench = peer.fake, peer.bench
    hello = PersonAction(chat=CHAT, id="1", text="hello")
    handshake = bench.handshake()
    assert handshake is not None
    hooks = [handshake[0], bench.hook(hello), bench.hook(hello, "wrong"), bench.hook(hello, "changed")]
    asked = {
        "server": fake.address, "chat": CHAT, "heard": "om_in", "key": KEY, "token": TOKEN, "events": 3,
        "hooks": [{"headers": dict(one.headers), "body": base64.b64encode(one.body).decode()} for one in hooks],
        "frames": [write_frame(frame).hex() for frame in FRAMES],
    }  # fmt: skip
    process.stdin.write(json.dumps(asked).encode() + b"\n")
    for _ in range(3):
        line = await process.stdout.readline()
        assert line, "the library gave up"
        peer.reports |= json.loads(line)
    await eventually(lambda: fake.sockets.open, within_s=120, what="its connection")
    fake.posts[CHAT].clear()
    fake.sockets.piece_bytes = 100
    await bench.tell(PersonAction(chat=CHAT, id="2", text="long " * 500))
    await bench.tell(PersonAction(chat=CHAT, id="2", does="delete"))
    pressed = bench._event(PersonAction(chat=CHAT, id="3", text="hi"))
    pressed["header"] |= {"event_type": "card.action.trigger", "event_id": "press3"}
    pressed["event"] = {
        "operator": {"open_id": "ou_1000"}, "action": {"value": {"shoal": "/yes a1"}, "tag": "button"},
        "token": "c-1", "host": "im_message", "context": {"open_message_id": "om_1", "open_chat_id": CHAT},
    }  # fmt: skip
    fake.sockets.tell("press3", pressed, CHAT, is_press=True)
    await eventually(lambda: len(fake.sockets.answers) == 3 and fake.sockets.pings, within_s=120, what="its answers")
    process.stdin.write(b"\n")
    peer.reports |= json.loads(await process.stdout.readline())


async def test_the_library_takes_the_fake_server_for_feishu(peer: Peer) -> None:
    """Its calls, its dispatcher with signatures and ciphers, its frames, its connection: one run, for it starts
    slowly."""
    created, again, replied, patched, updated, got, image, file, sent, resource, refused, unknown = peer.reports["api"]
    assert [one["code"] for one in peer.reports["api"]] == [0] * 10 + [230001, 230002]
    assert created["data"]["message_id"] == again["data"]["message_id"]
    assert (replied["data"]["parent_id"], replied["data"]["thread_id"]) == ("om_in", "omt_om_in")
    assert (created["data"]["chat_id"], sent["data"]["msg_type"]) == (CHAT, "file")
    assert patched["data"] in (None, {})
    assert updated["data"]["updated"] is True
    assert got["data"]["items"][0]["sender"] == {
        "id": APP_ID, "id_type": "app_id", "sender_type": "app", "tenant_key": "736588c9260f175e",
    }  # fmt: skip
    assert (image["data"]["image_key"][:4], file["data"]["file_key"][:7]) == ("img_", "stream_")
    assert resource["msg"] == "bytes"
    assert "content" in refused["msg"]
    assert "outside the group" in unknown["msg"]

    check, good, wrong, changed = peer.reports["hooks"]
    assert (check["status"], json.loads(check["body"])) == (200, {"challenge": "ajls384kdjxxxx"})
    assert (good["status"], good["heard"][0]["message"]["content"]) == (200, '{"text": "hello"}')
    assert [(one["status"], one["heard"]) for one in (wrong, changed)] == [(500, [])] * 2

    for frame, (fields, data) in zip(FRAMES, peer.reports["frames"], strict=True):
        headers = [list(header) for header in frame.headers]
        assert fields == [frame.seq_id, frame.log_id, frame.service, frame.method, headers, frame.payload.hex()]
        assert read_frame(bytes.fromhex(data)) == frame

    sent, recalled, pressed = peer.reports["events"]
    assert json.loads(sent["message"]["content"]) == {"text": "long " * 500}
    assert recalled["message_id"] == "om_2"
    assert pressed["action"]["value"] == {"shoal": "/yes a1"}
    answers = peer.fake.sockets.answers
    assert answers["message2"] == (200, None)
    assert answers["press3"] == (200, {"toast": {"type": "success", "content": "thanks"}})
