"""Events as messages of people, and who of them may speak."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.channels.feishu.contents import forwarded_text
from gateway.channels.feishu.parse import FeishuEventParser, FeishuIdentity, ParsedMessage
from gateway.channels.feishu.wire import CardPressed, EventHeader, FeishuEvent, MessageReceived, UrlCheck, read_event
from gateway.platform.access import AccessSettings, judge
from gateway.platform.protocol import PlatformMessage, RemoteFile
from shared.messages.inbound import InboundMessage
from tests.gateway.channels.feishu.events import (
    ANNA,
    APP_ID,
    BOT,
    CHAT,
    MESSAGE,
    ROOT,
    event,
    mention,
    message,
    pressed,
    recalled,
)

HEARING = FeishuEventParser("feishu", FeishuIdentity(APP_ID, BOT))
US = mention(1, "Shoal", BOT)
TOM = mention(2, "Tom  Smith\n", "ou_tom")


def asked(body: bytes, hearing: FeishuEventParser = HEARING) -> ParsedMessage | None:
    event = read_event(body)
    assert isinstance(event, FeishuEvent)
    assert isinstance(event.event, MessageReceived)
    return hearing.parse_message(event.header, event.event, now_ms=5)


def received(body: bytes, hearing: FeishuEventParser = HEARING) -> PlatformMessage:
    found = asked(body, hearing)
    assert found is not None
    return found.message


def press(body: bytes) -> PlatformMessage | None:
    event = read_event(body)
    assert isinstance(event, FeishuEvent)
    assert isinstance(event.event, CardPressed)
    return HEARING.parse_press(event.header, event.event, now_ms=5)


def test_a_message_of_a_chat_of_two() -> None:
    """All that is known of it."""
    assert asked(message()) == ParsedMessage(
        PlatformMessage(
            message=InboundMessage(
                channel="feishu", chat_id=CHAT, sender_id=ANNA, id=MESSAGE, content="hello", timestamp=1609073151345
            )
        )
    )


@pytest.mark.parametrize(
    ("more", "hearing", "thread"),
    [
        ({"chat_type": "p2p"}, HEARING, None),
        ({"chat_type": "p2p", "root_id": ROOT, "parent_id": ROOT}, HEARING, None),
        ({"chat_type": "p2p", "root_id": ROOT, "thread_id": "omt_1"}, HEARING, ROOT),
        ({"chat_type": "group"}, HEARING, MESSAGE),
        ({"chat_type": "topic_group", "thread_id": "omt_1"}, HEARING, MESSAGE),
        ({"chat_type": "group", "root_id": ROOT, "parent_id": ROOT, "thread_id": "omt_1"}, HEARING, ROOT),
        ({"chat_type": "group", "root_id": "../x", "thread_id": "omt_1"}, HEARING, MESSAGE),
        ({"chat_type": None}, HEARING, MESSAGE),
        ({"chat_type": "group"}, FeishuEventParser("feishu", HEARING.me, threads=False), None),
        ({"chat_type": "group", "root_id": ROOT}, FeishuEventParser("feishu", HEARING.me, threads=False), None),
        (
            {"chat_type": "group", "root_id": ROOT, "thread_id": "omt_1"},
            FeishuEventParser("feishu", HEARING.me, threads=False),
            ROOT,
        ),
    ],
)
def test_a_topic_is_a_conversation_by_its_first_message(
    more: dict[str, Any], hearing: FeishuEventParser, thread: str | None
) -> None:
    """A message of a group may begin one."""
    assert received(message(**more), hearing).message.thread == thread


@pytest.mark.parametrize(
    ("text", "mentions", "group", "addressed", "content"),
    [
        ("hi", [], False, True, "hi"),
        ("hi", [], True, False, "hi"),
        ("@_user_1 hi", [US], True, True, "hi"),
        ("@_user_1, hi", [US], True, True, "hi"),
        ("@_user_1 @_user_1 hi @_user_1", [US], True, True, "hi"),
        ("hi @_user_1 there", [US], True, True, "hi @Shoal there"),
        ("@_user_1", [US], True, True, "@Shoal"),
        ("@_user_1 /new", [US], True, True, "/new"),
        ("@_user_2 hi", [TOM], True, False, "@Tom Smith hi"),
        ("@_user_12 hi", [TOM, mention(12, "Zoe", "ou_zoe"), US], True, True, "@Zoe hi"),
        ("@_all hi", [], True, False, "@all hi"),
        ("@_all hi", [{"key": "@_all", "id": {"open_id": ""}, "name": "everyone"}], True, False, "@all hi"),
        ("@_user_3 hi", [{"key": "@_user_3"}], True, False, "@somebody hi"),
        ("@_user_9 hi", [TOM], True, False, "@_user_9 hi"),
        ("@Shoal hi", [], True, False, "@Shoal hi"),
    ],
)
def test_a_mention_is_ours_by_its_id_alone(
    text: str, mentions: list[dict[str, Any]], group: bool, addressed: bool, content: str
) -> None:
    """Not by a name that somebody wrote; to everybody is not to us."""
    found = received(message({"text": text}, mentions=mentions, chat_type="group" if group else "p2p"))
    assert (found.group, found.addressed, found.message.content) == (group, addressed, content)


POST = {
    "title": "A title",
    "content": [
        [{"tag": "text", "text": "one ", "style": ["bold"]}, {"tag": "a", "href": "https://h.example", "text": "two"}],
        [{"tag": "at", "user_id": "@_user_2", "user_name": ""}, {"tag": "text", "text": " three"}],
        [{"tag": "img", "image_key": "img_1"}],
        [{"tag": "media", "file_key": "file_1", "image_key": "img_2"}],
        [{"tag": "emotion", "emoji_type": "SMILE"}, {"tag": "hr"}],
        [{"tag": "code_block", "language": "GO", "text": "x := 1"}],
    ],
}
CARD = {
    "title": "Card",
    "elements": [
        [{"tag": "a", "href": "https://www.feishu.cn", "text": "Feishu"}, {"tag": "text", "text": " rest"}],
        [{"tag": "note", "elements": [{"tag": "text", "text": "a note"}]}],
    ],
}


@pytest.mark.parametrize(
    ("kind", "content", "text"),
    [
        (
            "text",
            {"text": "[docs](https://open.feishu.cn) [me](mailto:a@b)"},
            "[docs](https://open.feishu.cn) [me](mailto:a@b)",
        ),
        (
            "post",
            POST,
            "A title\none two (https://h.example)\n@Tom Smith three\n\n\n[SMILE]---\n\n```go\nx := 1\n```",
        ),
        ("post", {"zh_cn": {"title": "", "content": [[{"tag": "text", "text": "inner"}]]}}, "inner"),
        ("interactive", CARD, "Card\nFeishu (https://www.feishu.cn) rest\na note"),
        ("sticker", {"file_key": "75235e0c"}, "[sticker]"),
        ("share_chat", {"chat_id": "oc_0dd2"}, "[group: oc_0dd2]"),
        ("share_user", {"user_id": "ou_0dd2"}, "[contact: ou_0dd2]"),
        ("location", {"name": "Pond", "longitude": "8.5", "latitude": "47.1"}, "[location: 47.1, 8.5 (Pond)]"),
        ("folder", {"file_key": "75", "file_name": "stuff"}, "[folder: stuff]"),
        ("hongbao", {"text": "[红包]"}, "[红包]"),
        ("vote", {"topic": "Lunch", "options": ["a", "b"]}, "[vote: Lunch]\n- a\n- b"),
        ("todo", {"summary": {"title": "", "content": [[{"tag": "text", "text": "fish"}]]}}, "[task] fish"),
        ("share_calendar_event", {"summary": "Tea", "start_time": "1608265395000"}, "[event: Tea]"),
        ("video_chat", {"topic": "Call", "start_time": "1623124523829"}, "[call: Call]"),
        ("merge_forward", "Merged and Forwarded Message", "[merge_forward]"),
        ("something_new", {"x": 1}, "[something_new]"),
    ],
)
def test_every_type_has_words(kind: str, content: Any, text: str) -> None:
    """Of rich text and cards all that can be read."""
    assert received(message(content, kind, mentions=[TOM])).message.content == text


@pytest.mark.parametrize(
    ("kind", "content", "files"),
    [
        ("image", {"image_key": "img_4adb"}, [RemoteFile(handle=f"{MESSAGE}/image/img_4adb", name="photo")]),
        (
            "file",
            {"file_key": "75235e0c", "file_name": "test.txt"},
            [RemoteFile(handle=f"{MESSAGE}/file/75235e0c", name="test.txt")],
        ),
        (
            "audio",
            {"file_key": "75235e0c", "duration": 2000},
            [RemoteFile(handle=f"{MESSAGE}/file/75235e0c", name="voice.ogg", media_type="audio/ogg")],
        ),
        (
            "media",
            {"file_key": "75235e0c", "image_key": "img_x", "file_name": "a.mp4", "duration": 2000},
            [RemoteFile(handle=f"{MESSAGE}/file/75235e0c", name="a.mp4", media_type="video/mp4")],
        ),
        (
            "post",
            POST,
            [
                RemoteFile(handle=f"{MESSAGE}/image/img_1", name="photo"),
                RemoteFile(handle=f"{MESSAGE}/file/file_1", name="video.mp4", media_type="video/mp4"),
            ],
        ),
    ],
)
def test_files_are_found(kind: str, content: Any, files: list[RemoteFile]) -> None:
    """By their message and key."""
    assert list(received(message(content, kind)).files) == files


@pytest.mark.parametrize(
    "body",
    [
        message({"text": "  "}),
        message({"template": "{from_user} invited {to_chatters} to this chat."}, "system"),
        message({"image_key": "../../x"}, "image"),
        message("not json"),
        message("[1]"),
        message(message_id="../x"),
        message(chat_id="x/y"),
        event("im.message.receive_v1", json.loads(message())["event"], app_id="cli_another00000000"),
    ],
)
def test_what_says_nothing_to_us_is_passed_over(body: bytes) -> None:
    """Who came, empty words, ids that are none, another app."""
    assert asked(body) is None


@pytest.mark.parametrize(
    "kind", ["im.chat.member.bot.added_v1", "im.message.reaction.created_v1", "im.message.message_read_v1"]
)
def test_other_events_are_known_by_their_header_alone(kind: str) -> None:
    """Joins, reactions, who read what."""
    assert isinstance(read_event(event(kind, {"anything": [1]})), EventHeader)


def test_the_old_form_and_the_check_of_the_address() -> None:
    """The first is nothing to us."""
    assert read_event(b'{"uuid":"x","token":"t","type":"event_callback","event":{"type":"message"}}') is None
    assert read_event(b'{"challenge":"abc","token":"t","type":"url_verification"}') == UrlCheck("abc", "t")


@pytest.mark.parametrize(
    ("body", "own", "from_bot"),
    [
        (message(), False, False),
        (message(sender=BOT, sender_type="app"), True, False),
        (message(sender="ou_other", sender_type="app"), False, True),
        (message(sender="ou_other", sender_type=""), False, True),
    ],
)
def test_bots_are_known(body: bytes, own: bool, from_bot: bool) -> None:
    """Ourselves, and others."""
    assert (received(body).own, received(body).from_bot) == (own, from_bot)


def test_a_message_that_is_repeated_has_its_id() -> None:
    """Under another event's id."""
    again = json.loads(message())
    again["header"]["event_id"] = "another"
    assert received(json.dumps(again).encode()).message.id == received(message()).message.id


def test_what_a_reply_answers_and_what_was_passed_on_is_asked_for() -> None:
    """An event does not tell it."""
    found = asked(message(parent_id=ROOT, chat_type="group"))
    assert found is not None
    assert (found.parent, found.is_forward) == (ROOT, False)
    found = asked(message("Merged and Forwarded Message", "merge_forward"))
    assert found is not None
    assert (found.parent, found.is_forward) == (None, True)


def test_forwarded_messages_are_read_with_their_authors() -> None:
    """In order; what has no words is left out."""
    items = [
        ("ou_1", "text", '{"text":"one"}'), ("", "file", '{"file_key":"f1","file_name":"a.txt"}'),
        ("ou_2", "system", "{}"), ("ou_3", "text", "broken"),
    ]  # fmt: skip
    assert forwarded_text(items) == "[forwarded from ou_1]\none\n\n[forwarded from somebody]\n[file: a.txt]"


def test_a_press_says_what_stands_behind_the_button() -> None:
    """In the name of who pressed it, in the chat and topic of its card."""
    found = press(pressed({"shoal": " /yes a1 ", "chat": CHAT, "thread": ROOT, "group": "1"}))
    assert found == PlatformMessage(
        message=InboundMessage(
            channel="feishu", chat_id=CHAT, sender_id=ANNA, id="press/5e3702a84e847582be8db7fb73283c02",
            content="/yes a1", timestamp=1603977298000, thread=ROOT,
        ),
        group=True,
    )  # fmt: skip
    alone = press(pressed())
    assert alone is not None
    assert (alone.group, alone.message.thread) == (False, None)


