"""Mails as messages: sessions, ids, who may speak, robots, subjects, notes."""

from __future__ import annotations

import pytest

from gateway.channels.email.compose import message_id
from gateway.channels.email.parse import (
    ANSWERS,
    REFERENCES,
    SUBJECT,
    TEXT_BYTES,
    TOO_LONG,
)
from gateway.platform.access import judge
from gateway.platform.protocol import Post, PostTarget
from shared.messages.inbound import TEXT_LIMIT_BYTES
from shared.messages.schedule import is_tick
from tests.gateway.channels.email.mails import ANNA, ME, NOW_MS, SERVER, believed, parsed_mail
from tests.gateway.channels.email.situations import IDS
from tests.helpers.access_table import rules


def test_a_mail_is_a_message() -> None:
    """With what a reply needs to know."""
    received = parsed_mail()
    message = received.message
    assert (message.channel, message.chat_id, message.sender_id) == ("email", ANNA, ANNA)
    assert (message.id, message.content) == ("CA+1@mail.people.example", "Subject: Ponds\n\nhello")
    assert message.timestamp == 1_767_603_600_000
    assert (received.name, received.group, received.addressed, received.own, received.from_bot) == (
        "Anna",
        False,
        True,
        False,
        False,
    )
    assert received.notes == {SUBJECT: "Ponds", ANSWERS: message.id, REFERENCES: message.id}


# Sessions


def test_a_thread_is_a_conversation() -> None:
    """Named by the mail that began it, whichever of the headers a program writes."""
    first = parsed_mail().message.thread
    for headers in (
        {"References": "<CA+1@mail.people.example> <2@x>", "In-Reply-To": "<2@x>"},
        {"In-Reply-To": "<CA+1@mail.people.example>"},
        {"References": "<CA+1@mail.people.example>\r\n <2@x>\r\n\t<3@x>"},
    ):
        assert parsed_mail(Message_ID="<4@x>", **headers).message.thread == first
    assert parsed_mail(Message_ID="<5@x>").message.thread != first


def test_a_mail_of_ours_names_its_thread() -> None:
    """For programs that say nothing but what they answer, or forget where the thread began."""
    first = parsed_mail().message
    place = PostTarget(session=first.session, chat_id=ANNA, thread=first.thread)
    ours = message_id(Post(target=place, key="k"), ME)
    assert parsed_mail(Message_ID="<4@x>", In_Reply_To=f"<{ours}>").message.session == first.session
    assert parsed_mail(Message_ID="<4@x>", References=f"<other@x> <{ours}>").message.session == first.session
    elsewhere = ours.replace("pond.example", "evil.example")
    assert parsed_mail(Message_ID="<4@x>", In_Reply_To=f"<{elsewhere}>").message.session != first.session


def test_nobody_gets_into_the_thread_of_somebody_else() -> None:
    """Its name is theirs with the sender's address, however well one guesses."""
    hers = parsed_mail().message
    eve = "eve@people.example"
    his = parsed_mail(From=f"Anna <{eve}>", References=f"<{hers.id}>", Message_ID="<4@x>").message
    assert his.thread == hers.thread
    assert his.session != hers.session
    assert his.chat_id == eve


# Ids


@pytest.mark.parametrize(
    ("header", "id"),
    [
        ("<a.b+c@d.example>", "a.b+c@d.example"),
        (" <a@b> (comment)", "a@b"),
        ("<a@b> <c@d>", "a@b"),
    ],
)
def test_a_message_id_is_the_id(header: str, id: str) -> None:
    """The first one, as it is."""
    assert parsed_mail(Message_ID=header).message.id == id


@pytest.mark.parametrize(
    "header", ["<cron:17>", "<child:17>", "<a:b@c>", "<no-at>", "<schön@x>", f"<{'a' * 240}@b.example>"]
)
def test_an_id_is_never_one_of_shoals_own(header: str) -> None:
    """Of an odd form, or with a colon: a name made of it, the same at every time."""
    id = parsed_mail(Message_ID=header).message.id
    assert id == parsed_mail(Message_ID=header).message.id
    assert ":" not in id
    assert not is_tick(id)


@pytest.mark.parametrize("header", [None, "", "<>", "nonsense"])
def test_a_mail_without_an_id_is_known_by_its_bytes(header: str | None) -> None:
    """So that it is one message however often it is fetched."""
    assert parsed_mail(Message_ID=header).message.id == "d1"


# Who may speak


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        (f"{SERVER}; dmarc=pass header.from=people.example", ANNA),
        (f"{SERVER}; dmarc=fail header.from=people.example", ""),
        (f"{SERVER}; spf=pass smtp.mailfrom=evil.example; dmarc=none", ""),
        ("mx.evil.example; dmarc=pass header.from=people.example", ""),
        (None, ""),
    ],
)
def test_a_from_is_believed_when_our_server_found_it_true(results: str | None, expected: str) -> None:
    """Else its sender is nobody, and nobody is heard."""
    received = parsed_mail(Authentication_Results=results)
    assert received.message.sender_id == expected
    assert judge(rules(IDS), received, paired=True).reason == ("" if expected else "no_sender")
    believing = believed(Authentication_Results=results)
    assert believing.message.sender_id == ANNA


