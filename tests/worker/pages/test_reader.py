"""Pages become text, in a process that hostile ones may break."""

from __future__ import annotations

import asyncio

import pytest

from shared.errors import ToolFailed
from shared.guards.response import WebResponse
from shared.messages.untrusted import fence_web_text, one_line, strip_hidden
from worker.documents.reader import DocumentPageReader, decode_body

ARTICLE = """<html><head><title>The  \n title</title><script>alert("script")</script></head><body>
<nav><a href="/home">Home</a></nav><article><h1>Head</h1>
<p>Some text with <a href="/more">a link</a> in it, long enough to be taken for the text of an article.</p>
<ul><li>first of the points of a list</li><li>second of the points of a list</li></ul>
<table><tr><th>name</th><th>value</th></tr><tr><td>one</td><td>1</td></tr></table>
</article></body></html>"""


def html(body: str | bytes, charset: str = "utf-8") -> WebResponse:
    data = body if isinstance(body, bytes) else body.encode()
    return WebResponse("https://example.org/dir/page", 200, "text/html", charset, data)


async def test_html_becomes_markdown() -> None:
    """Title, headings, lists, tables and whole links; no scripts."""
    page = await DocumentPageReader().read_page(html(ARTICLE))
    assert page.title == "The title"
    for piece in ("# Head", "[a link](https://example.org/more)", "- first of the points", "| one | 1 |"):
        assert piece in page.text
    assert "alert" not in page.text


@pytest.mark.parametrize("body", ["", "just words", "<p>short</p>", "<", "\x00\x00", "<html></html>", "<!-- " * 1000])
async def test_odd_html_is_no_error(body: str) -> None:
    """Whatever text there is comes out, and be it none."""
    page = await DocumentPageReader().read_page(html(body))
    assert "words" not in body or "just words" in page.text


async def test_other_text_comes_as_it_is() -> None:
    """No process is started for it."""
    answer = WebResponse("https://example.org/", 200, "application/json", "", b'{"a": "<b>"}')
    assert (await DocumentPageReader().read_page(answer)).text == '{"a": "<b>"}'


async def test_parsing_that_takes_too_long_or_too_much_is_stopped() -> None:
    """The tool fails with a text; nothing else notices."""
    big = html("<html><body><table>" + "<tr><td>a</td><td>b</td></tr>" * 60_000)
    with pytest.raises(ToolFailed, match="cannot be read within"):
        await DocumentPageReader(parse_s=0.3).read_page(big)
    with pytest.raises(ToolFailed, match=r"too big or too broken"):
        await DocumentPageReader(memory_bytes=150 * 1024**2).read_page(big)


async def test_the_event_loop_goes_on_while_a_hostile_page_is_parsed() -> None:
    """Other sessions share it: it keeps ticking all the while."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    with pytest.raises(ToolFailed):
        await DocumentPageReader(parse_s=1.0).read_page(
            html("<html><body><table>" + "<tr><td>a</td><td>b</td></tr>" * 60_000)
        )
    ticking.cancel()
    assert ticks >= 10, "of about a hundred"


async def test_a_cancelled_reading_leaves_the_next_one_its_place() -> None:
    """The process is gone and the slot is free."""
    reader = DocumentPageReader()
    for _ in range(3):
        task = asyncio.create_task(reader.read_page(html(ARTICLE)))
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert (await reader.read_page(html(ARTICLE))).title == "The title"


@pytest.mark.parametrize(
    ("body", "charset", "text"),
    [
        ("grün".encode(), "utf-8", "grün"),
        ("grün".encode(), "", "grün"),
        ("grün".encode("latin-1"), "iso-8859-1", "grün"),
        (b"\x93grun\x94", "iso-8859-1", "“grun”"),
        ("<meta charset='windows-1251'>мир".encode("cp1251"), "", "<meta charset='windows-1251'>мир"),
        ("日本".encode("shift_jis"), "Shift_JIS", "日本"),
        ("\ufeffgrün".encode(), "", "grün"),
        (b"xn--", "punycode", "xn--"),
        (b"eJw=", "zip", "eJw="),
        (b"\\x41", "unicode_escape", "\\x41"),
        (b"\xff\xfe\xff", "utf-8", "\ufffd\ufffd\ufffd"),
        (b"words", "windows-9999", "words"),
    ],
)
def test_text_is_decoded_by_charsets_of_the_web_alone(body: bytes, charset: str, text: str) -> None:
    """By the header, by the page, by UTF-8; never by a codec that is none."""
    assert decode_body(html(body, charset)) == text


def test_hidden_characters_are_left_out() -> None:
    """What people cannot see must not speak to the model."""
    assert strip_hidden("a\U000e0041b\u202ec\x1b[31md\x00\r\ne") == "abc[31md\ne"
    assert one_line(" a\n\tb " + "c" * 10, 6) == "a b c…"


def test_the_fence_cannot_be_closed_from_inside() -> None:
    """Its word is new every time."""
    first, second = fence_web_text("text"), fence_web_text("text")
    assert first != second
    assert first.startswith("Untrusted text from the web")
    word = first.rpartition("[end ")[2].rstrip("]")
    assert first.count(word) == 3
    assert word not in second
