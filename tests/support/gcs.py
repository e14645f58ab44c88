"""A test double of Google Cloud Storage's XML API, see wire_store."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import unquote, urlencode
from xml.sax.saxutils import escape

from tests.support.wire_store import Answer, Kept, Request, WireStore, error


class GcsDouble(WireStore):
    """Accepts any token, but requires one."""

    def url(self, prefix: str = "", **options: str) -> str:
        return f"gs://{self.bucket}/{prefix}?{urlencode({'endpoint': self.endpoint, **options})}"

    def respond(self, request: Request) -> Answer:
        bucket, _, key = unquote(request.path).removeprefix("/").partition("/")
        if not request.headers.get("authorization", "").startswith("Bearer "):
            return error(401, "AuthenticationRequired")
        if bucket != self.bucket:
            return error(404, "NoSuchBucket")
        if not key:
            return self._list(request)
        if request.method == "PUT":
            return self._put(key, request)
        if key not in self.objects:
            return error(404, "NoSuchKey")
        if request.method == "DELETE":
            del self.objects[key]
            return Answer(204)
        return self.read(key, request.headers.get("range", ""))

    def _put(self, key: str, request: Request) -> Answer:
        wanted = request.headers.get("x-goog-if-generation-match")
        there = self.objects[key].generation if key in self.objects else 0
        if wanted is not None and int(wanted) != there:
            return error(412, "PreconditionFailed")
        kept = self.keep(key, request.body)
        return Answer(200, headers=kept.headers() | {"x-goog-generation": str(kept.generation)})

    def _list(self, request: Request) -> Answer:
        if request.method != "GET" or request.query.get("list-type") != "2":
            return error(400, "InvalidArgument")
        found, rest = self.page(request.query.get("prefix", ""), request.query.get("continuation-token", ""))
        listed = "".join(_listed(key, kept) for key, kept in found)
        more = f"<NextContinuationToken>{escape(rest)}</NextContinuationToken>" if rest else ""
        return Answer(200, f"<ListBucketResult>{listed}{more}</ListBucketResult>".encode())


def _listed(key: str, kept: Kept) -> str:
    at = datetime.fromtimestamp(kept.modified, UTC).isoformat().replace("+00:00", "Z")
    said = f"<LastModified>{at}</LastModified><Size>{len(kept.content)}</Size><ETag>{kept.generation}</ETag>"
    return f"<Contents><Key>{escape(key)}</Key>{said}</Contents>"
