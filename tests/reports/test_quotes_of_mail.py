"""The quote below an answer by mail is left out, as iPhones write it: its first line is within the quote."""

from __future__ import annotations

from email import message_from_bytes
from pathlib import Path
from typing import Final

import pytest

from gateway.channels.email.parse import new_text

WHO: Final = "Shoal <bot@example.org>"
FIRST_LINES: Final = {
    "English": f"On Nov 24, 2026, at 3:00 PM, {WHO} wrote:",
    "English, 24 hours": f"On 24 Nov 2026, at 15:00, {WHO} wrote:",
    "German": f"Am 24.11.2026 um 15:00 schrieb {WHO}:",
    "French": f"Le 24 nov. 2026 à 15:00, {WHO} a écrit :",
    "Spanish": f"El 24 nov 2026, a las 15:00, {WHO} escribió:",
    "Italian": f"Il giorno 24 nov 2026, alle ore 15:00, {WHO} ha scritto:",
    "Portuguese": f"No dia 24/11/2026, às 15:00, {WHO} escreveu:",
    "Portuguese of Brazil": f"Em 24 de nov. de 2026, à(s) 15:00, {WHO} escreveu:",
    "Dutch": f"Op 24 nov 2026 om 15:00 heeft {WHO} het volgende geschreven:",
    "Russian": f"24 нояб. 2026 г., в 15:00, {WHO} написал(а):",
    "Ukrainian": f"24 лист. 2026 р. о 15:00 {WHO} пише:",
    "Japanese": f"2026/11/24 15:00、{WHO}のメール:",
    "Chinese": f"在 2026年11月24日，15:00，{WHO} 写道：",
    "Chinese of Taiwan": f"{WHO} 於 2026年11月24日 下午3:00 寫道：",
    "Korean": f"2026. 11. 24. 오후 3:00, {WHO} 작성:",
    "Polish": f"Wiadomość napisana przez {WHO} w dniu 24.11.2026, o godz. 15:00:",
    "Turkish": f"{WHO} şunları yazdı (24 Kas 2026 15:00):",
    "Swedish": f"24 nov. 2026 kl. 15:00 skrev {WHO}:",
    "Danish": f"Den 24. nov. 2026 kl. 15.00 skrev {WHO}:",
    "Finnish": f"{WHO} kirjoitti 24.11.2026 kello 15.00:",
    "Arabic": f"في ٢٤ نوفمبر ٢٠٢٦، الساعة ٣:٠٠ م، كتب {WHO}:",
}


@pytest.mark.parametrize("language", FIRST_LINES)
def test_the_quote_of_an_iphone_is_left_out(language: str) -> None:
    """Whether its first line is within the quote, wrapped there, or above it."""
    line = FIRST_LINES[language]
    wrapped = line.replace(f" {WHO}", f"\n> {WHO}") if f" {WHO}" in line else line
    for quote in (f"> {line}\n> \n> Shall I?", f"> {wrapped}\n>\n> Shall I?", f"{line}\n\n> Shall I?"):
        text = f"Sounds good.\n\nSent from my iPhone\n\n{quote}\n"
        assert new_text(text, answers=True, forwards=False) == "Sounds good.\n\nSent from my iPhone"


def test_the_report_has_its_new_words_alone() -> None:
    mail = message_from_bytes(Path("tests/data/reports/c-mail-iphone.eml").read_bytes())
    text = new_text(mail.get_payload(), answers=True, forwards=False)  # type: ignore[arg-type]
    assert text == "Sounds good.\n\nSent from my iPhone"


KEPT: Final = {
    "a quote without a first line": "Look:\n\n> Shall I?",
    "a quote with an answer below it": f"> {FIRST_LINES['English']}\n>\n> Shall I?\n\nYes.",
    "a quote alone": f"> {FIRST_LINES['English']}\n>\n> Shall I?",
    "a sentence in a quote": "Look:\n\n> On Monday he wrote: nothing\n> at all",
}


@pytest.mark.parametrize("name", KEPT)
def test_other_quotes_stay(name: str) -> None:
    assert new_text(KEPT[name], answers=True, forwards=False) == KEPT[name]


BEFORE: Final = {
    "test_the_quote_of_an_iphone_is_left_out": 0,
    "test_the_report_has_its_new_words_alone": 0,
    "test_other_quotes_stay": 4,
}
