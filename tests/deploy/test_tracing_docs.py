"""What docs/tracing.md says is so: spans, attributes, settings, the example for Kubernetes."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml  # type: ignore[import-untyped]

from shared.settings import Settings, load
from shared.tracing.export import QUEUE_SPANS, TEXT_CHARS, TRY_S
from shared.tracing.process import FLUSH_S
from shared.tracing.spans import ALL, CONTENT, ENDED_BY, ERROR, FIRST, OF_EVERY_SPAN, SpanType
from tests.deploy.test_docs import default_of, spans, tables
from tests.helpers.manifests import overlay
from worker.agent.tools.act import TRACED_CHARS
from worker.llm.policies.traced_content import CALL_CHARS, MESSAGE_CHARS

ROOT: Final = Path(__file__).parents[2]
DOC: Final = (ROOT / "docs" / "tracing.md").read_text()
OURS: Final = "shoal."
OTHERS: Final = {"server.address", ERROR}
"""Names of OpenTelemetry's conventions that are not about generative AI."""


def block(language: str) -> str:
    """The only piece of code in this language behind the head about Kubernetes."""
    [found] = re.findall(rf"```{language}\n(.*?)```", DOC.partition("## Kubernetes")[2], re.DOTALL)
    return str(found)


def named(type: SpanType) -> str:
    return f"{type.name} <{type.word}>" if type.word else type.name


def test_the_table_has_every_span_with_its_kind_and_its_attributes() -> None:
    """Both ways: nothing is sent that is not told, nothing is told that is not sent."""
    [rows] = [rows for head, rows in tables(DOC) if head[0] == "span"]
    result = {spans(name)[0]: (kind, frozenset(spans(attributes))) for name, kind, _, attributes in rows}
    assert result == {named(one): (one.kind, one.attributes) for one in ALL}
    assert f"Event `{FIRST}`" in DOC
    assert all(f"`{name}`" in DOC for name in OF_EVERY_SPAN)


def test_every_attribute_is_declared_where_it_is_set() -> None:
    """A name with a slip in it would be one that nobody finds: each literal in the code is one of the table's."""
    declared = {name for one in ALL for name in one.attributes | one.content} | OF_EVERY_SPAN
    used: set[str] = set()
    for package in ("console", "gateway", "shared", "shoal", "worker"):
        for path in (ROOT / package).rglob("*.py"):
            if "tracing" in (text := path.read_text()):
                used |= set(re.findall(r"\.set\(\s*\"([a-z_.]+)\"", text))
    assert used | {ERROR, ENDED_BY} == declared


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_names_that_are_not_ours_are_those_of_opentelemetry() -> None:
    """As its own package lists them."""
    known: set[str] = set()
    for module in (
        "_incubating.attributes.gen_ai_attributes",
        "attributes.server_attributes",
        "attributes.error_attributes",
    ):
        found = vars(importlib.import_module(f"opentelemetry.semconv.{module}"))
        known |= {value for name, value in found.items() if name.isupper() and isinstance(value, str)}
    theirs = {name for one in ALL for name in one.attributes | one.content | OF_EVERY_SPAN if not name.startswith(OURS)}
    assert theirs - known == set()
    assert {name for name in theirs if not name.startswith("gen_ai.")} == OTHERS


def test_what_holds_a_text_is_sent_only_where_it_is_asked_for() -> None:
    """The conventions have places for prompts, replies, arguments and results: those of `tracing.content` alone."""
    [rows] = [rows for head, rows in tables(DOC) if head[0] == "attribute"]
    assert {(spans(row[0])[0], spans(row[1])[0].split()[0]) for row in rows} == {
        (name, one.name) for one in ALL for name in one.content
    }
    assert {name for one in ALL for name in one.content} == CONTENT
    assert default_of("tracing.content") is False
    assert (f"{MESSAGE_CHARS:,}" in DOC, f"{CALL_CHARS:,}" in DOC, TRACED_CHARS) == (True, True, MESSAGE_CHARS)
    texts = ("message", "prompt", "completion", "instructions", "arguments", "result", "definitions", "description")
    assert [name for one in ALL for name in one.attributes for word in texts if word in name] == []


def test_every_setting_is_reported_with_its_default() -> None:
    """Of the section, and the one of the model that belongs to it."""
    [rows] = [rows for head, rows in tables(DOC) if head[0] == "setting"]
    result = {spans(row[0])[0] for row in rows}
    assert result == {f"tracing.{key}" for key in Settings().tracing.__struct_fields__} | {"model.traceparent"}
    assert default_of("tracing.endpoint") == ""
    assert (default_of("tracing.sample"), default_of("model.traceparent")) == (1.0, False)


def test_the_numbers_are_those_of_the_code() -> None:
    """How many wait, for how long, how much of a text."""
    assert (QUEUE_SPANS, TRY_S, FLUSH_S, TEXT_CHARS) == (4096, 5.0, 2.0, 256)
    for text in ("a queue of 4,096", "within 5 s", "at most\n2 s", "cut at 256 characters"):
        assert text in DOC


def test_the_example_for_kubernetes_is_for_pods_that_there_are(tmp_path: Path) -> None:
    """Settings that load, and a policy that fits the pods of both roles and the port of the endpoint."""
    file = tmp_path / "shoal.toml"
    file.write_text(block("toml"))
    tracing = load({}, path=file).tracing
    policy: dict[str, Any] = yaml.safe_load((ROOT / "k8s/components/tracing/network-policy.yaml").read_text())
    [fits] = policy["spec"]["podSelector"]["matchExpressions"]
    pods = [
        one["spec"]["template"]["metadata"]["labels"]
        for one in overlay("production")
        if one["kind"] == "Deployment" and one["metadata"]["name"].startswith(("gateway", "worker"))
    ]
    assert len(pods) >= 3
    assert all(labels[fits["key"]] in fits["values"] for labels in pods)
    [[peer]] = [rule["to"] for rule in policy["spec"]["egress"]]
    namespace = peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
    assert f".{namespace}:" in tracing.endpoint
    [[port]] = [rule["ports"] for rule in policy["spec"]["egress"]]
    assert tracing.endpoint.endswith(f":{port['port']}")
    assert msgspec.to_builtins(tracing.sample) == 0.1


@pytest.mark.parametrize("link", re.findall(r"\]\((?!https?:)([^)#\s]+)", DOC))
def test_every_link_leads_to_a_file(link: str) -> None:
    """Nobody is sent nowhere."""
    assert (ROOT / "docs" / link).exists()
