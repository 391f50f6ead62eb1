"""The chart's values match its schema, and its manifests grant minimal rights.

Wheels contain Helm's engine and the schemas of Kubernetes.
"""

import functools
import itertools
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helm_python
import jsonschema
import kubernetes_validate
import pytest
import yaml

from deploy.platform.services import SERVICES

CHART = Path(__file__).parents[4] / "deploy/helm/thingway"
PRODUCTION = "values-production.yaml"
OTHERS = "monitoring.coreos.com/v1", "gateway.networking.k8s.io/v1"
"""API versions of custom resources."""
VALUES: dict[str, str] = {
    "single": "",
    "clusters": "mongo.members=3,nats.members=3",
    "tls": "tls.enabled=true,tls.secret=doors,ingress.enabled=true,ingress.hosts={a.b}",
    "production": "",
    "all": (
        "ingress.enabled=true,ingress.hosts={a.example.com},volumePermissions=true,"
        "gatewayApi.enabled=true,gatewayApi.hostnames={a.example.com},"
        "monitoring.serviceMonitor.enabled=true,defaults.autoscaling.enabled=true,"
        "backup.enabled=true,backup.passphrase.secret=backups,backup.verify.enabled=true,"
        "networkPolicies.metricsFrom[0].namespaceSelector.matchLabels.team=monitoring"
    ),
    "options": (
        "priorityClassName=high,userIds.thingway=0,userIds.mongo=0,userIds.nats=0,userIds.redis=0,"
        "defaults.envFrom[0].secretRef.name=smtp,defaults.extraVolumes[0].name=ca,"
        "defaults.extraVolumes[0].configMap.name=ca,"
        "defaults.extraVolumeMounts[0].name=ca,defaults.extraVolumeMounts[0].mountPath=/ca,"
        "monitoring.exporters.mongo=a/mongo:1,monitoring.exporters.nats=a/nats:1,"
        "monitoring.exporters.redis=a/redis:1,"
        "networkPolicies.metricsFrom[0].namespaceSelector.matchLabels.team=monitoring,"
        "backup.enabled=true,backup.recipients={age1a},backup.s3.url=s3://b/p,backup.s3.secret=s3,"
        "backup.s3.endpoint=https://m,backup.s3.region=r,backup.s3.authority=ca,"
        "backup.serviceAccount=cloud,backup.verify.enabled=true,"
        "backup.verify.identity.secret=keys,backup.verify.storage.size=9Gi"
    ),
    "small": "",
    "medium": "",
    "large": "",
    "restore": (
        "restore.enabled=true,restore.file=a.backup,restore.claim=old,volumePermissions=true,"
        "restore.passphrase.secret=old,restore.identity.secret=keys,"
        "defaults.autoscaling.enabled=true,nats.members=3"
    ),
}
"""Named sets of values as `helm --set` reads them; `FILES` has those of files."""
FILES = {
    "production": [PRODUCTION],
    "small": ["examples/small.yaml"],
    "medium": ["examples/medium.yaml"],
    "large": [PRODUCTION, "examples/large.yaml"],
}
COMPANIONS = (
    "tls.secret=a,mongo.external.secret=a,redis.external.secret=a,nats.external.url=nats://a:1,"
    "nats.external.mqttUrl=mqtt://a:2,backup.passphrase.secret=a,restore.file=a,restore.claim=a,"
    "ingress.hosts={a.b},gatewayApi.hostnames={a.b},"
    "networkPolicies.metricsFrom[0].namespaceSelector.matchLabels.team=monitoring"
)
"""Values that switches require."""
REFUSALS = ("set tls.gateway to false",)
"""Reasons why combinations of switches are refused."""
Manifest = dict[str, Any]

every_set = pytest.mark.parametrize("name", VALUES)


def load_values(name: str) -> dict[str, Any]:
    """Return the set of values called `name`."""
    if name not in FILES:
        return parse_set(VALUES[name])
    return functools.reduce(
        merge, (yaml.safe_load((CHART / file).read_text()) for file in FILES[name])
    )


