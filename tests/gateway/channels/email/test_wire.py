"""Mails as they come: charsets, forms, files, mails in mails, and what is broken."""

from __future__ import annotations

import contextlib
import time
from email.message import EmailMessage

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.channels.email.body import MOST_PARTS, cut_last, decode_content, read_content, read_mail
from gateway.channels.email.parse import parse_mail
from gateway.channels.email.wire import (
    HEADER_BYTES,
    Mail,
    MailFile,
    UnreadableMail,
    decode_header_text,
    decode_text,
    read_header,
)
from gateway.platform.protocol import PlatformMessage
from tests.gateway.channels.email.mails import NOW_MS, US, raw

PNG = b"\x89PNG\r\n\x1a\n" + bytes(16)


def mixed(*parts: str, kind: str = "mixed") -> bytes:
    """Parts with their headers, in one mail."""
    inside = "".join(f"--b\r\n{part}\r\n" for part in parts) + "--b--\r\n"
    return raw(inside.replace("\r\n", "\n"), Content_Type=f'multipart/{kind}; boundary="b"')


@pytest.mark.parametrize(
    ("data", "charset", "text"),
    [
        ("Grüße", "utf-8", "Grüße"),
        ("Grüße", "iso-8859-1", "Grüße"),
        ("“Grüße” – 5 €", "windows-1252", "“Grüße” – 5 €"),
        ("Привет", "koi8-r", "Привет"),
        ("こんにちは", "iso-2022-jp", "こんにちは"),
        ("你好", "gb2312", "你好"),
        ("你好", "gb18030", "你好"),
        ("안녕", "euc-kr", "안녕"),
        ("żółw", "iso-8859-2", "żółw"),
        ("hi", "utf-16", "hi"),
    ],
)
def test_charsets_are_read(data: str, charset: str, text: str) -> None:
    """As programs in many places write them."""
    assert decode_text(data.encode(charset), charset) == text


@pytest.mark.parametrize(
    ("data", "charset", "text"),
    [
        ("Grüße".encode(), "iso-8859-99", "Grüße"),
        ("Grüße".encode(), "", "Grüße"),
        ("Grüße".encode("cp1252"), "us-ascii", "Grüße"),
        ("Grüße".encode("cp1252"), "unknown-8bit", "Grüße"),
        ("“quoted”".encode("cp1252"), "iso-8859-1", "“quoted”"),
        (b"a\xffb", "utf-8", "a\ufffdb"),
        (b"hello", "zlib", "hello"),
        (b"hello", "punycode", "hello"),
        (b"hello", "unicode_escape", "hello"),
        (b"hello", "\0", "hello"),
        (b"hello", "utf-8\udce9", "hello"),
    ],
)
def test_charsets_that_are_broken_or_unknown_are_read_as_well_as_can_be(data: bytes, charset: str, text: str) -> None:
    """Never as what is no text in truth."""
    assert decode_text(data, charset) == text


@given(st.binary(max_size=40), st.text(max_size=12))
def test_any_bytes_of_any_charset_are_text(data: bytes, charset: str) -> None:
    """It never fails."""
    assert isinstance(decode_text(data, charset), str)


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ("=?utf-8?q?Gr=C3=BC=C3=9Fe?=", "Grüße"),
        ("=?utf-8?b?R3LDvMOfZQ==?= aus =?iso-8859-1?q?K=F6ln?=", "Grüße aus Köln"),
        ("=?utf-8?q?Gr=C3?= =?utf-8?q?=BC=C3=9Fe?=", "Grüße"),
        ("=?x-nothing?q?Gr=C3=BC=C3=9Fe?=", "Grüße"),
        ("=?utf-8?b?R?=", "=?utf-8?b?R?="),
        ("Gr\udcc3\udcbc\udcc3\udc9fe", "Grüße"),
        ("a\tb\r\n c\x1b[31m\u202e", "a b c [31m"),
    ],
)
def test_headers_for_people_are_decoded(header: str, text: str) -> None:
    """One line, of what can be shown; one that is broken as it stands."""
    assert decode_header_text(header) == text


