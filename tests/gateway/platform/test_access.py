"""Who may speak: one function, asked by every way in, and settings that cannot be misread."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

import gateway.platform.inlet
from gateway.platform.access import (
    ALLOWED,
    UNKNOWN,
    AccessSettings,
    GroupRule,
    IdForm,
    Verdict,
    judge,
    read_channel,
    startup_warnings,
)
from shared.errors import SettingsError
from shared.settings import Secret, load
from tests.helpers.access_table import (
    ENTRIES,
    PLAIN,
    SITUATIONS,
    Entry,
    Group,
    Person,
    Situation,
    platform_message,
    rules,
)

NUMBERS = IdForm(person=r"\d+", group=r"-?\d+", words="ids are numbers; write to the bot, and it says yours")


class PondSettings(AccessSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A channel's own settings."""

    token: Secret
    depth: int = 3


def alone(person: Person = "stranger", **rules: Any) -> Verdict:
    return judge(AccessSettings(**rules), platform_message(Situation(person=person, expected="allowed")))


def in_group(person: Person = "stranger", group: Group = "other", *, addressed: bool = True, **rules: Any) -> Verdict:
    situation = Situation(person=person, group=group, addressed=addressed, expected="allowed")
    return judge(AccessSettings(**rules), platform_message(situation))


# The policy


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_way_in_is_judged_alike(entry: Entry) -> None:
    """By id and place alone: not by a name, who wrote a forwarded text, or how the message came."""
    for situation in (one for one in SITUATIONS if one.entry == entry):
        verdict = judge(rules(), platform_message(situation), paired=situation.paired)
        assert verdict.kind == situation.expected, situation.id
        assert (verdict.reason == "") is (verdict == ALLOWED), situation.id


def test_the_table_has_every_person_place_and_way() -> None:
    """One that is left out is one that nobody tried."""
    assert {one.person for one in SITUATIONS} == set(PLAIN.people)
    assert {one.group for one in SITUATIONS} == {None, *PLAIN.groups}
    assert {one.entry for one in SITUATIONS} == set(get_args(Entry))
    assert {one.expected for one in SITUATIONS} == {"allowed", "ignored", "unknown", "not allowed"}


def test_a_blank_allow_list_is_nobody() -> None:
    """Also where people can be let in: until they are, they are strangers."""
    assert alone() == UNKNOWN
    assert alone(pairing=False) == Verdict("not allowed", "sender_not_allowed")
    assert in_group() == Verdict("not allowed", "group_not_allowed")
    assert in_group("listed", allow_from=("1",)) == Verdict("not allowed", "group_not_allowed")


def test_everybody_is_everybody() -> None:
    """But ourselves and other bots; and alone is not in a group."""
    assert alone(allow_from=("*",)) == ALLOWED
    assert alone("bot", allow_from=("*",)) == Verdict("ignored", "bot")
    assert alone("self", allow_from=("*",)) == Verdict("ignored", "own")
    assert alone("nobody", allow_from=("*",)) == Verdict("ignored", "no_sender")
    assert in_group(allow_from=("*",)) == Verdict("not allowed", "group_not_allowed")
    assert in_group(allow_groups=("*",)) == ALLOWED
    assert alone(allow_groups=("*",)) == UNKNOWN


def test_without_pairing_who_was_let_in_before_is_not_read() -> None:
    """The switch is for all codes there ever were."""
    stranger = platform_message(Situation(person="paired", expected="allowed"))
    assert judge(AccessSettings(pairing=False), stranger, paired=True).kind == "not allowed"
    assert judge(AccessSettings(), stranger, paired=True) == ALLOWED


def test_whoever_was_let_in_alone_is_not_let_in_to_groups() -> None:
    """A code opens one door."""
    group = platform_message(Situation(person="paired", group="narrow", expected="not allowed"))
    assert judge(rules(), group, paired=True) == Verdict("not allowed", "group_sender_not_allowed")