@pytest.mark.parametrize(
    "body",
    [
        pressed("/yes a1"),
        pressed({}),
        pressed([]),
        pressed({"shoal": "", "chat": CHAT}),
        pressed({"shoal": 7, "chat": CHAT}),
        pressed({"shoal": "/yes a1", "chat": "oc_another"}),
        pressed({"shoal": "/yes a1"}),
        pressed(context={"open_message_id": "om_1"}),
        pressed(operator={"open_id": "Anna"}),
        pressed(operator={}),
        pressed(action={"value": {"shoal": "/yes a1", "chat": CHAT}, "tag": "input"}),
    ],
)
def test_a_press_of_anything_else_says_nothing(body: bytes) -> None:
    """Other people's cards, cards that were passed on to another chat."""
    assert press(body) is None


RULES = AccessSettings(allow_from=(ANNA,), allow_groups=(CHAT,))
NOT_ALLOWED = "not allowed"


@pytest.mark.parametrize(
    ("body", "rules", "verdict"),
    [
        (message(), RULES, "allowed"),
        (message(sender="ou_stranger"), RULES, "unknown"),
        (message(sender="ou_stranger"), AccessSettings(pairing=False), NOT_ALLOWED),
        (message(sender="Anna"), AccessSettings(allow_from=("Anna", "*")), "ignored"),
        (message({"text": ANNA}, sender="ou_stranger", mentions=[mention(1, ANNA, "ou_x")]), RULES, "unknown"),
        (message("Merged and Forwarded Message", "merge_forward", sender="ou_stranger"), RULES, "unknown"),
        (message(sender=BOT, sender_type="app"), AccessSettings(allow_from=("*",)), "ignored"),
        (message(sender="ou_other", sender_type="app"), AccessSettings(allow_from=("*",)), "ignored"),
        (message(chat_type="group"), RULES, "ignored"),
        (message({"text": "@_user_1 hi"}, chat_type="group", mentions=[US]), RULES, "allowed"),
        (message({"text": "@_user_1 hi"}, chat_type="group", mentions=[US], sender="ou_s"), RULES, "allowed"),
        (message({"text": "@_all hi"}, chat_type="group"), RULES, "ignored"),
        (message({"text": "@_user_1 hi"}, chat_type="group", mentions=[US], chat_id="oc_2"), RULES, NOT_ALLOWED),
        (message({"text": "@_user_1 hi"}, chat_type=None, mentions=[US], chat_id="oc_2"), RULES, NOT_ALLOWED),
        (message(chat_type="group"), AccessSettings(allow_groups=(CHAT,), groups="open"), "allowed"),
        (pressed(), RULES, "allowed"),
        (pressed(operator={"open_id": "ou_stranger"}), RULES, "unknown"),
        (pressed({"shoal": "/yes a1", "chat": CHAT, "group": "1"}), AccessSettings(), NOT_ALLOWED),
    ],
)
def test_who_may_speak(body: bytes, rules: AccessSettings, verdict: str) -> None:
    """By ids alone: not by a name, not by what was passed on; a group and a chat of two apart."""
    event = read_event(body)
    assert isinstance(event, FeishuEvent)
    found = press(body) if isinstance(event.event, CardPressed) else received(body)
    assert found is not None
    assert judge(rules, found).kind == verdict


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
KINDS = ["text", "post", "image", "file", "audio", "media", "interactive", "vote", "todo", "location", "new", ""]