def merge(values: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Merge values as Helm does with several files."""
    merged = values | others
    for key, value in values.items():
        if isinstance(value, dict) and isinstance(others.get(key), dict):
            merged[key] = merge(value, others[key])
    return merged


def nested(values: dict[str, Any]) -> dict[str, Any]:
    """Return values by dotted name as objects."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        *parents, last = name.split(".")
        functools.reduce(lambda at, key: at.setdefault(key, {}), parents, found)[last] = value
    return found


def switches(schema: Any, path: str = "") -> Iterator[tuple[str, list[Any]]]:
    """Yield each boolean and each choice of the schema, except those of single services."""
    if schema.get("type") == "boolean":
        yield path, [False, True]
    elif "enum" in schema:
        yield path, schema["enum"]
    for name, below in schema.get("properties", {}).items():
        if name != "services":
            yield from switches(below, f"{path}.{name}".strip("."))


def parse_set(text: str) -> dict[str, Any]:
    """Parse values as `helm --set` does."""
    return helm_python.parse_set_string(text)


def render(values: dict[str, Any]) -> list[Manifest]:
    """Render the chart with Helm's engine; raise `HelmError` for invalid values."""
    with helm_python.Chart.load(CHART) as chart:
        files = chart.render(values, name="thingway")
    texts = [text for path, text in files.items() if path.endswith(".yaml")]
    return [
        manifest
        for text in texts
        for manifest in yaml.load_all(text, Loader=yaml.CSafeLoader)
        if manifest
    ]


@functools.cache
def validate(manifest: str) -> None:
    """Check a manifest (JSON) against the schemas of Kubernetes; sets share most manifests."""
    kubernetes_validate.validate(json.loads(manifest), "1.37", strict=True)


@functools.cache
def rendered(name: str) -> list[Manifest]:
    """Return the manifests that the chart renders for a set of values."""
    return render(load_values(name))


def pods(name: str) -> dict[str, Manifest]:
    """Return the pod specifications of a set of values by kind and name of their owner."""
    return pods_of(rendered(name))


def pods_of(manifests: list[Manifest]) -> dict[str, Manifest]:
    """Return the pod specifications by kind and name of their owner."""
    found = {}
    for one in manifests:
        if one["kind"] in {"Deployment", "StatefulSet", "Job"}:
            found[f"{one['kind']} {one['metadata']['name']}"] = one["spec"]["template"]["spec"]
        elif one["kind"] == "CronJob":
            spec = one["spec"]["jobTemplate"]["spec"]["template"]["spec"]
            found[f"CronJob {one['metadata']['name']}"] = spec
        elif one["kind"] == "Pod":
            found[f"Pod {one['metadata']['name']}"] = one["spec"]
    return found


@pytest.mark.parametrize("name", ["values.yaml", PRODUCTION])
def test_values_match_the_schema(name: str) -> None:
    """The schema knows every value in the file."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.validate(yaml.safe_load((CHART / name).read_text()), schema)


@every_set
def test_lint_reports_no_warning(name: str) -> None:
    """Helm's strict lint reports neither an error nor a warning."""
    report = helm_python.lint(CHART, load_values(name), strict=True)
    assert report["errors"] == []
    assert [message for message in report["messages"] if message["severity"] > 1] == []


def test_the_readme_names_existing_values_and_their_defaults() -> None:
    """Its table has a row for each; the text names further values and all services."""
    text = (CHART / "README.md").read_text()
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    defaults = dict(re.findall(r"^\| `(.*?)` \| `(.*?)` \|", text, re.MULTILINE))
    assert defaults
    for name, default in defaults.items():
        value = functools.reduce(lambda below, key: below[key], name.split("."), values)
        assert (name, value) == (name, yaml.safe_load(default))
    for name in re.findall(r"`([a-z]\w*(?:\.\w+)+)`", text):
        parent, *path = name.split(".")
        if parent in values and path:
            functools.reduce(lambda below, key: below[key], path, values[parent])
    assert [name for name in values["services"] if f"`{name}`" not in text] == []


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("mongo.member=3", "'member' not allowed"),
        ("mongo.members=2", "members"),
        ("tls.enabled=true", "secret"),
        ("service.port=70000", "port"),
        ("environment.PATH=/bin", "PATH"),
        ("backup.schedule=daily", "schedule"),
        ("backup.enabled=true", "backup.recipients or backup.passphrase.secret"),
        (
            "backup.enabled=true,backup.recipients={age1a},backup.verify.enabled=true",
            "backup.verify.identity.secret",
        ),
        ("backup.s3.url=https://a", "url"),
        ("gatewayApi.enabled=true,tls.enabled=true,tls.secret=a", "tls.gateway"),
        ("volumePermissions=true,userIds.nats=0", "userIds"),
        ("restore.enabled=true,restore.claim=old", "restore.file"),
        ("restore.enabled=true,restore.file=a", "restore.claim"),
        ("nats.embedded=false", "nats.external"),
        ("mongo.embedded=false", "mongo.external.secret"),
        ("image.digest=sha256:1", "digest"),
        ("monitoring.serviceMonitor.enabled=true", "needs networkPolicies.metricsFrom"),
    ],
)
def test_invalid_values_are_rejected_by_name(values: str, message: str) -> None:
    """Misspelled, out-of-range and incomplete values are not ignored."""
    with pytest.raises(helm_python.HelmError, match=re.escape(message)):
        render(parse_set(values))


