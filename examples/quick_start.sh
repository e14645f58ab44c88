#!/usr/bin/env bash
# Write, read and delete orders over HTTP with curl only.
# Needs a running server (`mainstem serve`). Set MAINSTEM_URL if it is not at the default address.
set -euo pipefail
url=${MAINSTEM_URL:-http://127.0.0.1:4000}/v0/topics
topic=quick-start-$$
json='Content-Type: application/json'
ask() { curl --silent --show-error --fail-with-body --header "$json" "$@"; echo; }

# The server appends all records or none. The key makes a retry safe: it returns the first result and writes nothing.
orders='{"records":[{"data":{"id":1},"tag":"eu"},{"data":{"id":2},"tag":"us"}]}'
ask --header 'Idempotency-Key: first-orders' --data "$orders" "$url/$topic"
ask --header 'Idempotency-Key: first-orders' --data "$orders" "$url/$topic" | grep '"deduped":true'

# Read the records after sequence number 1. With wait_ms the server waits for new ones.
ask --data '{"from_seq":1,"include_tags":true,"wait_ms":1000}' "$url/$topic/diff" | grep '"id":2'

# Delete by tag, then check what is left.
ask --data '{"match":"eu"}' "$url/$topic/delete"
ask "$url/$topic" | grep '"count":1'
ask --request DELETE "$url/$topic"
