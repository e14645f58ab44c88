#!/usr/bin/env bash
# Orders over HTTP with nothing but curl: write, read on from where you are, delete, tidy up.
# Needs a server (`mainstem serve`); MAINSTEM_URL says where if it is not the default.
set -euo pipefail
url=${MAINSTEM_URL:-http://127.0.0.1:4000}/v0/topics
topic=quick-start-$$
json='Content-Type: application/json'
ask() { curl --silent --show-error --fail-with-body --header "$json" "$@"; echo; }

# Written all or not at all. The key makes a retry safe: sent again, it gets the first answer and writes nothing.
orders='{"records":[{"data":{"id":1},"tag":"eu"},{"data":{"id":2},"tag":"us"}]}'
ask --header 'Idempotency-Key: first-orders' --data "$orders" "$url/$topic"
ask --header 'Idempotency-Key: first-orders' --data "$orders" "$url/$topic" | grep '"deduped":true'

# What came after sequence number 1; with wait_ms the server waits for something new.
ask --data '{"from_seq":1,"include_tags":true,"wait_ms":1000}' "$url/$topic/diff" | grep '"id":2'

# Delete by tag, then look at what is left.
ask --data '{"match":"eu"}' "$url/$topic/delete"
ask "$url/$topic" | grep '"count":1'
ask --request DELETE "$url/$topic"