def test_every_pair_of_switches_renders_or_is_refused_with_a_reason() -> None:
    """With the values that switches require, only the reasons in `REFUSALS` occur."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    schema["properties"]["defaults"] = schema["$defs"]["service"]
    choices = dict(switches(schema))
    pairs = {
        frozenset([(one, value), (other, chosen)])
        for one, other in itertools.combinations(choices, 2)
        for value, chosen in itertools.product(choices[one], choices[other])
    }
    chance = random.Random(1)
    reasons = set()
    with helm_python.Chart.load(CHART) as chart:
        while pairs:
            picked = {name: chance.choice(values) for name, values in choices.items()}
            picked |= dict(min(pairs, key=lambda pair: sorted(map(str, pair))))
            try:
                files = chart.render(merge(parse_set(COMPANIONS), nested(picked)), name="thingway")
            except helm_python.HelmError as error:
                [reason] = re.findall("|".join(REFUSALS), str(error)) or [str(error)]
                reasons.add(reason)
                continue
            pairs -= {frozenset(pair) for pair in itertools.combinations(picked.items(), 2)}
            for path, text in files.items():
                if path.endswith(".yaml"):
                    list(yaml.load_all(text, Loader=yaml.CSafeLoader))
    assert reasons <= set(REFUSALS)


@pytest.fixture(scope="module")
def _schemas() -> Iterator[None]:
    """Read each schema of Kubernetes once: validation reads megabytes for each manifest."""
    read = functools.cache(kubernetes_validate.utils.schema_contents)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kubernetes_validate.utils, "schema_contents", read)
        yield


@every_set
@pytest.mark.usefixtures("_schemas")
def test_manifests_are_valid(name: str) -> None:
    """They match the schemas of Kubernetes, without unknown fields."""
    for manifest in rendered(name):
        if manifest["apiVersion"] not in OTHERS:
            validate(json.dumps(manifest, sort_keys=True))


@every_set
def test_only_the_jobs_that_write_secrets_have_a_token(name: str) -> None:
    """Their roles name each Secret and grant nothing else."""
    holders = {pod for pod, spec in pods(name).items() if spec["automountServiceAccountToken"]}
    bootstrap = set() if name == "restore" else {"Job thingway-bootstrap"}
    assert holders == {"Job thingway-setup"} | bootstrap
    for role in (one for one in rendered(name) if one["kind"] == "Role"):
        [rule] = role["rules"]
        assert rule["resources"] == ["secrets"]
        assert rule["resourceNames"]
        assert set(rule["verbs"]) == {"get", "create", "patch"}


@every_set
def test_every_container_is_restricted(name: str) -> None:
    """No root, a read-only file system, no capabilities, the default seccomp profile."""
    for pod, spec in pods(name).items():
        assert spec["securityContext"]["runAsNonRoot"], pod
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, pod
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            if container["name"] == "volume-permissions":
                continue
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"], pod
            assert not context["allowPrivilegeEscalation"], pod
            assert context["capabilities"] == {"drop": ["ALL"]}, pod


@every_set
def test_each_part_mounts_its_own_secret_only(name: str) -> None:
    """Exceptions: MongoDB's job with the key file, the toolbox, and jobs that use all stores."""
    for pod, spec in pods(name).items():
        part = spec["containers"][0]["name"]
        mounted = {
            one["secret"]["secretName"] for one in spec.get("volumes", ()) if "secret" in one
        }
        allowed = {f"thingway-{part}"}
        if part == "mongo-setup":
            allowed.add("thingway-mongo")
        if part == "test":
            allowed = {"thingway-credentials"}
        if part == "backup":
            allowed = {"thingway-setup", "thingway-bootstrap", "ca"}
        if part in {"restore", "contract", "verify"}:
            allowed = {"thingway-setup", "keys", "ca"}
        if "migrate" in pod:
            secrets = {one["name"]: one["secret"] for one in spec["volumes"] if "secret" in one}
            allowed = {f"thingway-{container['name']}" for container in spec["containers"]}
            for container in spec["containers"]:
                [volume] = [at["name"] for at in container["volumeMounts"] if at["name"] in secrets]
                assert secrets[volume]["secretName"] == f"thingway-{container['name']}"
        assert mounted <= allowed, pod


