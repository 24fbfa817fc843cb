"""What the manifests of k8s/ say fits what the processes do. Rendered, never applied to a cluster."""

from __future__ import annotations

import re
import subprocess
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from shared.metrics import REGISTRY
from shared.settings import Settings, load
from shared.settings.sections.processes import RunnerSettings
from shared.version import VERSION
from tests.deploy import prometheus_rule
from tests.deploy.test_k8s_schemas import validated
from tests.helpers.kubernetes_schemas import VERSIONS
from tests.helpers.manifests import (
    EVERYTHING,
    K8S,
    OVERLAYS,
    PLATFORMS,
    ROOT,
    Object,
    containers,
    copied_to,
    environment,
    keda_queries,
    named,
    of_kind,
    overlay,
    parsed,
    pods,
    rendered_text,
    tool,
    variant,
)

SECRETS: Mapping[str, tuple[str, ...]] = {
    "discord": ("token",),
    "email": ("password", "smtp_password"),
    "feishu": ("app_secret", "encrypt_key", "verification_token"),
    "matrix": ("access_token", "password"),
    "slack": ("token", "app_token", "signing_secret"),
    "telegram": ("token", "webhook_secret"),
    "whatsapp": ("access_token", "app_secret", "verify_token"),
}
"""What of a chat platform's settings is secret."""

GUARDIAN_S = 5
"""After worker.drain_s a guardian waits so long before it kills its workers."""


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return copied_to(tmp_path)


@pytest.mark.parametrize(
    ("without", "components"),
    [(("autoscaling",), ("hpa",)), (("redis",), ("redis-managed",)), (("monitoring", "autoscaling"), ())],
    ids=["without KEDA", "a managed Redis", "without operators"],
)
def test_other_ways_to_put_it_together_are_valid(
    without: tuple[str, ...], components: tuple[str, ...], copied: Path
) -> None:
    """Each component goes with and without the others."""
    objects = variant(copied, without=without, components=components)
    assert validated(objects, VERSIONS[0]) == []
    check_settings(objects)


def test_a_changed_agent_or_setting_is_a_rollout(copied: Path) -> None:
    """The name of a ConfigMap is that of its content, so all pods of one revision have the same `agent/`."""
    before = named(overlay("production"), "Deployment", "worker-turns")["spec"]["template"]
    file = copied / "k8s" / "overlays" / "production" / "agent" / "AGENTS.md"
    file.write_text(file.read_text() + "Be kind.\n")
    after = named(variant(copied), "Deployment", "worker-turns")["spec"]["template"]
    assert after != before
    jobs = named(variant(copied), "Deployment", "worker-jobs")["spec"]["template"]["spec"]
    assert source_of(jobs) == source_of(after["spec"]) != source_of(before["spec"])


def source_of(pod: Object) -> str:
    """The ConfigMap with the agent's files."""
    [volume] = [one for one in pod["volumes"] if one["name"] == "agent"]
    name: str = volume["projected"]["sources"][0]["configMap"]["name"]
    return name


def test_the_files_of_redis_are_those_of_deploy() -> None:
    """One truth."""
    data = named(overlay("production"), "ConfigMap", "shoal-redis-config")["data"]
    deploy = ROOT / "deploy"
    files = [deploy / "valkey.conf", *(deploy / "redis").iterdir()]
    assert data == {path.name: path.read_text() for path in files}


@pytest.mark.parametrize("name", OVERLAYS)
def test_each_key_of_the_manifests_is_a_setting(name: str) -> None:
    """In shoal.toml and in the environment, with a value that fits; and no secret stands in either."""
    check_settings(overlay(name))


