"""Loader of the settings: the only module that reads the environment."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec

from shared.errors import SettingsError
from shared.settings.layers import Table, from_environment, from_file, merged
from shared.settings.read import fields_of, read, read_tables, struct_of_table, unknown, with_files, with_secrets
from shared.settings.sections.settings import Settings, problems_between


def load(environ: Mapping[str, str] | None = None, *, path: Path | None = None) -> Settings:
    """Load the settings of this process: `shoal.toml`, overridden by the environment (`environ`, by
    default the process's own).

    The file is `path`, else the one that SHOAL_CONFIG names, else ./shoal.toml if it exists.
    Relative paths in settings are relative to the working directory. Raises SettingsError with
    every problem found, one a line.
    """
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
        keys = {f"{name}.{key}": value for key, value in inner.items()} if isinstance(inner, dict) else {}
        problems.extend(unknown(key, value) for key, value in (keys or {name: inner}).items())
    if not problems:
        settings = _with_places(Settings(**sections), tables)
        problems.extend(problems_between(settings))
    if problems:
        raise SettingsError("\n".join(dict.fromkeys(problems)))
    return settings


def load_few(sections: Collection[str], environ: Mapping[str, str] | None = None) -> Settings:
    """Load only these sections, and only from the environment, for a process that must not hold
    secrets: no file is opened. Everything else has its default. Raises SettingsError with every
    problem found, one a line."""
    problems: list[str] = []
    tables = from_environment(os.environ if environ is None else environ, problems)
    kinds = fields_of(Settings)
    values: dict[str, Any] = {
        name: read(kinds[name], tables[name], name, problems) for name in sections if name in tables
    }
    if problems:
        raise SettingsError("\n".join(problems))
    return _with_places(Settings(**values), tables)


def child_environment(overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a child process: our own, with `overrides` on top."""
    return {**os.environ, **overrides}


def _with_places(settings: Settings, tables: Table) -> Settings:
    """Place workspaces and media below `data.dir` unless they are set."""
    if "root" not in tables.get("workspace", {}):
        workspace = msgspec.structs.replace(settings.workspace, root=settings.data.dir / "workspaces")
        settings = msgspec.structs.replace(settings, workspace=workspace)
    if "dir" not in tables.get("media", {}):
        media = msgspec.structs.replace(settings.media, dir=settings.data.dir / "media")
        settings = msgspec.structs.replace(settings, media=media)
    return settings


def _with_files(layer: Table, problems: list[str]) -> Table:
    kinds = fields_of(Settings)
    result: Table = {}
    for name, table in layer.items():
        if name == "channels" and isinstance(table, dict):
            result[name] = {
                channel: with_files(None, keys, f"channels.{channel}", problems) if isinstance(keys, dict) else keys
                for channel, keys in table.items()
            }
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
            problems.append(f"channels.{name} is a section: write [channels.{name}] and its keys under it")
    return channels
