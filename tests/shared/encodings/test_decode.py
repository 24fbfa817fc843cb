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

LONGER: Final[dict[str, tuple[str, ...]]] = {
    "gbk": (
        "客户名称,订单编号,金额\n北京科技有限公司,A001,1200.50\n上海贸易,A002,300",
        "第一章 总则\n第一条 为了规范管理，制定本办法。",
        "今天天气很好，我们去公园散步吧！",
        "测试",
        "错误：文件未找到",
        "用户名=admin\n密码=123456\n# 数据库连接",
        "产品,数量\n电脑,3\n鼠标,10",
        "简历\n姓名：王小明\n电话：13800000000",
    ),
    "big5": (
        "客戶名稱,訂單編號,金額\n臺北科技有限公司,A001,1200",
        "今天天氣很好，我們去公園散步吧！",
        "測試",
        "產品,數量\n電腦,3\n滑鼠,10",
        "錯誤：找不到檔案",
        "您好",
    ),
    "shift_jis": (
        "顧客名,注文番号,金額\n株式会社東京,A001,1200",
        "今日は天気がいいので散歩に行きましょう。",
        "商品,数量\nパソコン,3\nマウス,10",
        "ﾃｽﾄ ﾃﾞｰﾀ",
        "売上報告書",
    ),
    "euc_jp": (
        "今日は天気がいいので散歩に行きましょう。",
        "商品,数量\nパソコン,3",
    ),
    "euc_kr": (
        "오늘은 날씨가 좋으니 공원에 산책하러 갑시다.",
        "고객명,주문번호,금액\n서울상사,A001,1200",
        "제품,수량\n컴퓨터,3\n마우스,10",
        "오류: 파일을 찾을 수 없습니다",
        "테스트",
    ),
    "cp1252": (
        "Übersicht der Verkäufe\nMünchen;1.200,50 €\nKöln;300 €",
        "Numéro;Prénom;Société\n1;François;Café de l’Été",
        "El señor Muñoz comió piñón en España",
        "São Paulo não é a capital",
        "Smörgåsbord på svenska – åäö",
        "Ærø og Århus, bjørn",
        "Perché no? È così",
        "naïve café résumé",
        "£100 each",
        "½ cup",
        "© 2024 Müller GmbH",
        "Straße",
        "…and so on",
        "He said “hi” — ok",
        "à la carte",
        "ñ",
        "Garçon",
    ),
    "latin1": (
        "Übersicht der Verkäufe\nMünchen",
        "São Paulo não é a capital",
    ),
    "cp1251": (
        "Клиент;Заказ;Сумма\nООО Ромашка;А001;1200",
        "Сегодня хорошая погода, пойдём гулять в парк!",
        "Ошибка: файл не найден",
        "Тест",
        "Заявка №5 от 12.03.2024",
        "ДОГОВОР",
        "Здравствуйте! Меня зовут Анна.",
        "Съешь ещё этих мягких французских булок",
    ),
    "koi8-r": (
        "Сегодня хорошая погода, пойдём гулять в парк!",
        "Ошибка: файл не найден",
    ),
    "iso8859-5": ("Сегодня хорошая погода, пойдём гулять в парк!",),
    "cp866": ("Сегодня хорошая погода, пойдём гулять в парк!",),
    "cp1250": (
        "Jméno;Příjmení\nJiří;Dvořák",
        "Nazwa;Ilość\nŻółw;3\nKrzesło;4",
        "Név;Összeg\nKovács Győző;1200",
        "Čaj, šunka, žemle",
        "Îmi place să mănânc",
    ),
    "iso8859-2": (
        "Jméno;Příjmení\nJiří;Dvořák",
        "Nazwa;Ilość\nŻółw;3\nKrzesło;4",
    ),
    "cp1253": (
        "Πελάτης;Ποσό\nΑθήνα;1200",
        "Σήμερα ο καιρός είναι καλός",
    ),
    "iso8859-7": ("Σήμερα ο καιρός είναι καλός",),
    "cp1254": (
        "Müşteri;Şehir\nAyşe;İstanbul",
        "Bugün hava çok güzel, yürüyüşe çıkalım",
    ),
    "iso8859-9": ("Müşteri;Şehir\nAyşe;İstanbul",),
    "cp1255": (
        "היום מזג האוויר יפה, בואו נטייל בפארק",
        "שם;סכום\nדוד;1200",
    ),
    "iso8859-8": ("היום מזג האוויר יפה",),
    "cp1256": (
        "الطقس جميل اليوم، لنذهب إلى الحديقة",
        "الاسم;المبلغ",
    ),
    "iso8859-6": ("الطقس جميل اليوم",),
    "cp874": (
        "วันนี้อากาศดีมาก ไปเดินเล่นกันเถอะ",
        "ชื่อ,จำนวน",
    ),
    "cp1257": (
        "Šiandien gražus oras, eikime į parką",
        "Rīgā šodien ir jauks laiks",
    ),
    "cp850": ("Übersicht der Verkäufe für Müller",),
    "mac-roman": ("Übersicht der Verkäufe für Müller",),
    "utf-16-le": (
        "Name;Größe\r\nJörg;5\r\n",
        "产品,数量\r\n电脑,3",
    ),
    "utf-16-be": ("产品,数量\n电脑,3",),
}
CASES: Final = [(codec, text) for table in (TEXTS, LONGER) for codec, texts in table.items() for text in texts]


@pytest.mark.parametrize(("codec", "text"), CASES)
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
