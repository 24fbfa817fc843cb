"""Matrix's events as messages: forms as its specification shows them, and anything at all."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.channels.matrix.parse import (
    inviter,
    parse_event,
    redacted_id,
    replaced_id,
    start_after_join,
    summarize_event,
)
from gateway.channels.matrix.wire import Event, EventSummary, Sync, read_event, read_events
from gateway.platform.protocol import PlatformMessage

ME = "@shoal:pond.example"
ANNA = "@anna:pond.example"
ROOM = "!636q39766251:pond.example"
ALONE = {ANNA: "Anna", ME: "Shoal"}
GROUP = {**ALONE, "@bob:pond.example": "Bob"}


def event(content: dict[str, Any], **more: Any) -> Event:
    given: dict[str, Any] = {
        "type": "m.room.message", "event_id": "$143273582443PhrSn", "sender": ANNA, "origin_server_ts": 1432735824653,
        "room_id": ROOM, "unsigned": {"age": 1234}, "content": content, **more,
    }  # fmt: skip
    found = read_event(json.dumps(given).encode())
    assert found is not None
    return found


def parse(
    content: dict[str, Any], *, group: bool = False, answered: str | None = None, **more: Any
) -> PlatformMessage | None:
    return parse_event("matrix", ROOM, event(content, **more), GROUP if group else ALONE, ME, answered=answered)


def sure(found: PlatformMessage | None) -> PlatformMessage:
    assert found is not None
    return found


def text(body: str, **more: Any) -> dict[str, Any]:
    return {"msgtype": "m.text", "body": body, **more}


def mention(*users: str) -> dict[str, Any]:
    return {"m.mentions": {"user_ids": list(users)}}


def test_a_message_of_a_person() -> None:
    """Ids are those of Matrix; two members are a chat of two."""
    found = sure(parse(text("hello")))
    message = found.message
    assert (message.channel, message.chat_id, message.sender_id, message.id) == (
        "matrix", ROOM, ANNA, "$143273582443PhrSn",
    )  # fmt: skip
    assert (message.content, message.timestamp, message.thread) == ("hello", 1432735824653, None)
    assert (found.group, found.addressed, found.own, found.from_bot, found.name) == (False, True, False, False, "Anna")


PILL = f'<a href="https://matrix.to/#/{ME}">Shoal</a>: hello'
QUOTED = '<mx-reply><blockquote><a href="https://matrix.to/#/@shoal:pond.example">x</a></blockquote></mx-reply>no'


@pytest.mark.parametrize(
    ("content", "addressed", "sent"),
    [
        (text("Shoal: hello", **mention(ME)), True, "hello"),
        (text("@shoal, hello", **mention(ME)), True, "hello"),
        (text(f"{ME}: hello", **mention()), True, "hello"),
        (text("hello Shoal", **mention(ME)), True, "hello"),
        (text("Shoal's pond", **mention(ME)), True, "Shoal's pond"),
        (text("shoaling: what?", **mention(ME)), True, "shoaling: what?"),
        (text("Shoal", **mention(ME)), True, "Shoal"),
        (text("Shoal: hello", formatted_body=PILL), True, "hello"),
        (text("Shoal: hello", formatted_body=PILL.replace("@", "%40").replace(":p", "%3Ap")), True, "hello"),
        (text("no", formatted_body=QUOTED), False, "no"),
        (text("Shoal: hello", **mention()), False, "Shoal: hello"),
        (text("Bob: hello", **mention("@bob:pond.example")), False, "Bob: hello"),
        (text("everybody", **{"m.mentions": {"room": True}}), False, "everybody"),
        (text(f"{ME}.evil.example: hello"), False, f"{ME}.evil.example: hello"),
        (text("/new"), True, "/new"),
        (text("/ new"), False, "/ new"),
        (text("hello"), False, "hello"),
    ],
)
def test_in_a_group_a_message_is_for_us_when_it_says_so(content: dict[str, Any], addressed: bool, sent: str) -> None:
    """By its mentions, by a link, by our whole id, or as a command; our name alone is nobody's."""
    found = sure(parse(content, group=True))
    assert (found.group, found.addressed, found.message.content) == (True, addressed, sent)


