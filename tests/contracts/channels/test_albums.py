"""Files that a person sends as one are answered as one, where a platform sends a message for each."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shared.media.reference import read_reference
from shared.store import keys
from tests.contracts.channels.bench import SentFile
from tests.contracts.channels.stage import Stage

TELEGRAM = ("telegram, exclusive", "telegram, webhook")
"""The only platform whose messages of one album say so."""

FILES = [SentFile(f"{name}.txt", "text/plain", name.encode()) for name in ("one", "two", "three")]


@pytest.mark.benches(*TELEGRAM)
@pytest.mark.parametrize("group", [False, True], ids=["alone", "in a group"])
@pytest.mark.parametrize("caption_at", [0, 2], ids=["caption first", "caption last"])
async def test_an_album_is_answered_once(stage: Stage, group: bool, caption_at: int) -> None:
    """Whichever of two gateways is told of a part. In a group only the caption mentions the bot."""
    gateways = [await stage.gateway(), await stage.gateway()]
    for gateway in gateways:
        inbox = gateway.sink._inbox
        inbox._limits = replace(inbox._limits, album_ms=30_000)
    chat = stage.bench.chat(0, group=group)
    for nth, file in enumerate(FILES):
        captioned = nth == caption_at
        text = "compare these" if captioned else ""
        action = stage.message(chat, text, group=group, addressed=captioned, files=(file,), album="9")
        if stage.bench.run_mode == "webhook":
            assert (await stage.call(stage.bench.hook(action), gateways[nth % 2]))[0] == 200
        else:
            await stage.tell(action)
    session = stage.bench.session(chat)

    async def all_came() -> bool:
        return bool(await stage.client.command("XLEN", keys.inbox(session)) == len(FILES))

    await stage.until(all_came, "the album")
    assert not stage.worker.received
    await stage.client.command("ZADD", keys.queue("turns"), "XX", 1, keys.turn(session))
    await stage.client.command("LPUSH", keys.wake("turns"), 1)
    await stage.until(lambda: len(stage.bench.shown(chat)) == 1, "an answer")
    received = stage.worker.received
    assert [one.content for one in received].index("compare these") == caption_at
    kept = [stage.kept(chat, read_reference(one.media[0])) for one in received]
    assert kept == [file.data for file in FILES]
    await stage.quiet()
    assert len(stage.bench.shown(chat)) == 1
