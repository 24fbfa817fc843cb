"""Pods whose workspaces are in a bucket: where their copies are, who has the credentials, what is reached."""

from __future__ import annotations

import pytest

from tests.deploy.test_network import OUTSIDE
from tests.helpers.manifests import WORKLOADS, Object, environment, named, of_kind, overlay
from tests.helpers.network import End, reaches

WORKERS = ("worker-turns", "worker-jobs")
ROOT = "/var/lib/shoal/workspaces"


@pytest.fixture(scope="module")
def objects() -> list[Object]:
    """Production with all three components."""
    return overlay("production+s3+s3-keys+s3-network")


def mounts(container: Object) -> dict[str, Object]:
    """What a container mounts, by path."""
    return {one["mountPath"]: one for one in container["volumeMounts"]}


@pytest.mark.parametrize("name", WORKERS)
def test_a_worker_and_its_runner_share_copies_that_go_with_the_pod(name: str, objects: list[Object]) -> None:
    """Media stay in the claim, for gateways use them, too."""
    pod = named(objects, "Deployment", name)["spec"]["template"]["spec"]
    [runner], [worker] = pod["initContainers"], pod["containers"]
    copies = {"name": "copies", "mountPath": ROOT}
    assert mounts(runner)[ROOT] == mounts(worker)[ROOT] == copies
    assert mounts(worker)["/var/lib/shoal/media"] == {
        "name": "files",
        "mountPath": "/var/lib/shoal/media",
        "subPath": "media",
    }
    assert "files" not in {one["name"] for one in runner["volumeMounts"]}
    [volume] = [one for one in pod["volumes"] if one["name"] == "copies"]
    assert volume["emptyDir"]["sizeLimit"]


def test_workers_and_the_console_have_the_credentials_as_files(objects: list[Object]) -> None:
    """No gateway has them, and no runner, which runs commands of chats."""
    for one in of_kind(objects, *WORKLOADS):
        name, pod = one["metadata"]["name"], one["spec"]["template"]["spec"]
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            found = {key for key in environment(container) if key.startswith("SHOAL_WORKSPACE__STORE")}
            has = container["name"] == "shoal" and name in (*WORKERS, "console")
            keys = {"SHOAL_WORKSPACE__STORE_ACCESS_KEY_FILE", "SHOAL_WORKSPACE__STORE_SECRET_KEY_FILE"}
            assert found == (keys if has else set()), name
            assert ("s3" in {mount["name"] for mount in container["volumeMounts"]}) == has


def test_workers_and_the_console_reach_the_store_and_nobody_else_does(objects: list[Object]) -> None:
    """In the company's network at its port; on the internet with TLS. A proxy takes the place of the internet."""
    for made, outside in ((objects, True), (overlay("production+s3+s3-network+proxy"), False)):
        for one in of_kind(made, *WORKLOADS):
            name, pod = one["metadata"]["name"], End(one["spec"]["template"]["metadata"]["labels"])
            has = name in (*WORKERS, "console")
            assert reaches(made, pod, OUTSIDE["private 10"], 443) == has, name
            assert reaches(made, pod, OUTSIDE["internet"], 443) == (has and outside), name
            assert not reaches(made, pod, OUTSIDE["metadata"], 443)
