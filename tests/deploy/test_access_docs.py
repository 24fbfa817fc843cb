"""docs/access.md: rules with tests that exist, every key, every word of the audit record, links that lead somewhere."""

from __future__ import annotations

import re
import tomllib

from gateway.platform.access import AccessSettings, judge, read_channel
from tests.deploy.test_docs import ROOT, spans, tables, wrong_tests
from tests.helpers.access_table import SITUATIONS, platform_message, rules

TEXT = (ROOT / "docs" / "access.md").read_text()


def test_every_rule_names_tests_that_exist() -> None:
    """A rule without a test is a wish."""
    [found] = [rows for head, rows in tables(TEXT) if head == ["rule", "tests"]]
    assert len(found) >= 14
    assert {row[0]: wrong_tests(row) for row in found if wrong_tests(row)} == {}


def test_the_example_is_read_and_names_every_key() -> None:
    """As it stands, with numbers for ids."""
    [example] = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    table = tomllib.loads(example)["channels"]["telegram"]
    settings = read_channel(AccessSettings, "telegram", table)
    assert settings.allow_from == ("123456789",)
    assert settings.group_rules["-1001234567"].groups == "open"
    named = set(re.findall(r"(\w+) = |\.(group_rules)\.", example))
    elsewhere = {"on", "run"}  # docs/channels.md
    assert set(AccessSettings.__struct_fields__) - {word for pair in named for word in pair} == elsewhere


def test_every_word_of_the_record_is_explained() -> None:
    """What `shoal audit` can show: read from the policy, the scripts, and what else leaves a line."""
    [found] = [rows for head, rows in tables(TEXT) if head == ["`kind`", "`outcome`"]]
    result = {kind.strip("`"): set(spans(words)) for kind, words in found}
    judged = [one for one in SITUATIONS if one.expected != "ignored"]
    refused = {judge(rules(), platform_message(one), paired=one.paired).reason for one in judged}
    assert refused - {""} <= result["access"]
    scripts = "".join(
        (ROOT / "shared/store/lua/access" / f"pair_{one}.lua").read_text() for one in ("approve", "revoke")
    )
    words = set(re.findall(r"audit\('(\w+)'|= '(\w+_code|full)'|'outcome', '(\w+)'", scripts))
    assert {word for groups in words for word in groups if word} | {"no_admin"} == result["pairing"]
    assert result.keys() == {"access", "pairing", "approval", "folder", "message", "exec"}


def test_every_link_leads_to_a_file() -> None:
    """Nobody is sent nowhere."""
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)", TEXT)
    assert links
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []
