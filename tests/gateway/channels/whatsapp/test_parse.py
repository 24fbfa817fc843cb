"""Calls of WhatsApp's webhook as messages: forms as the documentation shows them, and anything at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.channels.whatsapp.parse import FailedMessage, ParsedCall, read_call
from gateway.platform.protocol import PlatformMessage

NUMBER = "106540352242922"
ANNA = "491701234567"


def value(*messages: Any, number: str = NUMBER, name: str = "Anna Lee", **more: Any) -> dict[str, Any]:
    return {
        "messaging_product": "whatsapp",
        "metadata": {"display_phone_number": "15550783881", "phone_number_id": number},
        "contacts": [{"profile": {"name": name}, "wa_id": ANNA}],
        "messages": list(messages),
        **more,
    }


def body(*values: Any, field: str = "messages") -> bytes:
    entries = [{"id": "102290129340398", "changes": [{"value": one, "field": field}]} for one in values]
    return json.dumps({"object": "whatsapp_business_account", "entry": entries}).encode()


def message(sent: Mapping[str, Any], id: str = "wamid.HBgLMQ==") -> dict[str, Any]:
    return {"from": ANNA, "id": id, "timestamp": "1749416383", **sent}


def read(*values: Any) -> ParsedCall:
    return read_call("whatsapp", body(*values), NUMBER)


def one(sent: Mapping[str, Any]) -> PlatformMessage:
    (found,) = read(value(message(sent))).messages
    return found


def test_a_message_of_a_person() -> None:
    """The id is unique among all chats; a chat is the number of its person."""
    found = one({"type": "text", "text": {"body": "hello"}})
    call = found.message
    assert (call.channel, call.chat_id, call.sender_id, call.id) == ("whatsapp", ANNA, ANNA, "wamid.HBgLMQ==")
    assert (call.content, call.timestamp, call.thread) == ("hello", 1_749_416_383_000, None)
    assert (found.group, found.addressed, found.own, found.from_bot, found.name) == (
        False, True, False, False, "Anna Lee",
    )  # fmt: skip
    assert found.notes == {"message": "wamid.HBgLMQ=="}


@pytest.mark.parametrize(
    ("sent", "text", "files"),
    [
        (
            {"type": "image", "image": {"id": "1", "mime_type": "image/jpeg", "sha256": "x", "caption": "look"}},
            "look",
            [("1", "photo.jpg", "image/jpeg")],
        ),
        (
            {"type": "document", "document": {"id": "2", "mime_type": "application/pdf", "filename": "a.pdf"}},
            "",
            [("2", "a.pdf", "application/pdf")],
        ),
        (
            {"type": "audio", "audio": {"id": "3", "mime_type": "audio/ogg; codecs=opus", "voice": True}},
            "",
            [("3", "voice.ogg", "audio/ogg")],
        ),
        ({"type": "video", "video": {"id": "4", "mime_type": "video/mp4"}}, "", [("4", "video.mp4", "video/mp4")]),
        (
            {"type": "sticker", "sticker": {"id": "5", "mime_type": "image/webp", "animated": False}},
            "",
            [("5", "sticker.webp", "image/webp")],
        ),
        (
            {
                "type": "interactive",
                "context": {"from": "15550783881", "id": "wamid.x"},
                "interactive": {"type": "button_reply", "button_reply": {"id": "/yes ab", "title": "Yes"}},
            },
            "/yes ab",
            [],
        ),
        (
            {
                "type": "interactive",
                "interactive": {"type": "list_reply", "list_reply": {"id": "Tea", "title": "Tea", "description": "x"}},
            },
            "Tea",
            [],
        ),
        ({"type": "button", "button": {"payload": "stop", "text": "Stop"}}, "stop", []),
        (
            {"type": "location", "location": {"latitude": 52.5, "longitude": 13.4}},
            "[location: 52.5, 13.4]",
            [],
        ),
        (
            {
                "type": "location",
                "location": {"latitude": 52.5, "longitude": 13.4, "name": "Pond", "address": "1 Way"},
            },
            "[location: 52.5, 13.4 (Pond, 1 Way)]",
            [],
        ),
        (
            {
                "type": "contacts",
                "contacts": [
                    {"name": {"formatted_name": "Bo"}, "phones": [{"phone": "+1 2", "wa_id": "12"}]},
                    {"name": {"formatted_name": "Cy"}},
                ],
            },
            "[contact: Bo, +1 2]\n[contact: Cy]",
            [],
        ),
        ({"type": "text", "text": {"body": " hi "}, "context": {"forwarded": True}}, "hi", []),
    ],
)
def test_what_people_send(sent: dict[str, Any], text: str, files: list[tuple[str, str, str]]) -> None:
    """Files are named and not fetched yet; a press says what stands behind its button."""
    found = one(sent)
    assert found.message.content == text
    assert [(file.handle, file.name, file.media_type) for file in found.files] == files


@pytest.mark.parametrize(
    "sent",
    [
        {"type": "reaction", "reaction": {"message_id": "wamid.x", "emoji": "👍"}},
        {"type": "system", "system": {"body": "Anna changed from 1 to 2", "type": "user_changed_number"}},
        {"type": "order", "order": {"catalog_id": "1", "product_items": []}},
        {"type": "interactive", "interactive": {"type": "nfm_reply", "nfm_reply": {"body": "Sent"}}},
        {"type": "text", "text": {"body": "hi"}, "group_id": "Y2FwaV9ncm91cDo"},
    ],
)
def test_what_says_nothing_to_us_is_passed_over(sent: dict[str, Any]) -> None:
    """Reactions, orders, groups, a changed number."""
    assert read(value(message(sent))) == ParsedCall()


def test_a_call_may_hold_many_messages() -> None:
    """In their order; those of another number of the app are not ours."""
    sent = [message({"type": "text", "text": {"body": f"m{n}"}}, id=f"wamid.{n}") for n in range(4)]
    call = read(value(sent[0], sent[1]), value(sent[2], number="1"), value(sent[3]))
    assert [received.message.content for received in call.messages] == ["m0", "m1", "m3"]


def test_a_strange_message_stands_in_nobodys_way() -> None:
    """It is counted; the others are heard."""
    good = message({"type": "text", "text": {"body": "hi"}})
    call = read(value({"id": 7}, good, 5, {"from": ANNA}), {"messages": "?"}, value(statuses=[{"status": 1}]))
    assert ([received.message.content for received in call.messages], call.unreadable_parts) == (["hi"], 5)
    assert (
        read_call("whatsapp", body({"event": "APPROVED"}, field="message_template_status_update"), NUMBER)
        == ParsedCall()
    )


def test_only_failures_among_statuses_are_returned() -> None:
    """Sent, delivered and read are no news."""
    base = {"id": "wamid.out1", "timestamp": "1749416383", "recipient_id": ANNA}
    failed = {**base, "status": "failed", "errors": [{"code": 131047, "title": "Re-engagement message"}]}
    call = read(value(statuses=[*({**base, "status": one} for one in ("sent", "delivered", "read")), failed]))
    assert call == ParsedCall(failed=(FailedMessage(ANNA, 131047),))


_words = ["object", "entry", "changes", "field", "messages", "value", "metadata", "phone_number_id", NUMBER, "id",
          "from", "text", "body", "timestamp", "statuses", "errors", "contacts", "image", "interactive"]  # fmt: skip
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(_words) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_words), inner, max_size=4),
    max_leaves=12,
)


@given(_json)
def test_anything_at_all_is_messages_nothing_or_a_typed_error(given_body: Any) -> None:
    """Whatever comes in over the wire harms nobody."""
    for raw in (json.dumps(given_body).encode(), body(given_body), body(value(given_body, statuses=[given_body]))):
        try:
            call = read_call("whatsapp", raw, NUMBER)
        except msgspec.DecodeError:
            continue
        assert all(received.message.channel == "whatsapp" for received in call.messages)
