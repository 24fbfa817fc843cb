"""A copy in an S3 by the component backup-s3, as docs/kubernetes-operations.md says; the bucket is of moto's server."""

from __future__ import annotations

from typing import Final

import yaml  # type: ignore[import-untyped]

from proof.cluster.installation import Installation
from proof.cluster.pages import DAY_TWO
from tests.helpers.manifests import Object, of_kind, overlay

PORT: Final = 5000
CONF: Final = """\
[backup]
type = alias
remote = s3:copies/shoal

[s3]
type = s3
provider = Other
endpoint = http://s3.{namespace}.svc:{port}
access_key_id = a
secret_access_key = b
"""
SERVER: Final = (
    "import sys; sys.path.insert(0, '/opt/moto'); from moto.server import main; main(['-H', '0.0.0.0', '-p', '5000'])"
)


def back_up(at: Installation, *, image: str) -> None:
    """A copy in an S3, made while people chat: Redis and files, whole."""
    server = at.disk.helper
    server("apply", "-f", "-", stdin=yaml.safe_dump_all(bucket(image)))
    server("wait", "--for=condition=Ready", "pod/s3", "--timeout=120s")
    conf = CONF.format(namespace=server.namespace, port=PORT)
    server("exec", "-i", "s3", "--", "sh", "-c", "cat >/tmp/rclone.conf", stdin=conf)
    rclone = ("exec", "s3", "--", "rclone", "--config", "/tmp/rclone.conf")
    server(*rclone, "mkdir", "s3:copies")
    (at.folder / "rclone.conf").write_text(conf)
    at.kubectl("delete", "secret", "shoal-backup-s3", "--ignore-not-found")
    at.pages.run(DAY_TWO, "shoal-backup-s3")
    at.kubectl("delete", "cronjob", "backup")  # its volume is of another kind
    at.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(objects(at, image)))
    at.pages.run(DAY_TWO, "backup-now")
    listed = server(*rclone, "lsf", "--recursive", "--files-only", "backup:").split()
    found = sorted(name.partition("/")[2] for name in listed)
    assert found == ["files.tar", "redis.rdb"], found


def objects(at: Installation, image: str) -> list[Object]:
    """Return what the component adds, and the way to a bucket in the own network, which an installation adds itself."""
    made = overlay("dev-redis-small+redis-sentinel+backup-s3+small")
    jobs = of_kind(made, "CronJob")
    policies = [one for one in of_kind(made, "NetworkPolicy") if "backup" in one["metadata"]["name"]]
    for job in jobs:
        at.fit(job)
        [keep] = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
        keep["image"] = image
    own = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "backup-to-own-bucket"},
        "spec": {
            "podSelector": {"matchLabels": {"shoal/role": "backup"}},
            "policyTypes": ["Egress"],
            "egress": [{"to": [{"namespaceSelector": {}}], "ports": [{"protocol": "TCP", "port": PORT}]}],
        },
    }
    for one in (*jobs, *policies):
        one["metadata"]["namespace"] = at.kubectl.namespace
    return [*jobs, *policies, own]


def bucket(image: str) -> list[Object]:
    """Return the server, and its name."""
    container = {
        "name": "s3",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "-c", SERVER],
        # Else the first part of the server's own name is taken for a bucket.
        "env": [{"name": "S3_IGNORE_SUBDOMAIN_BUCKETNAME", "value": "true"}],
        "readinessProbe": {"tcpSocket": {"port": PORT}},
    }
    metadata = {"name": "s3", "labels": {"app": "s3"}}
    return [
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "s3"},
            "spec": {"clusterIP": "None", "selector": {"app": "s3"}, "ports": [{"port": PORT}]},
        },
    ]
