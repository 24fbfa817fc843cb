"""Telegram's updates as messages: forms as the Bot API's documentation shows them, and anything at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.channels.telegram.parse import TelegramIdentity, parse_update
from gateway.channels.telegram.wire import decode_update
from gateway.platform.protocol import PlatformMessage

ME = TelegramIdentity(123456789, "shoal_bot")
ANNA = {"id": 4242, "is_bot": False, "first_name": "Anna", "last_name": "Lee", "username": "anna"}
ALONE = {"id": 4242, "type": "private", "first_name": "Anna", "username": "anna"}
GROUP = {"id": -100123, "type": "supergroup", "title": "Fish"}


def parse(message: Mapping[str, Any], kind: str = "message") -> PlatformMessage | None:
    base = {"message_id": 7, "date": 1_700_000_000, "chat": ALONE, "from": ANNA}
    return parse_update("telegram", decode_update(json.dumps({"update_id": 1, kind: {**base, **message}}).encode()), ME)


def sure(found: PlatformMessage | None) -> PlatformMessage:
    assert found is not None
    return found


def test_a_message_of_a_person() -> None:
    """Ids are numbers of Telegram; the message's own is unique among all chats."""
    found = sure(parse({"text": "hello"}))
    message = found.message
    assert (message.channel, message.chat_id, message.sender_id, message.id) == ("telegram", "4242", "4242", "4242/7")
    assert (message.content, message.timestamp, message.thread) == ("hello", 1_700_000_000_000, None)
    assert (found.group, found.addressed, found.own, found.from_bot, found.name) == (
        False,
        True,
        False,
        False,
        "Anna Lee",
    )


@pytest.mark.parametrize(
    ("sent", "addressed", "text"),
    [
        ({"text": "@shoal_bot hello", "entities": [{"type": "mention", "offset": 0, "length": 10}]}, True, "hello"),
        ({"text": "@Shoal_Bot: hello", "entities": [{"type": "mention", "offset": 0, "length": 10}]}, True, "hello"),
        (
            {"text": "😀 hi @shoal_bot!", "entities": [{"type": "mention", "offset": 6, "length": 10}]},
            True,
            "😀 hi @shoal_bot!",
        ),
        ({"text": "@other_bot hello", "entities": [{"type": "mention", "offset": 0, "length": 10}]}, False, None),
        ({"text": "@shoal_bots hello", "entities": [{"type": "mention", "offset": 0, "length": 11}]}, False, None),
        ({"text": "mail shoal_bot", "entities": []}, False, None),
        (
            {
                "text": "Shoal hi",
                "entities": [{"type": "text_mention", "offset": 0, "length": 5, "user": {"id": ME.id}}],
            },
            True,
            None,
        ),
        ({"text": "/new"}, True, None),
        ({"text": "/new@shoal_bot"}, True, "/new"),
        ({"text": "/new@other_bot"}, False, None),
        ({"text": "yes", "reply_to_message": {"message_id": 3, "chat": GROUP, "from": {"id": ME.id}}}, True, None),
        ({"text": "yes", "reply_to_message": {"message_id": 3, "chat": GROUP, "from": {"id": 5}}}, False, None),
        ({"text": "hello"}, False, None),
    ],
)
def test_in_a_group_a_message_is_for_us_when_it_says_so(
    sent: dict[str, Any], addressed: bool, text: str | None
) -> None:
    """A mention of us, a reply to us, or a command that names nobody else."""
    found = sure(parse({**sent, "chat": GROUP}))
    assert (found.group, found.addressed) == (True, addressed)
    assert found.message.content == (text or sent["text"])


def test_an_edit_names_what_it_changes() -> None:
    """Its own id is another one, and another one again after the next edit."""
    found = sure(parse({"text": "hello!", "edit_date": 1_700_000_009}, "edited_message"))
    assert (found.message.id, found.replaces) == ("4242/7/1700000009", "4242/7")


