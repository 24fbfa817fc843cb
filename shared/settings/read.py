"""Conversion of one table of raw values into one Struct, with every problem found."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from shared.errors import SettingsError
from shared.settings.layers import PREFIX, FromEnvironment, Table, read_secret_file
from shared.settings.secret import ProxyUrl, Secret
from shared.settings.sections.chats import BUSY_KEY
from shared.settings.sections.network import PROXY_KEY
from shared.settings.sections.settings import Settings, problem_in

T = TypeVar("T", bound=msgspec.Struct)

_FILE = "_file"
_SECRET_WORDS = ("token", "secret", "password", "key")


def read_section(kind: type[T], table: Mapping[str, Any], key: str) -> T:
    """Convert a channel's own table, without the key `busy`, which every channel may have; `key` is
    its name in messages, e.g. `channels.telegram`. Raises SettingsError, a line a problem."""
    problems: list[str] = []
    own = {name: value for name, value in table.items() if name != BUSY_KEY}
    section = read(kind, own, key, problems)
    if section is None or problems:
        raise SettingsError("\n".join(problems))
    return section


def read(kind: type[T], table: Mapping[str, Any], section: str, problems: list[str]) -> T | None:
    """Convert a table. Problems are added to `problems`; the result is None if there are any."""
    kinds = fields_of(kind)
    before = len(problems)
    values: dict[str, Any] = {}
    for name, raw in table.items():
        key = f"{section}.{name}"
        if name not in kinds:
            problems.append(unknown(key, raw, siblings=[f"{section}.{known}" for known in kinds]))
            continue
        if (inner := struct_of_table(kinds[name])) is not None and isinstance(raw, dict):
            values[name] = read_tables(inner, raw, key, problems)
            problems.extend(f"{key} {trouble}" for trouble in [problem_in(key, raw)] if trouble)
            continue
        try:
            values[name] = _with_file(_converted(raw, kinds[name]), raw)
        except msgspec.ValidationError:
            shown = "" if _is_secret(kinds[name]) else f", not {_brief(raw)}"
            problems.append(f"{_named(key, raw)} must be {_wanted(kinds[name])}{shown}")
            continue
        if trouble := problem_in(key, values[name]):
            problems.append(f"{_named(key, raw)} {trouble}")
    problems.extend(
        f"{section}.{info.name} is missing; it must be {_wanted(kinds[info.name])}"
        for info in msgspec.structs.fields(kind)
        if info.required and info.name not in table
    )
    return None if len(problems) > before else kind(**values)


def unknown(key: str, raw: object, *, siblings: list[str] | None = None) -> str:
    """Return the message for a key that does not exist, with the key that was probably intended."""
    known = [
        f"{name}.{inner}"
        for name, kind in fields_of(Settings).items()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
        for inner in fields_of(kind)
    ]
    close = difflib.get_close_matches(key, siblings or [], n=1)
    close = close or difflib.get_close_matches(key, known, n=1)
    source = getattr(raw, "source", "")
    if isinstance(raw, FromEnvironment) and source.startswith(PREFIX):
        variable = PREFIX + close[0].upper().replace(".", "__") if close else ""
        hint = f"did you mean {variable}?" if variable else "remove it"
        return f"{source}: there is no setting {key!r}; {hint}"
    hint = f"did you mean {close[0]}?" if close else "remove it"
    return f"{key}: there is no such setting; {hint}"


def with_files(kind: type[msgspec.Struct] | None, table: Table, section: str, problems: list[str]) -> Table:
    """Replace each `<key>_file` by `<key>`, read from that file. In a channel's table (`kind` None)
    only keys that sound like a secret are read: others may name files for the channel itself."""
    kinds = fields_of(kind) if kind else {}
    result: Table = {}
    for name, raw in table.items():
        base = name.removesuffix(_FILE)
        secret = _sounds_secret(base) or base == PROXY_KEY
        is_text = base in kinds and _takes_text(kinds[base]) if kind else secret
        # `read_tables` reads the files of an inner table of tables.
        if isinstance(raw, dict) and name in kinds and struct_of_table(kinds[name]) is None:
            is_secret = _is_secret(kinds[name])
            result[name] = _read_tokens(raw, f"{section}.{name}", problems) if is_secret else raw
        elif not name.endswith(_FILE) or name in kinds or not is_text or not isinstance(raw, str):
            result[name] = raw
        else:
            _read_file(table, name, section, result, problems)
    return result


def with_secrets(table: Table) -> Table:
    """Wrap values of a channel's table whose keys sound secret, so that nothing prints them."""
    result = dict(table)
    for name, raw in table.items():
        if isinstance(raw, dict):
            result[name] = with_secrets(raw)
        elif isinstance(raw, str) and name == PROXY_KEY:
            result[name] = ProxyUrl(str(raw))
        elif isinstance(raw, str) and _sounds_secret(name):
            result[name] = Secret(str(raw))
    return result


@cache
def fields_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the kind of each field, ranges included."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: hints[name] for name in kind.__struct_fields__}