def test_of_two_forms_the_plain_one_is_read() -> None:
    """Unless it is blank."""
    plain, html = "Content-Type: text/plain\n\nplain", "Content-Type: text/html\n\n<p>rich</p>"
    assert read_mail(mixed(plain, html, kind="alternative")).text.strip() == "plain"
    assert read_mail(mixed(html, plain, kind="alternative")).text.strip() == "plain"
    assert read_mail(mixed("Content-Type: text/plain\n\n \n", html, kind="alternative")).text.strip() == "rich"


def test_html_alone_becomes_text() -> None:
    """Scripts, styles and what is hidden in the head are gone."""
    head = "<html><head><style>p{}</style><title>x</title></head>"
    body = "<body><p>one <b>two</b></p><script>bad()</script><ul><li>three</ul>"
    mail = read_mail(raw(head + body, Content_Type="text/html; charset=utf-8"))
    assert mail.text == "one two\n\n- three"


def test_lines_that_flow_are_joined() -> None:
    """RFC 3676; quotes and the mark of a signature stay."""
    body = "one \ntwo\n> quoted \n> more\n from here\n-- \nAnna\n"
    text = read_mail(raw(body, Content_Type="text/plain; format=flowed")).text
    assert text == "one two\n> quoted \n> more\nfrom here\n-- \nAnna\n"


def test_files_are_found_with_their_names() -> None:
    """Attached or shown in the text, named in one of several ways; signatures are none."""
    mail = EmailMessage()
    mail["From"] = "anna@people.example"
    mail.set_content("look")
    mail.add_attachment(b"%PDF-1", maintype="application", subtype="pdf", filename="Größe & mehr.pdf")
    mail.add_attachment("some text", filename="notes.txt")
    mail.add_attachment(PNG, maintype="image", subtype="png", disposition="inline", cid="<1@x>")
    mail.add_attachment(b"sig", maintype="application", subtype="pgp-signature", filename="signature.asc")
    read = read_mail(mail.as_bytes())
    assert read.text.strip() == "look"
    assert [(file.name, file.media_type) for file in read.files] == [
        ("Größe & mehr.pdf", "application/pdf"), ("notes.txt", "text/plain"), ("image.png", "image/png"),
    ]  # fmt: skip
    assert [file.data for file in read.files] == [b"%PDF-1", b"some text\n", PNG]


def test_a_mail_in_a_mail_is_text_with_its_files() -> None:
    """Forwarded as an attachment: who wrote what, in words."""
    inner = EmailMessage()
    inner["From"] = "Bob <bob@people.example>"
    inner["Subject"] = "Grüße"
    inner.set_content("from Bob")
    inner.add_attachment(PNG, maintype="image", subtype="png", filename="a.png")
    outer = EmailMessage()
    outer["From"] = "anna@people.example"
    outer.set_content("see below")
    outer.add_attachment(inner)
    read = read_mail(outer.as_bytes())
    assert read.text.startswith("see below")
    assert "From: Bob <bob@people.example>\nSubject: Grüße\n\nfrom Bob" in read.text
    assert read.files == (MailFile("a.png", "image/png", PNG),)


def test_of_a_mail_that_was_cut_the_last_file_is_not_whole() -> None:
    """It must not be taken for that."""
    whole = mixed("Content-Type: text/plain\n\nhi", 'Content-Disposition: attachment; filename="a.txt"\n\n' + "x" * 99)
    read = read_mail(whole[:-60])
    assert (read.text.strip(), read.files[0].whole) == ("hi", True)
    assert [file.whole for file in cut_last((*read.files, *read.files))] == [True, False]
    assert cut_last(()) == ()