@pytest.mark.parametrize(("by", "addressed"), [(ME, True), (ANNA, False), (None, False)])
def test_an_answer_to_us_is_for_us(by: str | None, addressed: bool) -> None:
    """Who wrote what it answers is asked; the old way to quote it is left out."""
    content = text(
        f"> <{ME}> It is five.\n> Or six.\n\nthanks", **{"m.relates_to": {"m.in_reply_to": {"event_id": "$x"}}}
    )
    assert summarize_event(event(content)) == EventSummary(ANNA, None, "$x", "thanks")
    found = sure(parse(content, group=True, answered=by))
    assert (found.addressed, found.message.content) == (addressed, "thanks")


def test_a_thread_is_a_conversation_and_its_fall_back_answers_nobody() -> None:
    """Clients without threads show it as a reply."""
    relation = {"rel_type": "m.thread", "event_id": "$root", "is_falling_back": True}
    fallen = text("aside", **{"m.relates_to": {**relation, "m.in_reply_to": {"event_id": "$last"}}})
    assert summarize_event(event(fallen)) == EventSummary(ANNA, "$root", None, "aside")
    found = sure(parse(fallen))
    assert (found.message.thread, found.message.session) == ("$root", "matrix:!636q39766251%3Apond.example%23$root")
    real = {**relation, "is_falling_back": False, "m.in_reply_to": {"event_id": "$last"}}
    assert summarize_event(event(text("aside", **{"m.relates_to": real}))) == EventSummary(
        ANNA, "$root", "$last", "aside"
    )


def test_an_edit_names_what_it_changes_and_stays_in_its_thread() -> None:
    """Only its own writer can edit a message, whatever a homeserver hands on."""
    edit = text(
        "* new", **{"m.new_content": text("new"), "m.relates_to": {"rel_type": "m.replace", "event_id": "$old"}}
    )
    found = sure(parse_event("matrix", ROOM, event(edit), ALONE, ME, first=EventSummary(ANNA, "$root")))
    assert (found.message.id, found.replaces) == ("$old|$143273582443PhrSn", "$old")
    assert (found.message.content, found.message.thread) == ("new", "$root")
    assert parse_event("matrix", ROOM, event(edit), ALONE, ME, first=EventSummary("@bob:pond.example")) is None
    assert parse_event("matrix", ROOM, event(edit), ALONE, ME) is None
    assert replaced_id(event(edit)) == "$old"


def test_a_redaction_names_its_event_in_either_place() -> None:
    """It moved with room version 11."""
    assert redacted_id(event({}, type="m.room.redaction", redacts="$a")) == "$a"
    assert redacted_id(event({"redacts": "$b", "reason": "typo"}, type="m.room.redaction")) == "$b"
    assert redacted_id(event({"redacts": "$b"})) is None


MXC = "mxc://pond.example/AQwafuaFswefuhsfAFAgsw"


@pytest.mark.parametrize(
    ("content", "sent", "files"),
    [
        (
            {"msgtype": "m.image", "body": "a.png", "url": MXC, "info": {"mimetype": "image/png", "size": 31037}},
            "", [(MXC, "a.png", "image/png", 31037)],
        ),
        (
            {"msgtype": "m.file", "body": "look", "filename": "a.pdf", "url": MXC, "info": {"size": 3}},
            "look", [(MXC, "a.pdf", "", 3)],
        ),
        ({"msgtype": "m.audio", "body": "", "url": MXC}, "", [(MXC, "audio", "", None)]),
        ({"msgtype": "m.video", "body": "v.mp4", "url": MXC, "info": {"size": -1}}, "", [(MXC, "v.mp4", "", None)]),
        ({"msgtype": "m.file", "body": "a", "filename": "b", "url": "https://evil.example/x"}, "a", []),
        ({"msgtype": "m.file", "body": "a", "filename": "b", "url": "mxc://p.example/../x"}, "a", []),
        ({"msgtype": "m.emote", "body": "waves"}, "waves", []),
        ({"msgtype": "m.location", "body": "Big Ben", "geo_uri": "geo:51.5,0.1"}, "[location: 51.5,0.1] Big Ben", []),
    ],
)  # fmt: skip
def test_what_is_no_text(content: dict[str, Any], sent: str, files: list[tuple[str, str, str, int | None]]) -> None:
    """Files are named and not fetched yet, and only from the homeserver's store; a body beside a name is what is
    said."""
    found = sure(parse(content))
    assert found.message.content == sent
    assert [(one.handle, one.name, one.media_type, one.size_bytes) for one in found.files] == files


