from __future__ import annotations

import asyncio

from gateway.channels.web.outgoing import CHARS_LIMIT, FRAMES_LIMIT, LIVE_LIMIT, ROOM, Outgoing


def outgoing() -> tuple[Outgoing, list[bool]]:
    overflows: list[bool] = []
    return Outgoing(on_overflow=lambda: overflows.append(True)), overflows


async def drained(queue: Outgoing) -> list[str]:
    queue.finish()
    found = []
    while (frame := await queue.next()) is not None:
        found.append(frame)
    return found


async def test_live_frames_are_left_out_first_and_lines_never() -> None:
    """What is only shown live heals by itself; a line that was let go would be a hole."""
    queue, overflows = outgoing()
    for n in range(200):
        queue.put_live(f"delta {n}")
    for n in range(200):
        queue.put(f"line {n}")
    queue.put_live("late delta")
    sent = await drained(queue)
    assert [frame for frame in sent if frame.startswith("line")] == [f"line {n}" for n in range(200)]
    assert len(sent) == LIVE_LIMIT + 200
    assert not overflows


async def test_too_many_frames_give_the_socket_up() -> None:
    """Memory is bounded: the client comes back and resumes from the log."""
    queue, overflows = outgoing()
    for n in range(FRAMES_LIMIT + 5):
        queue.put(f"line {n}")
    assert overflows == [True]
    assert await drained(queue) == []


async def test_too_many_bytes_give_the_socket_up() -> None:
    """A few huge lines are as bad as many."""
    queue, overflows = outgoing()
    for _ in range(4):
        queue.put("x" * (CHARS_LIMIT // 2))
    assert overflows == [True]


async def test_who_reads_a_log_waits_for_room() -> None:
    """A resume of a long log never overflows the queue."""
    queue, _ = outgoing()
    for n in range(ROOM):
        await queue.room()
        queue.put(f"line {n}")
    waiting = asyncio.create_task(queue.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    await queue.next()
    await waiting


async def test_next_waits_for_a_frame() -> None:
    """The writer sleeps while there is nothing to send."""
    queue, _ = outgoing()
    waiting = asyncio.create_task(queue.next())
    await asyncio.sleep(0)
    queue.put("line")
    assert await waiting == "line"