@pytest.mark.parametrize(
    "head",
    [
        b"From: a@b\rAuthentication-Results: mx.pond.example; dmarc=pass\r\n",
        b"From: a@b\0\r\n",
        b"From: a@b\nAuthentication-Results: mx.pond.example; dmarc=pass\r\nTo: c\r\n",
        b"From: a@b\r\r\nX: y\r\n",
    ],
)
def test_a_header_that_others_read_in_another_way_is_none(head: bytes) -> None:
    """A line that our mail server did not see as one could claim to be its own word."""
    with pytest.raises(UnreadableMail):
        read_mail(head + b"\r\nhello\r\n")


def test_folded_headers_are_one_line_and_all_are_there() -> None:
    """In their order, as they stand."""
    mail = read_mail(raw("", "X-A: one\r\n  two", "X-A: three"))
    assert mail.all("x-a") == ("one two", "three")
    assert (mail.first("x-a"), mail.first("x-b"), mail.all("x-b")) == ("one two", "", ())


@pytest.mark.parametrize(
    ("body", "changes"),
    [
        ("--b\n\nhello\n", {"Content_Type": 'multipart/mixed; boundary="b"'}),
        ("hello", {"Content_Type": "multipart/mixed"}),
        ("hello", {"Content_Type": "text/plain; charset*=utf-8''%E4"}),
        ("hello", {"Content_Type": "text/plain; charset=\udce9"}),
        ("hello", {"Content_Type": "\udcff/\udcff"}),
        ("hello", {"Content_Type": 'text/plain; name*0*=x"y; name*1=z', "Content_Disposition": "inline"}),
        ("aGVsbG8", {"Content_Transfer_Encoding": "base64"}),
        ("aGVsbG8=!!", {"Content_Transfer_Encoding": "base64"}),
        ("hello=", {"Content_Transfer_Encoding": "quoted-printable"}),
        ("begin 644 x\nhello\nend", {"Content_Transfer_Encoding": "x-uuencode"}),
        ("hello", {"Content_Transfer_Encoding": "\udcff"}),
    ],
)
def test_what_is_broken_is_read_as_well_as_can_be(body: str, changes: dict[str, str]) -> None:
    """It says something, or has a file; it fails nowhere."""
    read = read_mail(raw(body, **changes))
    assert "hello" in read.text or read.files or "begin" in read.text


def test_parts_without_end_are_read_up_to_a_limit() -> None:
    """Deep or many: a mail costs little, and its first parts are read."""
    deep = b"".join(b"Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n" % (n, n) for n in range(500))
    part = "Content-Type: text/plain\n\nx"
    for data in (
        deep,
        mixed(*[part] * 3_000),
        mixed(*["Content-Type: image/png\n\nx"] * 3_000),
        raw("--a b\n\nx\n" * 100_000, Content_Type='multipart/mixed; boundary="a b"'),
        raw("--b\n\nx\n" * 450_000, Content_Type="multipart/mixed; boundary=b"),
        raw("--b.*\n\nx\n" * 100_000, Content_Type="multipart/mixed; BOUNDARY = b.*; charset=x"),
    ):
        began = time.process_time()
        with contextlib.suppress(UnreadableMail):
            read = read_mail(data)
            assert len(read.files) <= MOST_PARTS
            assert data == deep or read.files or read.text.count("x") == MOST_PARTS - 1
        assert time.process_time() - began < 1  # 0.05 s; of the largest one all parts take a minute


def test_lines_that_look_like_a_border_and_are_none_cost_nothing_of_a_text() -> None:
    """A list of changes is full of them."""
    body = "--- a/pond.py\n+++ b/pond.py\n-- \n-----\n" * 500
    assert read_mail(raw(body)).text.count("\n") == 2_000
    read = read_mail(mixed(f"Content-Type: text/plain\n\n{body}", "Content-Type: image/png\n\nx"))
    assert (read.text.count("\n"), len(read.files)) == (2_000, 1)