@every_set
def test_every_service_is_observable_scalable_and_evictable(name: str) -> None:
    """Each has probes, a disruption budget, requests and limits, and a network policy."""
    objects = {(one["kind"], one["metadata"]["name"]): one for one in rendered(name)}
    for service in SERVICES:
        full = f"thingway-{service.name}"
        for kind in ("Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy"):
            assert (kind, full) in objects
        spec = objects["Deployment", full]["spec"]["template"]["spec"]
        [container] = spec["containers"]
        assert container["args"] == ["python", "-m", service.module]
        assert {"startupProbe", "readinessProbe", "livenessProbe"} <= container.keys()
        assert container["resources"].keys() == {"requests", "limits"}
        assert spec["topologySpreadConstraints"]


@pytest.mark.parametrize("tls", ["", ",tls.enabled=true,tls.secret=a"])
def test_the_service_monitor_keeps_the_labels_of_metrics(tls: str) -> None:
    """The label `service` of Prometheus Operator does not replace that of the metrics."""
    manifests = render(parse_set(VALUES["all"] + ",gatewayApi.enabled=false" + tls))
    [monitor] = [one for one in manifests if one["kind"] == "ServiceMonitor"]
    endpoints = monitor["spec"]["endpoints"]
    ports = [endpoint["port"] for endpoint in endpoints]
    assert ports == (["metrics", "metrics-tls"] if tls else ["metrics"])
    assert all(endpoint["honorLabels"] for endpoint in endpoints)


@every_set
def test_public_addresses_lead_to_the_public_port_of_the_gateway(name: str) -> None:
    """Metrics, and reasons of an unready gateway, are only at its port for operators."""
    objects = {(one["kind"], one["metadata"]["name"]): one for one in rendered(name)}
    [container] = pods(name)["Deployment thingway-gateway"]["containers"]
    ports = {port["containerPort"]: port["name"] for port in container["ports"]}
    variables = {one["name"]: one.get("value") for one in container["env"]}
    operations = ports[int(variables["THINGWAY_OPERATIONS_PORT"])]
    public = objects["Service", "thingway-gateway"]["spec"]["ports"]
    assert operations not in {port["targetPort"] for port in public}
    routes = [one["spec"] for (kind, _), one in objects.items() if kind in {"Ingress", "HTTPRoute"}]
    backends = re.findall(r'"name": "(thingway-[^"]+)"', json.dumps(routes))
    assert set(backends) <= {"thingway-gateway"}


