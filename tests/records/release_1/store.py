"""The scripts of release 1, called with the keys and arguments of release 1 (copied from its Python, never changed)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from shared.messages.codec import encode
from shared.messages.inbound import InboundMessage
from shared.messages.live import TurnEvent, encode_live
from shared.messages.outbound import OutboundMessage, SaidLine
from shared.messages.transcript import LedgerEntry, UserEntry
from shared.store.client.redis_client import RedisClient
from shared.store.client.scripts import Script

LUA: Final = Path(__file__).parent / "lua"
QUEUE, LEASES, WAKE = "shoal:queue:turns", "shoal:leases:turns", "shoal:wake:turns"
DAY_MS: Final = 86_400_000


def script(name: str) -> Script:
    """As release 1 sends it: by another SHA-1 than ours."""
    shebang, _, body = (LUA / f"{name}.lua").read_text(encoding="utf-8").partition("\n")
    return Script(f"release 1's {name}", f"{shebang}\n{(LUA / 'lib.lua').read_text(encoding='utf-8')}\n{body}")


def own(kind: str, session: str) -> str:
    return f"shoal:{kind}:{session}"


async def ingest(client: RedisClient, message: InboundMessage, show: SaidLine) -> list[int]:
    """{1 taken, 0 known, -1 full, -2 overloaded}, n, ahead, seq."""
    session = message.session
    answer: list[int] = await client.run(
        script("ingest"),
        [
            own("inbox", session), own("session", session), QUEUE, WAKE, own("outbox", session), own("live", session),
            "shoal:chats:web:owner",
        ],
        [
            encode(message), 1, f"{message.chat_id}/{message.id}", "shoal:seen:web:", 2, f"turn:{session}", 50, 100_000,
            365 * DAY_MS, 30 * DAY_MS, encode(show), message.chat_id, message.content,
        ],
    )  # fmt: skip
    return answer


async def acquire(client: RedisClient, owner: str, lease_ms: int) -> list[list[Any]]:
    """The member that is due first: member, token, waited, lost, and what a turn needs."""
    answer: list[list[Any]] = await client.run(
        script("acquire"), [QUEUE, LEASES, WAKE], [owner, lease_ms, 1, 0, 1, 200]
    )
    return answer


async def ledger(client: RedisClient, session: str, lease: str, step: int, entry: LedgerEntry) -> int:
    """1 written, 0 it was there, -1 the lease is lost."""
    answer: int = await client.run(
        script("ledger"),
        [LEASES, own("session", session), own("ledger", session)],
        [f"turn:{session}", lease, step, encode(entry), 2 * 1024 * 1024],
    )
    return answer


async def commit(
    client: RedisClient,
    session: str,
    lease: str,
    n: int,
    cap_bytes: int,
    history: list[UserEntry],
    line: OutboundMessage,
) -> int:
    """1 committed, 0 before, -1 the lease is lost."""
    answer: int = await client.run(
        script("commit"),
        [
            QUEUE, LEASES, WAKE, own("session", session), own("inbox", session), own("ledger", session),
            own("history", session), own("outbox", session), own("live", session), "shoal:dead",
        ],
        [
            f"turn:{session}", lease, n, cap_bytes, 365 * DAY_MS, 30 * DAY_MS, b"", "",
            encode_live(TurnEvent(n, "done")), len(history), *map(encode, history), encode(line),
        ],
    )  # fmt: skip
    return answer


async def release(client: RedisClient, session: str, lease: str, count: str) -> int:
    """1 released, -1 the lease is lost."""
    answer: int = await client.run(
        script("release"), [QUEUE, LEASES, WAKE, own("session", session)], [f"turn:{session}", lease, 0, count]
    )
    return answer


async def renew(client: RedisClient, owner: str, lease_ms: int, session: str, token: str) -> int:
    """-1 lost, else the turn that was told to stop."""
    answer: list[int] = await client.run(script("renew"), [QUEUE, LEASES], [owner, lease_ms, f"turn:{session}", token])
    return answer[0]
