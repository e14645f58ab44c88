"""Copy the changes of a database into a topic, which is also a table: change data capture.

Triggers of a SQLite database write every change to an outbox. This program moves the outbox to a topic, each change once
and in order: a transaction writes the records and the position in the outbox together. The topic is compacted, so it
keeps the last value of each key, and None deletes a key. With the lake running, the changes also become an Iceberg table
with typed columns.

Needs a running server (`mainstem serve`). Set MAINSTEM_URL if it is not at the default address.
"""

from __future__ import annotations

import json
import sqlite3
import sys

import mainstem

TOPIC = "customers"
POSITIONS = "customers.outbox"  # the id of the last change that was copied, by key
COLUMNS = {"type": "object", "properties": {"name": {"type": "string"}, "city": {"type": "string"}}}

SCHEMA = """
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, city TEXT);
CREATE TABLE outbox (change INTEGER PRIMARY KEY AUTOINCREMENT, id INTEGER, row TEXT);
CREATE TRIGGER inserted AFTER INSERT ON customers BEGIN
  INSERT INTO outbox (id, row) VALUES (new.id, json_object('name', new.name, 'city', new.city)); END;
CREATE TRIGGER updated AFTER UPDATE ON customers BEGIN
  INSERT INTO outbox (id, row) VALUES (new.id, json_object('name', new.name, 'city', new.city)); END;
CREATE TRIGGER deleted AFTER DELETE ON customers BEGIN
  INSERT INTO outbox (id, row) VALUES (old.id, NULL); END;
"""


def main() -> None:
    database = sqlite3.connect(sys.argv[1] if len(sys.argv) > 1 else ":memory:")
    database.executescript(SCHEMA)
    with mainstem.Client() as client:
        prepare(client)
        database.executemany(
            "INSERT INTO customers (name, city) VALUES (?, ?)",
            [("Ada", "London"), ("Grace", "New York"), ("Edsger", "Austin")],
        )
        print(copy_changes(database, client), "changes copied")
        database.execute("UPDATE customers SET city = 'Paris' WHERE name = 'Ada'")
        database.execute("DELETE FROM customers WHERE name = 'Grace'")
        print(copy_changes(database, client), "changes copied")
        print(copy_changes(database, client), "changes copied")
        for id, row in sorted(current(client).items()):
            print(id, row["name"], row["city"])


def prepare(client: mainstem.Client) -> None:
    client.ensure_topic(TOPIC)
    client.ensure_topic(POSITIONS)
    for topic in (TOPIC, POSITIONS):
        client.change_settings(topic, {"cleanup.policy": "compact"})
    client.put_table(TOPIC, schema=COLUMNS)


def copy_changes(database: sqlite3.Connection, client: mainstem.Client) -> int:
    """Copy the changes after the stored position. Returns their number."""
    copied = max((record.value for record in client.read(POSITIONS)), default=0)
    changes = database.execute("SELECT change, id, row FROM outbox WHERE change > ? ORDER BY change", [copied])
    rows = changes.fetchall()
    if rows:
        with client.transaction("customers-cdc") as transaction:
            for _, id, row in rows:
                transaction.produce(TOPIC, None if row is None else json.loads(row), key=str(id))
            transaction.produce(POSITIONS, rows[-1][0], key="position")
    return len(rows)


def current(client: mainstem.Client) -> dict[str, dict[str, str]]:
    """The last row of each key, as the database has it."""
    last = {str(record.key): record.value for record in client.read(TOPIC)}
    return {id: row for id, row in last.items() if row is not None}


if __name__ == "__main__":
    main()
