"""Certificates for tests: an authority, a server on loopback, a client with a name."""

from __future__ import annotations

import subprocess
from pathlib import Path


def make_certificates(directory: Path) -> Path:
    """ca.pem, server.pem/.key, client.pem/.key in `directory`."""
    _openssl(
        *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test authority"),
        *("-keyout", str(directory / "ca.key"), "-out", str(directory / "ca.pem")),
    )
    _issue(directory, "server", "/CN=localhost", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    _issue(directory, "client", "/O=Plant, North/CN=pump-7", "extendedKeyUsage=clientAuth")
    return directory


def _issue(directory: Path, name: str, subject: str, extension: str) -> None:
    request, extensions = directory / f"{name}.csr", directory / f"{name}.ext"
    extensions.write_text(extension + "\n")
    _openssl(
        *("req", "-newkey", "rsa:2048", "-nodes", "-subj", subject),
        *("-keyout", str(directory / f"{name}.key"), "-out", str(request)),
    )
    _openssl(
        *("x509", "-req", "-in", str(request), "-days", "2", "-extfile", str(extensions)),
        *("-CA", str(directory / "ca.pem"), "-CAkey", str(directory / "ca.key"), "-CAcreateserial"),
        *("-out", str(directory / f"{name}.pem")),
    )


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
