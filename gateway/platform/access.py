"""Access rules of the chat platforms: the settings that their channels share, and the one function
that judges a message.

Rules go by ids, never by names: anyone can choose any name. Direct chats and groups have rules of
their own; access to one gives none to the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Final, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from gateway.platform.protocol import PlatformMessage, RunMode
from shared.errors import SettingsError
from shared.settings import ProxyUrl, Secret
from shared.settings.read import read
from shared.settings.sections.chats import BUSY_KEY
from shared.settings.sections.network import PROXY_KEY, channel_proxy_problem

EVERYBODY: Final = "*"
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
ID_LISTS: Final = ("allow_from", "admins", "allow_groups")
GROUP_RULES: Final = "group_rules"

GroupPolicy = Literal["mention", "open", "off"]
"""Messages of a group that are read: those that address the bot, all, or none."""


class GroupRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Exceptions for one group: `groups` as in the channel, and `allow_from` for its senders. Not
    set: the channel's `groups`, and every member."""

    groups: GroupPolicy | None = None
    allow_from: tuple[str, ...] | None = None


class AccessSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings that every `[channels.<name>]` of a platform may have; a channel's own settings add
    to them.

    In a direct chat the senders in `allow_from` and `admins` are read and, with `pairing`, those
    let in by a code. If both lists are empty and no one was let in, no sender is read. `"*"` allows
    everyone. `admins` may let people in from their own direct chat.

    In a group every member is read if the group's chat id is in `allow_groups` (`"*"`: every
    group); `group_rules` narrows that for one group. `run` is the run mode, None the platform's
    usual one. `sender_per_minute` replaces `inbox.sender_per_minute`.

    `proxy` replaces `network.proxy` and its exceptions for this channel: an HTTP or SOCKS proxy, or
    `direct`.
    """

    on: bool = True
    run: RunMode | None = None
    allow_from: tuple[str, ...] = ()
    admins: tuple[str, ...] = ()
    pairing: bool = True
    groups: GroupPolicy = "mention"
    allow_groups: tuple[str, ...] = ()
    group_rules: dict[str, GroupRule] = {}
    sender_per_minute: Annotated[int, Meta(ge=0, le=60_000)] | None = None
    proxy: ProxyUrl | None = None


class IdForm(Struct, frozen=True):
    """Regular expressions for the ids of people and groups on a platform, and in words how they
    look and where to find them. A name in an allow-list stops the start: it would never match."""

    person: str
    group: str
    words: str


_ANY_ID: Final = IdForm(r"\S+", r"\S+", "write an id without spaces")


class Verdict(Struct, frozen=True):
    """The decision on a message. `reason` is one of few words, for metrics and the audit record."""

    kind: Literal["allowed", "ignored", "unknown", "not allowed"]
    reason: str = ""


ALLOWED: Final = Verdict("allowed")
UNKNOWN: Final = Verdict("unknown", "unknown_sender")  # not allowed, but may be let in by a code


def judge(rules: AccessSettings, event: PlatformMessage, *, paired: bool = False) -> Verdict:
    """Decide whether a message is read. `paired`: its sender was let in by a code.

    Every message of a platform passes here: new, edited or forwarded, a pressed button, a command.
    """
    sender = event.message.sender_id
    if event.own:
        return Verdict("ignored", "own")
    if event.from_bot:
        return Verdict("ignored", "bot")
    if not sender:
        return Verdict("ignored", "no_sender")
    if event.group:
        return _judge_in_group(rules, event)
    if _lists_id(sender, rules.allow_from) or sender in rules.admins:
        return ALLOWED
    if not rules.pairing:
        return Verdict("not allowed", "sender_not_allowed")
    return ALLOWED if paired else UNKNOWN


def _judge_in_group(rules: AccessSettings, event: PlatformMessage) -> Verdict:
    rule = rules.group_rules.get(event.message.chat_id, GroupRule())
    when = rule.groups or rules.groups
    if when == "off":
        return Verdict("ignored", "groups_off")
    listed = _lists_id(event.message.chat_id, rules.allow_groups)
    if not event.addressed and (when == "mention" or not listed):
        return Verdict("ignored", "not_addressed")
    if not listed:
        return Verdict("not allowed", "group_not_allowed")
    if rule.allow_from is None or _lists_id(event.message.sender_id, rule.allow_from):
        return ALLOWED
    return Verdict("not allowed" if event.addressed else "ignored", "group_sender_not_allowed")


def is_named(rules: AccessSettings, event: PlatformMessage) -> bool:
    """Return whether the settings name the sender, or the group by its id; `"*"` names nobody."""
    chat = event.message.chat_id
    sender = event.message.sender_id
    members = rules.group_rules.get(chat, GroupRule()).allow_from or ()
    return not event.group or chat in rules.allow_groups or sender in (*rules.allow_from, *rules.admins, *members)


def _lists_id(id: str, allowed: tuple[str, ...]) -> bool:
    return id in allowed or EVERYBODY in allowed


def startup_warnings(name: str, rules: AccessSettings) -> Iterator[str]:
    """Yield a warning for each rule that opens the bot to many, or to no one."""
    key = f"channels.{name}"
    if EVERYBODY in rules.allow_from:
        yield f"everybody may talk to this bot: {key}.allow_from has {EVERYBODY!r}"
    elif not (rules.allow_from or rules.admins or rules.pairing):
        yield f"nobody may talk to this bot alone: {key}.allow_from is empty, and {key}.pairing is off"
    if EVERYBODY in rules.allow_groups and rules.groups != "off":
        yield f"every group may put this bot to work: {key}.allow_groups has {EVERYBODY!r}"
    for group, rule in rules.group_rules.items():
        if EVERYBODY in (rule.allow_from or ()):
            yield f"everybody in a group may talk to this bot: {key}.{GROUP_RULES}.{group}.allow_from has {EVERYBODY!r}"


T = TypeVar("T", bound=AccessSettings)


def read_channel(
    kind: type[T],
    name: str,
    table: Mapping[str, Any],
    *,
    ids: IdForm | None = None,
    find_problems: Callable[[str, T], Iterable[str]] = lambda _key, _settings: (),
) -> T:
    """Return the table `[channels.<name>]` as settings of this kind. Ids may be numbers in the
    file. `find_problems` judges settings that are right otherwise, and yields one line a problem.

    Raises SettingsError with every problem found, one a line: unknown keys, wrong types, a blank
    secret, an entry that is not an id.
    """
    key = f"channels.{name}"
    problems = list[str]()
    own = {word: value for word, value in table.items() if word != BUSY_KEY}
    settings = read(kind, _with_text_ids(own), key, problems)
    if settings is not None:
        problems += [*_blank_secrets(settings, key), *_wrong_ids(settings, key, ids)]
        if settings.proxy is not None and (trouble := channel_proxy_problem(settings.proxy)):
            problems.append(f"{key}.{PROXY_KEY} {trouble}")
        problems += [] if problems else find_problems(key, settings)
    if settings is None or problems:
        raise SettingsError("\n".join(problems))
    return settings


def is_safe_address(address: str) -> bool:
    """Return whether a secret may be sent there: over TLS, or to this machine."""
    try:
        url = urlsplit(address)
        _ = url.port  # raises ValueError for one out of range, which hostname does not notice
    except ValueError:
        return False
    safe = url.scheme == "https" or (url.scheme == "http" and url.hostname in LOOPBACK)
    return bool(url.hostname) and safe


def _with_text_ids(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table with ids that were written as numbers turned into text."""
    result = dict(table)
    for name in ID_LISTS:
        if isinstance(result.get(name), list):
            result[name] = [str(one) if type(one) is int else one for one in result[name]]
    if isinstance(rules := result.get(GROUP_RULES), dict):
        read = {group: _with_text_ids(rule) for group, rule in rules.items() if isinstance(rule, dict)}
        result[GROUP_RULES] = rules | read
    return result


