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

from gateway.channels.slack.wire import signature
from gateway.platform.protocol import HookRequest, RunMode
from shared.ids import session_id
from tests.contracts.channels.bench import PEOPLE, Call, ChannelBench, Fault, OpenBench, PersonAction, Shown, Signing
from tests.fakes.slack import APP_TOKEN, BOT, BOT_TOKEN, TEAM, USER, FakeSlack
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

    async def tell(self, action: PersonAction) -> None:
        if action.does == "press":
            self._slack.sockets.tell("interactive", self._press(action), action.chat)
        else:
            self._slack.sockets.tell("events_api", self._callback(action), action.chat)

    def hook(self, action: PersonAction, signing: Signing = "good") -> HookRequest:
        if action.does == "press":
            body = urlencode({"payload": msgspec.json.encode(self._press(action)).decode()}).encode()
            media_type = "application/x-www-form-urlencoded"
        else:
            body, media_type = msgspec.json.encode(self._callback(action)), "application/json"
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
        self._slack.script(fault.kind, fault.call, fault.chat, fault.times, fault.retry_after_s)

    def heal(self) -> None:
        self._slack.faults.clear()

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
            for one in self._slack.posts.get(chat, [])
        ]

    def calls(self) -> Sequence[Call]:
        kinds: Mapping[str, Any] = {"send": "send", "edit": "edit"}
        return [Call(at, kinds[call], chat) for at, call, chat in self._slack.calls]

    def listeners(self) -> int:
        return len(self._slack.sockets.open)

    def _callback(self, action: PersonAction) -> dict[str, Any]:
        event = self._event(action)
        return {
            "token": "verification",
            "team_id": TEAM,
            "api_app_id": "A0001",
            "event": event,
            "type": "event_callback",
            "event_id": f"Ev{action.does}{action.id}",
            "event_time": int(time.time()),
            "authorizations": [{"enterprise_id": None, "team_id": TEAM, "user_id": USER, "is_bot": True}],
        }

    def _event(self, action: PersonAction) -> dict[str, Any]:
        message = self._message(action)
        where = {"channel": action.chat, "channel_type": "channel" if action.group else "im", "type": "message"}
        if action.does == "message":
            return {**message, **where, "event_ts": message["ts"]}
        if action.does == "delete":
            gone = {"deleted_ts": message["ts"], "previous_message": message}
            return {**where, "subtype": "message_deleted", "hidden": True, "ts": self._slack.ts(), **gone}
        at = self._ts.setdefault(f"{action.id} edited: {action.text}", self._slack.ts())
        changed = {**message, "edited": {"user": message.get("user"), "ts": at}}
        before = {**message, "text": "what it was"}
        both = {"message": changed, "previous_message": before}
        return {**where, "subtype": "message_changed", "hidden": True, "ts": at, **both}

    def _message(self, action: PersonAction) -> dict[str, Any]:
        ts = self._ts.setdefault(action.id, self._slack.ts())
        text = action.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        if action.group:
            text = f"<@{USER}> {text}" if action.addressed else text
            self._threads[action.chat] = ts
        message: dict[str, Any] = {"type": "message", "text": text, "ts": ts, "team": TEAM, **self._sender(action)}
        for number, file in enumerate(action.files):
            id = f"F{action.id.upper()}{number}"
            self._slack.files[id] = file.data
            about = {"id": id, "name": file.name, "mimetype": file.media_type, "size": len(file.data), "mode": "hosted"}
            url = self._slack.file_url(id, file.name)
            message.setdefault("files", []).append({**about, "url_private": url, "url_private_download": url})
            message["subtype"] = "file_share"
        return message

    def _sender(self, action: PersonAction) -> dict[str, Any]:
        match action.by:
            case "person":
                return {"user": f"U{action.chat[1:]}"}
            case "stranger":
                return {"user": "U9999"}
            case "bot":
                return {"user": "U0OTHER", "bot_id": "B0OTHER", "app_id": "A0002"}
            case "self":
                return {"user": USER, "bot_id": BOT, "app_id": "A0001"}

    def _press(self, action: PersonAction) -> dict[str, Any]:
        newest = self._slack.posts[action.chat][-1]
        button = next(one for one in _buttons(newest) if action.text in (one["text"]["text"], one["value"]))
        at = self._ts.setdefault(action.id, self._slack.ts())
        return {
            "type": "block_actions",
            "user": {"id": f"U{action.chat[1:]}", "username": "someone", "name": "someone", "team_id": TEAM},
            "api_app_id": "A0001",
            "container": {
                "type": "message_attachment",
                "message_ts": newest["ts"],
                "attachment_id": 1,
                "channel_id": action.chat,
                "is_ephemeral": False,
            },
            "trigger_id": f"1.2.{action.id}",
            "team": {"id": TEAM, "domain": "pond"},
            "channel": {"id": action.chat, "name": "directmessage"},
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
