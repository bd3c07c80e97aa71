"""How to reach the Kubernetes API: by a kubeconfig file, or by the service account of the pod we run in."""

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from realexec.http.client import Address, address_of
from serving.vocabulary.errors import UserError

# https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/
_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_HOST, _PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
_DEFAULT: Final = "default"
# What a user of a kubeconfig may have that asks for a program or for what the API no longer takes.
_NOT_READ: Final = ("exec", "auth-provider", "username")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """``tls``: None for plain http. ``token``: read for each request, because tokens in files are renewed."""

    address: Address
    tls: ssl.SSLContext | None
    token: Callable[[], str | None]
    namespace: str = _DEFAULT


def access_of(kubeconfig: str | None, account: Path = _ACCOUNT) -> Access:
    """Return the access that a file names; None: of the pod we run in, else of the file kubectl reads.

    Raises UserError.
    """
    if kubeconfig is None and (host := os.environ.get(_HOST)) and account.is_dir():
        return _of_pod(host, account)
    listed = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    path = Path(kubeconfig or listed or "~/.kube/config").expanduser()
    return _of_file(path)


def _of_pod(host: str, account: Path) -> Access:
    place = f"[{host}]" if ":" in host else host
    namespace = account / "namespace"
    return Access(
        address=address_of(f"https://{place}:{os.environ.get(_PORT, '443')}"),
        tls=_context(account / "ca.crt", (account / "ca.crt").read_text(encoding="ascii")),
        token=lambda: (account / "token").read_text(encoding="utf-8").strip(),
        namespace=namespace.read_text(encoding="utf-8").strip() if namespace.exists() else _DEFAULT,
    )


def _of_file(path: Path) -> Access:
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        data = yaml.safe_load(text)
    except OSError as error:
        raise UserError(
            f"{path} is no kubeconfig ({error.strerror}): write http.kubeconfig=FILE, which kubectl uses"
        ) from None
    except (ValueError, yaml.YAMLError) as error:
        raise UserError(
            f"{path} is no YAML ({str(error).splitlines()[0]}): write a kubeconfig file"
        ) from None
    file = _File(path, data if isinstance(data, Mapping) else {})
    return file.access()


class _File:
    """A kubeconfig, https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/."""

    def __init__(self, path: Path, data: Mapping[str, Any]) -> None:
        self._path, self._data = path, data

    def access(self) -> Access:
        """Return what its current context names."""
        context = self._named("contexts", self._data.get("current-context"), "context")
        cluster = self._named("clusters", context.get("cluster"), "cluster")
        user = self._named("users", context.get("user"), "user") if context.get("user") else {}
        for name in _NOT_READ:
            if name in user:
                raise UserError(
                    f"{self._path}: the user {context.get('user')} has {name}, which is not read: write a "
                    "token, such as kubectl create token SERVICE_ACCOUNT prints, or a client-certificate"
                )
        address = address_of(str(cluster.get("server", "")))
        return Access(
            address=address,
            tls=self._tls(cluster, user) if address.scheme == "https" else None,
            token=self._token(user),
            namespace=str(context.get("namespace") or _DEFAULT),
        )

    def _named(self, kind: str, name: Any, inner: str) -> Mapping[str, Any]:
        entries = self._data.get(kind)
        for entry in entries if isinstance(entries, list) else []:
            if isinstance(entry, Mapping) and entry.get("name") == name and name:
                found = entry.get(inner)
                if isinstance(found, Mapping):
                    return found
        raise UserError(
            f"{self._path} has no entry {name or '(current-context)'} in {kind}: write a kubeconfig file as "
            "kubectl config view --minify --flatten prints one"
        )

    def _token(self, user: Mapping[str, Any]) -> Callable[[], str | None]:
        if "tokenFile" in user:
            file = self._beside(user["tokenFile"])
            return lambda: file.read_text(encoding="utf-8").strip()
        token = user.get("token")
        return lambda: None if token is None else str(token)

    def _tls(self, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
        authority = self._text(cluster, "certificate-authority")
        context = _context(self._path, authority)
        if cluster.get("insecure-skip-tls-verify"):
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        certificate, secret = self._text(user, "client-certificate"), self._text(user, "client-key")
        if certificate and secret:
            # The standard library takes these from files alone.
            with tempfile.TemporaryDirectory() as folder:
                pair = Path(folder) / "pair.pem"
                pair.touch(mode=0o600)
                pair.write_text(f"{certificate}\n{secret}\n", encoding="ascii")
                try:
                    context.load_cert_chain(pair)
                except ssl.SSLError as error:
                    raise UserError(
                        f"{self._path}: client-certificate and client-key are no pair ({error}): write those "
                        "that kubectl uses"
                    ) from None
        return context

    def _text(self, entry: Mapping[str, Any], name: str) -> str | None:
        """Return what NAME-data has, or the file that NAME names; None without either."""
        try:
            if (data := entry.get(f"{name}-data")) is not None:
                return base64.b64decode(str(data), validate=True).decode("ascii")
            if (file := entry.get(name)) is not None:
                return self._beside(file).read_text(encoding="ascii")
        except (OSError, binascii.Error, UnicodeDecodeError) as error:
            raise UserError(
                f"{self._path}: {name} cannot be read ({error}): write a PEM file or its base64"
            ) from None
        return None

    def _beside(self, file: Any) -> Path:
        """Return a path of the file: relative ones are beside it."""
        return self._path.parent / Path(str(file)).expanduser()


def _context(path: Path, authority: str | None) -> ssl.SSLContext:
    """Return how the API server is checked. ``authority``: PEM; None: the machine's certificates."""
    try:
        return ssl.create_default_context(cadata=authority)
    except ssl.SSLError as error:
        raise UserError(
            f"{path}: certificate-authority is no certificate ({error}): write a PEM file"
        ) from None