def test_in_a_group_nobody_is_answered_who_did_not_mean_us() -> None:
    """Silence also where it is not allowed: who talks to others need not hear of us."""
    assert in_group(addressed=False) == Verdict("ignored", "not_addressed")
    assert in_group(group="listed", addressed=False, allow_groups=("-1",)) == Verdict("ignored", "not_addressed")
    assert in_group(group="listed", addressed=False, allow_groups=("-1",), groups="open") == ALLOWED
    assert in_group(addressed=False, groups="open") == Verdict("ignored", "not_addressed")
    only = {"-1": GroupRule(groups="open", allow_from=("5",))}
    assert in_group("member", "listed", addressed=False, allow_groups=("-1",), group_rules=only) == ALLOWED
    silent = in_group("stranger", "listed", addressed=False, allow_groups=("-1",), group_rules=only)
    assert silent == Verdict("ignored", "group_sender_not_allowed")


def test_groups_that_are_off_are_off_but_for_one() -> None:
    """A rule may also widen."""
    assert in_group(allow_groups=("-5",), groups="off") == Verdict("ignored", "groups_off")
    assert in_group(allow_groups=("-5",), groups="off", group_rules={"-5": GroupRule(groups="mention")}) == ALLOWED


def test_a_group_rule_with_a_blank_list_is_nobody() -> None:
    """Not set is something else than empty."""
    assert in_group(allow_groups=("-5",), group_rules={"-5": GroupRule()}) == ALLOWED
    blank = in_group(allow_groups=("-5",), group_rules={"-5": GroupRule(allow_from=())})
    assert blank == Verdict("not allowed", "group_sender_not_allowed")
    assert in_group(allow_groups=("-5",), group_rules={"-5": GroupRule(allow_from=("*",))}) == ALLOWED


def test_the_policy_is_asked_in_one_place() -> None:
    """A second opinion elsewhere would be a second way in."""
    root = Path(gateway.platform.inlet.__file__).parent
    asking = [path.name for path in root.rglob("*.py") if "judge(" in path.read_text()]
    assert sorted(asking) == ["access.py", "inlet.py"]
    assert "heard.name" not in (root / "access.py").read_text()


# The settings


def read(table: dict[str, Any], ids: IdForm | None = NUMBERS) -> PondSettings:
    return read_channel(PondSettings, "pond", {"token": Secret("t0ken"), **table}, ids=ids)


def problems(table: dict[str, Any], ids: IdForm | None = NUMBERS) -> list[str]:
    with pytest.raises(SettingsError) as refused:
        read(table, ids)
    return str(refused.value).splitlines()


def test_a_channel_adds_its_own_keys() -> None:
    """Whatever nobody sets is closed."""
    settings = read({"depth": 5, "busy": "steer"})
    assert (settings.token.reveal(), settings.depth) == ("t0ken", 5)
    assert (settings.on, settings.run, settings.allow_from, settings.admins) == (True, None, (), ())
    assert (settings.pairing, settings.groups, settings.allow_groups) == (True, "mention", ())


def test_ids_may_be_numbers() -> None:
    """As people copy them."""
    settings = read(
        {
            "allow_from": [12345, "678"],
            "admins": [1],
            "allow_groups": [-100123],
            "group_rules": {"-100123": {"groups": "open", "allow_from": [5]}},
        }
    )
    assert (settings.allow_from, settings.admins, settings.allow_groups) == (("12345", "678"), ("1",), ("-100123",))
    assert settings.group_rules == {"-100123": GroupRule(groups="open", allow_from=("5",))}


def test_the_environment_is_read_alike(tmp_path: Path) -> None:
    """Lists with commas; secrets from files."""
    (tmp_path / "token").write_text("from a file\n")
    environ = {
        "SHOAL_CHANNELS__POND__ALLOW_FROM": "1, 2",
        "SHOAL_CHANNELS__POND__GROUPS": "off",
        "SHOAL_CHANNELS__POND__PAIRING": "false",
        "SHOAL_CHANNELS__POND__TOKEN_FILE": str(tmp_path / "token"),
    }
    settings = read_channel(PondSettings, "pond", load(environ).channels["pond"], ids=NUMBERS)
    assert (settings.allow_from, settings.groups, settings.pairing) == (("1", "2"), "off", False)
    assert settings.token.reveal() == "from a file"


