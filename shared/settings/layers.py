"""The two sources of settings, the file and the environment, as nested tables of raw values."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

PREFIX: Final = "SHOAL_"
CONFIG_VARIABLE: Final = "SHOAL_CONFIG"
DEFAULT_FILE: Final = Path("shoal.toml")
_PLACEHOLDER = re.compile(r"\$(\$\{)|\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

Table = dict[str, Any]
_MISSING: Final = object()


class FromEnvironment(str):
    """Text of an environment variable, which may stand for a number, a bool or a list. `source`
    names the variable; `file` is the file that a secret was read from."""

    __slots__ = ("file", "source")
    source: str
    file: Path | None

    @classmethod
    def of(cls, value: str, source: str, file: Path | None = None) -> FromEnvironment:
        """Mark `value` as coming from the variable `source`, or the file that it names."""
        marked = cls(value)
        marked.source = source
        marked.file = file
        return marked


def from_file(path: Path | None, environ: Mapping[str, str], problems: list[str]) -> Table:
    """Return the tables of the settings file, every `${NAME}` filled in; {} without a file."""
    named = path or (Path(environ[CONFIG_VARIABLE]) if environ.get(CONFIG_VARIABLE) else None)
    where = named or DEFAULT_FILE
    file = f"the settings file {str(where)!r}"
    try:
        text = where.read_text(encoding="utf-8")
    except FileNotFoundError:
        if named is not None:
            problems.append(f"{file} is not there; create it or change {CONFIG_VARIABLE}")
        return {}
    except (OSError, UnicodeDecodeError) as exc:
        problems.append(f"{file} cannot be read: {_reason(exc)}")
        return {}
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        problems.append(f"{file} is not valid TOML: {exc}")
        return {}
    return cast(Table, _filled(table, "", environ, problems))


def from_environment(environ: Mapping[str, str], problems: list[str]) -> Table:
    """Return the tables that `SHOAL_<SECTION>__<KEY>` variables describe, without empty ones."""
    table: Table = {}
    for name in sorted(environ):
        if not name.startswith(PREFIX) or "__" not in name or not environ[name]:
            continue
        *parents, last = name[len(PREFIX) :].lower().split("__")
        inner: Any = table if all((*parents, last)) else None
        for parent in parents:
            inner = inner.setdefault(parent, {}) if isinstance(inner, dict) else inner
        if not isinstance(inner, dict) or last in inner:
            problems.append(f"{name}: this is no setting; write {PREFIX}<SECTION>__<KEY>")
            continue
        inner[last] = FromEnvironment.of(environ[name], name)
    return table


def merged(lower: Table, upper: Table) -> Table:
    """Merge two tables; `upper` wins."""
    result = dict(lower)
    for key, value in upper.items():
        below = result.get(key)
        result[key] = merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return result


def read_secret_file(path: str, key: str, problems: list[str]) -> str | None:
    """Return the text of the file that `<key>_file` names, without its final newline."""
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError, ValueError) as exc:
        problems.append(f"{key}_file names {path!r}, which cannot be read: {_reason(exc)}")
        return None
    if not text:
        problems.append(f"{key}_file names {path!r}, which is empty; write the secret into it")
        return None
    return text


def _filled(value: Any, key: str, environ: Mapping[str, str], problems: list[str]) -> Any:
    if isinstance(value, dict):
        filled = {name: _filled(inner, f"{key}.{name}".lstrip("."), environ, problems) for name, inner in value.items()}
        return {name: inner for name, inner in filled.items() if inner is not _MISSING}
    if isinstance(value, list):
        return [_filled(inner, key, environ, problems) for inner in value]
    if not isinstance(value, str) or "${" not in value:
        return value
    used: list[str] = []

    def fill(found: re.Match[str]) -> str:
        if found[1]:
            return "${"
        used.append(found[2])
        return environ.get(found[2], "")

    text = _PLACEHOLDER.sub(fill, value)
    missing = [name for name in used if name not in environ]
    problems += [f"{key}: the environment has no {name!r}, which ${{{name}}} asks for; set it" for name in missing]
    if missing:
        return _MISSING  # reported above; a second message about an empty value would confuse
    return FromEnvironment.of(text, ", ".join(used)) if used else text


def _reason(exc: Exception) -> str:
    return exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
