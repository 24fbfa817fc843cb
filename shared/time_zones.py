"""Time zones by the names that people and models use: `PST`, `UTC+8`, `Asia/Beijing`, `new york`."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from shared.errors import BadInput

_EXAMPLE: Final = "use an IANA name such as 'Europe/Berlin' or 'UTC'"

_ABBREVIATIONS: Final = {
    # Summer and winter: people mean the clock of the region.
    "z": "UTC",
    "zulu": "UTC",
    "gmt": "Etc/GMT",
    "pst": "America/Los_Angeles",
    "pdt": "America/Los_Angeles",
    "pt": "America/Los_Angeles",
    "mdt": "America/Denver",
    "mt": "America/Denver",
    "cdt": "America/Chicago",
    "edt": "America/New_York",
    "et": "America/New_York",
    "akst": "America/Anchorage",
    "akdt": "America/Anchorage",
    "cest": "Europe/Berlin",
    "mez": "Europe/Berlin",
    "mesz": "Europe/Berlin",
    "eest": "EET",
    "west": "WET",
    "msk": "Europe/Moscow",
    "trt": "Europe/Istanbul",
    "pkt": "Asia/Karachi",
    "wib": "Asia/Jakarta",
    "hkt": "Asia/Hong_Kong",
    "sgt": "Asia/Singapore",
    "pht": "Asia/Manila",
    "jst": "Asia/Tokyo",
    "kst": "Asia/Seoul",
    "awst": "Australia/Perth",
    "acst": "Australia/Darwin",
    "aest": "Australia/Sydney",
    "aedt": "Australia/Sydney",
    "nzst": "Pacific/Auckland",
    "nzdt": "Pacific/Auckland",
    "brt": "America/Sao_Paulo",
    "sast": "Africa/Johannesburg",
    "eat": "Africa/Nairobi",
    "wat": "Africa/Lagos",
}
_AMBIGUOUS: Final = {
    "cst": "'America/Chicago' or 'Asia/Shanghai'",
    "ct": "'America/Chicago' or another",
    "ist": "'Asia/Kolkata', 'Asia/Jerusalem' or 'Europe/Dublin'",
    "bst": "'Europe/London' or 'Asia/Dhaka'",
    "ast": "'America/Halifax' or 'Asia/Riyadh'",
    "sst": "'Asia/Singapore' or 'Pacific/Pago_Pago'",
    "gst": "'Asia/Dubai' or another",
}
_CITIES: Final = {
    "abu_dhabi": "Asia/Dubai",
    "amsterdam": "Europe/Amsterdam",
    "atlanta": "America/New_York",
    "bangalore": "Asia/Kolkata",
    "bengaluru": "Asia/Kolkata",
    "barcelona": "Europe/Madrid",
    "beijing": "Asia/Shanghai",
    "boston": "America/New_York",
    "brasilia": "America/Sao_Paulo",
    "cologne": "Europe/Berlin",
    "dallas": "America/Chicago",
    "delhi": "Asia/Kolkata",
    "frankfurt": "Europe/Berlin",
    "geneva": "Europe/Zurich",
    "guangzhou": "Asia/Shanghai",
    "hamburg": "Europe/Berlin",
    "hanoi": "Asia/Ho_Chi_Minh",
    "houston": "America/Chicago",
    "islamabad": "Asia/Karachi",
    "kyoto": "Asia/Tokyo",
    "miami": "America/New_York",
    "milan": "Europe/Rome",
    "mumbai": "Asia/Kolkata",
    "munich": "Europe/Berlin",
    "new_delhi": "Asia/Kolkata",
    "osaka": "Asia/Tokyo",
    "ottawa": "America/Toronto",
    "peking": "Asia/Shanghai",
    "rio_de_janeiro": "America/Sao_Paulo",
    "san_francisco": "America/Los_Angeles",
    "seattle": "America/Los_Angeles",
    "shenzhen": "Asia/Shanghai",
    "st_petersburg": "Europe/Moscow",
    "saint_petersburg": "Europe/Moscow",
    "washington": "America/New_York",
    "wuhan": "Asia/Shanghai",
}
_LONG: Final = {
    # Names of Windows, and of calendars.
    "pacific": "America/Los_Angeles",
    "mountain": "America/Denver",
    "central": "America/Chicago",
    "eastern": "America/New_York",
    "us_pacific": "America/Los_Angeles",
    "us_mountain": "America/Denver",
    "us_central": "America/Chicago",
    "us_eastern": "America/New_York",
    "central_european": "Europe/Berlin",
    "central_europe": "Europe/Budapest",
    "w._europe": "Europe/Berlin",
    "romance": "Europe/Paris",
    "e._europe": "Europe/Chisinau",
    "eastern_european": "EET",
    "russian": "Europe/Moscow",
    "turkey": "Europe/Istanbul",
    "china": "Asia/Shanghai",
    "tokyo": "Asia/Tokyo",
    "japan": "Asia/Tokyo",
    "korea": "Asia/Seoul",
    "india": "Asia/Kolkata",
    "singapore": "Asia/Singapore",
    "greenwich_mean": "Etc/GMT",
    "coordinated_universal": "UTC",
}
_ZONE_WORDS: Final = re.compile(r"_(?:(?:standard|daylight|summer|winter)_)?time\Z")
_OFFSET: Final = re.compile(r"(?:utc|gmt)?_?(?P<sign>[+-])_?(?P<hours>\d{1,2})(?::?(?P<minutes>\d\d))?")
# Offsets of a part of an hour that one zone has all year.
_HALVES: Final = {
    "+03:30": "Asia/Tehran",
    "+04:30": "Asia/Kabul",
    "+05:30": "Asia/Kolkata",
    "+05:45": "Asia/Kathmandu",
    "+06:30": "Asia/Yangon",
    "+08:45": "Australia/Eucla",
    "+09:30": "Australia/Darwin",
    "-09:30": "Pacific/Marquesas",
}


def find_timezone(name: str) -> str:
    """Return the IANA name of a zone that people call `name`: as it is if it is one, else without
    regard to case and blanks, by a common abbreviation, a city, or an offset. Raises BadInput
    (`bad_zone`) for a name that is unknown or may be several zones; its text says what to write."""
    if _exists(name):
        return name
    plain = re.sub(r"[\s_]+", "_", name.strip().replace("\u2212", "-")).lower()
    city = plain.rpartition("/")[2]
    found = _zones().get(plain) or _ABBREVIATIONS.get(plain) or _offset(plain) or _LONG.get(_ZONE_WORDS.sub("", plain))
    found = found or _CITIES.get(city) or ("/" not in plain and _cities().get(plain)) or ""
    if found and _exists(found):
        return found
    if which := _AMBIGUOUS.get(plain):
        raise BadInput("bad_zone", f"{name!r} may be several time zones; write {which}")
    raise BadInput("bad_zone", f"{name!r} is not a time zone; {_EXAMPLE}")


def _exists(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return False
    return True


def _offset(plain: str) -> str:
    """Return the zone with an offset from UTC; the signs of `Etc` zones are the other way round."""
    found = _OFFSET.fullmatch(plain)
    if found is None:
        return ""
    hours = int(found["hours"])
    if int(found["minutes"] or 0):
        return _HALVES.get(f"{found['sign']}{hours:02}:{found['minutes']}", "")
    if hours == 0:
        return "UTC"
    return f"Etc/GMT{'-' if found['sign'] == '+' else '+'}{hours}"


@lru_cache(maxsize=1)
def _zones() -> dict[str, str]:
    """Return the names of all zones by their small letters."""
    return {name.lower(): name for name in sorted(available_timezones())}


@lru_cache(maxsize=1)
def _cities() -> dict[str, str]:
    """Return the zones of regions by their cities, in small letters; empty for a city of several."""
    regions = ("Africa", "America", "Asia", "Atlantic", "Australia", "Europe", "Indian", "Pacific")
    found: dict[str, str] = {}
    for name in _zones().values():
        region, _, city = name.partition("/")
        if region in regions:
            key = city.rpartition("/")[2].lower()
            found[key] = "" if key in found else name
    return found