def test_external_stores_are_configured_by_secrets() -> None:
    """The chart creates no StatefulSet, and no manifest contains an address."""
    assert not [one for one in rendered("production") if one["kind"] == "StatefulSet"]
    for service in SERVICES:
        spec = pods("production")[f"Deployment thingway-{service.name}"]
        variables = {one["name"]: one for one in spec["containers"][0]["env"]}
        assert ("THINGWAY_MONGO_URL" in variables) == (service.database is not None)
        assert ("THINGWAY_REDIS_URL" in variables) == (service.redis_pattern is not None)
        for name in ("THINGWAY_MONGO_URL", "THINGWAY_REDIS_URL"):
            if name in variables:
                assert "secretKeyRef" in variables[name]["valueFrom"]


@pytest.mark.parametrize("restore", [False, True])
def test_files_of_external_stores_reach_every_container_that_connects(*, restore: bool) -> None:
    """The jobs read the same connection strings, which may name an authority."""

    def files(name: str) -> Manifest:
        return {
            "extraVolumes": [{"name": "ca", "configMap": {"name": name}}],
            "extraVolumeMounts": [{"name": "ca", "mountPath": "/ca", "readOnly": True}],
        }

    values = {
        "defaults": files("all"),
        "services": {"device": files("device")},
        "restore": {"enabled": restore, "file": "a"},
    }
    containers = []
    for pod, spec in pods_of(render(merge(load_values("production"), values))).items():
        names = {
            volume["name"]: volume["configMap"]["name"]
            for volume in spec["volumes"]
            if "configMap" in volume
        }
        assert len({volume["name"] for volume in spec["volumes"]}) == len(spec["volumes"])
        for container in spec["containers"]:
            variables = {variable["name"] for variable in container.get("env", ())}
            if variables & {"THINGWAY_MONGO_URL", "THINGWAY_REDIS_URL"}:
                mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
                expected = "device" if container["name"] == "device" else "all"
                assert names[mounts["/ca"]] == expected, pod
                containers.append(f"{pod} {container['name']}")
    jobs = {container.split()[1] for container in containers if "Job" in container}
    expected_jobs = {"contract", "backup", "restore" if restore else "migrate"}
    assert jobs == {f"thingway-{job}" for job in expected_jobs}


@every_set
def test_no_argument_contains_a_password(name: str) -> None:
    """URLs of external stores are variables, because every user of a node sees arguments."""
    for pod, spec in pods(name).items():
        for container in spec["containers"]:
            words = [*container.get("command", ()), *container.get("args", ())]
            assert not [word for word in words if "$(MONGO" in word or "$(REDIS" in word], pod


@every_set
def test_python_programs_start_by_the_entrypoint_of_the_image(name: str) -> None:
    """It ends a container that gets SIGTERM while it starts; `command` would replace it."""
    for pod, spec in pods(name).items():
        assert not [one for one in spec["containers"] if one.get("command", [""])[0] == "python"], (
            pod
        )


@pytest.mark.parametrize(("store", "port"), [("mongo", 9216), ("nats", 7777), ("redis", 9121)])
def test_prometheus_reaches_the_exporter_of_a_store(store: str, port: int) -> None:
    """It logs in as its own user; the setup job creates the users."""
    objects = {(one["kind"], one["metadata"]["name"]): one for one in rendered("options")}
    [_, exporter] = pods("options")[f"StatefulSet thingway-{store}"]["containers"]
    assert exporter["ports"] == [{"name": "metrics", "containerPort": port}]
    ports = objects["Service", f"thingway-{store}-members"]["spec"]["ports"]
    assert {"name": "metrics", "port": port} in ports
    rules = objects["NetworkPolicy", f"thingway-{store}"]["spec"]["ingress"]
    [peer] = [rule["from"] for rule in rules if rule["ports"] == [{"port": port}]]
    assert peer == [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}]
    if store != "nats":
        login = exporter["env"][0]["valueFrom"]["secretKeyRef"]
        assert login == {"name": f"thingway-{store}", "key": "exporter"}
    [setup] = pods("options")["Job thingway-setup"]["containers"]
    assert "--exporters" in setup["args"]


def test_redis_knows_the_memory_limit_of_its_container() -> None:
    """Its alert compares with this limit, not with the memory of the node."""
    redis = pods("single")["StatefulSet thingway-redis"]["containers"][0]
    assert redis["command"][-2:] == ["--maxmemory", "$(MEMORY_LIMIT)"]
    limit = {"resourceFieldRef": {"resource": "limits.memory"}}
    assert redis["env"] == [{"name": "MEMORY_LIMIT", "valueFrom": limit}]


