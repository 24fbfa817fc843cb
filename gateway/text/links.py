"""Where a link leads, and whether its label says so."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

_LINK: Final = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)


def is_link(address: str) -> bool:
    """Whether a person may be led there: the web and mail; never to a script, a file or an app."""
    return _LINK.match(address) is not None


def untold_host(label: str, address: str) -> str:
    """The host of an address, of mail the mailbox; '' when the label is an address of that host."""
    host = _host(address)
    return "" if _host(label.strip()) == host else host


def _host(address: str) -> str:
    """The host of an address, also of one without a scheme; of mail the mailbox."""
    if address.lower().startswith("mailto:"):
        return address[7:].partition("?")[0]
    if "@" in address and "://" not in address:
        return address
    try:
        return urlsplit(address if "://" in address else f"//{address}").hostname or ""
    except ValueError:
        return ""
