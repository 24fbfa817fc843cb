"""Mails whose charset has a label that Python does not know, that means nothing, or that is wrong."""

from __future__ import annotations

from typing import Final

import pytest

from gateway.channels.email.body import read_mail
from gateway.channels.email.wire import decode_text

HEAD: Final = "From: A <a@example.org>\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset={}\r\n\r\n"
LABELS: Final = [
    ("iso-8859-8-i", "iso8859-8", "שלום"),
    ("ISO-8859-8-E", "iso8859-8", "שלום"),
    ("logical", "iso8859-8", "שלום"),
    ("iso-8859-6-i", "iso8859-6", "مرحبا"),
    ("unicode-1-1-utf-7", "utf-7", "Größe"),
    ("unicode-1-1-utf-8", "utf-8", "Größe"),
    ("x-unicode20utf8", "utf-8", "Größe"),
    ("x-gbk", "gbk", "你好"),
    ("cp936", "gbk", "你好"),
    ("windows-936", "gbk", "你好"),
    ("GB_2312-80", "gb2312", "你好"),
    ("ks_c_5601-1987", "euc_kr", "안녕"),
    ("ks_c_5601-1989", "euc_kr", "안녕"),
    ("windows-949", "cp949", "안녕 똠방"),
    ("iso-2022-jp", "iso2022_jp", "こんにちは"),
    ("x-sjis", "shift_jis", "こんにちは"),
    ("windows-31j", "cp932", "①こんにちは"),
    ("x-euc-jp", "euc_jp", "こんにちは"),
    ("x-x-big5", "big5", "你好"),
    ("cn-big5", "big5", "你好"),
    ("big5-hkscs", "big5hkscs", "你好"),
    ("x-cp1251", "cp1251", "Привет"),
    ("windows1251", "cp1251", "Привет"),
    ("koi8-ru", "koi8-u", "Привіт"),
    ("x-mac-cyrillic", "mac-cyrillic", "Привет"),
    ("x-mac-roman", "mac-roman", "Größe"),
    ("windows-874", "cp874", "สวัสดี"),
    ("tis-620", "tis-620", "สวัสดี"),
    ("iso-8859-11", "cp874", "สวัสดี"),
    ("iso-8859-9", "cp1254", "İstanbul “ığ”"),
    ("latin1", "cp1252", "“Größe”"),
    ("iso-8859-15", "iso8859-15", "5 €"),
    ("unknown-8bit", "cp1252", "Größe für Jörg"),
    ("x-unknown", "koi8-r", "Привет, мир"),
    ("unknown-8bit", "gbk", "中文测试内容，公司"),
    ("us-ascii", "cp1251", "Привет, мир"),
    ("utf-8", "cp1252", "Größe für Jörg"),
    ("utf-8", "shift_jis", "日本語のテストです"),
    ("iso-8859-1", "utf-8", "Größe für Jörg"),
    ("windows-1252", "utf-8", "你好"),
    ("gb2312", "gbk", "联通"),
    ("", "cp1251", "Привет, мир"),
]


@pytest.mark.parametrize(("label", "codec", "text"), LABELS)
def test_a_mail_is_read_whatever_its_charset_is_called(label: str, codec: str, text: str) -> None:
    """By the table of browsers, else as the bytes look."""
    raw = HEAD.format(f'"{label}"').encode() + text.encode(codec)
    assert read_mail(raw).text.strip() == text


@pytest.mark.parametrize(("label", "codec", "text"), LABELS)
def test_words_of_a_header_are_read_in_the_same_way(label: str, codec: str, text: str) -> None:
    """Subjects and names of files have labels, too."""
    assert decode_text(text.encode(codec), label) == text


BEFORE: Final = {
    "test_a_mail_is_read_whatever_its_charset_is_called": 13,
    "test_words_of_a_header_are_read_in_the_same_way": 13,
}
