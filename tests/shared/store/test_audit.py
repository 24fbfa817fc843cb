"""The audit record: what a line says, how many stay and for how long, and that it holds nobody up."""

from __future__ import annotations

import msgspec
import pytest
import structlog

from shared.errors import RedisAway
from shared.ids import log_id
from shared.store import keys
from shared.store.access.audit import FIELD_CHARS, NO_TRAIL, Audit, AuditLine, actor_of
from shared.store.client.redis_client import RedisClient
from tests.helpers.wait import eventually


async def test_a_line_says_who_where_and_what_and_no_chat_id(client: RedisClient) -> None:
    """The session as a hash, as in the logs; what is not known is left out."""
    audit = Audit(client)
    actor = actor_of("telegram", "7")
    await audit.record("approval", "yes", actor=actor, session="telegram:491701", turn=3, about="exec 1f")
    await audit.record("exec", "run")
    bare, whole = await audit.newest(10)
    assert msgspec.structs.replace(whole, id="", at_ms=0) == AuditLine(
        id="", at_ms=0, kind="approval", outcome="yes", actor="telegram:7", channel="telegram",
        session=log_id("telegram:491701"), turn=3, about="exec 1f",
    )  # fmt: skip
    assert (bare.kind, bare.actor, bare.channel, bare.session, bare.turn) == ("exec", "agent", "", "", 0)
    assert bare.at_ms >= whole.at_ms > 1_700_000_000_000
    assert [line.kind for line in await audit.newest(1)] == ["exec"]
    stored = b" ".join(part for _, fields in await client.command("XRANGE", keys.AUDIT, "-", "+") for part in fields)
    assert b"491701" not in stored


async def test_so_many_lines_stay_and_for_so_long(client: RedisClient) -> None:
    """Whatever is written, the newest are there, and no more is shown."""
    audit = Audit(client, lines=5, keep_ms=60_000)
    await client.command("XADD", keys.AUDIT, "1-1", "kind", "old")
    for n in range(9):
        await audit.record("exec", str(n))
    assert [line.outcome for line in await audit.newest(10)] == ["8", "7", "6", "5", "4"]
    few = Audit(client, lines=50, keep_ms=60_000)
    await client.command("DEL", keys.AUDIT)
    await client.command("XADD", keys.AUDIT, "1-1", "kind", "old")
    await few.record("exec", "new")
    assert [line.outcome for line in await few.newest(10)] == ["new"]


async def test_old_lines_leave_the_store_too(client: RedisClient) -> None:
    """By number and by age, with the right to add lines alone; nothing else of the key may be needed."""
    audit = Audit(client, lines=5, keep_ms=60_000)
    await client.command("XADD", keys.AUDIT, "1-1", "kind", "old")

    async def gone() -> bool:
        await audit.record("exec", "run")
        return not await client.command("XRANGE", keys.AUDIT, "1-1", "1-1")

    await eventually(gone, within_s=10)
    roomy = Audit(client, lines=5_000, keep_ms=60_000)
    await client.command("DEL", keys.AUDIT)
    await client.command("XADD", keys.AUDIT, "1-1", "kind", "old")
    audit = roomy
    await eventually(gone, within_s=10)


async def test_each_line_has_a_copy_in_the_log_of_the_process(client: RedisClient) -> None:
    """Whoever may write to Redis cannot change that one. It names no person and no chat."""
    with structlog.testing.capture_logs() as logs:
        actor = actor_of("telegram", "491701")
        await Audit(client).record("approval", "yes", actor=actor, session="telegram:491701", turn=3, about="exec 1f")
    [line] = [one for one in logs if one["event"] == "audit"]
    assert (line["kind"], line["outcome"], line["turn"], line["about"]) == ("approval", "yes", "3", "exec 1f")
    assert line["actor"] == log_id(actor)
    assert "491701" not in str(line)


async def test_a_line_has_a_size(client: RedisClient) -> None:
    """An id of a platform may be as long as it likes."""
    await Audit(client).record("access", "unknown_sender", actor="x" * 5000)
    [line] = await Audit(client).newest(1)
    assert len(line.actor) == FIELD_CHARS


async def test_lines_of_another_release_are_read_as_far_as_they_are_known(client: RedisClient) -> None:
    """More fields, fewer, other values."""
    await client.command("XADD", keys.AUDIT, "*", "kind", "magic", "turn", "many", "wand", b"\xff")
    [line] = await Audit(client).newest(1)
    assert (line.kind, line.turn, line.actor) == ("magic", 0, "")


async def test_a_store_that_is_away_holds_nobody_up() -> None:
    """What was done is done; that its line is missing stands in the log."""
    nowhere = RedisClient("redis://127.0.0.1:1/0", timeout_s=0.2)
    await Audit(nowhere).record("exec", "run")
    with pytest.raises(RedisAway):
        await Audit(nowhere).newest(1)
    await nowhere.close()
    await NO_TRAIL.record("exec", "run")
