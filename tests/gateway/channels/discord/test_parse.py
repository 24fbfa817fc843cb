"""Events of Discord's gateway as messages: forms as its documentation shows them, and anything at all."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.channels.discord.parse import ConversationInfo, deleted_message, first_id, parse_event, written_ms
from gateway.channels.discord.wire import Interaction, Message, MessagesDeleted, UnreadableEvent, read_event
from shared.ids import session_id
from tests.fakes.discord import BOT
from tests.gateway.channels.discord.events import (
    ALONE,
    CHANNEL,
    MASON,
    ME,
    MESSAGE,
    ON_SERVER,
    SERVER,
    WRITTEN_MS,
    event,
    gateway_event,
    pressed,
    sure,
)

HOT = "[quoted from shoal]\n> Supa Hot\n\n"
HOT_OF_MASON = HOT.replace("shoal", "Mason Lee")
NAMES_US = f"<@{ME.id}>"
OTHER = {"id": "111111111111111111", "username": "anna", "global_name": "Anna"}


def test_a_message_of_a_person() -> None:
    """Ids are Discord's; the message's own is unique among all chats, and says when it was written."""
    found = sure(gateway_event())
    message = found.message
    assert (message.channel, message.chat_id, message.sender_id) == ("discord", ALONE, MASON["id"])
    assert (message.id, message.content, message.timestamp) == ("175928847299117063", "Supa Hot", WRITTEN_MS)
    assert message.session == f"discord:{ALONE}"
    assert (found.group, found.addressed, found.own, found.from_bot) == (False, True, False, False)
    assert found.name == "Mason Lee"


@pytest.mark.parametrize(
    ("sent", "addressed", "text"),
    [
        ({"content": f"{NAMES_US} hello", "mentions": [BOT]}, True, "hello"),
        ({"content": f"<@!{ME.id}>, hello", "mentions": [BOT]}, True, "hello"),
        ({"content": f"hello {NAMES_US}", "mentions": [BOT]}, True, "hello"),
        ({"content": f"is {NAMES_US} there?", "mentions": [BOT]}, True, "is @shoal there?"),
        ({"content": NAMES_US, "mentions": [BOT]}, True, "@shoal"),
        ({"content": f"<@{OTHER['id']}> hello", "mentions": [OTHER]}, False, "@anna hello"),
        ({"content": "<@999999999999999999> <#5> <:fish:6>"}, False, "<@999999999999999999> <#5> <:fish:6>"),
        ({"content": f"`{NAMES_US}` is how"}, False, "`@shoal` is how"),
        ({"content": "@shoal hello"}, False, "@shoal hello"),
        ({"content": "@everyone hello", "mention_everyone": True}, False, "@everyone hello"),
        ({"content": "/new@Shoal"}, True, "/new@Shoal"),
        ({"content": "/new@other"}, False, "/new@other"),
        ({"content": "/play a song"}, False, "/play a song"),
        ({"content": f"{NAMES_US} /new", "mentions": [BOT]}, True, "/new"),
        ({"content": "yes", "type": 19, "referenced_message": MESSAGE | {"author": BOT}}, True, f"{HOT}yes"),
        ({"content": "yes", "type": 19, "referenced_message": MESSAGE}, False, f"{HOT_OF_MASON}yes"),
        ({"content": "yes", "type": 19, "referenced_message": None}, False, "yes"),
    ],
)
def test_on_a_server_a_message_is_for_us_when_it_says_so(sent: dict[str, Any], addressed: bool, text: str) -> None:
    """A mention of us, a reply to us, or a command with our name; whoever else is named is shown by name."""
    found = sure(gateway_event(**ON_SERVER, **sent))
    assert (found.group, found.addressed) == (True, addressed)
    assert found.message.content == text


def test_a_thread_is_a_conversation_of_its_own() -> None:
    """It is a channel in Discord, and belongs to the one it was begun in."""
    room = ConversationInfo(CHANNEL, "777777777777777777")
    found = sure(event("MESSAGE_CREATE", MESSAGE | ON_SERVER | {"channel_id": "777777777777777777"}, room))
    assert (found.message.chat_id, found.message.thread) == (CHANNEL, "777777777777777777")
    assert found.message.session == session_id("discord", f"{CHANNEL}#777777777777777777")


def test_an_edit_names_what_it_changes() -> None:
    """Its own id is another one, and another one again after the next edit; the same edit has the same."""
    changes = {"content": "Supa Cold", "edited_timestamp": "2016-04-30T11:20:00.500000+00:00"}
    found = sure(gateway_event("MESSAGE_UPDATE", **changes))
    at_ms = WRITTEN_MS + 94_704
    assert (found.message.id, found.replaces) == (f"175928847299117063/{at_ms}", "175928847299117063")
    assert (found.message.content, found.message.timestamp) == ("Supa Cold", at_ms)


@pytest.mark.parametrize(
    "changes",
    [
        {},  # an address in it got a preview
        {"edited_timestamp": "2017-07-11T20:20:00+00:00", "author": None},
        {"edited_timestamp": "2017-07-11T20:20:00+00:00", "content": ""},
    ],
)
def test_what_changes_no_words_is_no_edit(changes: dict[str, Any]) -> None:
    """Discord tells of previews, pins and more in the same way."""
    assert gateway_event("MESSAGE_UPDATE", **changes) is None


@pytest.mark.parametrize(
    ("sent", "text", "files"),
    [
        (
            {
                "content": "look",
                "attachments": [
                    {
                        "id": "1",
                        "filename": "a.png",
                        "size": 9,
                        "url": "https://cdn.discordapp.com/attachments/1/2/a.png?ex=1&is=2&hm=3",
                        "proxy_url": "https://media.discordapp.net/attachments/1/2/a.png",
                        "content_type": "image/png",
                        "width": 900,
                        "height": 600,
                    }
                ],
            },
            "look",
            [("https://cdn.discordapp.com/attachments/1/2/a.png?ex=1&is=2&hm=3", "a.png", "image/png", 9)],
        ),
        (
            {
                "content": "",
                "flags": 8192,
                "attachments": [
                    {"id": "1", "filename": "voice-message.ogg", "url": "u", "content_type": "audio/ogg; codecs=opus"}
                ],
            },
            "",
            [("u", "voice-message.ogg", "audio/ogg", None)],
        ),
        (
            {"content": "", "sticker_items": [{"id": "1", "name": "Wumpus", "format_type": 1}]},
            "[sticker: Wumpus]",
            [],
        ),
        (
            {
                "content": "",
                "message_reference": {"type": 1, "message_id": "2", "channel_id": "3"},
                "message_snapshots": [
                    {
                        "message": {
                            "type": 0,
                            "content": "said elsewhere",
                            "timestamp": "2017-07-11T20:19:41.636000+00:00",
                            "attachments": [{"id": "1", "filename": "b.txt", "url": "b", "size": 3}],
                        }
                    }
                ],
            },
            "said elsewhere",
            [("b", "b.txt", "", 3)],
        ),
    ],
)
def test_what_is_no_plain_text(sent: dict[str, Any], text: str, files: list[tuple[str, str, str, int | None]]) -> None:
    """Files are named and not fetched yet; what is forwarded is its text and files, said by whoever forwards it."""
    found = sure(gateway_event(**sent))
    assert (found.message.content, found.message.sender_id) == (text, MASON["id"])
    assert [(one.handle, one.name, one.media_type, one.size_bytes) for one in found.files] == files


@pytest.mark.parametrize("type", [1, 2, 3, 4, 5, 6, 7, 8, 12, 18, 20, 21, 23, 24, 46])
def test_what_no_person_wrote_is_passed_over(type: int) -> None:
    """Who came and went, pins, boosts, new threads, answers to commands of other bots."""
    assert gateway_event(type=type, content="Supa Hot") is None


@pytest.mark.parametrize(
    "kind", ["READY", "RESUMED", "GUILD_CREATE", "THREAD_CREATE", "TYPING_START", "MESSAGE_REACTION_ADD", "NEW_THING"]
)
def test_other_events_say_nothing(kind: str) -> None:
    """Whatever is in them."""
    assert read_event(kind, {"id": 5}) is None
    assert read_event(kind, None) is None


def test_an_empty_message_says_nothing() -> None:
    """Such as a poll, or one whose text a bot without the intent may not see."""
    assert gateway_event(content="") is None


def test_a_webhook_is_a_bot() -> None:
    """Anybody who has its address writes in any name."""
    found = sure(gateway_event(webhook_id="7", author={"id": "7", "username": "Mason Lee"}))
    assert found.from_bot


def test_deletions_arrive_one_by_one_and_many_at_once() -> None:
    """By their ids alone."""
    one = read_event("MESSAGE_DELETE", {"id": "5", "channel_id": CHANNEL, "guild_id": SERVER})
    many = read_event("MESSAGE_DELETE_BULK", {"ids": ["5", "6"], "channel_id": CHANNEL, "guild_id": SERVER})
    assert one == MessagesDeleted(CHANNEL, ("5",), SERVER)
    assert many == MessagesDeleted(CHANNEL, ("5", "6"), SERVER)
    gone = deleted_message("discord", "5", ConversationInfo(CHANNEL, "7"))
    assert (gone.session, gone.id) == (session_id("discord", f"{CHANNEL}#7"), "5")


def test_a_pressed_button_says_what_stands_behind_it() -> None:
    """What is too long for the id of a button stands on it."""
    found = sure(pressed("0:/yes a:b"))
    assert (found.message.content, found.message.sender_id) == ("/yes a:b", MASON["id"])
    assert (found.message.id, found.addressed, found.group) == ("press/846462639134605312", True, False)
    assert sure(pressed("1:", label="w" * 80)).message.content == "w" * 80
    assert pressed("another bot's") is None
    assert pressed("") is None


def test_a_button_on_a_server_is_pressed_by_a_member() -> None:
    """Who is somebody else than in a chat of two."""
    found = sure(pressed("0:Tea", user=None, member={"user": OTHER, "nick": "mason"}, guild_id=SERVER))
    assert (found.message.sender_id, found.group) == (OTHER["id"], True)


@pytest.mark.parametrize("type", [1, 2, 4, 5])
def test_other_interactions_say_nothing(type: int) -> None:
    """We have no commands in Discord's menu, and no forms."""
    assert pressed("0:Tea", type=type) is None


