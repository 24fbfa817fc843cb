"""The rules of deploy/prometheus as one object of the Prometheus operator: `python -m tests.deploy.prometheus_rule`
writes it; a test compares."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped]

ROOT: Final = Path(__file__).parents[2]
RULES: Final = ROOT / "deploy" / "prometheus" / "rules"
FILE: Final = ROOT / "k8s" / "components" / "monitoring" / "prometheus-rule.yaml"
_HEAD: Final = "# Made of deploy/prometheus/rules by `python -m tests.deploy.prometheus_rule`; change those.\n"


class _Text(str):
    """Text of more than one line, written as it was."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Sequences stand two further in, as in all our files."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


_Dumper.add_representer(_Text, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|"))


def text() -> str:
    """The manifest."""
    groups = [group for path in sorted(RULES.glob("*.yaml")) for group in yaml.safe_load(path.read_text())["groups"]]
    manifest = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "shoal", "labels": {"app.kubernetes.io/part-of": "shoal"}},
        "spec": {"groups": _marked(groups)},
    }
    body: str = yaml.dump(manifest, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True)
    return _HEAD + body


def _marked(value: Any) -> Any:
    match value:
        case dict():
            return {name: _marked(inner) for name, inner in value.items()}
        case list():
            return [_marked(inner) for inner in value]
        case str() if "\n" in value:
            return _Text(value)
        case _:
            return value


if __name__ == "__main__":
    FILE.write_text(text())