def _all_of_it(body: bytes) -> None:
    event = read_event(body)
    if isinstance(event, FeishuEvent):
        assert isinstance(event.chat, str)
        match event.event:
            case MessageReceived() as received:
                HEARING.parse_message(event.header, received, now_ms=5)
            case CardPressed() as pressed:
                HEARING.parse_press(event.header, pressed, now_ms=5)


@given(JSON, st.sampled_from([message(), recalled(), pressed()]), st.sampled_from(["header", "event"]))
def test_any_event_is_a_message_or_nothing_or_a_known_error(value: Any, known: bytes, where: str) -> None:
    """Nothing else goes up."""
    with contextlib.suppress(msgspec.DecodeError):
        _all_of_it(json.dumps(json.loads(known) | {where: value}).encode())


@given(JSON, st.sampled_from(["message", "sender", "action", "operator", "context", "chat_id"]))
def test_any_part_of_one_too(value: Any, part: str) -> None:
    """Deep inside of it."""
    for known in (message(), recalled(), pressed()):
        body = json.loads(known)
        body["event"][part] = value
        with contextlib.suppress(msgspec.DecodeError):
            _all_of_it(json.dumps(body).encode())


@given(JSON, st.sampled_from(KINDS))
def test_any_content_gives_some_words_or_none(value: Any, kind: str) -> None:
    """Of every type."""
    _all_of_it(message(json.dumps(value), kind))
    inner = {"title": value, "content": [[{"tag": "text", "text": value}, value], value], "elements": [[value], value]}
    _all_of_it(message(inner, kind))


@given(st.binary(max_size=100))
def test_any_bytes_are_an_event_or_a_known_error(body: bytes) -> None:
    """Nothing else goes up."""
    with contextlib.suppress(msgspec.DecodeError):
        _all_of_it(body)
