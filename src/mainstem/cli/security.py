"""`mainstem key …`, `mainstem user …` and `mainstem acl …`."""

from __future__ import annotations

import sys

import click
import msgspec

from mainstem.cli.confirmation import confirm, yes_option
from mainstem.cli.output import as_json_option, print_fields, print_rows
from mainstem.cli.target import Server, takes_server
from mainstem.errors import NotFound

_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@click.group()
def key() -> None:
    """Create, list, rotate and revoke API keys."""


@key.command("create")
@takes_server
@click.argument("name", default="")
@click.option(
    "--scopes", default="", help="Scopes, joined with +: read, write, delete, admin. [default: all]"
)
@click.option("--prefix", "prefixes", multiple=True, help="Only names that start with this; may be repeated.")
@click.option("--namespace", default="", help="Bind the key to this namespace.")
@click.option("--expires", metavar="DURATION", help="Expire the key after this time, for example 30d.")
@as_json_option
def create_key(
    server: Server,
    name: str,
    scopes: str,
    prefixes: tuple[str, ...],
    namespace: str,
    expires: str | None,
    as_json: bool,
) -> None:
    """Create an API key for the principal User:NAME. Its secret is shown once.

    The first key of a server needs all rights: from then on every door asks for credentials.
    """
    ttl_ms = 0 if expires is None else _duration(expires)
    made = server.run(
        lambda client: client.create_key(
            name, scopes=scopes, prefixes=prefixes, namespace=namespace, ttl_ms=ttl_ms
        )
    )
    _print_secret(made, as_json)


@key.command("s3")
@takes_server
@click.option("--expires", metavar="DURATION", help="Short-lived credentials, for example 1h; at most 12h.")
@click.option("--export", is_flag=True, help="Print lines for a shell: AWS_ACCESS_KEY_ID=… and others.")
@as_json_option
def show_s3(server: Server, expires: str | None, export: bool, as_json: bool) -> None:
    """Show the S3 credentials of the API key that this command uses.

    Without --expires they last as long as the key. Nothing is stored for them.
    """
    ttl_ms = 0 if expires is None else _duration(expires)
    issued = server.run(lambda client: client.s3_credentials(ttl_ms=ttl_ms))
    if not export:
        _print_secret(issued, as_json)
        return
    lines = {
        "AWS_ACCESS_KEY_ID": issued.access_key_id,
        "AWS_SECRET_ACCESS_KEY": issued.secret_access_key,
        "AWS_SESSION_TOKEN": issued.session_token,
        "AWS_ENDPOINT_URL_S3": issued.endpoint or "",
        "AWS_REGION": issued.region,
    }
    for name, value in lines.items():
        if value:
            click.echo(f"export {name}={value}")


@key.command("list")
@takes_server
@as_json_option
def list_keys(server: Server, as_json: bool) -> None:
    """List API keys, without their secrets."""
    print_rows([msgspec.to_builtins(row) for row in server.run(lambda client: client.keys())], as_json)


@key.command("rotate")
@takes_server
@click.argument("id")
@as_json_option
def rotate_key(server: Server, id: str, as_json: bool) -> None:
    """Give a key a new secret, which is shown once. The old one is invalid at once."""
    _print_secret(server.run(lambda client: client.rotate_key(id)), as_json)


@key.command("revoke")
@takes_server
@click.argument("id")
def revoke_key(server: Server, id: str) -> None:
    """Revoke a key."""
    server.run(lambda client: client.revoke_key(id))


def _print_secret(made: object, as_json: bool) -> None:
    fields = msgspec.to_builtins(made)
    del fields["performance"]
    print_fields(fields, as_json)


def _duration(text: str) -> int:
    number, unit = text[:-1], text[-1:]
    if not number.isdigit() or unit not in _UNITS_MS:
        raise click.BadParameter("--expires is a number and a unit: 90d, 12h, 30m or 60s")
    return int(number) * _UNITS_MS[unit]


@click.group()
def user() -> None:
    """Create, list and delete users with passwords, and change passwords."""


