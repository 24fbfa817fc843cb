"""Backup, restore, rotation and the small overlay as far as one machine can; Debian's Redis stands for Valkey."""

from __future__ import annotations

import hashlib
import re
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from tests.deploy.test_k8s_schemas import validated
from tests.helpers.kubelet import Cluster, Running
from tests.helpers.kubernetes_schemas import VERSIONS
from tests.helpers.local_cluster import local_cluster, start_redis
from tests.helpers.manifests import K8S, ROOT, Object, containers, of_kind, overlay, parsed, pods, rendered_text
from tests.helpers.need import need
from tests.helpers.network import End, reaches
from tests.helpers.pod_policy import problems

BACKUPS = ("production+backup-volume", "production+backup-s3")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """The production overlay with copies on a volume."""
    with local_cluster(BACKUPS[0], {"-h shoal-redis": "-h localhost"}) as made:
        yield made


def admin(redis: Running, *words: str) -> int:
    """Say a command as admin in the pod of Redis, as docs/kubernetes.md does; return the exit code."""
    return redis.execute(["sh", "/etc/valkey/as-admin", *words], 30)


@pytest.mark.parametrize("name", BACKUPS)
def test_a_backup_is_valid_confined_and_reaches_what_it_needs(name: str) -> None:
    """Redis, and with S3 the internet; no other address, and nobody reaches it."""
    objects = overlay(name)
    for version in (VERSIONS[0], VERSIONS[-1]):
        assert validated(objects, version) == []
    assert list(problems(objects)) == []
    [job] = of_kind(objects, "CronJob")
    backup = End(job["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"])
    redis = End({"app.kubernetes.io/component": "redis"})
    assert reaches(objects, backup, redis, 6379)
    assert not reaches(objects, redis, backup, 6379)
    assert reaches(objects, backup, End(address="93.184.216.34"), 443) == name.endswith("s3")
    assert not reaches(objects, backup, End(address="10.1.2.3"), 443)


@pytest.mark.timeout(120)
def test_what_the_job_copied_is_what_redis_starts_with_after_a_restore(cluster: Cluster) -> None:
    """With what came after the copy gone, and the data of before still there beside it."""
    redis = start_redis(cluster)
    try:
        assert admin(redis, "SET", "before", "1") == 0
        assert admin(redis, "EVAL", "redis.call('HSET', KEYS[1], 'a', 1, 'b', 2)", "1", "hash") == 0
        job = cluster.pod("CronJob", "backup")
        files = cluster.folder / "claim-shoal-files"
        (files / "workspaces" / "note.txt").write_text("kept")
        for name in ("redis", "files", "keep"):
            running = job.run(name)
            assert running.process.wait(60) == 0, running.log
        [copy] = (cluster.folder / "claim-shoal-backup").iterdir()
        assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d{6}Z", copy.name)
        with tarfile.open(copy / "files.tar") as archive:
            assert any(name.endswith("workspaces/note.txt") for name in archive.getnames())
        assert admin(redis, "SET", "after", "1") == 0
        assert redis.stop() == 0
        data = cluster.folder / "shoal-redis" / "data"
        (data / "restore.rdb").write_bytes((copy / "redis.rdb").read_bytes())
        assert redis.pod.run("restore").process.wait(30) == 0
        again = redis.pod.run("valkey")
        try:
            again.up()
            assert admin(again, "EVAL", "assert(redis.call('HGET', 'hash', 'b') == '2')", "0") == 0
            assert admin(again, "EVAL", "assert(redis.call('EXISTS', 'before', 'after') == 1)", "0") == 0
        finally:
            again.kill()
        assert not (data / "restore.rdb").exists()
        [old] = data.glob("appendonlydir.before-*")
        assert redis.pod.run("restore").process.wait(30) == 0
        assert list(data.glob("appendonlydir.before-*")) == [old], "without a copy to put back it does nothing"
    finally:
        redis.kill()


