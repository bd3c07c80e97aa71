"""How the Kubernetes API is reached: kubeconfig files, service accounts, TLS and tokens, on loopback."""

import base64
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
import yaml

from realexec.http.client import Address
from realexec.http.instance_launcher import start_first
from realexec.kubernetes.kubeconfig import Access, access_of
from realexec.kubernetes.pod_launcher import PodLauncher, PodRules
from serving.vocabulary.errors import UserError
from tests.worlds.fake_kubernetes import NAME, Cluster, FakeKubernetes
from tests.worlds.refusals import refuses

openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")
USER = {"token": "secret"}
CLUSTER = {"server": "http://127.0.0.1:1/k8s/clusters/c-1"}


def written(folder: Path, cluster: object = CLUSTER, user: object = USER, **more: object) -> Path:
    file = folder / "config"
    context = {"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "llm"}}
    whole = {"contexts": [context], "current-context": "c"}
    whole |= {"clusters": [{"name": "k", "cluster": cluster}], "users": [{"name": "u", "user": user}]}
    file.write_text(yaml.safe_dump(whole | more), encoding="utf-8")
    return file


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Of this machine, signed by itself; and its key."""
    file, key = folder / f"{name}.pem", folder / f"{name}.key"
    subject = ["-subj", "/CN=fake", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "1"]
    files = ["-keyout", str(key), "-out", str(file)]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *subject, *files],
        check=True,
        capture_output=True,
    )
    return file, key


def test_a_file_names_address_namespace_and_token(tmp_path: Path) -> None:
    access = access_of(str(written(tmp_path)))
    assert (access.address, access.namespace) == (Address("http", "127.0.0.1", 1, "/k8s/clusters/c-1"), "llm")
    assert access.token() == "secret" and access.tls is None
    (tmp_path / "token").write_text("first\n")
    access = access_of(str(written(tmp_path, user={"tokenFile": "token"})))
    assert access.token() == "first"
    (tmp_path / "token").write_text("second\n")
    assert access.token() == "second", "tokens in files are renewed"


def test_the_file_of_kubectl_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(written(tmp_path)))
    assert access_of(None).namespace == "llm"
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".kube").mkdir()
    written(tmp_path).rename(tmp_path / ".kube" / "config")
    assert access_of(None).namespace == "llm"


@openssl
def test_a_pod_has_an_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, _ = certificate(tmp_path, "ca")
    file.rename(tmp_path / "ca.crt")
    (tmp_path / "token").write_text("of the pod")
    (tmp_path / "namespace").write_text("llm")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    access = access_of(None, tmp_path)
    assert (access.address, access.token()) == (Address("https", "fd00::1", 6443), "of the pod")
    assert access.namespace == "llm" and access.tls is not None and len(access.tls.get_ca_certs()) == 1


@pytest.mark.parametrize(
    ("cluster", "user", "told"),
    [
        (CLUSTER, {"exec": {"command": "aws"}}, "the user u has exec, which is not read: write a token"),
        (
            {"server": "https://127.0.0.1:1", "certificate-authority-data": "?"},
            USER,
            "certificate-authority cannot be read",
        ),
        (
            {"server": "https://127.0.0.1:1", "certificate-authority": "none.pem"},
            USER,
            "certificate-authority cannot be read",
        ),
        ({"server": "https://127.0.0.1:1", "certificate-authority-data": "YQ=="}, USER, "is no certificate"),
        ({"server": ""}, USER, "is no address of a server"),
    ],
)
def test_files_that_reach_nothing_are_refused(
    cluster: object, user: object, told: str, tmp_path: Path
) -> None:
    refuses(UserError, told, access_of, str(written(tmp_path, cluster, user)))


def test_files_that_are_no_kubeconfig_are_refused(tmp_path: Path) -> None:
    refuses(UserError, "none is no kubeconfig", access_of, str(tmp_path / "none"))
    refuses(
        UserError, "has no entry x in contexts", access_of, str(written(tmp_path, **{"current-context": "x"}))
    )
    (tmp_path / "config").write_text("a: [")
    refuses(UserError, "is no YAML", access_of, str(tmp_path / "config"))
    (tmp_path / "config").write_text("3")
    refuses(UserError, "no entry .current-context. in contexts", access_of, str(tmp_path / "config"))


def run(access: Access) -> None:
    rules = PodRules(deployment=NAME, port=None, model=None, key=None, timeout_s=20.0, kill_s=1.0)
    with PodLauncher(rules, 1, access) as launcher:
        start_first(launcher)


@openssl
def test_over_tls_with_a_token(tmp_path: Path) -> None:
    file, key = certificate(tmp_path, "server")
    other, _ = certificate(tmp_path, "other")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, key)
    with FakeKubernetes(Cluster(), context, token="secret") as world:
        right = {"server": world.url, "certificate-authority": file.name}
        data = {
            "server": world.url,
            "certificate-authority-data": base64.b64encode(file.read_bytes()).decode(),
        }
        for cluster in (right, data, {"server": world.url, "insecure-skip-tls-verify": True}):
            run(access_of(str(written(tmp_path, cluster))))
        for cluster in ({"server": world.url}, {"server": world.url, "certificate-authority": other.name}):
            refuses(UserError, "certificate verify failed", run, access_of(str(written(tmp_path, cluster))))
        refuses(UserError, "answers 401", run, access_of(str(written(tmp_path, right, {"token": "wrong"}))))
        assert world.replicas == 0 and not world.deployment["metadata"].get("annotations")


@openssl
def test_over_tls_with_a_certificate_of_the_user(tmp_path: Path) -> None:
    file, key = certificate(tmp_path, "server")
    mine, secret = certificate(tmp_path, "mine")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, key)
    context.load_verify_locations(mine)
    context.verify_mode = ssl.CERT_REQUIRED
    with FakeKubernetes(Cluster(), context) as world:
        cluster = {"server": world.url, "certificate-authority": file.name}
        run(
            access_of(
                str(written(tmp_path, cluster, {"client-certificate": mine.name, "client-key": secret.name}))
            )
        )
        wrong = {"client-certificate": mine.name, "client-key": key.name}
        refuses(UserError, "are no pair", access_of, str(written(tmp_path, cluster, wrong)))