def struct_of_table(kind: Any) -> type[msgspec.Struct] | None:
    """Return the Struct of the inner tables of a setting that is a table of tables, else None."""
    inner = get_args(kind)[1] if get_origin(kind) is dict else None
    return inner if isinstance(inner, type) and issubclass(inner, msgspec.Struct) else None


def read_tables(kind: type[msgspec.Struct], raw: Table, key: str, problems: list[str]) -> dict[str, Any]:
    """Convert each table in `raw`; problems are added to `problems`."""
    result = {}
    for name, table in raw.items():
        if isinstance(table, dict):
            whole = with_files(kind, table, f"{key}.{name}", problems)
            result[name] = read(kind, whole, f"{key}.{name}", problems)
        else:
            problems.append(f"{_named(f'{key}.{name}', table)} must be a table, not {_brief(table)}")
    return result


def _read_tokens(table: Table, section: str, problems: list[str]) -> Table:
    result: Table = {}
    for name, raw in table.items():
        if not name.endswith(_FILE) or name == _FILE:
            result[name] = raw
        else:
            _read_file(table, name, section, result, problems)
    return result


def _read_file(table: Table, name: str, section: str, result: Table, problems: list[str]) -> None:
    base = name.removesuffix(_FILE)
    path = str(table[name])
    key = f"{section}.{base}"
    if base in table:
        problems.append(f"{key} and {key}{_FILE} are both set; keep one of them")
    elif (text := read_secret_file(path, key, problems)) is not None:
        result[base] = FromEnvironment.of(text, f"{key}{_FILE}", Path(path).expanduser())


def _converted(raw: object, kind: Any) -> Any:
    lenient = isinstance(raw, FromEnvironment)
    if lenient:
        parts = [part.strip() for part in str(raw).split(",") if part.strip()]
        is_list = any(get_origin(part) in (tuple, list) for part in _parts(kind))
        raw = parts if is_list else str(raw)
    elif isinstance(raw, dict):
        raw = {name: str(one) if isinstance(one, FromEnvironment) else one for name, one in raw.items()}
    value = msgspec.convert(raw, kind, strict=not lenient, dec_hook=_made)
    if isinstance(value, float) and not math.isfinite(value):
        raise msgspec.ValidationError("not a finite number")
    return value


def _with_file(value: Any, raw: object) -> Any:
    if isinstance(value, Secret) and isinstance(raw, FromEnvironment):
        return type(value)(value.reveal(), raw.file)
    if isinstance(value, dict) and isinstance(raw, dict):
        return {name: _with_file(inner, raw[name]) for name, inner in value.items()}
    return value


def _made(kind: type[Any], raw: object) -> Any:
    if isinstance(raw, kind):
        return raw
    if not isinstance(raw, str) or not raw.strip():
        raise msgspec.ValidationError("expected text")
    return Path(raw).expanduser() if issubclass(kind, Path) else kind(raw)


def _parts(kind: Any) -> list[Any]:
    return [kind, *(part for arg in get_args(kind) for part in _parts(arg))]


def _is_secret(kind: Any) -> bool:
    return any(isinstance(part, type) and issubclass(part, Secret) for part in _parts(kind))


def _takes_text(kind: Any) -> bool:
    return _is_secret(kind) or (get_origin(kind) is not dict and str in _parts(kind))


def _sounds_secret(name: str) -> bool:
    return any(name == word or name.endswith(f"_{word}") for word in _SECRET_WORDS)


def _named(key: str, raw: object) -> str:
    source = getattr(raw, "source", "")
    return f"{key} (from {source})" if source else key


def _brief(raw: object) -> str:
    if isinstance(raw, dict):
        return "a table"
    text = repr(str(raw)) if isinstance(raw, str) else repr(raw)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _wanted(kind: Any) -> str:
    """Describe a kind in words, e.g. "a whole number from 0 to 65535"."""
    from msgspec import inspect  # only a wrong setting needs it

    return _describe(inspect.type_info(kind))


def _describe(info: Any) -> str:
    from msgspec import inspect

    match info:
        case inspect.IntType(ge=low, le=high):
            return f"a whole number{_range(low, high)}"
        case inspect.FloatType(ge=low, gt=over, le=high):
            return f"a number{_range(low, high) if over is None else f' over {over:g}{_range(None, high)}'}"
        case inspect.BoolType():
            return "true or false"
        case inspect.StrType() | inspect.CustomType():
            return "text, not empty"
        case inspect.LiteralType(values=values):
            return "one of " + ", ".join(str(value) for value in values)
        case inspect.VarTupleType(item_type=inspect.FloatType()):
            return "a list of numbers"
        case inspect.VarTupleType() | inspect.ListType():
            return "a list of texts"
        case inspect.DictType():
            return "a table of texts"
        case inspect.UnionType(types=types):
            return " or ".join(_describe(one) for one in types if not isinstance(one, inspect.NoneType))
        case _:
            return f"a {type(info).__name__.removesuffix('Type').lower()}"


def _range(low: float | None, high: float | None) -> str:
    match low, high:
        case None, None:
            return ""
        case None, _:
            return f" of at most {high:g}"
        case _, None:
            return f" of at least {low:g}"
        case _:
            return f" from {low:g} to {high:g}"
