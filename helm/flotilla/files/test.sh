#!/bin/sh
# `helm test`: produce and consume records through the API. Creates a topic, and deletes it at the end, also after a failure.
# FLOTILLA_URL is the address of the API, SECRET_FILE the key that servers share.
set -eu
topic="helm-test-$(od -An -N8 -tx1 /dev/urandom | tr -d ' \n')"

ask() {
    flotilla "$@" --secret-file "$SECRET_FILE" 2>> /tmp/said
}

finish() {
    code=$?
    ask topics delete "$topic" --yes --missing-ok > /dev/null || code=1
    [ "$code" = 0 ] || cat /tmp/said >&2
    exit "$code"
}
trap finish EXIT

seq 1000 > /tmp/sent
ask topics create "$topic" --partitions 1 > /dev/null
ask produce "$topic" /tmp/sent
ask consume "$topic" --from-beginning --until-end > /tmp/received
cmp /tmp/sent /tmp/received
echo "produced and consumed 1000 records in order: topic $topic at $FLOTILLA_URL"