def _blank_secrets(settings: Struct, key: str) -> Iterator[str]:
    for name, value in msgspec.structs.asdict(settings).items():
        if isinstance(value, Secret) and not value.reveal().strip():
            where = f"{key}.{name}"
            yield f"{where} is blank; write the secret there, or the name of its file into {where}_file"


def _wrong_ids(settings: AccessSettings, key: str, ids: IdForm | None) -> Iterator[str]:
    ids = ids or _ANY_ID
    lists = [(name, ids.person, getattr(settings, name)) for name in ("allow_from", "admins")]
    lists.append(("allow_groups", ids.group, settings.allow_groups))
    for name, rule in settings.group_rules.items():
        lists.append((f"{GROUP_RULES}.{name}.allow_from", ids.person, rule.allow_from or ()))
        if not _lists_id(name, settings.allow_groups):
            yield f"{key}.{GROUP_RULES}.{name} is for a group that {key}.allow_groups does not name; add it there"
    if EVERYBODY in settings.admins:
        yield f"{key}.admins has {EVERYBODY!r}: not everybody can let people in; name them by their ids"
    for where, form, listed in lists:
        for one in listed:
            if one != EVERYBODY and not re.fullmatch(form, one):
                yield f"{key}.{where} has {one!r}, which is no id; {ids.words}"