def test_services_reach_external_sentinels() -> None:
    """Their port is allowed in addition to the port of Redis."""
    external = {"redis": {"external": {"sentinelPort": 26379}}}
    policies = render(merge(load_values("production"), external))
    [auth] = [
        policy["spec"]["egress"]
        for policy in policies
        if (policy["kind"], policy["metadata"]["name"]) == ("NetworkPolicy", "thingway-auth")
    ]
    assert {"ports": [{"port": 6379}, {"port": 26379}]} in auth


def test_during_a_restore_no_service_runs() -> None:
    """Nothing writes to the stores before the restore, and no backup runs during it."""
    values = load_values("production") | {"restore": {"enabled": True, "file": "a/b.backup"}}
    for manifests in (rendered("restore"), render(values)):
        objects = {
            (manifest["kind"], manifest["metadata"]["name"]): manifest for manifest in manifests
        }
        for service in SERVICES:
            assert objects["Deployment", f"thingway-{service.name}"]["spec"]["replicas"] == 0
        started = {name for kind, name in objects if kind == "Job" and "mongo-setup" not in name}
        assert started == {"thingway-restore", "thingway-setup"}
        assert "HorizontalPodAutoscaler" not in {kind for kind, _ in objects}
        if backup := objects.get(("CronJob", "thingway-backup")):
            assert backup["spec"]["suspend"]


def test_backups_go_to_s3_with_credentials_of_a_secret() -> None:
    """Backup and verification then need no volume; no argument contains a credential."""
    found = pods("options")
    backup = found["CronJob thingway-backup"]["containers"][0]
    assert backup["args"] == [
        "s3://b/p",
        "--keep=3",
        "--keep-days=30",
        "--bootstrap=/bootstrap",
        "--recipient=age1a",
    ]
    verify = found["CronJob thingway-verify"]
    assert verify["containers"][0]["args"] == ["s3://b/p", "--identity-file=/identity/identity"]
    assert [initContainer["restartPolicy"] for initContainer in verify["initContainers"]] == [
        "Always",
        "Always",
    ]
    for container in (backup, verify["containers"][0]):
        variables = {one["name"]: one for one in container["env"]}
        assert variables["AWS_ENDPOINT_URL_S3"]["value"] == "https://m"
        assert variables["AWS_SECRET_ACCESS_KEY"]["valueFrom"]["secretKeyRef"]["name"] == "s3"
        assert variables["AWS_CA_BUNDLE"]["value"] == "/s3/ca.crt"
        mounts = {volumeMount["mountPath"] for volumeMount in container["volumeMounts"]}
        assert "/backups" not in mounts
        assert "/s3" in mounts
    for pod in (found["CronJob thingway-backup"], verify):
        assert pod["serviceAccountName"] == "cloud"
        assert "ca" in {
            volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume
        }
    values = parse_set("restore.enabled=true,restore.file=s3://b/p/a.backup")
    [job] = [one for one in render(values) if one["metadata"]["name"] == "thingway-restore"]
    assert job["spec"]["template"]["spec"]["containers"][0]["args"][0] == "s3://b/p/a.backup"


def test_the_restore_reads_the_file_and_the_keys() -> None:
    """The job reads the passphrase of `restore`, else that of `backup`."""
    [container] = pods("restore")["Job thingway-restore"]["containers"]
    assert container["args"] == [
        "/backups/a.backup",
        "--verify",
        "--replicas=3",
        "--identity-file=/identity/identity",
    ]
    variables = {one["name"]: one for one in container["env"]}
    passphrase = variables["THINGWAY_BACKUP_PASSPHRASE"]["valueFrom"]["secretKeyRef"]
    assert passphrase == {"name": "old", "key": "passphrase"}
    values = load_values("production") | {"restore": {"enabled": True, "file": "b.backup"}}
    [job] = [one for one in render(values) if one["metadata"]["name"] == "thingway-restore"]
    spec = job["spec"]["template"]["spec"]
    claims = [
        volume["persistentVolumeClaim"] for volume in spec["volumes"] if volume["name"] == "backups"
    ]
    assert claims == [{"claimName": "thingway-backup"}]
    variables = {one["name"]: one.get("valueFrom") for one in spec["containers"][0]["env"]}
    assert variables["THINGWAY_BACKUP_PASSPHRASE"]["secretKeyRef"]["name"] == "thingway-backup"
    assert variables["THINGWAY_MONGO_URL"]["secretKeyRef"]["key"] == "restore"


