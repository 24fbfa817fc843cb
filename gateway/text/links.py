"""The target of a link, and whether its label names it."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

_LINK: Final = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)


def is_link(address: str) -> bool:
    """Return whether an address may be a link: web and mail may; a script, a file or an app may
    not."""
    return _LINK.match(address) is not None


def unshown_host(label: str, address: str) -> str:
    """Return the host of an address, or its mailbox; '' when the label is an address of that
    host."""
    host = _host(address)
    return "" if _host(label.strip()) == host else host


def _host(address: str) -> str:
    """Return the host of an address, with or without a scheme, or its mailbox."""
    if address.lower().startswith("mailto:"):
        return address[7:].partition("?")[0]
    if "@" in address and "://" not in address:
        return address
    try:
        return urlsplit(address if "://" in address else f"//{address}").hostname or ""
    except ValueError:
        return ""
