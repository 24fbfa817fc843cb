"""Matrix, by its client-server API."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal

from gateway.platform.protocol import HookRequest, RunMode
from shared.ids import session_id
from tests.contracts.channels.bench import PEOPLE, Call, ChannelBench, Fault, OpenBench, PersonAction, Shown, Signing
from tests.fakes.matrix import BOT, PASSWORD, TOKEN, FakeMatrix

STRANGER: Final = "@stranger:pond.example"
OTHER_BOT: Final = "@frog:pond.example"


class MatrixBench:
    """A homeserver with PEOPLE people, each in a room of two and in one of three."""

    name = "matrix"
    run_mode: RunMode = "exclusive"
    path: tuple[str, ...] = ()
    cannot = frozenset({"throttled", "markup", "press"})
    """Limits are those of a user in all rooms, HTML is cleaned by clients and never refused, and there are no
    buttons."""

    def __init__(self, server: FakeMatrix, known_by: Literal["token", "password"]) -> None:
        self._server = server
        self._known_by = known_by
        self._ids: dict[str, str] = {}
        self._log_entry: dict[str, dict[str, Any]] = {}

    def table(self) -> dict[str, Any]:
        me = {"access_token": TOKEN} if self._known_by == "token" else {"user": BOT, "password": PASSWORD}
        return {
            **me,
            "homeserver": self._server.address,
            "per_s": 100.0,
            "burst": 100,
            "timeout_s": 2.0,
            "poll_s": 2,
            "allow_from": [person(number) for number in range(PEOPLE)],
            "allow_groups": [self.chat(number, group=True) for number in range(PEOPLE)],
        }

    def chat(self, number: int, *, group: bool = False) -> str:
        return room(number, group=group)

    def session(self, chat: str) -> str:
        return session_id(self.name, chat)

    async def tell(self, action: PersonAction) -> None:
        await self._server.tell(action.chat, self._event(action))

    def hook(self, action: PersonAction, signing: Signing = "good") -> HookRequest:
        raise NotImplementedError("Matrix calls no webhook of a user")

    def handshake(self) -> tuple[HookRequest, bytes] | None:
        return None

    def fault(self, fault: Fault) -> None:
        self._server.script(fault.kind, fault.call, fault.chat, fault.times, fault.retry_after_s)

    def heal(self) -> None:
        self._server.faults.clear()

    def shown(self, chat: str) -> Sequence[Shown]:
        ids = {event: id for id, event in self._ids.items()}
        return [
            Shown(
                id=one.id,
                text=one.text,
                markup=one.markup,
                reply_to=ids.get(one.reply_to) if one.reply_to is not None else None,
                file=one.file,
                edits=one.edits,
            )
            for one in self._server.posts.get(chat, [])
        ]

    def calls(self) -> Sequence[Call]:
        kinds: Mapping[str, Any] = {"send": "send", "edit": "edit", "typing": "typing"}
        return [Call(at, kinds[call], chat) for at, call, chat in self._server.calls]

    def listeners(self) -> int:
        return self._server.polls

    def _event(self, action: PersonAction) -> dict[str, Any]:
        again = f"{action.does}/{action.id}/{action.text}"
        if again not in self._log_entry:
            content = self._content(action)
            event = {"type": "m.room.message", "event_id": self._server.new_id(), "sender": self._sender(action)}
            if action.does == "message":
                self._ids[action.id] = event["event_id"]
            if action.does == "delete":
                event |= {"type": "m.room.redaction", "redacts": self._ids[action.id]}
            self._log_entry[again] = {**event, "origin_server_ts": int(time.time() * 1000), "content": content}
        return self._log_entry[again]

    def _content(self, action: PersonAction) -> dict[str, Any]:
        if action.does == "delete":
            return {"redacts": self._ids[action.id]}
        named = action.group and action.addressed
        content: dict[str, Any] = {
            "msgtype": "m.notice" if action.by == "bot" else "m.text",
            "body": f"Shoal: {action.text}" if named else action.text,
            "m.mentions": {"user_ids": [BOT]} if named else {},
        }
        if action.does == "edit":
            relates = {"rel_type": "m.replace", "event_id": self._ids[action.id]}
            return {**content, "body": f"* {action.text}", "m.new_content": content, "m.relates_to": relates}
        for file in action.files:
            id = hashlib.sha256(file.data).hexdigest()[:24]
            self._server.files[id] = file.data
            info = {"mimetype": file.media_type, "size": len(file.data)}
            content |= {"msgtype": "m.file", "url": f"mxc://pond.example/{id}", "filename": file.name, "info": info}
        return content

    def _sender(self, action: PersonAction) -> str:
        number = int("".join(sign for sign in action.chat.partition(":")[0] if sign.isdigit()))
        return {"person": person(number), "stranger": STRANGER, "bot": OTHER_BOT, "self": BOT}[action.by]


def person(number: int) -> str:
    return f"@person{number}:pond.example"


def room(number: int, *, group: bool) -> str:
    return f"!{'group' if group else 'alone'}{number}:pond.example"


def rooms() -> dict[str, dict[str, str]]:
    """All of them, with who is there."""
    found = {}
    for number in range(PEOPLE):
        both = {person(number): f"Person {number}", BOT: "Shoal"}
        found[room(number, group=False)] = both
        found[room(number, group=True)] = {**both, OTHER_BOT: "Frog"}
    return found


@contextlib.asynccontextmanager
async def opened(known_by: Literal["token", "password"]) -> AsyncIterator[ChannelBench]:
    async with FakeMatrix(rooms()).serving() as server:
        yield MatrixBench(server, known_by)


BENCHES: Mapping[str, OpenBench] = {
    "matrix, exclusive": partial(opened, "token"),
    "matrix, exclusive, password": partial(opened, "password"),
}
