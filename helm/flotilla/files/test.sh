#!/bin/sh
# `helm test`: data goes in and comes out. Makes a topic of its own, and deletes it at the end, however that comes.
# FLOTILLA_URL says where, SECRET_FILE who asks.
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
echo "1000 records went into topic $topic at $FLOTILLA_URL and came out again, in order"
