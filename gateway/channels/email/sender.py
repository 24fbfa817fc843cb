"""Determine a mail's sender: the address in From, and whether the mail server verified it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

ADDRESS: Final = re.compile(
    r"(?=.{3,120}\Z)[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
    r"@[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*"
)
"""An address as we accept it: ASCII (other scripts have lookalike letters), without quotes,
comments and routes."""

_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_NAMED: Final = re.compile(r'([^<>@,;:"]*)<([^<>]*)>')
_COMMENT: Final = re.compile(r"\([^()\\]*\)")
_LONGEST: Final = 10_000

_RESULT: Final = re.compile(r"\s*([a-z0-9-]+)\s*=\s*([a-z]+)(?![a-z0-9])", re.IGNORECASE)
_PROPERTY: Final = re.compile(r"([a-z]+\.[a-z0-9-]+)\s*=\s*(\S+)", re.IGNORECASE)


def address_of(froms: Sequence[str]) -> str | None:
    """Return the one address of the From headers, in lower case; None if ambiguous."""
    if len(froms) != 1 or len(froms[0]) > _LONGEST:
        return None
    value = _QUOTED.sub(" ", froms[0]).strip()
    if "<" in value or ">" in value:
        found = _NAMED.fullmatch(_COMMENT.sub(" ", value).strip())
        value = found[2].strip() if found else ""
    else:
        value = _COMMENT.sub(" ", value).strip()
    return value.lower() if ADDRESS.fullmatch(value) else None


def is_proven(results: Sequence[str], authserv_id: str, address: str, *, on_top: int = 0) -> bool:
    """Return whether the mail server `authserv_id` confirms the domain of the From (RFC 8601):
    DMARC passed, or DKIM or SPF for that domain or a parent, and DMARC never failed.

    `results` are the Authentication-Results of a mail, of which the first `on_top` are above its
    first Received. Of those all count. Otherwise only the topmost one of this server does: servers
    write above what they got, so the one of a sender who forges its name is below it."""
    domain = address.rpartition("@")[2]
    passed = False
    counts = True
    for number, header in enumerate(results):
        if len(header) > _LONGEST:
            return False
        found = _results_of(header, authserv_id)
        if found is None:
            continue
        for method, result, properties in found:
            if method == "dmarc" and result == "fail":
                return False
            proven = _proven_domains(method, properties, domain)
            if result == "pass" and (counts or number < on_top) and any(_covers(one, domain) for one in proven):
                passed = True
        counts = False
    return passed


def _results_of(header: str, authserv_id: str) -> list[tuple[str, str, dict[str, str]]] | None:
    """Return methods, results and properties of a header; None if another server wrote it."""
    # A quoted value becomes one word without characters that could end it.
    words = _without_comments(header)
    words = _QUOTED.sub(lambda found: re.sub(r"[\s;()=\"\\]", "", found[0]), words)
    first, *rest = words.split(";")
    if first.lower().split()[:1] != [authserv_id.lower()]:
        return None
    results = []
    for part in rest:
        if found := _RESULT.match(part):
            pairs = _PROPERTY.findall(part[found.end() :])
            properties = {name.lower(): value.lower() for name, value in pairs}
            results.append((found[1].lower(), found[2].lower(), properties))
    return results


def _proven_domains(method: str, properties: dict[str, str], domain: str) -> Iterator[str]:
    match method:
        case "dmarc":
            yield properties.get("header.from", domain).rpartition("@")[2]
        case "dkim":
            # Never header.i: the signer may write there what it likes.
            yield properties.get("header.d", "")
        case "spf":
            yield properties.get("smtp.mailfrom", "").rpartition("@")[2]


def _covers(domain: str, of_from: str) -> bool:
    """Return whether it is the same domain or a parent: others may own a subdomain."""
    return bool(domain) and (of_from == domain or of_from.endswith(f".{domain}"))


def _without_comments(text: str) -> str:
    """Remove comments, which may be nested and contain anything that looks like a result."""
    kept = []
    depth = 0
    quoted = False
    skip = False
    for sign in text:
        if skip:
            skip = False
        elif sign == "\\":
            skip = True
        elif sign == '"' and not depth:
            quoted = not quoted
        elif sign == "(" and not quoted:
            depth += 1
        elif sign == ")" and depth and not quoted:
            depth -= 1
            kept.append(" ")
            continue
        if not depth:
            kept.append(sign)
    return "".join(kept)