@pytest.mark.timeout(120)
def test_an_admin_raises_memory_and_changes_a_password_without_a_restart(cluster: Cluster) -> None:
    """Both passwords are good in between, and afterwards the new one alone."""
    redis = start_redis(cluster)
    ca = cluster.folder / "shoal-redis" / "tls" / "ca.crt"
    old = cluster.secrets["shoal-redis-worker"]["password"].strip()

    def opens(password: str) -> bool:
        url = f"rediss://worker:{password}@localhost:{cluster.ours['6379']}/0"
        return login(url, ca)

    try:
        assert admin(redis, "CONFIG", "SET", "maxmemory", "2gb") == 0
        assert opens(old)
        assert not opens("new")
        assert admin(redis, "ACL", "SETUSER", "worker", f"#{hashlib.sha256(b'new').hexdigest()}") == 0
        assert opens(old)
        assert opens("new")
        assert admin(redis, "ACL", "SETUSER", "worker", f"!{hashlib.sha256(old.encode()).hexdigest()}") == 0
        assert not opens(old)
        assert opens("new")
    finally:
        redis.kill()


def login(url: str, ca: Path) -> bool:
    """Whether Redis lets somebody in."""
    words = ["redis-cli", "-u", url, "--tls", "--cacert", str(ca), "--no-auth-warning", "PING"]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    return result.stdout.strip() == "PONG"


def test_secrets_are_made_in_one_step(tmp_path: Path) -> None:
    """`kubectl apply -k secrets`: the namespace of the manifests, and every Secret and key that their pods need."""
    need("openssl")
    for name in ("shoal", "staging"):
        folder = tmp_path / name
        command = [str(ROOT / "deploy" / "make-secrets"), str(folder)]
        subprocess.run(command, check=True, capture_output=True, env={"PATH": "/usr/bin:/bin", "SHOAL_NAMESPACE": name})
        (folder / "redis-worker.old").write_text("old")
        subprocess.run(command, check=True, capture_output=True, env={"PATH": "/usr/bin:/bin", "SHOAL_NAMESPACE": name})
        made = parsed(rendered_text(folder))
        assert {one["metadata"].get("namespace", name) for one in made} == {name}
        keys = {one["metadata"]["name"]: set(one["data"]) for one in of_kind(made, "Secret")}
        assert keys.items() >= wanted(overlay("production+backup-volume")).items()
        assert keys["shoal-redis-worker-old"] == {"password"}
        assert "ca.key" not in keys["shoal-redis-tls"]
    base = yaml.safe_load((K8S / "base" / "namespace.yaml").read_text())
    [namespace] = of_kind(parsed(rendered_text(tmp_path / "shoal")), "Namespace")
    assert namespace == base


def wanted(objects: list[Object]) -> dict[str, set[str]]:
    """The Secrets that pods cannot start without, with the keys that their files have."""
    found: dict[str, set[str]] = {}
    for _, pod in pods(objects):
        for volume in pod["volumes"]:
            for source in volume.get("projected", {}).get("sources", ()):
                secret = source.get("secret", {})
                if secret and not secret.get("optional"):
                    found.setdefault(secret["name"], set()).update(one["key"] for one in secret["items"])
    found["shoal-redis-tls"] = {"ca.crt", "tls.crt", "tls.key"}
    return found | {"shoal-web": {"token"}, "shoal-model": {"api_key"}}


def test_the_small_overlay_rolls_on_two_cores() -> None:
    """All of it asks for less than one core, and the old pod ends before the new one starts."""
    objects = overlay("dev")
    asked = [one["resources"]["requests"]["cpu"] for _, pod in pods(objects) for one in containers(pod)]
    assert sum(int(one.removesuffix("m")) for one in asked) <= 1000
    for one in of_kind(objects, "Deployment"):
        if one["metadata"]["name"] != "console":
            assert one["spec"]["replicas"] == 1
            assert one["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    assert of_kind(objects, "PersistentVolumeClaim")[0]["spec"]["accessModes"] == ["ReadWriteOnce"]