def test_with_tls_every_public_port_uses_the_certificate() -> None:
    """Only TLS ports are open, and only their servers get the key."""
    objects = {(one["kind"], one["metadata"]["name"]): one for one in rendered("tls")}
    ports = {
        port["port"]
        for part in ("gateway", "nats")
        for port in objects["Service", f"thingway-{part}"]["spec"]["ports"]
    }
    assert ports == {443, 8883, 8884, 8084, 4222, 4223}
    holders = set()
    for pod, spec in pods("tls").items():
        shared = [one["projected"] for one in spec.get("volumes", ()) if one["name"] == "tls"]
        keys = {
            item["key"] for one in shared for it in one["sources"] for item in it["secret"]["items"]
        }
        if "tls.key" in keys:
            holders.add(pod)
    assert holders == {"Deployment thingway-gateway", "StatefulSet thingway-nats"}


@every_set
def test_network_policies_deny_by_default(name: str) -> None:
    """One policy closes every pod; all others name their allowed clients."""
    policies = {
        one["metadata"]["name"]: one["spec"]
        for one in rendered(name)
        if one["kind"] == "NetworkPolicy"
    }
    closed = policies.pop("thingway-closed")
    assert "ingress" not in closed
    assert "app.kubernetes.io/component" not in closed["podSelector"]["matchLabels"]
    public = {"thingway-gateway", "thingway-nats"}
    for policy, spec in policies.items():
        assert set(spec["policyTypes"]) == {"Ingress", "Egress"}
        for rule in spec["ingress"] or ():
            assert "from" in rule or policy in public, policy
            assert rule["ports"]


def test_a_digest_selects_the_image() -> None:
    """All containers of the platform run the image of this digest."""
    digest = f"sha256:{'0' * 64}"
    texts = json.dumps(
        render(parse_set(f"image.digest={digest},backup.enabled=true,backup.passphrase.secret=b"))
    )
    images = set(re.findall(r'"image": "(thingway:[^"]+)"', texts))
    assert {image.partition("@")[2] for image in images} == {digest}


@pytest.mark.skipif(
    not (CHART / "files/alerts.yaml").exists(), reason="this chart comes without alert rules"
)
def test_the_chart_contains_alerts_and_dashboards() -> None:
    """The chart does not interpret them as templates."""
    options = "monitoring.prometheusRule.enabled=true,monitoring.dashboards.enabled=true"
    made = {one["kind"]: one for one in render(parse_set(options))}
    assert made["PrometheusRule"]["spec"] == yaml.safe_load(
        (CHART / "files/alerts.yaml").read_text()
    )
    boards = {one.name: one.read_text() for one in (CHART / "files/dashboards").glob("*.json")}
    assert {one: json.loads(text) for one, text in made["ConfigMap"]["data"].items()} == {
        one: json.loads(text) for one, text in boards.items()
    }


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ("", {"-credentials": True, "port-forward": True, "/etc/hosts": False}),
        (
            "tls.enabled=true,tls.secret=doors",
            {"-credentials": True, "port-forward": True, "/etc/hosts": True},
        ),
        (
            "restore.enabled=true,restore.file=a,restore.claim=b",
            {"-credentials": False, "port-forward": False, "-toolbox": False, "/etc/hosts": False},
        ),
    ],
)
def test_the_notes_show_only_commands_that_work(values: str, shown: dict[str, bool]) -> None:
    """With TLS they name the hosts in the certificate; during a restore no service runs."""
    with helm_python.Chart.load(CHART) as chart:
        notes = chart.render(parse_set(values), name="thingway")["thingway/templates/NOTES.txt"]
    assert {text: text in notes for text in shown} == shown