def test_a_topic_is_a_thread_and_a_reply_is_none() -> None:
    """Both have a thread id."""
    topic = sure(parse({"text": "x", "chat": GROUP, "message_thread_id": 5, "is_topic_message": True}))
    reply = sure(parse({"text": "x", "chat": GROUP, "message_thread_id": 5}))
    assert (topic.message.thread, reply.message.thread) == ("5", None)
    assert topic.message.session == "telegram:-100123%235"


@pytest.mark.parametrize(
    ("sent", "text", "files"),
    [
        (
            {
                "photo": [{"file_id": "s", "width": 90}, {"file_id": "b", "width": 900, "file_size": 9}],
                "caption": "look",
            },
            "look",
            [("b", "photo.jpg", "image/jpeg", 9)],
        ),
        (
            {"document": {"file_id": "d", "file_name": "a.pdf", "mime_type": "application/pdf", "file_size": 3}},
            "",
            [("d", "a.pdf", "application/pdf", 3)],
        ),
        (
            {"voice": {"file_id": "v", "duration": 3, "mime_type": "audio/ogg"}},
            "",
            [("v", "voice.ogg", "audio/ogg", None)],
        ),
        (
            {"animation": {"file_id": "g"}, "document": {"file_id": "g", "file_name": "x.mp4"}},
            "",
            [("g", "animation.mp4", "video/mp4", None)],
        ),
        ({"sticker": {"file_id": "s", "emoji": "🐟"}}, "🐟", []),
        ({"location": {"latitude": 52.5, "longitude": 13.4}}, "[location: 52.5, 13.4]", []),
        ({"contact": {"phone_number": "+1", "first_name": "Bo"}}, "[contact: Bo, +1]", []),
    ],
)
def test_what_is_no_text(sent: dict[str, Any], text: str, files: list[tuple[str, str, str, int | None]]) -> None:
    """Files are named and not fetched yet; of pictures the biggest; an animation is told as a document, too."""
    found = sure(parse(sent))
    assert found.message.content == text
    assert [(one.handle, one.name, one.media_type, one.size_bytes) for one in found.files] == files


@pytest.mark.parametrize(
    "sent",
    [
        {"new_chat_members": [ANNA]},
        {"left_chat_member": ANNA},
        {"pinned_message": {"message_id": 3, "chat": GROUP}},
        {"text": "news", "chat": {"id": -5, "type": "channel"}},
    ],
)
def test_what_says_nothing_to_us_is_passed_over(sent: dict[str, Any]) -> None:
    """Who came and went, pins, posts of channels."""
    assert parse(sent) is None


def test_a_pressed_button_says_what_stands_behind_it() -> None:
    """Texts that a press cannot carry are found by their number in the message's own buttons."""
    rows = [[{"text": "Yes", "callback_data": "/yes ab"}], [{"text": "w" * 80, "callback_data": "#1"}]]
    message = {"message_id": 9, "chat": ALONE, "date": 1, "from": {"id": ME.id, "is_bot": True},
               "reply_markup": {"inline_keyboard": rows}}  # fmt: skip

    def pressed(data: str) -> PlatformMessage | None:
        press = {"id": "c1", "from": ANNA, "message": message, "data": data}
        return parse_update(
            "telegram", decode_update(json.dumps({"update_id": 1, "callback_query": press}).encode()), ME
        )

    first = sure(pressed("/yes ab"))
    assert (first.message.content, first.message.sender_id, first.message.id) == ("/yes ab", "4242", "press/c1")
    assert sure(pressed("#1")).message.content == "w" * 80
    assert pressed("#7") is None


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["message", "from", "chat", "id", "text", "update_id", "type"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(_json)
def test_anything_at_all_is_a_message_nothing_or_a_typed_error(body: Any) -> None:
    """Whatever comes in over the wire harms nobody."""
    try:
        update = decode_update(json.dumps(body).encode())
    except msgspec.DecodeError:
        return
    found = parse_update("telegram", update, ME)
    assert found is None or found.message.channel == "telegram"