@pytest.mark.parametrize(
    ("content", "more"),
    [
        ({"membership": "join"}, {"type": "m.room.member", "state_key": ANNA}),
        ({"m.relates_to": {"rel_type": "m.annotation", "event_id": "$x", "key": "👍"}}, {"type": "m.reaction"}),
        ({"algorithm": "m.megolm.v1.aes-sha2"}, {"type": "m.room.encrypted"}),
        ({"msgtype": "m.key.verification.request", "body": "verify"}, {}),
        ({}, {}),
        (text("  "), {}),
    ],
)
def test_what_says_nothing_to_us_is_passed_over(content: dict[str, Any], more: dict[str, Any]) -> None:
    """Who came, reactions, what cannot be read, what was taken back."""
    assert parse(content, **more) is None


def test_notices_are_of_bots_and_our_own_words_ours() -> None:
    """Neither is answered."""
    notice = sure(parse({"msgtype": "m.notice", "body": "I am a bot"}))
    ours = sure(parse(text("hello"), sender=ME))
    assert (notice.from_bot, notice.own, ours.from_bot, ours.own) == (True, False, False, True)


def member(membership: str, user: str = ME, before: str = "") -> Event:
    unsigned = {"prev_content": {"membership": before}} if before else {}
    return event({"membership": membership}, type="m.room.member", state_key=user, unsigned=unsigned)


def test_messages_from_before_our_invitation_are_not_for_us() -> None:
    """From the invitation on it is; a new name or picture of ours changes nothing."""
    sent = event(text("hello"))
    assert start_after_join([sent, member("invite"), sent, member("join", before="invite"), sent], ME) == 2
    assert start_after_join([sent, member("join"), sent], ME) == 2
    assert start_after_join([sent, member("join", before="join"), sent], ME) is None
    assert start_after_join([sent, member("join", ANNA)], ME) is None
    assert inviter([member("join", ANNA), member("invite")], ME) == ANNA


_words = st.sampled_from(
    ["type", "sender", "event_id", "content", "body", "msgtype", "m.relates_to", "m.mentions", "m.room.message", "info"]
)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | _words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_words, inner, max_size=5),
    max_leaves=12,
)


@given(_json)
def test_anything_at_all_is_a_message_nothing_or_a_typed_error(body: Any) -> None:
    """Whatever comes in over the wire harms nobody, and stands in nobody's way."""
    good = {"type": "m.room.message", "event_id": "$1", "sender": ANNA, "content": text("hi")}
    rooms = {"join": {ROOM: {"timeline": {"events": [body, good]}}}}
    sync = msgspec.json.decode(json.dumps({"next_batch": "s1", "rooms": rooms}).encode(), type=Sync)
    *_, last = read_events(sync.rooms.join[ROOM].timeline.events)
    assert last.content.body == "hi"
    with contextlib.suppress(msgspec.DecodeError):
        msgspec.json.decode(json.dumps(body).encode(), type=Sync)
    found = read_event(json.dumps(body).encode())
    if found is not None:
        summarize_event(found), replaced_id(found), redacted_id(found), start_after_join([found], ME)
        parsed_now = parse_event("matrix", ROOM, found, GROUP, ME, first=EventSummary(found.sender))
        assert parsed_now is None or parsed_now.message.channel == "matrix"
