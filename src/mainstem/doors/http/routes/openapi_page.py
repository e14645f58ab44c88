"""The API reference as one HTML page that needs nothing from elsewhere: every operation, with a form to try it."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from typing import Any

import msgspec

_EXAMPLE_DEPTH_MAX = 4


def page(document: dict[str, Any]) -> str:
    """An OpenAPI document as HTML."""
    schemas = document["components"]["schemas"]
    rows = "".join(
        _row(path, method, operation, schemas)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if method != "head"
    )
    bodies = "".join(
        f'<h3 id="{name}">{name}</h3><pre tabindex="0">{html.escape(_indented(schema))}</pre>'
        for name, schema in schemas.items()
    )
    return _PAGE.format(
        version=html.escape(document["info"]["version"]), rows=rows, schemas=bodies, script=_SCRIPT
    )


def _row(path: str, method: str, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    names = [one["name"] for one in operation["parameters"] if one["in"] == "query"]
    content = operation.get("requestBody", {}).get("content", {})
    body = content.get("application/json", {}).get("schema")
    named = (body or {}).get("$ref", "").rpartition("/")[2]
    link = f'<a href="#{named}">{named}</a>' if named else "JSON" if body else "bytes" if content else ""
    trial = {
        "method": method.upper(),
        "path": path,
        "query": names,
        "body": None if body is None else _indented(_example(body, schemas, 0)),
    }
    tries = "x-events" not in operation and (body is not None or not content)
    button = (
        f'<button type="button" data-trial="{html.escape(msgspec.json.encode(trial).decode())}" '
        f'aria-label="Try {method.upper()} {html.escape(path)}">Try it</button>'
    )
    asked = ", ".join(f"<code>{html.escape(name)}</code>" for name in names)
    summary = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(operation["summary"]))
    return (
        f"<tr><td><b>{method.upper()}</b><br>{button if tries else ''}</td>"
        f"<td><code>{html.escape(path)}</code><br>{summary}</td>"
        f"<td>{html.escape(operation.get('description', ''))}</td><td>{asked}</td><td>{link}</td></tr>"
    )


def _example(schema: Any, schemas: dict[str, Any], depth: int) -> Any:
    """A body to start from: required fields, or all if none is."""
    if not isinstance(schema, dict) or depth > _EXAMPLE_DEPTH_MAX:
        return None
    if "$ref" in schema:
        return _example(schemas[schema["$ref"].rpartition("/")[2]], schemas, depth + 1)
    for key in ("default", "const"):
        if key in schema:
            return schema[key]
    if "enum" in schema:
        return schema["enum"][0]
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return _example(schema[key][0], schemas, depth)
    match schema.get("type"):
        case "object":
            fields = schema.get("properties", {})
            wanted = schema.get("required") or (fields if depth < 2 else ())
            return {name: _example(fields[name], schemas, depth) for name in wanted if name in fields}
        case "array":
            return [_example(schema["items"], schemas, depth)] if schema.get("items") else []
        case "string":
            return ""
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return False
    return {} if not schema.get("type") else None


def _indented(schema: object) -> str:
    return msgspec.json.format(msgspec.json.encode(schema)).decode()


_SCRIPT = """
const dialog = document.querySelector("dialog"), form = dialog.querySelector("form");
const [fields, body, key, answer] = ["#fields", "#body", "#key", "#answer"].map((id) => form.querySelector(id));
let trial;
function field(name, required) {
  const label = document.createElement("label"), input = document.createElement("input");
  label.textContent = name + " ";
  input.name = name;
  input.required = required;
  label.append(input);
  fields.append(label);
}
document.addEventListener("click", (event) => {
  if (event.target.id === "close") return dialog.close();
  if (!event.target.dataset.trial) return;
  trial = JSON.parse(event.target.dataset.trial);
  form.querySelector("h2").textContent = trial.method + " " + trial.path;
  fields.replaceChildren();
  trial.names = [...trial.path.matchAll(/{(\\w+)}/g)].map((found) => found[1]);
  trial.names.forEach((name) => field(name, true));
  trial.query.forEach((name) => field(name, false));
  body.parentElement.hidden = trial.body === null;
  body.value = trial.body ?? "";
  answer.textContent = "";
  dialog.showModal();
});
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const given = new FormData(form), asked = new URLSearchParams();
  const path = trial.path.replace(/{(\\w+)}/g, (_, name) => encodeURIComponent(given.get(name)));
  for (const name of trial.query) if (given.get(name)) asked.set(name, given.get(name));
  const headers = {};
  if (key.value) headers.Authorization = "Bearer " + key.value;
  if (trial.body !== null && body.value) headers["Content-Type"] = "application/json";
  answer.textContent = "…";
  try {
    const from = performance.now();
    const response = await fetch(path + (asked.size ? "?" + asked : ""), {
      method: trial.method, headers, body: headers["Content-Type"] ? body.value : undefined });
    const text = await response.text();
    let shown = text;
    try { shown = JSON.stringify(JSON.parse(text), null, 2); } catch {}
    const took = Math.round(performance.now() - from);
    answer.textContent = [response.status, response.statusText, took + " ms\\n\\n"].join(" ") + shown.slice(0, 200000);
  } catch (error) {
    answer.textContent = "The server did not respond: " + error.message;
  }
});
"""

_STYLE = """
:root { color-scheme: light dark }
:root { --background: #f6f7f8; --surface: #fff; --sunken: #eef0f2; --text: #16202a; --muted: #55616d; --line: #dce1e6 }
:root { --accent: #0b6e6e; --accent-text: #fff }
@media (prefers-color-scheme: dark) {
  :root { --background: #12171c; --surface: #1a2027; --sunken: #232b33; --text: #e3e8ec }
  :root { --muted: #9aa7b3; --line: #303a44 }
  :root { --accent: #4fc3bd; --accent-text: #06201f }
}
body { font: 14px/1.5 system-ui, sans-serif; margin: 1.5rem auto; max-width: 78rem; padding: 0 1rem }
body { background: var(--background); color: var(--text) }
a { color: var(--accent) }
code, pre { font: 13px/1.5 ui-monospace, "DejaVu Sans Mono", monospace }
table { border-collapse: collapse; width: 100%; background: var(--surface); border: 1px solid var(--line) }
td, th { border-bottom: 1px solid var(--line); padding: .35rem .7rem; text-align: left; vertical-align: top }
th, td:nth-child(3) { color: var(--muted) }
td { overflow-wrap: anywhere }
pre { background: var(--sunken); overflow: auto; padding: .6rem; border-radius: 6px }
button { font: inherit; padding: .1rem .7rem; white-space: nowrap; border-radius: 6px; cursor: pointer }
button { background: var(--surface); color: var(--text); border: 1px solid var(--line) }
button:not([type]) { background: var(--accent); color: var(--accent-text) }
dialog { box-sizing: border-box; width: min(46rem, 96vw); max-height: 92vh; overflow: auto; border-radius: 10px }
dialog { border: 1px solid var(--line); background: var(--surface); color: var(--text) }
dialog label { display: block; margin: .4rem 0 }
dialog :is(input, textarea) { width: 100%; box-sizing: border-box; border: 1px solid var(--line); border-radius: 6px }
dialog :is(input, textarea) { background: var(--surface); color: var(--text); font: inherit; padding: .3rem .5rem }
dialog textarea { font: 13px/1.4 ui-monospace, monospace; min-height: 10rem }
dialog h2 { margin-top: 0; overflow-wrap: anywhere }
#answer:empty { display: none }
[hidden] { display: none !important }
@media (max-width: 760px) {
  tr { display: block; padding: .5rem 0; border-bottom: 1px solid var(--line) }
  tr:first-child { display: none }
  td { display: block; border: 0; padding: .1rem .7rem }
  td:empty { display: none }
  td:first-child br { display: none }
  td:first-child button { margin-left: .6rem }
}
"""


def _digest(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


HEADERS = (
    (b"content-type", b"text/html; charset=utf-8"),
    (
        b"content-security-policy",
        (
            f"default-src 'none'; connect-src 'self'; script-src {_digest(_SCRIPT)}; "
            f"style-src {_digest(_STYLE)}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ).encode(),
    ),
)

_PAGE = (
    """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Mainstem HTTP</title><style>"""
    + _STYLE.replace("{", "{{").replace("}", "}}")
    + """</style></head><body><main>
<h1>Mainstem {version}</h1>
<p>Bodies are JSON, sent with <code>Content-Type: application/json</code>. The same as
<a href="/openapi.json">OpenAPI 3.1</a>. <b>Try it</b> sends a request to this server, as you.</p>
<pre tabindex="0">curl localhost:4000/v0/topics/hello -H 'Content-Type: application/json' \\
  -d '{{"records":[{{"data":{{"hello":"world"}}}}]}}'
curl -X POST localhost:4000/v0/topics/hello/diff</pre>
<table><tr><th>Method</th><th>Path</th><th>Rights</th><th>Query</th><th>Body</th></tr>
{rows}</table>
<h2>Bodies</h2>{schemas}
<dialog><form>
<h2>Request</h2><div id="fields"></div>
<label>Key, if the server needs one <input id="key" type="password" autocomplete="off"></label>
<label>Body <textarea id="body" spellcheck="false"></textarea></label>
<button>Send</button> <button type="button" id="close">Close</button>
<pre id="answer" tabindex="0" role="status" aria-label="Response"></pre>
</form></dialog>
</main><script>{script}</script></body></html>
"""
)
