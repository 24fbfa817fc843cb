"""Discord, by the WebSocket of discord.py."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from gateway.platform.protocol import HookRequest, RunMode
from shared.ids import session_id
from tests.contracts.channels.bench import PEOPLE, Call, ChannelBench, Fault, OpenBench, PersonAction, Shown, Signing
from tests.fakes.discord import BOT, GUILD, TOKEN, FakeDiscord, iso, read_markdown, snowflake

PERSON, ALONE, GROUP = 300_000_000_000_000_000, 400_000_000_000_000_000, 500_000_000_000_000_000
STRANGER: Final = "399999999999999999"


class DiscordBench:
    """A server with PEOPLE people, each with a channel of their own and one on the server."""

    name = "discord"
    run_mode: RunMode = "exclusive"
    path: tuple[str, ...] = ()
    cannot = frozenset({"markup"})
    """Discord shows whatever Markdown it gets."""

    def __init__(self, server: FakeDiscord) -> None:
        self._server = server
        self._ids: dict[str, str] = {}
        for number in range(PEOPLE):
            alone, group = self.chat(number), self.chat(number, group=True)
            server.channels[alone] = {"id": alone, "type": 1, "recipients": [self._user(PERSON + number)]}
            server.channels[group] = {"id": group, "type": 0, "guild_id": GUILD, "name": f"pond-{number}"}

    def table(self) -> dict[str, Any]:
        return {
            "token": TOKEN,
            "api": f"{self._server.address}/api/v10",
            "files_from": [self._server.address],
            "timeout_s": 2.0,
            "allow_from": [str(PERSON + number) for number in range(PEOPLE)],
            "allow_groups": [self.chat(number, group=True) for number in range(PEOPLE)],
        }

    def chat(self, number: int, *, group: bool = False) -> str:
        return str((GROUP if group else ALONE) + number)

    def session(self, chat: str) -> str:
        return session_id(self.name, chat)

    async def tell(self, action: PersonAction) -> None:
        await self._server.gateway.tell(*self._event(action))

    def hook(self, action: PersonAction, signing: Signing = "good") -> HookRequest:
        raise NotImplementedError("Discord tells of messages through its gateway alone")

    def handshake(self) -> tuple[HookRequest, bytes] | None:
        return None

    def fault(self, fault: Fault) -> None:
        self._server.script(fault.kind, fault.call, fault.chat, fault.times, fault.retry_after_s)

    def heal(self) -> None:
        self._server.faults.clear()

    def shown(self, chat: str) -> Sequence[Shown]:
        action = {id: name for name, id in self._ids.items()}
        return [self._shown(one, action) for one in self._server.posts(chat)]

    def _shown(self, message: dict[str, Any], action: Mapping[str, str]) -> Shown:
        text, markup = read_markdown(message["content"])
        return Shown(
            id=message["id"],
            text=text,
            markup=markup,
            buttons=tuple(button["label"] for button in _buttons(message)),
            reply_to=action.get((message["message_reference"] or {}).get("message_id", "")),
            file=message.get("file"),
            edits=self._server.edits.get(message["id"], 0),
        )

    def calls(self) -> Sequence[Call]:
        kinds: Mapping[str, Any] = {"send": "send", "edit": "edit", "typing": "typing"}
        return [Call(at, kinds[call], chat) for at, call, chat in self._server.calls]

    def listeners(self) -> int:
        return self._server.gateway.open

    def _event(self, action: PersonAction) -> tuple[str, dict[str, Any]]:
        where = {"channel_id": action.chat} | ({"guild_id": GUILD} if action.group else {})
        if action.does == "delete":
            return "MESSAGE_DELETE", {"id": self._ids[action.id], **where}
        if action.does == "press":
            return "INTERACTION_CREATE", {**self._press(action), **where}
        id = self._ids.setdefault(action.id, snowflake())
        more: dict[str, Any] = {"mentions": [dict(BOT)]} if action.group and action.addressed else {}
        if action.does == "edit":
            more["edited_timestamp"] = iso(int(time.time() * 1000))
        text = f"<@{BOT['id']}> {action.text}" if more.get("mentions") else action.text
        files = [self._attachment(file.name, file.media_type, file.data) for file in action.files]
        message = self._server.message(action.chat, self._sender(action), text, id=id, attachments=files, **more)
        return "MESSAGE_UPDATE" if action.does == "edit" else "MESSAGE_CREATE", self._server.as_event(message)

    def _press(self, action: PersonAction) -> dict[str, Any]:
        message = self._server.posts(action.chat)[-1]
        button = next(one for one in _buttons(message) if action.text in (one["label"], one["custom_id"].split(":")[1]))
        who = self._sender(action)
        return {
            "id": snowflake(),
            "application_id": BOT["id"],
            "type": 3,
            "token": "aW50ZXJhY3Rpb246" + action.id,
            "version": 1,
            "message": {name: value for name, value in message.items() if name != "file"},
            "data": {"component_type": 2, "custom_id": button["custom_id"], "id": 2},
            **({"member": {"user": who, "roles": []}} if action.group else {"user": who}),
        }

    def _attachment(self, name: str, media_type: str, data: bytes) -> dict[str, Any]:
        handle = hashlib.sha1(data).hexdigest()
        self._server.files[handle] = data
        url = f"{self._server.address}/attachments/{handle}/{name}?ex=1&is=2&hm=3"
        action = {"id": snowflake(), "filename": name, "content_type": f"{media_type}; charset=utf-8"}
        return {**action, "size": len(data), "url": url, "proxy_url": url}

    def _sender(self, action: PersonAction) -> dict[str, Any]:
        match action.by:
            case "person":
                return self._user(PERSON + int(action.chat) % 1_000_000)
            case "stranger":
                return self._user(STRANGER)
            case "bot":
                return self._user("377777777777777777") | {"bot": True}
            case "self":
                return dict(BOT)

    def _user(self, id: int | str) -> dict[str, Any]:
        return {"id": str(id), "username": f"person{id}", "discriminator": "0", "global_name": None, "avatar": None}


def _buttons(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [button for row in message["components"] for button in row["components"]]


@contextlib.asynccontextmanager
async def opened() -> AsyncIterator[ChannelBench]:
    async with FakeDiscord().serving() as server:
        yield DiscordBench(server)


BENCHES: Mapping[str, OpenBench] = {"discord, exclusive": opened}
