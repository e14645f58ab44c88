"""XML of the S3 protocol: responses as nested elements, and request bodies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import format_datetime
from urllib.parse import quote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from mainstem.doors.s3.errors import malformed_xml

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
OWNER_ID = "mainstem"

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0d\x0e-\x1f\ufffe\uffff]")


class Element:
    """An element with text, or with others inside."""

    __slots__ = ("content", "name")

    def __init__(self, name: str, *content: object) -> None:
        self.name = name
        self.content = content

    def parts(self) -> Iterator[str]:
        yield f"<{self.name}>"
        for one in self.content:
            if isinstance(one, Element):
                yield from one.parts()
            elif one is not None:
                yield text(one)
        yield f"</{self.name}>"


def text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return _CONTROL.sub(lambda found: f"&#x{ord(found[0]):X};", escape(str(value)))


def document(root: Element) -> bytes:
    body = "".join(root.parts())
    opened = f"<{root.name}>"
    body = f'<{root.name} xmlns="{NAMESPACE}">' + body[len(opened) :]
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}'.encode("utf-8", "replace")


def owner(name: str = "Owner") -> Element:
    return Element(name, Element("ID", OWNER_ID), Element("DisplayName", OWNER_ID))


def iso_time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03}Z"


def http_time(ms: int) -> str:
    return format_datetime(datetime.fromtimestamp(ms // 1000, UTC), usegmt=True)


def url_encoded(value: str, encoding: str) -> str:
    return quote(value, safe="/-_.~*") if encoding == "url" else value


def parsed(body: bytes, root: str) -> ElementTree.Element:
    """The root of a request's body, names without their namespace. Raises S3Error."""
    try:
        text = body.decode("utf-8-sig")  # in another encoding, a document type could hide
    except UnicodeDecodeError:
        raise malformed_xml("the body must be UTF-8") from None
    if "<!" in text:
        raise malformed_xml("the body has a document type or a comment")  # entities can grow without bound
    try:
        found = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError, LookupError):
        raise malformed_xml() from None
    for element in found.iter():
        element.tag = element.tag.rpartition("}")[2]
    if found.tag != root:
        raise malformed_xml(f"the body must be a {root}")
    return found


def child_text(element: ElementTree.Element, name: str) -> str:
    return (element.findtext(name) or "").strip()
