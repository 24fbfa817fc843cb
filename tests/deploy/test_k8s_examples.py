"""k8s/examples: objects of other operators that write Shoal's Secrets, checked against those operators' own types."""

from __future__ import annotations

import copy
import json
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml  # type: ignore[import-untyped]

from tests.helpers.manifests import EVERYTHING, K8S, ROOT, SENTINELS, Object, overlay, pods
from tests.helpers.need import need

FOREIGN: Final = ROOT / ".venv" / "foreign"
EXAMPLES: Final = ("cert-manager.yaml", "external-secrets.yaml")
TYPES: Final = {
    "cert-manager.io/v1": "@kubernetes-models/cert-manager/cert-manager.io/v1",
    "external-secrets.io/v1": "@kubernetes-models/external-secrets/external-secrets.io/v1",
}
"""Where npm has what is generated from the definitions of each group."""

OF_A_CHANGE: Final = "-old"
"""The end of a Secret's name that is only there while a password is changed."""


def examples(name: str) -> list[Object]:
    """The objects of a file."""
    return list(yaml.safe_load_all((K8S / "examples" / name).read_text()))


def problems(objects: list[Object], folder: Path) -> list[str]:
    """What the types of these kinds have against the objects: an unknown field, a missing one, a value of another
    type. An object's first unknown field hides its others."""
    need("foreign types", install="run `make foreign`", found=(FOREIGN / ".stamp").exists())
    lines = []
    for at, one in enumerate(objects):
        kind = f"I{one['kind']}"
        lines.append(f'import type {{ {kind} as T{at} }} from "{TYPES[one["apiVersion"]]}/{one["kind"]}";')
        lines.append(f"export const o{at}: T{at} = {json.dumps(one, indent=1)};")
    (folder / "objects.ts").write_text("\n".join(lines))
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "node_modules").unlink(missing_ok=True)
    (folder / "node_modules").symlink_to((FOREIGN / "node_modules").resolve())
    compiler = str(FOREIGN / "node_modules" / "typescript" / "bin" / "tsc")
    words = ["--noEmit", "--strict", "--pretty", "false", "--skipLibCheck", "--module", "nodenext", "objects.ts"]
    result = subprocess.run(["node", compiler, *words], cwd=folder, capture_output=True, text=True, check=False)
    found = [line for line in result.stdout.splitlines() if line.startswith("objects.ts")]
    assert bool(result.returncode) == bool(found), result.stdout + result.stderr
    assert "Cannot find module" not in result.stdout
    return found


@pytest.mark.parametrize("name", EXAMPLES)
def test_they_fit_the_types_of_their_operators(name: str, tmp_path: Path) -> None:
    """As npm has them for cert-manager and the External Secrets operator."""
    assert problems(examples(name), tmp_path) == []


@pytest.mark.parametrize(
    ("name", "at", "path", "value"),
    [
        ("external-secrets.yaml", 0, ("spec", "refreshIntervall"), "1h"),
        ("external-secrets.yaml", 0, ("spec", "secretStoreRef", "kind"), "Vault"),
        ("external-secrets.yaml", 0, ("spec", "data", 0, "remoteRef", "key"), None),
        ("cert-manager.yaml", 3, ("spec", "dnsName"), ["shoal-redis"]),
        ("cert-manager.yaml", 3, ("spec", "issuerRef"), None),
        ("cert-manager.yaml", 1, ("spec", "isCA"), "true"),
        ("cert-manager.yaml", 2, ("spec", "ca", "secretName"), None),
    ],
)
def test_a_broken_example_is_found(name: str, at: int, path: tuple[Any, ...], value: object, tmp_path: Path) -> None:
    """The check can fail: an unknown field, a missing one (None), a value that is none of the allowed, a wrong type."""
    one = copy.deepcopy(examples(name)[at])
    place: Any = one
    for step in path[:-1]:
        place = place[step]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    assert problems([one], tmp_path) != []


def mounted() -> dict[str, set[str]]:
    """Each Secret that pods mount, with the keys that they name."""
    found: dict[str, set[str]] = {}
    for name in (EVERYTHING, f"{SENTINELS}+backup-volume"):
        for _, pod in pods(overlay(name)):
            for volume in pod.get("volumes", ()):
                sources = [one.get("secret") for one in volume.get("projected", {}).get("sources", ())]
                for source in filter(None, [volume.get("secret"), *sources]):
                    keys = found.setdefault(source.get("secretName") or source["name"], set())
                    keys |= {one["key"] for one in source.get("items", ())}
    return {name: keys for name, keys in found.items() if not name.endswith(OF_A_CHANGE)}


def test_they_write_the_secrets_that_pods_mount() -> None:
    """Each with its keys: all but those of chat platforms, whose keys are the platform's."""
    platforms = {f"shoal-{path.parent.name}" for path in K8S.glob("gateways/*/channel.yaml")}
    written = {"shoal-redis-tls": {"ca.crt", "tls.crt", "tls.key"}}
    for one in examples("external-secrets.yaml"):
        assert one["metadata"]["name"] == one["spec"]["target"]["name"]
        written[one["metadata"]["name"]] = {entry["secretKey"] for entry in one["spec"]["data"]}
    wanted = {name: keys for name, keys in mounted().items() if name not in platforms}
    assert written.keys() == wanted.keys()
    assert {name: keys for name, keys in wanted.items() if not keys <= written[name]} == {}


def test_the_certificate_has_the_names_of_the_one_that_make_secrets_makes(tmp_path: Path) -> None:
    """Redis is called by them, alone and with Sentinels; its issuer is the authority beside it."""
    [redis] = [one for one in examples("cert-manager.yaml") if one["spec"].get("secretName") == "shoal-redis-tls"]
    subprocess.run([ROOT / "deploy" / "make-secrets", tmp_path], check=True, capture_output=True)
    command = ["openssl", "x509", "-in", str(tmp_path / "tls.crt"), "-noout", "-ext", "subjectAltName"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert {one.strip().removeprefix("DNS:") for one in text.splitlines()[1].split(",")} == set(
        redis["spec"]["dnsNames"]
    )
    issuers = {one["metadata"]["name"]: one["spec"] for one in examples("cert-manager.yaml") if one["kind"] == "Issuer"}
    [authority] = [one for one in examples("cert-manager.yaml") if one["spec"].get("isCA")]
    assert issuers[redis["spec"]["issuerRef"]["name"]] == {"ca": {"secretName": authority["spec"]["secretName"]}}
    assert authority["spec"]["issuerRef"]["name"] in issuers