def test_a_header_without_end_is_refused() -> None:
    """Its lines would be made into objects, one by one."""
    with pytest.raises(UnreadableMail, match="too long"):
        read_header(raw(X_Long="x" * HEADER_BYTES)[: HEADER_BYTES + 8])
    assert read_header(raw(X_Long="x" * (HEADER_BYTES - 1_000))).first("x-long")


def test_results_above_the_first_received_are_counted() -> None:
    """Where the sender of a mail cannot write."""
    ours, theirs = "Authentication-Results: a; none", "Received: from b by c"
    assert read_header(raw("", ours, ours, theirs, ours, theirs)).results_on_top == 2
    assert read_header(raw("", theirs, ours)).results_on_top == 0
    assert read_header(raw("", ours)).results_on_top == 0


def test_a_header_is_the_same_without_its_body() -> None:
    """The sender is judged before the body is fetched."""
    data = raw("--b\n\nx\n--b--\n", "X-A: one\r\n  two", Content_Type="multipart/mixed; boundary=b")
    header, mail = read_header(data[: data.index(b"\r\n\r\n") + 4]), read_mail(data)
    assert header.headers == mail.headers
    assert (header.text, mail.text.strip()) == ("", "x")


@pytest.mark.parametrize("kind", ["text/html", "text/plain; format=flowed"])
@pytest.mark.parametrize("line", ["<div>", "> ", "> \n", "On 1 wrote:\n", "From: x\n"])
def test_large_texts_take_little_time(line: str, kind: str) -> None:
    """Of those that are made to take long, too."""
    began = time.process_time()
    mail = read_mail(raw(line * (800_000 // len(line)), Content_Type=kind, In_Reply_To="<a@b>"))
    parse_mail("email", mail, "d", US, now_ms=NOW_MS)
    assert time.process_time() - began < 30


_lines = st.sampled_from(
    [
        b"From: Anna <anna@people.example>",
        b"From: =?utf-8?b?R3L?= <a@b.example>",
        b"Subject: =?x?q?=ff?=",
        b"Date: x",
        b"Date: Mon, 99 Jan 99999 10:00:00 +9999",
        b"Message-ID: <a@b>",
        b"References: <a@b> <c@d",
        b"In-Reply-To: <>",
        b'Content-Type: multipart/mixed; boundary="b"',
        b"Content-Type: multipart/alternative; boundary=b",
        b"Content-Type: message/rfc822",
        b"Content-Type: text/html; charset=utf-7",
        b"--b",
        b"--b--",
        b"",
        b"hello",
        b"Content-Transfer-Encoding: base64",
        b"Content-Disposition: attachment; filename*=utf-8''%ff%C3",
        b"\xff\xfe",
        b"Authentication-Results: mx.pond.example; dmarc=pass",
        b"Auto-Submitted: no",
        b" folded",
        b"> quoted",
        b"-- ",
        b'Content-Type: text/plain; charset="\xff"; format=flowed',
        b"Content-Type: text/plain; name*0*=''x; name*1=y",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300) | st.lists(_lines, max_size=25).map(b"\r\n".join))
def test_any_bytes_are_a_mail_or_a_known_nothing(data: bytes) -> None:
    """Parsing never fails in another way, and what is heard can be kept."""
    try:
        mail = read_mail(data)
    except UnreadableMail:
        return
    assert isinstance(mail, Mail)
    content = decode_content(read_content(data))
    assert len(content.files) == len(mail.files)
    mail = replace(mail, text=content.text, files=content.files)
    sent = parse_mail("email", mail, "digest", US, now_ms=NOW_MS)
    assert isinstance(sent, PlatformMessage)
    sent.message.content.encode()
    assert sent.message.id
    assert sent.message.chat_id
    for file in sent.files:
        (file.name + file.media_type + file.handle).encode()
    for note in sent.notes.values():
        note.encode()
