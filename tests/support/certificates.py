"""Certificates for tests, by the system's openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path

_LOOPBACK = "subjectAltName=DNS:localhost,IP:127.0.0.1"


def make_self_signed(directory: Path) -> Path:
    """cert.pem and key.pem of a server on loopback in `directory`."""
    _openssl(
        *(
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ),
        *("-subj", "/CN=localhost", "-addext", _LOOPBACK),
        *("-keyout", str(directory / "key.pem"), "-out", str(directory / "cert.pem")),
    )
    return directory


def make_certificates(directory: Path) -> Path:
    """ca.pem of an authority, server.pem/.key for loopback, client.pem/.key with a name, in `directory`."""
    _openssl(
        *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test authority"),
        *("-keyout", str(directory / "ca.key"), "-out", str(directory / "ca.pem")),
    )
    _issue(directory, "server", "/CN=localhost", _LOOPBACK)
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