def check_settings(objects: list[Object]) -> None:
    """Each container of ours, as it reads its settings when every secret is there."""
    text = named(objects, "ConfigMap", "shoal-config")["data"]["shoal.toml"]
    for _, pod in pods(objects):
        for container in containers(pod):
            if not container["image"].partition(":")[0].endswith("shoal"):
                continue
            variables = environment(container)
            unsecret = {key: value for key, value in variables.items() if not key.endswith("_FILE")}
            for key in variables.keys() - unsecret.keys():
                section, _, setting = key.removeprefix("SHOAL_").removesuffix("_FILE").lower().partition("__")
                if setting == "ca":
                    setting = "ca_file"
                if section == "channels":
                    channel, _, setting = setting.partition("__")
                    assert setting in SECRETS[channel], key
                    assert container["command"][-1] == channel, f"{key}: nobody else needs it"
                else:
                    assert setting in type(getattr(Settings(), section)).__struct_fields__, key
                mounted = [mount["mountPath"] for mount in container["volumeMounts"]]
                assert any(variables[key].startswith(f"{place}/") for place in mounted), f"{key}: nothing is there"
            if "SHOAL_REDIS__USER" in unsecret:
                unsecret["SHOAL_REDIS__PASSWORD"] = "x"
            config = unsecret.pop("SHOAL_CONFIG", None)
            assert all(not place.startswith("SHOAL_") or "__" in place for place in unsecret)
            loaded = settings_from(text if config is not None else "", unsecret)
            assert not [key for key in tomllib.loads(text) if key not in Settings.__struct_fields__]
            if config is not None:
                assert loaded.log.format == "json"


def settings_from(text: str, variables: Mapping[str, str]) -> Settings:
    """The settings of a process that has this file and these variables."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(text)
        file.flush()
        return load(variables, path=Path(file.name))


def test_production_begins_with_what_holds_everywhere() -> None:
    """Its shoal.toml replaces the base's, and repeats it."""
    base = tomllib.loads((K8S / "base" / "shoal.toml").read_text())
    own = tomllib.loads((K8S / "overlays" / "production" / "shoal.toml").read_text())
    assert {name: own.get(name) for name in base} == base


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_pod_is_given_the_time_that_its_end_takes(name: str) -> None:
    """preStop, the drain, and the guardian's patience; then the runner ends."""
    objects = overlay(name)
    drain_s = settings_of(objects).worker.drain_s
    for pod_name, pod in pods(objects):
        [main] = pod["containers"]
        hook = main.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["sleep", "0"])
        assert hook[0] == "sleep"
        needed_s = int(hook[1]) + (drain_s + GUARDIAN_S if pod_name.startswith("worker") else 0)
        assert pod["terminationGracePeriodSeconds"] >= needed_s + 5, pod_name
        if pod_name.startswith("gateway"):
            assert int(hook[1]) >= 3, "a Service leads to a pod for a moment after its end has begun"


def settings_of(objects: list[Object]) -> Settings:
    """What shoal.toml says."""
    text = named(objects, "ConfigMap", "shoal-config")["data"]["shoal.toml"]
    return settings_from(text, {})


@pytest.mark.parametrize("name", OVERLAYS)
def test_ports_and_probes_are_where_the_processes_listen(name: str) -> None:
    """A probe on a port that nobody listens on restarts pods for ever."""
    objects = overlay(name)
    settings = settings_of(objects)
    ports = {"gateway": settings.metrics.port_of("gateway"), "worker": settings.metrics.port_of("worker")}
    assert settings.metrics.host == settings.web.host == "0.0.0.0"
    for pod_name, pod in pods(objects):
        role = pod_name.partition("-")[0]
        if role not in ports:
            continue
        [main] = pod["containers"]
        listening = {one["name"]: one["containerPort"] for one in main["ports"]}
        assert listening["metrics"] == ports[role]
        if pod_name == "gateway-web":
            assert listening["http"] == settings.web.port
        elif "hooks" in listening:
            assert listening["hooks"] == settings.hooks.port
            assert environment(main)["SHOAL_HOOKS__HOST"] == "0.0.0.0"
        for probe, path in (("startupProbe", "healthz"), ("livenessProbe", "healthz"), ("readinessProbe", "readyz")):
            assert main[probe]["httpGet"] == {"path": f"/{path}", "port": "metrics"}
    services = {one["metadata"]["name"]: one["spec"]["ports"] for one in of_kind(objects, "Service")}
    found = {pod: [one["targetPort"] for one in services[pod]] for pod, _ in pods(objects) if pod in services}
    hooked = {"gateway-whatsapp": ["hooks"]} if name == EVERYTHING else {}
    assert found == {"gateway-web": ["http"], "shoal-redis": ["redis"]} | hooked, "metrics are not for everybody"


