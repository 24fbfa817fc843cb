"""Settings as a whole: loaded, shown, their secrets. Only this module reads the environment."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from shared.errors import SettingsError
from shared.settings.layers import (
    CONFIG_VARIABLE,
    DEFAULT_FILE,
    FromEnvironment,
    Table,
    from_environment,
    from_file,
    merged,
)
from shared.settings.read import fields_of, read, read_tables, struct_of_table, unknown, with_files, with_secrets
from shared.settings.secret import Secret, SecretUrl
from shared.settings.sections.network import with_variables
from shared.settings.sections.redis_access import EMBEDDED, EMBEDDED_URL_FILE, whole_address
from shared.settings.sections.settings import Settings, problems_between


def load(environ: Mapping[str, str] | None = None, *, path: Path | None = None) -> Settings:
    """Load the settings of this process: `shoal.toml`, overridden by the environment (`environ`, by
    default the process's own). The file is `path`, else the one that SHOAL_CONFIG names, else
    ./shoal.toml if it exists. Relative paths in settings are relative to the working directory.
    Raises SettingsError, a line a problem."""
    env = os.environ if environ is None else environ
    problems: list[str] = []
    layers = (from_file(path, env, problems), from_environment(env, problems))
    tables = merged(*(_with_files(layer, problems) for layer in layers))
    sections: dict[str, Any] = {}
    for name, kind in fields_of(Settings).items():
        table = tables.get(name, {})
        if not isinstance(table, dict):
            problems.append(f"{name} is a section: write [{name}] and its keys under it")
        elif name == "channels":
            sections[name] = _channels(table, problems)
        elif (one := struct_of_table(kind)) is not None:
            sections[name] = read_tables(one, table, name, problems)
        else:
            sections[name] = read(kind, table, name, problems)
    for name in sorted(tables.keys() - fields_of(Settings).keys()):
        inner = tables[name]
        if isinstance(inner, dict) and inner:
            problems.extend(unknown(f"{name}.{key}", value) for key, value in inner.items())
        else:
            problems.append(unknown(name, inner))
    if not problems:
        settings = _with_places(Settings(**sections), tables)
        network = with_variables(settings.network, env, problems)
        settings = msgspec.structs.replace(settings, network=network)
        problems.extend(problems_between(settings))
    if problems:
        raise SettingsError("\n".join(dict.fromkeys(problems)))
    return settings


def load_few(sections: Collection[str], environ: Mapping[str, str] | None = None) -> Settings:
    """Load only these sections, from the environment alone, for a process that must not hold
    secrets. All else has its default. Raises SettingsError, a line a problem."""
    problems: list[str] = []
    tables = from_environment(os.environ if environ is None else environ, problems)
    kinds = fields_of(Settings)
    values: dict[str, Any] = {
        name: read(kinds[name], tables[name], name, problems) for name in sections if name in tables
    }
    if problems:
        raise SettingsError("\n".join(problems))
    return _with_places(Settings(**values), tables)


def is_named(section: str, key: str, environ: Mapping[str, str] | None = None) -> bool:
    """Return whether the file or the environment sets a key, be it to its default."""
    env = os.environ if environ is None else environ
    return any(key in layer.get(section, {}) for layer in (from_file(None, env, []), from_environment(env, [])))


def child_environment(overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a child process: our own, with `overrides` on top."""
    return {**os.environ, **overrides}


def _with_places(settings: Settings, tables: Table) -> Settings:
    """Place workspaces and media below `data.dir` unless they are set, and media into the product
    that workspaces are in unless another one is set."""
    workspace = settings.workspace
    media = settings.media
    data = settings.data.dir
    if "root" not in tables.get("workspace", {}):
        workspace = msgspec.structs.replace(workspace, root=data / "workspaces")
    if "dir" not in tables.get("media", {}):
        media = msgspec.structs.replace(media, dir=data / "media")
    if not media.store_endpoint:
        media = msgspec.structs.replace(
            media,
            store_endpoint=workspace.store_endpoint,
            store_region=media.store_region or workspace.store_region,
            store_access_key=media.store_access_key or workspace.store_access_key,
            store_secret_key=media.store_secret_key or workspace.store_secret_key,
        )
    return msgspec.structs.replace(settings, workspace=workspace, media=media)


def _with_files(layer: Table, problems: list[str]) -> Table:
    kinds = fields_of(Settings)
    result: Table = {}
    for name, table in layer.items():
        if name == "channels" and isinstance(table, dict):
            result[name] = dict(table)
            for channel, keys in table.items():
                if isinstance(keys, dict):
                    own = with_files(None, keys, f"channels.{channel}", problems)
                    result[name][channel] = own
        elif name in kinds and isinstance(table, dict) and struct_of_table(kinds[name]) is None:
            result[name] = with_files(kinds[name], table, name, problems)
        else:
            result[name] = table
    return result


def _channels(table: Table, problems: list[str]) -> dict[str, dict[str, Any]]:
    channels: dict[str, dict[str, Any]] = {}
    for name, keys in table.items():
        if isinstance(keys, dict):
            channels[name] = with_secrets(keys)
        else:
            section = f"channels.{name}"
            problems.append(f"{section} is a section: write [{section}] and its keys under it")
    return channels


def redis_url(settings: Settings) -> str:
    """Return the address of the Redis to use, with password and `ssl_ca_certs`; for `embedded` from
    the file of the running server. Raises SettingsError for an unreadable file."""
    url = settings.redis.url.reveal()
    if url != EMBEDDED:
        return whole_address(settings.redis)
    file = settings.data.dir / EMBEDDED_URL_FILE
    try:
        return file.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise SettingsError(
            f"redis.url: no embedded Valkey is running here (no {str(file)!r}): "
            "start `shoal up` in this folder, or set redis.url"
        ) from None
    except OSError as exc:
        raise SettingsError(f"redis.url: {str(file)!r} cannot be read: {exc.strerror}") from None


def shown(settings: Settings) -> dict[str, Any]:
    """Return the settings as plain values, secrets masked."""
    plain: dict[str, Any] = msgspec.to_builtins(settings, enc_hook=_plain)
    return plain


def secrets_of(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield every secret value, also the password inside an address, with the name of its setting;
    some more than once."""
    for name, value in _leaves(msgspec.structs.asdict(settings)):
        if isinstance(value, SecretUrl):
            password = urlsplit(value.reveal()).password
            if password:
                yield password, name
                yield unquote(password), name
        elif isinstance(value, Secret):
            yield value.reveal(), name


def secret_files(settings: Settings) -> list[Path]:
    """Return the files in which these settings have secrets: the settings file, and those that keep
    one each."""
    own = [value.file for _, value in _leaves(settings) if isinstance(value, Secret) and value.file]
    return [Path(os.environ.get(CONFIG_VARIABLE) or DEFAULT_FILE), *own]


def own_key_file(settings: Settings) -> Path | None:
    """Return the file below the working directory that has the key of the model; None if there is
    none: a file elsewhere is somebody else's to write."""
    key = settings.model.api_key
    if key is None or key.file is None:
        return None
    file = key.file.resolve()
    return file if file.is_relative_to(Path.cwd().resolve()) else None


def _leaves(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{name}.{key}".lstrip(".").removesuffix("_"))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _leaves(inner, name)
    else:
        yield name, value


def _plain(value: object) -> str:
    if isinstance(value, (Secret, Path, FromEnvironment)):
        return str(value)
    raise NotImplementedError(f"a setting of kind {type(value).__name__} cannot be shown")