def test_an_id_tells_its_time() -> None:
    """And a time the first id that it can have."""
    assert written_ms(first_id(WRITTEN_MS)) == WRITTEN_MS
    assert int(first_id(WRITTEN_MS)) < int(MESSAGE["id"]) < int(first_id(WRITTEN_MS + 1))


_names = ["id", "channel_id", "guild_id", "author", "content", "type", "edited_timestamp", "mentions", "ids", "data",
          "custom_id", "user", "member", "message", "components", "token", "attachments", "url"]  # fmt: skip
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["5", "2017-07-11", "0:x", "3"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_names), inner, max_size=8),
    max_leaves=16,
)


@given(
    st.sampled_from(
        ["MESSAGE_CREATE", "MESSAGE_UPDATE", "MESSAGE_DELETE", "MESSAGE_DELETE_BULK", "INTERACTION_CREATE"]
    ),
    _json | st.dictionaries(st.sampled_from(_names), _json, max_size=4).map(lambda more: MESSAGE | more),
)
def test_anything_at_all_is_a_message_nothing_or_a_typed_error(kind: str, data: Any) -> None:
    """Whatever comes in over the wire harms nobody."""
    try:
        found = read_event(kind, data)
    except UnreadableEvent:
        return
    if isinstance(found, Message | Interaction):
        sent = parse_event("discord", found, ConversationInfo(str(found.channel_id)), ME)
        assert sent is None or sent.message.channel == "discord"