@pytest.mark.parametrize("name", OVERLAYS)
def test_a_probe_costs_little(name: str) -> None:
    """None starts a Python; one that runs a program has long to answer; and a runner asks for the CPU it needs."""
    asked = [
        (container, container.get(kind, {}))
        for _, pod in pods(overlay(name))
        for container in containers(pod)
        for kind in ("startupProbe", "livenessProbe", "readinessProbe")
    ]
    programs = [(container, probe) for container, probe in asked if "exec" in probe]
    assert {container["name"] for container, _ in programs} <= {"runner", "valkey"}
    for container, probe in programs:
        assert "python" not in " ".join(probe["exec"]["command"])
        assert probe["timeoutSeconds"] >= (20 if container["name"] == "runner" else 5)
        assert container["resources"]["requests"]["cpu"] in ("100m", "500m")


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_process_is_one_of_ours(name: str) -> None:
    """Exec form, a command that the README names, an image by exact tag, this release's."""
    for pod_name, pod in pods(overlay(name)):
        for container in containers(pod):
            image, _, tag = container["image"].rpartition(":")
            if not image.endswith("shoal"):
                assert (image, tag) == ("valkey/valkey", "9.1.2")
                assert pod_name == "shoal-redis"
                continue
            assert tag == VERSION
            match container["command"]:
                case ["python", "-m", "gateway", *channels]:
                    assert len(channels) == 1
                    assert channels[0] in ("web", *PLATFORMS)
                    assert pod_name == f"gateway-{channels[0]}"
                case ["python", "-m", "worker", "runner"]:
                    assert container["name"] == "runner"
                case ["python", "-m", "worker", queue]:
                    assert queue in ("turns", "jobs")
                case ["python", "-c", _]:
                    assert pod_name == "console"
                case other:
                    raise AssertionError(other)


@pytest.mark.parametrize("name", OVERLAYS)
def test_a_runner_fits_its_worker(name: str) -> None:
    """Another user, one group with it, the same socket and the same workspaces, no settings file, no secret, memory
    for all its commands; and it ends after its worker."""
    objects = overlay(name)
    settings = settings_of(objects)
    for queue in ("turns", "jobs"):
        pod = named(objects, "Deployment", f"worker-{queue}")["spec"]["template"]["spec"]
        [runner], [worker] = pod["initContainers"], pod["containers"]
        result = environment(runner)
        uid = pod["securityContext"]["runAsUser"]
        assert runner["restartPolicy"] == "Always"
        assert runner["securityContext"]["runAsUser"] != uid == int(result["SHOAL_RUNNER__WORKER_UID"])
        assert runner["securityContext"]["runAsGroup"] != pod["securityContext"]["runAsGroup"]
        assert settings.workspace.group == pod["securityContext"]["fsGroup"]
        assert result["SHOAL_RUNNER__SOCKET"] == settings.tools.exec_runner
        assert result["SHOAL_WORKSPACE__ROOT"] == str(settings.workspace.root)
        assert not any("CONFIG" in key or key.endswith("_FILE") for key in result)
        volumes = {mount["name"] for mount in runner["volumeMounts"]}
        assert volumes == {"socket", "files", "runner-tmp"}
        assert [mount["mountPath"] for mount in runner["volumeMounts"] if mount["name"] == "files"] == [
            str(settings.workspace.root)
        ]
        shared = {mount["name"] for mount in worker["volumeMounts"]} & volumes
        assert shared == {"socket", "files"}
        at_once = int(result["SHOAL_RUNNER__COMMANDS"])
        assert at_once <= RunnerSettings().commands
        memory_mb = int(runner["resources"]["limits"]["memory"].removesuffix("Mi"))
        assert memory_mb >= at_once * settings.tools.exec_memory_mb + 128
        assert not pod.get("shareProcessNamespace")


def test_autoscaling_reads_metrics_that_are_there_and_below_what_a_worker_takes() -> None:
    """The names are the registry's; a worker is added before the others are full; replicas are left to KEDA."""
    objects = overlay("production")
    settings = settings_of(objects)
    known = {metric.name for metric in REGISTRY.collect()}
    scaled = of_kind(objects, "ScaledObject")
    assert settings.worker.turns >= settings.worker.jobs > 0
    assert len(scaled) == 3
    for one in scaled:
        target = named(objects, "Deployment", one["spec"]["scaleTargetRef"]["name"])
        assert "replicas" not in target["spec"]
        queue = target["metadata"]["name"].removeprefix("worker-")
        if queue == "gateway-web":
            [trigger] = one["spec"]["triggers"]
            assert set(re.findall(r"shoal_\w+", trigger["metadata"]["query"])) == {"shoal_web_sockets"} <= known
            continue
        for trigger in one["spec"]["triggers"]:
            query = trigger["metadata"]["query"]
            assert set(re.findall(r"shoal_\w+", query)) <= known
            served = {"turns", "background"} if queue == "turns" else {queue}
            for asked in re.findall(r'queue=~?"([\w|]+)"', query):
                assert {queue} <= set(asked.split("|")) <= served
        backlog = one["spec"]["triggers"][1]["metadata"]
        assert backlog["query"].startswith("100 * ")
        assert "/ max by (namespace) (shoal_worker_places{" in backlog["query"], "in % of one worker"
        assert 0 < int(backlog["threshold"]) < 100


