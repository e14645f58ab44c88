"""A test double of Azure Blob Storage, see wire_store. It checks the signatures of requests."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from email.utils import formatdate
from urllib.parse import unquote, urlencode
from xml.sax.saxutils import escape

from tests.support.wire_store import Answer, Kept, Request, WireStore, error

ACCOUNT = "devstoreaccount1"  # Azurite's default account, with its documented key
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

VERSION = "2023-11-03"
_SIGNED = [
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
]
_BATCHED = re.compile(r"^DELETE (/\S+) HTTP/1.1\r\n", re.MULTILINE)


def azure_url(endpoint: str, container: str, prefix: str = "", **options: str) -> str:
    asked = {"endpoint": f"{endpoint}/{ACCOUNT}", "account_name": ACCOUNT, "account_key": KEY, **options}
    return f"az://{container}/{prefix}?{urlencode(asked)}"


def signature(method: str, path: str, query: dict[str, str], headers: dict[str, str]) -> str:
    """What the header `authorization` must say (Shared Key)."""
    named = [headers.get(name, "") for name in _SIGNED]
    named[2] = "" if named[2] == "0" else named[2]
    own = [f"{name}:{value}" for name, value in sorted(headers.items()) if name.startswith("x-ms-")]
    asked = [f"{name}:{value}" for name, value in sorted(query.items())]
    text = "\n".join([method, *named, *own, f"/{ACCOUNT}{path}", *asked])
    made = hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)
    return f"SharedKey {ACCOUNT}:{base64.b64encode(made).decode()}"


class AzureDouble(WireStore):
    def __init__(self) -> None:
        super().__init__()
        self.part_failures: list[str] = []  # status and reason, for the next parts of batches

    def url(self, prefix: str = "", **options: str) -> str:
        return azure_url(self.endpoint, self.bucket, prefix, **options)

    def respond(self, request: Request) -> Answer:
        account, _, rest = unquote(request.path).removeprefix("/").partition("/")
        container, _, key = rest.partition("/")
        due = signature(request.method, request.path, request.query, request.headers)
        if account != ACCOUNT or request.headers.get("authorization") != due:
            return error(403, "AuthenticationFailed")
        if container != self.bucket:
            return error(404, "ContainerNotFound")
        if not key:
            return self._batch(request) if request.query.get("comp") == "batch" else self._list(request)
        if request.method == "PUT":
            if request.headers.get("if-none-match") == "*" and key in self.objects:
                return error(409, "BlobAlreadyExists")
            return Answer(201, headers=self.keep(key, request.body).headers())
        if key not in self.objects:
            return error(404, "BlobNotFound")
        return self.read(key, request.headers.get("range", ""))

    def _list(self, request: Request) -> Answer:
        found, rest = self.page(request.query.get("prefix", ""), request.query.get("marker", ""))
        listed = "".join(_listed(key, kept) for key, kept in found)
        body = f"<Blobs>{listed}</Blobs><NextMarker>{escape(rest)}</NextMarker>"
        return Answer(200, f"<EnumerationResults>{body}</EnumerationResults>".encode())

    def _batch(self, request: Request) -> Answer:
        """Deletes are parts of one request, and each has its own response."""
        answers = []
        for number, path in enumerate(_BATCHED.findall(request.body.decode())):
            key = unquote(path).removeprefix(f"/{ACCOUNT}/{self.bucket}/")
            if self.part_failures:
                said = self.part_failures.pop(0)
            elif self.objects.pop(key, None) is not None:
                said = "202 Accepted"
            else:
                said = "404 The specified blob does not exist."
            answers.append(
                f"--said\r\nContent-Type: application/http\r\nContent-ID: {number}\r\n\r\n"
                f"HTTP/1.1 {said}\r\nx-ms-version: {VERSION}\r\n\r\n"
            )
        body = "".join([*answers, "--said--\r\n"]).encode()
        return Answer(202, body, {"content-type": "multipart/mixed; boundary=said"})


def _listed(key: str, kept: Kept) -> str:
    at = formatdate(kept.modified, usegmt=True)
    said = f"<Last-Modified>{at}</Last-Modified><Content-Length>{len(kept.content)}</Content-Length>"
    said += f"<Content-Type>application/octet-stream</Content-Type><Etag>{kept.generation}</Etag>"
    return f"<Blob><Name>{escape(key)}</Name><Properties>{said}</Properties></Blob>"
