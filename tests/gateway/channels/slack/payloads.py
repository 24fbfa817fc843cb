"""What Slack sends, in the forms of its documentation (docs.slack.dev/reference)."""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import urlencode

from gateway.channels.slack.parse import SlackEventParser
from gateway.channels.slack.wire import SlackIdentity, read_call
from gateway.platform.protocol import PlatformMessage
from shared.messages.inbound import InboundMessage

ME: Final = SlackIdentity("T0001", "U0SHOAL", "B0SHOAL", "shoal")
HEARING: Final = SlackEventParser("slack", ME)
FORM: Final = "application/x-www-form-urlencoded"
NOW_MS: Final = 1_700_000_000_000


def callback(event: dict[str, Any], **outer: Any) -> bytes:
    """The call of the webhook for an event."""
    return json.dumps(
        {
            "token": "ZZZZZZWSxiZZZ2yIvs3peJ",
            "team_id": "T0001",
            "context_team_id": "T0001",
            "context_enterprise_id": None,
            "api_app_id": "A123ABC456",
            "event": event,
            "type": "event_callback",
            "event_id": "Ev08MFMKH6",
            "event_time": 1695223200,
            "authorizations": [{"enterprise_id": None, "team_id": "T0001", "user_id": "U0SHOAL", "is_bot": True}],
            "is_ext_shared_channel": False,
            "event_context": "4-eyJldCI6Im1lc3NhZ2UifQ",
            **outer,
        }
    ).encode()


def message(text: str = "hello", **more: Any) -> dict[str, Any]:
    """A message of a person in a chat of two."""
    return {
        "user": "U2147483697",
        "type": "message",
        "ts": "1695223200.000100",
        "client_msg_id": "9cb0a1a4-3f5c-4e0f-8a44-4a1f1c6d4b1e",
        "text": text,
        "team": "T0001",
        "channel": "D024BE91L",
        "event_ts": "1695223200.000100",
        "channel_type": "im",
        **more,
    }


def in_channel(text: str = "<@U0SHOAL> hello", **more: Any) -> dict[str, Any]:
    """A message in a channel."""
    return message(text, **{"channel": "C024BE91L", "channel_type": "channel", **more})


def changed(after: dict[str, Any], before: dict[str, Any] | None = None, channel: str = "D024BE91L") -> dict[str, Any]:
    """That a message was changed."""
    inner = {name: value for name, value in after.items() if name not in ("channel", "channel_type")}
    event = {"type": "message", "subtype": "message_changed", "hidden": True, "channel": channel, "message": inner}
    if before is not None:
        event["previous_message"] = before
    return {**event, "ts": "1695223300.000200", "event_ts": "1695223300.000200"}


def press(**more: Any) -> dict[str, Any]:
    """That a button was pressed."""
    return {
        "type": "block_actions",
        "user": {"id": "U2147483697", "username": "anna", "name": "anna", "team_id": "T0001"},
        "api_app_id": "A123ABC456",
        "token": "ZZZZZZWSxiZZZ2yIvs3peJ",
        "container": {
            "type": "message_attachment",
            "message_ts": "1695223250.000150",
            "attachment_id": 1,
            "channel_id": "D024BE91L",
            "is_ephemeral": False,
            "is_app_unfurl": False,
        },
        "trigger_id": "12466734323.1395872398",
        "team": {"id": "T0001", "domain": "pond"},
        "enterprise": None,
        "is_enterprise_install": False,
        "channel": {"id": "D024BE91L", "name": "directmessage"},
        "message": {"type": "message", "ts": "1695223250.000150", "text": "May I?", "bot_id": "B0SHOAL"},
        "state": {"values": {}},
        "response_url": "https://hooks.slack.com/actions/T0001/1/x",
        "actions": [
            {
                "action_id": "shoal0",
                "block_id": "shoal",
                "text": {"type": "plain_text", "text": "Yes", "emoji": False},
                "value": "/yes a1b2",
                "type": "button",
                "action_ts": "1695223260.123456",
            }
        ],
        **more,
    }


def slash(**more: str) -> dict[str, str]:
    """A slash command."""
    return {
        "token": "gIkuvaNzQIHg97ATvDxqgjtO",
        "team_id": "T0001",
        "team_domain": "pond",
        "channel_id": "D024BE91L",
        "channel_name": "directmessage",
        "user_id": "U2147483697",
        "user_name": "anna",
        "command": "/shoal",
        "text": "what time is it?",
        "api_app_id": "A123ABC456",
        "is_enterprise_install": "false",
        "response_url": "https://hooks.slack.com/commands/1234/5678",
        "trigger_id": "13345224609.738474920.8088930838d88f008e0",
        **more,
    }


def form(fields: dict[str, Any]) -> bytes:
    """Fields as a form."""
    return urlencode(fields).encode()


def received(
    body: bytes, media_type: str = "application/json", hearing: SlackEventParser = HEARING
) -> PlatformMessage | InboundMessage | None:
    """What a call of the webhook says to us."""
    found = read_call(media_type, body)
    return None if found is None else hearing.parse_event(found, now_ms=NOW_MS)


def posted_message(event: dict[str, Any], hearing: SlackEventParser = HEARING, **outer: Any) -> PlatformMessage:
    """What an event says to us."""
    found = received(callback(event, **outer), hearing=hearing)
    assert isinstance(found, PlatformMessage)
    return found
