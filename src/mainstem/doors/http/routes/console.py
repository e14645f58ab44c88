"""The web console: one page and its files, as they were built into the package."""

from __future__ import annotations

from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

from mainstem.doors.http.transport.errors import Refusal
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import Header, Response

_PAGE = "index.html"
_TYPES = {
    "html": b"text/html; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "svg": b"image/svg+xml",
}
_POLICY = b"default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
_ALWAYS: tuple[Header, ...] = (
    (b"content-security-policy", _POLICY),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)
_ASK_AGAIN: Header = (b"cache-control", b"no-cache")
_KEEP: Header = (b"cache-control", b"public, max-age=31536000, immutable")  # a file's name changes with it

_files: dict[str, bytes] = {}  # by name; nothing else is served, so no path leads outside the folder


async def get_page(request: HttpRequest) -> Response:
    """Get the web console."""
    if (
        request.header(b"sec-fetch-mode") == b"navigate"
    ):  # a person's browser, whose first query should not wait
        request.broker.sql.prepare()
    return _answer(request, _PAGE, _ASK_AGAIN)


async def get_asset(request: HttpRequest) -> Response:
    """Get a file of the web console."""
    name = request.parameters["file"]
    return _answer(request, name, _KEEP)


def _answer(request: HttpRequest, name: str, caching: Header) -> Response:
    content = _static_files().get(name)
    if content is None:
        raise Refusal(404, "not_found", "the console has no such file")
    tag = b'"%b"' % sha256(content).hexdigest()[:32].encode()
    kind = _TYPES.get(name.rpartition(".")[2], b"application/octet-stream")
    headers = ((b"content-type", kind), (b"etag", tag), caching, *_ALWAYS)
    if tag in (request.header(b"if-none-match") or b""):
        return Response(304, b"", headers)
    return Response(200, content, headers)


def _static_files() -> dict[str, bytes]:
    if not _files:
        static = files("mainstem.console").joinpath("static")
        _take(static)
        _take(static.joinpath("assets"))
    return _files


def _take(folder: Traversable) -> None:
    if folder.is_dir():
        _files.update({one.name: one.read_bytes() for one in folder.iterdir() if one.is_file()})