@pytest.mark.parametrize("value", [None, "Anna", f"{ANNA}, eve@x.example", f"{ANNA} <eve@x.example>"])
def test_a_from_that_is_none_is_nobody(value: str | None) -> None:
    """Also where every From is believed."""
    received = believed(From=value)
    assert (received.message.sender_id, received.message.chat_id) == ("", "unknown")


def test_two_froms_are_none() -> None:
    """Whichever a mail program would show."""
    assert believed("hello", "From: eve@evil.example").message.sender_id == ""


def test_our_own_address_is_us() -> None:
    """Also when somebody else writes it: a mail to ourselves would go round for ever."""
    assert parsed_mail(From=ME, Authentication_Results=f"{SERVER}; dmarc=pass").own
    assert parsed_mail(From=f"Anna <{ME.upper()}>", Authentication_Results=None).own


@pytest.mark.parametrize(
    "headers",
    [
        {"Auto-Submitted": "auto-replied"},
        {"Auto-Submitted": "auto-generated (by a clock)"},
        {"Auto-Submitted": "AUTO-NOTIFIED; owner-email=x"},
        {"Return-Path": "<>"},
        {"Precedence": "bulk"},
        {"Precedence": "List"},
        {"Precedence": "junk"},
        {"List-Id": "Ponds <ponds.lists.example>"},
        {"From": "MAILER-DAEMON@people.example"},
        {"From": "no-reply@people.example"},
        {"From": "noreply+17@people.example"},
        {"From": "bounces+anna=x@people.example"},
        {"Content-Type": "multipart/report; report-type=delivery-status; boundary=b"},
        {"X-Autoreply": "yes"},
    ],
)
def test_what_a_program_wrote_or_went_to_many_is_not_answered(headers: dict[str, str]) -> None:
    """Two that answer each other would do it for ever."""
    received = parsed_mail(**headers)
    assert received.from_bot
    assert judge(rules(IDS), received).reason == "bot"


@pytest.mark.parametrize(
    "headers", [{}, {"Auto-Submitted": "no"}, {"Precedence": "first-class"}, {"X-Auto-Response-Suppress": "All"}]
)
def test_what_a_person_wrote_is(headers: dict[str, str]) -> None:
    """Some programs say so, too."""
    assert not parsed_mail(**headers).from_bot


# Words


def test_a_subject_is_read_where_it_is_new() -> None:
    """In the first mail of a thread, and in one that hands another on; a command stands alone."""
    assert parsed_mail("hello", Subject="=?utf-8?q?Gr=C3=BC=C3=9Fe?=").message.content == "Subject: Grüße\n\nhello"
    assert parsed_mail("", Subject="Where is the key?").message.content == "Subject: Where is the key?"
    assert parsed_mail("hello", Subject=None).message.content == "hello"
    assert parsed_mail("hello", Subject="Re: Ponds", In_Reply_To="<1@x>").message.content == "hello"
    assert (
        parsed_mail("hello", Subject="Fwd: Ponds", In_Reply_To="<1@x>").message.content
        == "Subject: Fwd: Ponds\n\nhello"
    )
    assert parsed_mail("/new\n", Subject="again").message.content == "/new"


def test_a_long_mail_is_cut_and_says_so() -> None:
    """Within what a message may have; not inside of a letter."""
    received = parsed_mail("ä" * 100_000)
    assert received.message.content.endswith(f"ä\n\n{TOO_LONG}")
    assert TEXT_BYTES - 100 < len(received.message.content.encode()) < TEXT_LIMIT_BYTES


def test_files_are_named_and_fetched_by_their_place() -> None:
    """In the mail of this id."""
    body = (
        "--b\nContent-Type: text/plain\n\nhi\n"
        '--b\nContent-Type: image/png\nContent-Disposition: attachment; filename="a.png"\n\nxyz\n--b--\n'
    )
    received = parsed_mail(body, Content_Type="multipart/mixed; boundary=b")
    [file] = received.files
    assert (file.handle, file.name) == ("CA+1@mail.people.example/0", "a.png")
    assert (file.media_type, file.size_bytes) == ("image/png", 3)


# Notes


def test_notes_hold_little_of_a_long_thread() -> None:
    """Its beginning and its end."""
    many = " ".join(f"<{number}@x>" for number in range(500))
    notes = parsed_mail(References=many, Subject="x" * 5000).notes
    assert notes[REFERENCES].split()[0] == "0@x"
    assert notes[REFERENCES].split()[-2:] == ["499@x", "CA+1@mail.people.example"]
    assert len(notes[REFERENCES].split()) == 10
    assert len(notes[SUBJECT]) == 200


@pytest.mark.parametrize(
    "date",
    [
        "",
        "nonsense",
        "Mon, 05 Jan 2026 99:99:99 +0100",
        "Mon, 05 Jan 9999 10:00:00 +0000",
        "Thu, 01 Jan 1066 10:00 +0000",
    ],
)
def test_a_clock_that_is_beyond_belief_is_ours(date: str) -> None:
    """Nobody's words come from the future."""
    assert parsed_mail(Date=date).message.timestamp == NOW_MS