def test_autoscaling_looks_at_its_own_namespace(copied: Path) -> None:
    """Another installation in the same Prometheus scales nothing here, however the overlay's namespace is called."""
    file = copied / "k8s" / "overlays" / "production" / "kustomization.yaml"
    for namespace in ("shoal", "staging"):
        file.write_text(re.sub("(?m)^namespace: .*", f"namespace: {namespace}", file.read_text()))
        queries = keda_queries(parsed(rendered_text(file.parent)))
        assert len(queries) == 5
        assert {one for query in queries for one in re.findall(r'namespace="(\w*)"', query)} == {namespace}
        for query in queries:
            first, *joined = query.split("{")[:-1]
            assert 'namespace="' in query.partition("{")[2][:12], query
            assert all("by (namespace) (shoal" in one for one in joined), "the others are joined to the first"
            assert joined == [] or "by (namespace, __name__" in first, query


def test_redis_keeps_room_for_rewriting_its_log() -> None:
    """At most three quarters of the container's memory are for data, and what is full refuses instead of evicting."""
    pod = named(overlay("production"), "StatefulSet", "shoal-redis")["spec"]["template"]["spec"]
    [main] = pod["containers"]
    words = main["args"]
    assert words[words.index("--maxmemory") + 1] == "$(MAXMEMORY)"
    maxmemory_mb = int(environment(main)["MAXMEMORY"].removesuffix("mb"))
    assert maxmemory_mb <= 0.75 * 2048
    assert main["resources"]["limits"]["memory"] == "2Gi"
    assert "--maxmemory-policy" not in words
    assert words[words.index("--port") + 1] == "0", "nothing without TLS"


def test_the_alerts_of_the_cluster_are_those_of_deploy() -> None:
    """Written by `python -m tests.deploy.prometheus_rule`."""
    assert prometheus_rule.FILE.read_text() == prometheus_rule.text()


def test_each_deployment_of_people_and_work_outlives_a_drained_node() -> None:
    """Two of each, spread over nodes, and one at most away on purpose."""
    objects = overlay(EVERYTHING)
    budgets = {
        one["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"]: one["spec"]["maxUnavailable"]
        for one in of_kind(objects, "PodDisruptionBudget")
    }
    gateways = ("gateway-web", *(f"gateway-{name}" for name in PLATFORMS))
    assert budgets == dict.fromkeys((*gateways, "worker-turns", "worker-jobs"), 1)
    for name in budgets:
        spec = named(objects, "Deployment", name)["spec"]
        assert spec.get("replicas", 2) == 2
        assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
        labels = spec["template"]["metadata"]["labels"]
        keys = set()
        for constraint in spec["template"]["spec"]["topologySpreadConstraints"]:
            assert constraint["labelSelector"]["matchLabels"].items() <= labels.items()
            keys.add(constraint["topologyKey"])
        assert keys == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}


def test_yaml_is_clean() -> None:
    """yamllint on what we write."""
    made = (prometheus_rule.FILE, *K8S.glob("templates/*.yaml"))
    files = [path for path in (*K8S.rglob("*.yaml"), *(ROOT / "deploy").glob("*.yaml")) if path not in made]
    rules = msgspec.json.encode(
        {
            "extends": "default",
            "rules": {
                "line-length": {"max": 120},
                "document-start": "disable",
                "comments": {"min-spaces-from-content": 1},
                "braces": {"max-spaces-inside": 1},
                "truthy": {"check-keys": False},
                "octal-values": "disable",
            },
        }
    ).decode()
    result = subprocess.run(
        [tool("yamllint"), "--strict", "-d", rules, *files], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout
