"""Slack, by slack-sdk: Socket Mode and webhook."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from gateway.channels.slack.signature import signature
from gateway.platform.protocol import HookRequest, RunMode
from shared.ids import session_id
from tests.contracts.channels.bench import PEOPLE, Call, ChannelBench, Fault, OpenBench, Shown, Signing, Told
from tests.fakes.slack import APP_TOKEN, BOT, BOT_TOKEN, TEAM, USER, FakeSlack, Trouble
from tests.fakes.slack_text import shown

SECRET: Final = "8f742231b10e8888abcd99yyyzzz85a5"
FIRST: Final = 1000


class SlackBench:
    """A workspace with PEOPLE people."""

    name = "slack"
    path: tuple[str, ...] = ()
    cannot = frozenset({"throttled bot", "typing"})
    """A 429 does not say whose limit it is, and bots have no sign that they type."""

    def __init__(self, slack: FakeSlack, run_mode: RunMode) -> None:
        self.run_mode = run_mode
        self._slack = slack
        self._ts: dict[str, str] = {}
        self._threads: dict[str, str] = {}
        self._numbers = itertools.count(1)

    def table(self) -> dict[str, Any]:
        return {
            "token": BOT_TOKEN,
            "app_token": APP_TOKEN,
            "signing_secret": SECRET,
            "api": self._slack.api,
            "run": self.run_mode,
            "timeout_s": 2.0,
            "allow_from": [f"U{FIRST + number}" for number in range(PEOPLE)],
            "allow_groups": [self.chat(number, group=True) for number in range(PEOPLE)],
        }

    def chat(self, number: int, *, group: bool = False) -> str:
        return f"{'C' if group else 'D'}{FIRST + number}"

    def session(self, chat: str) -> str:
        thread = self._threads.get(chat)
        return session_id(self.name, f"{chat}#{thread}" if thread else chat)

    async def tell(self, told: Told) -> None:
        if told.does == "press":
            self._slack.sockets.tell("interactive", self._press(told), told.chat)
        else:
            self._slack.sockets.tell("events_api", self._callback(told), told.chat)

    def hook(self, told: Told, signing: Signing = "good") -> HookRequest:
        if told.does == "press":
            body = urlencode({"payload": msgspec.json.encode(self._press(told)).decode()}).encode()
            media_type = "application/x-www-form-urlencoded"
        else:
            body, media_type = msgspec.json.encode(self._callback(told)), "application/json"
        return self.signed(body, media_type, signing)

    def signed(self, body: bytes, media_type: str = "application/json", signing: Signing = "good") -> HookRequest:
        """A call with this body."""
        at = str(int(time.time()) - (301 if signing == "old" else 0))
        signed = signature("another-secret" if signing == "wrong" else SECRET, at, body)
        headers = {"content-type": media_type, "x-slack-request-timestamp": at}
        if signing != "none":
            headers["x-slack-signature"] = "" if signing == "blank" else signed
        if signing == "changed":
            body = body.replace(b"forged", b"forgee")
        return HookRequest(method="POST", path="", query={}, headers=headers, body=body)

    def handshake(self) -> tuple[HookRequest, bytes] | None:
        return self.signed(b'{"token":"x","challenge":"3eZbrw1aB","type":"url_verification"}'), b"3eZbrw1aB"

    def fault(self, fault: Fault) -> None:
        self._slack.troubles.append(Trouble(fault.kind, fault.call, fault.chat, fault.times, fault.retry_after_s))

    def heal(self) -> None:
        self._slack.troubles.clear()

    def shown(self, chat: str) -> Sequence[Shown]:
        ids = {ts: id for id, ts in self._ts.items()}
        return [
            Shown(
                id=one["ts"],
                text=shown(one["text"] or "", mrkdwn=one["mrkdwn"] is not False)[0],
                markup=shown(one["text"] or "", mrkdwn=one["mrkdwn"] is not False)[1],
                buttons=tuple(button["text"]["text"] for button in _buttons(one)),
                reply_to=ids.get(one["thread_ts"] or ""),
                file=one.get("_file"),
                edits=one["_edits"],
            )
            for one in self._slack.said.get(chat, [])
        ]

    def calls(self) -> Sequence[Call]:
        kinds: Mapping[str, Any] = {"send": "send", "edit": "edit"}
        return [Call(at, kinds[call], chat) for at, call, chat in self._slack.calls]

    def listeners(self) -> int:
        return len(self._slack.sockets.open)

    def _callback(self, told: Told) -> dict[str, Any]:
        event = self._event(told)
        return {
            "token": "verification",
            "team_id": TEAM,
            "api_app_id": "A0001",
            "event": event,
            "type": "event_callback",
            "event_id": f"Ev{told.does}{told.id}",
            "event_time": int(time.time()),
            "authorizations": [{"enterprise_id": None, "team_id": TEAM, "user_id": USER, "is_bot": True}],
        }

    def _event(self, told: Told) -> dict[str, Any]:
        message = self._message(told)
        where = {"channel": told.chat, "channel_type": "channel" if told.group else "im", "type": "message"}
        if told.does == "message":
            return {**message, **where, "event_ts": message["ts"]}
        if told.does == "delete":
            gone = {"deleted_ts": message["ts"], "previous_message": message}
            return {**where, "subtype": "message_deleted", "hidden": True, "ts": self._slack.ts(), **gone}
        at = self._ts.setdefault(f"{told.id} edited: {told.text}", self._slack.ts())
        changed = {**message, "edited": {"user": message.get("user"), "ts": at}}
        before = {**message, "text": "what it was"}
        both = {"message": changed, "previous_message": before}
        return {**where, "subtype": "message_changed", "hidden": True, "ts": at, **both}

    def _message(self, told: Told) -> dict[str, Any]:
        ts = self._ts.setdefault(told.id, self._slack.ts())
        text = told.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        if told.group:
            text = f"<@{USER}> {text}" if told.addressed else text
            self._threads[told.chat] = ts
        message: dict[str, Any] = {"type": "message", "text": text, "ts": ts, "team": TEAM, **self._sender(told)}
        for number, file in enumerate(told.files):
            id = f"F{told.id.upper()}{number}"
            self._slack.files[id] = file.data
            about = {"id": id, "name": file.name, "mimetype": file.media_type, "size": len(file.data), "mode": "hosted"}
            url = self._slack.file_url(id, file.name)
            message.setdefault("files", []).append({**about, "url_private": url, "url_private_download": url})
            message["subtype"] = "file_share"
        return message

    def _sender(self, told: Told) -> dict[str, Any]:
        match told.by:
            case "person":
                return {"user": f"U{told.chat[1:]}"}
            case "stranger":
                return {"user": "U9999"}
            case "bot":
                return {"user": "U0OTHER", "bot_id": "B0OTHER", "app_id": "A0002"}
            case "self":
                return {"user": USER, "bot_id": BOT, "app_id": "A0001"}

    def _press(self, told: Told) -> dict[str, Any]:
        newest = self._slack.said[told.chat][-1]
        button = next(one for one in _buttons(newest) if told.text in (one["text"]["text"], one["value"]))
        at = self._ts.setdefault(told.id, self._slack.ts())
        return {
            "type": "block_actions",
            "user": {"id": f"U{told.chat[1:]}", "username": "someone", "name": "someone", "team_id": TEAM},
            "api_app_id": "A0001",
            "container": {
                "type": "message_attachment",
                "message_ts": newest["ts"],
                "attachment_id": 1,
                "channel_id": told.chat,
                "is_ephemeral": False,
            },
            "trigger_id": f"1.2.{told.id}",
            "team": {"id": TEAM, "domain": "pond"},
            "channel": {"id": told.chat, "name": "directmessage"},
            "message": {"ts": newest["ts"], "text": newest["text"], "bot_id": BOT},
            "actions": [{**button, "block_id": "shoal", "type": "button", "action_ts": at}],
        }


def _buttons(message: dict[str, Any]) -> list[dict[str, Any]]:
    hung = [block for one in message.get("attachments") or () for block in one.get("blocks", ())]
    rows = [block for block in (*hung, *(message.get("blocks") or ())) if block["type"] == "actions"]
    return [button for row in rows for button in row["elements"]]


@contextlib.asynccontextmanager
async def opened(run_mode: RunMode) -> AsyncIterator[ChannelBench]:
    bench = SlackBench(FakeSlack(set()), run_mode)
    bench._slack.known = {bench.chat(number, group=group) for number in range(PEOPLE) for group in (False, True)}
    async with bench._slack.serving():
        yield bench


BENCHES: Mapping[str, OpenBench] = {
    "slack, socket": partial(opened, "socket"),
    "slack, webhook": partial(opened, "webhook"),
}