@user.command("create")
@takes_server
@click.argument("name")
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
@as_json_option
def create_user(server: Server, name: str, password_stdin: bool, as_json: bool) -> None:
    """Create a user. Without --password-stdin the server generates a password, which is shown once."""
    _put_user(server, name, password_stdin, as_json)


@user.command("passwd")
@takes_server
@click.argument("name")
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
@as_json_option
def change_password(server: Server, name: str, password_stdin: bool, as_json: bool) -> None:
    """Replace the password of a user."""
    if name not in {row.user for row in server.run(lambda client: client.users())}:
        raise NotFound(f"user {name!r} does not exist: create it with `mainstem user create`")
    _put_user(server, name, password_stdin, as_json)


def _put_user(server: Server, name: str, password_stdin: bool, as_json: bool) -> None:
    password = sys.stdin.readline().rstrip("\r\n") if password_stdin else None
    if password_stdin and not password:
        raise click.UsageError("standard input has no password")
    made = server.run(lambda client: client.put_user(name, password))
    fields = {"user": made.user}
    if made.password is not None:
        fields["password"] = made.password
    print_fields(fields, as_json)


@user.command("list")
@takes_server
@as_json_option
def list_users(server: Server, as_json: bool) -> None:
    """List users."""
    found = server.run(lambda client: client.users())
    print_rows([{"user": row.user, "mechanisms": ",".join(row.mechanisms)} for row in found], as_json)


@user.command("delete")
@takes_server
@click.argument("name")
@yes_option
def delete_user(server: Server, name: str, yes: bool) -> None:
    """Delete a user."""
    confirm(f"Delete user {name}?", yes)
    server.run(lambda client: client.delete_user(name))


@click.group()
def acl() -> None:
    """Add, list and remove access rules, which hold for every door."""


def _rule_options(function: click.decorators.FC) -> click.decorators.FC:
    for option in reversed(
        (
            click.argument("principal"),
            click.argument("operation"),
            click.argument("resource"),
            click.argument("name", default="*"),
            click.option("--prefixed", is_flag=True, help="NAME is a prefix."),
            click.option("--deny", is_flag=True, help="Deny instead of allow; a denial wins."),
            click.option("--host", default="*", help="Only from this address."),
        )
    ):
        function = option(function)
    return function


@acl.command("add")
@takes_server
@_rule_options
def add_rule(
    server: Server,
    principal: str,
    operation: str,
    resource: str,
    name: str,
    prefixed: bool,
    deny: bool,
    host: str,
) -> None:
    """Let PRINCIPAL (User:name) perform OPERATION on the RESOURCE called NAME, or on all of that type.

    RESOURCE is topic, group, cluster, transactional_id, queue, router, table, namespace, subject or bucket. OPERATION
    is read, write, create, delete, alter, describe, describe_configs, alter_configs, cluster_action, idempotent_write
    or all.
    """
    from mainstem.api.security import RuleBody

    rule = RuleBody(principal, operation, resource, name, *_kind(prefixed, deny), host)
    server.run(lambda client: client.add_rules(rule))


@acl.command("remove")
@takes_server
@_rule_options
def remove_rule(
    server: Server,
    principal: str,
    operation: str,
    resource: str,
    name: str,
    prefixed: bool,
    deny: bool,
    host: str,
) -> None:
    """Remove a rule, given as for `mainstem acl add`."""
    from mainstem.api.security import RuleBody

    rule = RuleBody(principal, operation, resource, name, *_kind(prefixed, deny), host)
    if not server.run(lambda client: client.delete_rules(rule)):
        raise NotFound("that rule does not exist: see `mainstem acl list`")


def _kind(prefixed: bool, deny: bool) -> tuple[str, str]:
    return "prefixed" if prefixed else "literal", "deny" if deny else "allow"


@acl.command("list")
@takes_server
@as_json_option
def list_rules(server: Server, as_json: bool) -> None:
    """List the access rules."""
    print_rows([msgspec.to_builtins(row) for row in server.run(lambda client: client.rules())], as_json)