@pytest.mark.parametrize(
    ("table", "start"),
    [
        (
            {"allow_form": ["1"]},
            "channels.pond.allow_form: there is no such setting; did you mean channels.pond.al",
        ),
        ({"allow_from": "1"}, "channels.pond.allow_from must be a list of texts"),
        ({"allow_from": [True]}, "channels.pond.allow_from must be a list of texts"),
        ({"allow_from": ["@ada"]}, "channels.pond.allow_from has '@ada', which is no id; ids are numbers"),
        ({"allow_from": [""]}, "channels.pond.allow_from has '', which is no id"),
        ({"admins": ["*"]}, "channels.pond.admins has '*': not everybody can let people in"),
        ({"admins": ["Ada Lovelace"]}, "channels.pond.admins has 'Ada Lovelace', which is no id"),
        ({"allow_groups": ["#general"]}, "channels.pond.allow_groups has '#general', which is no id"),
        ({"groups": "all"}, "channels.pond.groups must be one of mention, off, open"),
        ({"run": "magic"}, "channels.pond.run must be one of exclusive, socket, webhook"),
        ({"token": Secret(" ")}, "channels.pond.token is blank; write the secret there"),
        ({"group_rules": {"-1": {}}}, "channels.pond.group_rules.-1 is for a group that channels.pond.allow_groups"),
        (
            {"group_rules": {"-1": {"who": "x"}}, "allow_groups": ["-1"]},
            "channels.pond.group_rules.-1.who: there is",
        ),
        (
            {"group_rules": {"-1": {"allow_from": ["ada"]}}, "allow_groups": ["-1"]},
            "channels.pond.group_rules.-1.allow_from has 'ada', which is no id",
        ),
        ({"proxy": "https://p:1"}, "channels.pond.proxy begins with 'https', and a proxy is reached by http or socks5"),
        ({"sender_per_minute": -1}, "channels.pond.sender_per_minute must be a whole number"),
    ],
)
def test_what_is_wrong_is_one_line_that_names_the_key(table: dict[str, Any], start: str) -> None:
    """A start that ends is better than a door that nobody knows of."""
    [line] = problems(table)
    assert line.startswith(start)


def test_all_problems_are_reported_at_once() -> None:
    """One start, one list. The secret is in none of the lines."""
    assert len(problems({"allow_from": ["a b"], "admins": ["*", "x"], "allow_groups": ["y z"]})) == 4
    with pytest.raises(SettingsError, match=r"channels\.pond\.token is missing"):
        read_channel(PondSettings, "pond", {})
    assert read({"allow_from": ["anything-goes"]}, ids=None).allow_from == ("anything-goes",)
    assert problems({"allow_from": ["a b"]}, ids=None) == [
        "channels.pond.allow_from has 'a b', which is no id; write an id without spaces"
    ]


def test_what_opens_to_many_is_a_warning_at_the_start() -> None:
    """And what lets nobody in."""
    assert list(startup_warnings("pond", AccessSettings())) == []
    assert list(startup_warnings("pond", AccessSettings(allow_from=("1",), pairing=False))) == []
    [line] = startup_warnings("pond", AccessSettings(allow_from=("*",)))
    assert "everybody may talk to this bot" in line
    [line] = startup_warnings("pond", AccessSettings(pairing=False))
    assert "nobody may talk to this bot alone" in line
    [line] = startup_warnings("pond", AccessSettings(allow_groups=("*",)))
    assert "every group" in line
    assert list(startup_warnings("pond", AccessSettings(allow_groups=("*",), groups="off"))) == []
    rule = {"-1": GroupRule(allow_from=("*",))}
    [line] = startup_warnings("pond", AccessSettings(allow_groups=("-1",), group_rules=rule))
    assert "channels.pond.group_rules.-1.allow_from" in line
