"""Channels with a webhook: only the platform is believed, on any replica, however often it tells something."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from gateway.platform.protocol import HookRequest
from tests.contracts.channels.bench import Signing
from tests.contracts.channels.stage import Stage

pytestmark = pytest.mark.modes("webhook")

POSTS = 100


@pytest.mark.parametrize("signing", ["none", "blank", "wrong", "old", "changed"])
async def test_a_call_that_is_not_signed_well_is_refused(played: Stage, signing: Signing) -> None:
    """Constant answer, no turn, and what the platform really says is still heard."""
    if signing in played.bench.cannot:
        pytest.skip(f"{played.bench.name} has no form of {signing!r}")
    chat = played.bench.chat(0)
    forged = played.bench.hook(played.message(chat, "forged"), signing)
    status, _ = await played.call(forged, played.replicas[0])
    assert status in (401, 403)
    await played.say(chat, "hello")
    await played.sees(chat, "echo: hello")
    assert played.worker.texts(played.bench.session(chat)) == ["hello"]


async def test_nothing_of_a_signed_call_can_be_changed(played: Stage) -> None:
    """No byte anywhere in it, none more, none fewer; nor may the same be written in other bytes. As it was, it is
    heard."""
    if "changed" in played.bench.cannot:
        pytest.skip(f"{played.bench.name} signs no body")
    chat = played.bench.chat(0)
    request = played.bench.hook(played.message(chat, "hello"))
    body, last = request.body, len(request.body) - 1
    places = (0, last // 4, last // 2, 3 * last // 4, last)
    forged = [body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :] for at in places]
    forged += [b"", body[:-1], body + b" ", b" " + body, body + body, msgspec.json.format(body, indent=2)]
    for one in forged:
        status, _ = await played.call(msgspec.structs.replace(request, body=one), played.replicas[0])
        assert status in (401, 403), one
    assert (await played.call(request, played.replicas[0]))[0] == 200
    await played.sees(chat, "echo: hello")
    assert played.worker.texts(played.bench.session(chat)) == ["hello"]


async def test_a_repeated_call_is_answered_with_success(stage: Stage) -> None:
    """A platform that missed our answer must not tell it for ever; there is no second turn: not while it runs, not when
    it is answered, on no gateway."""
    replicas = [await stage.gateway(), await stage.gateway()]
    chat = stage.bench.chat(0)
    request = stage.bench.hook(stage.message(chat, "hello"))
    for replica in (*replicas, *replicas):
        assert (await stage.call(request, replica))[0] == 200
    await stage.sees(chat, "echo: hello")
    await stage.quiet()
    for replica in replicas:
        assert (await stage.call(request, replica))[0] == 200
    await stage.say(chat, "bye")
    await stage.sees(chat, "echo: hello", "echo: bye")
    assert stage.worker.texts(stage.bench.session(chat)) == ["hello", "bye"]


async def test_one_event_delivered_a_hundred_times_at_once_is_one_turn(stage: Stage) -> None:
    """By two replicas at the same moment."""
    replicas = [await stage.gateway(), await stage.gateway()]
    chat = stage.bench.chat(0)
    request = stage.bench.hook(stage.message(chat, "hello"))
    answers = await asyncio.gather(*(stage.call(request, replicas[number % 2]) for number in range(POSTS)))
    assert {status for status, _ in answers} <= {200, 503}
    assert 200 in {status for status, _ in answers}
    await stage.sees(chat, "echo: hello")
    await stage.quiet()
    assert stage.worker.texts(stage.bench.session(chat)) == ["hello"]


async def test_many_events_at_once_are_all_answered(stage: Stage) -> None:
    """Each on whichever replica it came to."""
    replicas = [await stage.gateway(), await stage.gateway()]
    chats = [stage.bench.chat(number) for number in range(20)]
    requests = [stage.bench.hook(stage.message(chat, "hello")) for chat in chats]
    answers = await asyncio.gather(
        *(stage.call(request, replicas[number % 2]) for number, request in enumerate(requests))
    )
    assert [status for status, _ in answers] == [200] * len(chats)
    for chat in chats:
        await stage.sees(chat, "echo: hello")


async def test_the_platform_can_check_the_webhook(played: Stage) -> None:
    """Before it believes that it is ours."""
    handshake = played.bench.handshake()
    if handshake is None:
        pytest.skip(f"{played.bench.name} has no handshake")
    request, wanted = handshake
    status, body = await played.call(request, played.replicas[0])
    assert (status, body) == (200, wanted)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"a":' * 1000, b"x" * 100_000])
async def test_a_body_that_is_none_of_theirs_harms_nobody(played: Stage, body: bytes) -> None:
    """It is refused, or passed over; the next one is heard."""
    signed = played.bench.hook(played.message(played.bench.chat(1), "forged"))
    status, _ = await played.call(msgspec.structs.replace(signed, body=body), played.replicas[0])
    assert 400 <= status < 500
    await played.say(played.bench.chat(0), "hello")
    await played.sees(played.bench.chat(0), "echo: hello")


async def test_there_is_no_other_webhook(played: Stage) -> None:
    """Neither beside it nor above."""
    for path in ("/", "/hooks", "/hooks/", "/hooks/nobody", f"/{played.bench.name}"):
        request = HookRequest(method="POST", path="", query={}, headers={}, body=b"{}")
        assert (await played.call(request, played.replicas[0], path))[0] == 404
