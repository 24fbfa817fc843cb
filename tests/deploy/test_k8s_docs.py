"""What docs/kubernetes*.md shows is so: names, files, waits, manifests. None of it needs a cluster here."""

from __future__ import annotations

import re
import subprocess
from typing import Final

import pytest
import yaml  # type: ignore[import-untyped]

from shared.settings import Settings
from tests.deploy.test_chart import rendered
from tests.deploy.test_k8s_schemas import validated
from tests.helpers.kubernetes_schemas import VERSIONS
from tests.helpers.manifests import EVERYTHING, K8S, ROOT, SENTINELS, named, of_kind, overlay, parsed

PAGES: Final = ("kubernetes.md", "kubernetes-operations.md")
KINDS: Final = {
    "deploy": "Deployment",
    "svc": "Service",
    "statefulset": "StatefulSet",
    "cronjob": "CronJob",
}


def blocks(page: str, language: str) -> list[str]:
    """The blocks of a page in a language, without the indent of a list."""
    found = re.findall(
        rf"^( *)```{language}\n(.*?)^ *```$", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL
    )
    return [re.sub(f"(?m)^{indent}", "", text) for indent, text in found]


@pytest.mark.parametrize("page", PAGES)
def test_commands_are_a_shells_and_name_what_there_is(page: str) -> None:
    """Every object and every file; the job exists with backups."""
    objects = [*overlay(EVERYTHING), *overlay(f"{SENTINELS}+backup-volume")]
    names = {kind: {one["metadata"]["name"] for one in of_kind(objects, kind)} for kind in KINDS.values()}
    shell = blocks(page, "sh")
    assert shell
    for text in shell:
        checked = subprocess.run(["sh", "-n"], input=text, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, (text, checked.stderr)
        for kind, name in re.findall(r"\b(deploy|svc|statefulset|cronjob)/([a-z][a-z-]*[a-z])\b(?!/)", text):
            if f"{kind}/{name}" != "deploy/make-secrets" and not text.count(f"--file {kind}/"):
                assert name in names[KINDS[kind]], f"{kind}/{name}"
        for path in re.findall(r"\b(?:deploy/make-secrets|k8s/overlays/(?!yours)\w+)", text):
            assert (ROOT / path).exists(), path


@pytest.mark.parametrize("page", PAGES)
def test_each_rollout_is_waited_for_before_anything_is_removed(page: str) -> None:
    """A password that goes before the pods with the new one are there locks the role out."""
    for text in blocks(page, "sh"):
        lines = text.splitlines()
        for at, line in enumerate(lines):
            if "rollout restart" not in line:
                continue
            later = [one for one in lines[at + 1 :] if "rollout status" not in one]
            waits = lines[at + 1 : lines.index(later[0])] if later else lines[at + 1 :]
            for name in re.findall(r"deploy/([\w-]+)", line):
                assert any(f"deploy/{name}" in one for one in waits), line


def test_the_rotation_gives_redis_both_passwords_before_and_one_after() -> None:
    """In this order: the new one is added, pods are replaced, the old one goes."""
    [text] = [one for one in blocks(PAGES[1], "sh") if "SETUSER" in one]
    steps = (
        "apply -k secrets",
        'SETUSER worker "#',
        "rollout restart",
        "rollout status",
        'SETUSER worker "!',
        "delete",
    )
    places = [text.index(step) for step in steps]
    assert places == sorted(places)


def test_the_values_and_the_patch_of_the_pages_are_accepted() -> None:
    """By the chart's schema, and with their effect."""
    [values] = [yaml.safe_load(text) for text in blocks(PAGES[0], "yaml") if "modelKey" in text]
    [patch] = [yaml.safe_load(text) for text in blocks(PAGES[1], "yaml") if "MAXMEMORY" in text]
    [objects] = rendered({**values, "patches": {"StatefulSet/shoal-redis": patch}})
    [main] = named(objects, "StatefulSet", "shoal-redis")["spec"]["template"]["spec"]["containers"]
    assert main["env"] == [{"name": "MAXMEMORY", "value": "2730mb"}]
    assert main["resources"]["limits"]["memory"] == "4Gi"
    assert 2730 <= 4096 * 2 / 3
    assert "claude" in named(objects, "ConfigMap", "shoal-config")["data"]["shoal.toml"]


def test_the_example_of_an_ingress_leads_to_the_page() -> None:
    """Valid, to a Service and a port that there are; files and idle sockets get through."""
    [ingress] = parsed((K8S / "gateways" / "web" / "ingress.example.yaml").read_text())
    assert validated([ingress], VERSIONS[-1]) == []
    backend = ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
    service = named(overlay("production"), "Service", backend["name"])
    assert backend["port"]["name"] in {one["name"] for one in service["spec"]["ports"]}
    notes = ingress["metadata"]["annotations"]
    assert int(notes["nginx.ingress.kubernetes.io/proxy-read-timeout"]) > 30
    assert int(notes["nginx.ingress.kubernetes.io/proxy-body-size"].removesuffix("m")) >= Settings().media.file_mb
