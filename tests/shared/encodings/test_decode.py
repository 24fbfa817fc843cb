"""Texts that were saved in any of the encodings that programs still write are read as they were meant."""

from __future__ import annotations

import random
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.encodings.decode import decode_file

TEXTS: Final = {
    "gb18030": ("中文测试内容，公司", "姓名,年龄\n张三,25\n李四,30\n", "你好", "公司", "价格表\n苹果 5元"),
    "big5": ("中文測試內容，公司", "姓名,年齡\n張三,25\n", "你好，這是一個測試檔案", "繁體中文"),
    "shift_jis": ("日本語のテストです", "名前,年齢\n田中,30\n", "こんにちは", "テスト"),
    "euc_jp": ("日本語のテストです", "東京都の天気は晴れです。"),
    "iso2022_jp": ("日本語のテストです",),
    "iso2022_kr": ("한국어",),
    "euc_kr": ("안녕하세요", "한국어 테스트 문서입니다", "이름,나이\n김철수,25\n", "한글", "가격표"),
    "cp1252": (
        "Name;Größe\nJörg;5",
        "Café – “quoted”",
        "don’t",
        "5 €",
        "20 °C",
        "ÄÖÜ äöüß",
        "Ação é não",
        "Où est l’hôtel ?",
        "GRÖSSE;STRASSE",
        "é",
    ),
    "iso8859-1": ("Name;Größe\nJörg;5", "naïve résumé"),
    "cp1251": ("Привет, мир", "Имя;Возраст\nИван;25", "ПРИВЕТ МИР", "Україна є", "да"),
    "koi8-r": ("Привет, мир", "Тестовый файл в кодировке для проверки"),
    "iso8859-5": ("Привет, мир", "Тестовый файл"),
    "cp866": ("Привет, мир",),
    "cp1250": ("Zażółć gęślą jaźń", "Příliš žluťoučký kůň", "Árvíztűrő tükörfúrógép", "Łódź"),
    "iso8859-2": ("Zażółć gęślą jaźń", "Příliš žluťoučký kůň"),
    "cp1253": ("Καλημέρα κόσμε", "Όνομα;Ηλικία"),
    "iso8859-7": ("Καλημέρα κόσμε",),
    "cp1254": ("Türkçe karakterler: ığüşöç İstanbul",),
    "iso8859-9": ("Şişli'de ığdır",),
    "cp1255": ("שלום עולם",),
    "iso8859-8": ("שלום",),
    "cp1256": ("مرحبا بالعالم",),
    "iso8859-6": ("مرحبا بالعالم",),
    "cp874": ("สวัสดีชาวโลก",),
    "iso8859-15": ("prix: 5 € déjà", "cœur"),
    "cp1257": ("Ąžuolas šaltinis ėjo",),
    "cp850": ("Größe für Jörg",),
    "mac-roman": ("Größe für Jörg",),
    "utf-16-le": ("a;b\n1;2", "中文测试\n内容", "Größe\n", "Привет мир"),
    "utf-16-be": ("a;b\n1;2", "日本語 テスト"),
    "utf-32-le": ("abc",),
    "utf-32-be": ("abc",),
    "utf-16": ("a;b\n1;2",),
    "utf-32": ("é",),
    "utf-8-sig": ("é",),
    "utf-8": ("é", "中文"),
}


@pytest.mark.parametrize(("codec", "text"), [(codec, text) for codec, texts in TEXTS.items() for text in texts])
def test_a_text_is_read_and_written_as_it_was_saved(codec: str, text: str) -> None:
    """Short ones too: a table of two lines, a greeting."""
    data = text.encode(codec)
    found = decode_file(data)
    assert found is not None
    assert found.text == text
    assert found.encode(found.text) == data


def test_a_file_cut_within_a_character_is_read_and_says_so() -> None:
    """The end of a download that broke off is not another encoding."""
    found = decode_file(("中文测试内容，公司" * 3).encode()[:-1])
    assert found is not None
    assert found.text == "中文测试内容，公司" * 2 + "中文测试内容，公\ufffd"
    assert found.described == "UTF-8 with 1 broken byte"


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_are_no_text(seed: int) -> None:
    """A guess needs evidence."""
    assert decode_file(random.Random(seed).randbytes(64)) is None


@given(st.binary())
def test_any_bytes_are_read_or_not(data: bytes) -> None:
    """Nothing makes it fail."""
    decode_file(data)
