"""Anything at all that comes from Slack's side is a message, nothing, or an error of ours."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.channels.slack.parse import conversation_id
from gateway.channels.slack.wire import (
    BlockActions,
    EventCallback,
    SlashCommand,
    UnreadablePayload,
    read_call,
    read_envelope,
    read_payload,
)
from gateway.platform.protocol import PlatformMessage
from shared.messages.inbound import InboundMessage
from tests.deploy.test_docs import ROOT
from tests.gateway.channels.slack.payloads import FORM, HEARING, callback, form, message, press, slash

NAMES = """type event subtype channel user bot_id text ts thread_ts edited message previous_message files attachments
deleted_ts team_id authorizations id mode url_private is_share command payload actions container value""".split()
WORDS = "message message_changed message_deleted tombstone event_callback block_actions C1 1.1 T0001".split()

json_of_any_form = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=15,
)


def take(body: bytes, media_type: str = "application/json") -> None:
    with contextlib.suppress(UnreadablePayload):
        event = read_call(media_type, body)
        if event is not None:
            conversation_id(event)
            assert isinstance(HEARING.parse_event(event, now_ms=1), PlatformMessage | InboundMessage | None)


@given(json_of_any_form)
def test_any_body_is_a_message_nothing_or_unreadable(body: Any) -> None:
    """A strange form ends nothing."""
    take(json.dumps(body).encode())
    take(form({"payload": json.dumps(body)}), FORM)


@given(json_of_any_form)
def test_any_event_is_a_message_nothing_or_unreadable(event: Any) -> None:
    """In an envelope that is as it should be."""
    take(callback(event))
    if isinstance(event, dict):
        take(callback({**message(), **event}))


@given(st.binary(max_size=60), st.sampled_from([FORM, "application/json", "", "text/plain"]))
def test_any_bytes_are_nothing_or_unreadable(body: bytes, media_type: str) -> None:
    """Whatever they call themselves."""
    take(body, media_type)


@pytest.mark.parametrize(
    ("body", "media_type"),
    [
        (b"", "application/json"),
        (b"[]", "application/json"),
        (b"null", "application/json"),
        (b"\xff\xfe", "application/json"),
        (b'{"a":' * 5000, "application/json"),
        (b'{"type":"event_callback"}', "application/json"),
        (callback(message(ts=5)), "application/json"),
        (b"", FORM),
        (b"\xff=\xfe", FORM),
        (form({"payload": "{"}), FORM),
        (form({"command": "/shoal"}), FORM),
        (form({"token": "x"}), FORM),
    ],
)
def test_what_has_no_form_of_slacks_is_unreadable(body: bytes, media_type: str) -> None:
    """And is told from what says nothing to us."""
    with pytest.raises(UnreadablePayload):
        read_call(media_type, body)


@pytest.mark.parametrize(
    ("kind", "payload", "found"),
    [
        ("events_api", json.loads(callback(message())), EventCallback),
        ("interactive", press(), BlockActions),
        ("slash_commands", slash(), SlashCommand),
        ("something_new", {"a": 1}, type(None)),
    ],
)
def test_an_envelope_brings_the_same_as_a_call(kind: str, payload: dict[str, Any], found: type) -> None:
    """Socket Mode and the webhook are one path from here on."""
    frame = {"envelope_id": "e1", "type": kind, "payload": payload, "accepts_response_payload": False}
    envelope = read_envelope(json.dumps(frame))
    assert envelope.envelope_id == "e1"
    assert isinstance(read_payload(envelope), found)


@given(st.text(max_size=40) | json_of_any_form.map(json.dumps))
def test_any_frame_is_an_envelope_or_unreadable(frame: str) -> None:
    """And so is what is in it."""
    with contextlib.suppress(UnreadablePayload):
        read_payload(read_envelope(frame))


def test_reading_needs_no_sdk() -> None:
    """Settings are checked, and forms are read, without it."""
    script = (
        "import sys, gateway.channels.slack.parse, gateway.channels.slack.settings; "
        "print(*{name.partition('.')[0] for name in sys.modules} & {'slack_sdk', 'aiohttp'})"
    )
    child = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert child.stdout.split() == []
