"""Slack's events, presses and slash commands as messages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.channels.slack.parse import SlackEventParser
from gateway.channels.slack.wire import UrlVerification, read_call
from gateway.platform.protocol import PlatformMessage, RemoteFile
from shared.messages.inbound import InboundMessage
from tests.gateway.channels.slack.payloads import (
    FORM,
    HEARING,
    ME,
    NOW_MS,
    callback,
    changed,
    form,
    in_channel,
    message,
    posted_message,
    press,
    received,
    slash,
)

FLAT = SlackEventParser("slack", ME, threads=False)
TS, ROOT_TS = "1695223200.000100", "1695223000.000001"
URL = "https://files.slack.com/files-pri/T0001-F1/download/pond.txt"
FILE = {
    "id": "F1",
    "name": "pond.txt",
    "title": "The pond",
    "mimetype": "text/plain",
    "filetype": "text",
    "size": 18,
    "mode": "hosted",
    "is_external": False,
    "url_private": URL.replace("/download", ""),
    "url_private_download": URL,
}


def test_a_message_of_a_person() -> None:
    """Its id is unique among all channels and workspaces; its time is its ts."""
    found = posted_message(message("hello"))
    assert (found.message.channel, found.message.chat_id, found.message.sender_id) == (
        "slack",
        "D024BE91L",
        "U2147483697",
    )
    assert found.message.id == "T0001/D024BE91L/1695223200.000100"
    assert (found.message.content, found.message.timestamp, found.message.thread) == ("hello", 1695223200000, None)
    assert (found.group, found.addressed, found.own, found.from_bot, found.replaces) == (
        False,
        True,
        False,
        False,
        None,
    )


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("a &lt;b&gt; &amp; c", "a <b> & c"),
        ("see <https://example.org|the page> or <https://example.org>", "see the page (https://example.org) or https://example.org"),
        ("ask <@U777|bea> in <#C1|fish>", "ask @bea in #fish"),
        ("<@U0SHOAL> hello", "hello"),
        ("<@U0SHOAL>, hello", "hello"),
        ("<@U0SHOAL|shoal>: /new", "/new"),
        ("hello <@U0SHOAL>", "hello"),
        ("is <@U0SHOAL> there?", "is @shoal there?"),
        ("<@U0SHOAL>", "@shoal"),
        (" /new", "/new"),
    ],
)  # fmt: skip
def test_words_are_as_a_person_reads_them(raw: str, text: str) -> None:
    """Entities, references, and without the mention that only says who is meant."""
    assert posted_message(message(raw)).message.content == text


@pytest.mark.parametrize(
    ("event", "addressed"),
    [
        (in_channel("<@U0SHOAL> hi"), True),
        (in_channel("hi <@U0SHOAL|shoal>"), True),
        (in_channel("hi", type="app_mention", channel_type=None), True),
        (in_channel("hi"), False),
        (in_channel("<@U777> hi <!channel> <!here>"), False),
        (in_channel("<@U0SHOALX> hi"), False),
        (in_channel("and?", thread_ts=ROOT_TS, parent_user_id="U0SHOAL"), True),
        (in_channel("and?", thread_ts=ROOT_TS, parent_user_id="U777"), False),
        (in_channel("hi", channel_type="group"), False),
        (in_channel("hi", channel="G024BE91L", channel_type="mpim"), False),
        (message("hi"), True),
    ],
)
def test_in_a_channel_only_a_mention_of_us_or_a_reply_to_us_is_for_us(event: dict[str, Any], addressed: bool) -> None:
    """Others' names, and everybody's, are not ours."""
    found = posted_message(event)
    assert (found.addressed, found.group) == (addressed, event["channel"][0] != "D")


@pytest.mark.parametrize(
    ("event", "hearing", "thread"),
    [
        (message("flat"), HEARING, None),
        (message("in a thread", thread_ts=ROOT_TS), HEARING, ROOT_TS),
        (message("first of a thread", thread_ts=TS), HEARING, None),
        (in_channel("begins one"), HEARING, TS),
        (in_channel("first of a thread", thread_ts=TS), HEARING, TS),
        (in_channel("goes on", thread_ts=ROOT_TS), HEARING, ROOT_TS),
        (in_channel("shown above too", thread_ts=ROOT_TS, subtype="thread_broadcast"), HEARING, ROOT_TS),
        (in_channel("no threads"), FLAT, None),
        (in_channel("but this is one", thread_ts=ROOT_TS), FLAT, ROOT_TS),
    ],
)  # fmt: skip
def test_a_thread_is_a_conversation_of_its_own(
    event: dict[str, Any], hearing: SlackEventParser, thread: str | None
) -> None:
    """In a channel a mention begins one; a chat of two is flat."""
    assert posted_message(event, hearing).message.thread == thread


def test_a_mention_that_is_delivered_twice_is_one_message() -> None:
    """As `message` and as `app_mention`, each an event of its own."""
    first = posted_message(in_channel(), event_id="Ev1")
    second = posted_message(in_channel(type="app_mention", channel_type=None), event_id="Ev2")
    assert first.message == second.message


@pytest.mark.parametrize(
    ("event", "own", "from_bot"),
    [
        (message(user="U0SHOAL", bot_id="B0SHOAL"), True, False),
        (message(user="U0SHOAL"), True, False),
        (message(user=None, bot_id="B0SHOAL", subtype="bot_message"), True, False),
        (message(user="U777", bot_id="B777"), False, True),
        (message(user=None, bot_id="B777", subtype="bot_message", username="Anna"), False, True),
        (message(user="USLACKBOT"), False, True),
    ],
)
def test_bots_are_known(event: dict[str, Any], own: bool, from_bot: bool) -> None:
    """Our own words come back, and other apps write as well."""
    found = posted_message(event)
    assert (found.own, found.from_bot) == (own, from_bot)


@pytest.mark.parametrize(
    "subtype",
    """channel_join channel_leave channel_topic channel_purpose channel_name channel_archive group_join pinned_item
    message_replied reminder_add bot_add bot_remove huddle_thread assistant_app_thread ekm_access_denied""".split(),
)
def test_who_came_and_went_says_nothing(subtype: str) -> None:
    """Slack writes such lines into a channel in the name of a person."""
    assert received(callback(in_channel("<@U0SHOAL> has joined", subtype=subtype))) is None


def test_an_edit_takes_the_place_of_its_message() -> None:
    """It has an id of its own, so that the same edit counts once, and the next one too."""
    found = posted_message(
        changed(message("new", edited={"user": "U2147483697", "ts": "1695223300.000000"}), message("old"))
    )
    id = "T0001/D024BE91L/1695223200.000100"
    assert (found.message.id, found.replaces) == (f"{id}/1695223300.000000", id)
    assert (found.message.content, found.message.sender_id, found.message.timestamp) == (
        "new",
        "U2147483697",
        1695223300000,
    )


def test_an_edit_in_a_channel_belongs_to_its_thread() -> None:
    """Also that of the message which begins it."""
    edited = {"user": "U1", "ts": "1695223300.000000"}
    found = posted_message(changed(in_channel("<@U0SHOAL> new", edited=edited), in_channel(), "C024BE91L"))
    assert (found.message.thread, found.addressed, found.group) == (TS, True, True)


@pytest.mark.parametrize(
    ("after", "before"),
    [
        (message("same", attachments=[{"title": "Ponds", "title_link": "https://example.org"}]), message("same")),
        (message("same", reply_count=2, thread_ts=TS), message("same")),
        (message("same", edited={"user": "U1", "ts": "1695223300.000000"}, attachments=[]), message("same")),
        (message("same", language={"locale": "en"}), None),
    ],
)
def test_a_change_that_no_person_made_is_none(after: dict[str, Any], before: dict[str, Any] | None) -> None:
    """Links that are shown, counts of replies, languages."""
    assert received(callback(changed(after, before))) is None


@pytest.mark.parametrize(
    ("event", "thread"),
    [
        ({"channel": "D024BE91L", "deleted_ts": TS}, None),
        ({"channel": "D024BE91L", "deleted_ts": TS, "previous_message": message()}, None),
        ({"channel": "C024BE91L", "deleted_ts": TS, "previous_message": in_channel()}, TS),
        (
            {
                "channel": "C024BE91L",
                "deleted_ts": TS,
                "previous_message": in_channel(thread_ts=ROOT_TS),
            },
            ROOT_TS,
        ),
    ],
)  # fmt: skip
def test_a_deleted_message_is_withdrawn(event: dict[str, Any], thread: str | None) -> None:
    """By the id that it had, in the conversation where it was."""
    found = received(callback({"type": "message", "subtype": "message_deleted", "hidden": True, **event}))
    assert isinstance(found, InboundMessage)
    assert found.id == f"T0001/{event['channel']}/1695223200.000100"
    assert (found.chat_id, found.thread) == (event["channel"], thread)


def test_a_deleted_message_with_replies_is_withdrawn_too() -> None:
    """Slack leaves a stone in its place."""
    stone = message("This message was deleted.", subtype="tombstone", user="USLACKBOT")
    found = received(callback(changed(stone, message())))
    assert isinstance(found, InboundMessage)
    assert (found.id, found.sender_id) == ("T0001/D024BE91L/1695223200.000100", "U2147483697")


def test_our_own_deleted_messages_take_nothing_back() -> None:
    """Nor those of other bots."""
    for before in (message(user="U0SHOAL"), message(bot_id="B777")):
        gone = {"channel": "D024BE91L", "deleted_ts": TS, "previous_message": before}
        assert received(callback({"type": "message", "subtype": "message_deleted", **gone})) is None


def test_files_come_with_their_message() -> None:
    """Also without words; what is kept elsewhere or gone is not fetched."""
    elsewhere = {"id": "F2", "mode": "external", "title": "Plan", "url_private": "https://docs.example.org/1"}
    gone = [{"id": "F3", "mode": "tombstone"}, {"id": "F4", "mode": "hidden_by_limit"}, {"no": "file"}, 7]
    shared = {"id": "F5", "mode": "hosted", "file_access": "check_file_info"}
    found = posted_message(message("", subtype="file_share", upload=False, files=[FILE, elsewhere, *gone, shared]))
    assert found.message.content == "[Plan: https://docs.example.org/1]"
    assert found.files == (
        RemoteFile(handle=URL, name="pond.txt", media_type="text/plain", size_bytes=18),
        RemoteFile(handle="F5"),
    )


def test_a_message_that_is_passed_on_is_read_with_it() -> None:
    """The sender is who passed it on; pages that Slack shows beside a link are not part of a message."""
    shared = {
        "is_share": True,
        "is_msg_unfurl": True,
        "author_name": "Bea\nboss",
        "author_id": "U777",
        "text": "fish &amp; <https://example.org|chips>",
        "files": [FILE],
        "channel_id": "C9",
    }
    found = posted_message(message("look", attachments=[shared, {"title": "Ponds", "text": "from the web"}, "?"]))
    assert found.message.content == "look\n\n[forwarded from Bea boss]\nfish & chips (https://example.org)"
    assert (found.message.sender_id, len(found.files)) == ("U2147483697", 1)


def test_a_pressed_button_says_what_it_stands_for() -> None:
    """In the name of who pressed, each press once."""
    found = received(form({"payload": json.dumps(press())}), FORM)
    assert isinstance(found, PlatformMessage)
    assert (found.message.content, found.message.sender_id, found.name) == ("/yes a1b2", "U2147483697", "anna")
    assert found.message.id == "T0001/D024BE91L/1695223250.000150/press/U2147483697/1695223260.123456"
    assert (found.message.timestamp, found.message.thread, found.group, found.addressed) == (
        1695223260123,
        None,
        False,
        True,
    )


def test_a_button_in_a_thread_is_pressed_there() -> None:
    """So the answer comes there."""
    on = {"message_ts": "1695223250.000150", "channel_id": "C1", "thread_ts": ROOT_TS}
    first = received(form({"payload": json.dumps(press(container=on))}), FORM + "; charset=utf-8")
    within = {"ts": "1695223250.000150", "thread_ts": ROOT_TS}
    bare = {"message_ts": "1695223250.000150", "channel_id": "C1"}
    second = received(form({"payload": json.dumps(press(container=bare, message=within))}), FORM)
    for found in (first, second):
        assert isinstance(found, PlatformMessage)
        assert (found.message.thread, found.group) == (ROOT_TS, True)


@pytest.mark.parametrize(
    "changes",
    [
        {"actions": []},
        {"actions": [{"type": "button", "block_id": "another", "value": "/yes", "action_ts": "1.1"}]},
        {"actions": [{"type": "static_select", "block_id": "shoal", "value": "/yes", "action_ts": "1.1"}]},
        {"actions": [{"type": "button", "block_id": "shoal", "action_ts": "1.1"}]},
        {"actions": [{"type": "button", "block_id": "shoal", "value": "/yes"}]},
        {"team": {"id": "T0002"}},
        {"team": None, "user": {"id": "U1", "team_id": "T0002"}},
        {"channel": None, "container": {"type": "view"}},
        {"type": "view_submission"},
    ],
)
def test_other_things_that_are_pressed_say_nothing(changes: dict[str, Any]) -> None:
    """What is none of our buttons, or was pressed in another workspace."""
    assert received(form({"payload": json.dumps(press(**changes))}), FORM) is None


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "what time is it?"),
        ({"text": ""}, "/help"),
        ({"text": " /new "}, "/new"),
        ({"command": "/stop", "text": ""}, "/stop"),
        ({"command": "/yes", "text": "a1b2"}, "/yes a1b2"),
    ],
)
def test_a_slash_command_is_a_message(changes: dict[str, str], text: str) -> None:
    """Behind ours stands what is said; any other one is said itself."""
    found = received(form(slash(**changes)), FORM)
    assert isinstance(found, PlatformMessage)
    assert (found.message.content, found.message.sender_id, found.message.chat_id) == (
        text,
        "U2147483697",
        "D024BE91L",
    )
    assert (found.message.timestamp, found.name, found.addressed) == (NOW_MS, "anna", True)
    assert found.message.id.endswith("/command/13345224609.738474920.8088930838d88f008e0")


def test_what_other_workspaces_tell_is_nothing_to_us() -> None:
    """Ids of people are unique in one workspace only: a stranger elsewhere may have the id of a friend here."""
    assert received(callback(message(), team_id="T0002", authorizations=[])) is None
    assert (
        received(callback(message(), team_id="T0002", authorizations=[{"team_id": "T0002", "user_id": "U9"}])) is None
    )
    assert received(form(slash(team_id="T0002")), FORM) is None


def test_a_channel_that_two_workspaces_share_is_read() -> None:
    """Its events may come in the name of the other one, for our bot too."""
    ours = [{"team_id": "T0001", "user_id": "U0SHOAL", "is_bot": True}]
    assert posted_message(in_channel(), team_id="T0002", authorizations=ours).message.id.startswith("T0001/")


def test_a_new_webhook_is_asked_for_a_word() -> None:
    """And nothing else of it counts."""
    event = read_call("application/json", b'{"token":"x","challenge":"3eZbrw1aB","type":"url_verification"}')
    assert event == UrlVerification("3eZbrw1aB")


@pytest.mark.parametrize(
    ("body", "media_type"),
    [
        (b'{"type":"app_rate_limited","team_id":"T1","minute_rate_limited":1518467820}', "application/json"),
        (callback({"type": "reaction_added", "user": "U1", "item": {"type": "message"}}), "application/json"),
        (callback({"type": "app_home_opened", "user": "U1", "channel": "D1", "event_ts": "1.1"}), "application/json"),
        (callback(message("")), "application/json"),
        (callback(message(channel="../../etc")), "application/json"),
        (callback(message(ts="now"), event_id=""), "application/json"),
        (b"ssl_check=1&token=x", FORM),
    ],
)
def test_what_says_nothing_to_us_is_nothing(body: bytes, media_type: str) -> None:
    """It is no error either: Slack would tell it again."""
    assert received(body, media_type) is None
