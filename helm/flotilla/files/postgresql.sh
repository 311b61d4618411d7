#!/bin/sh
# Run PostgreSQL from any image that contains it, independently of the image's entrypoint:
#
#   postgresql.sh start      create the database if it does not exist, set the password, serve until SIGTERM
#   postgresql.sh ready      exit with 0 if the server accepts connections
#
# DATA is the data directory, PASSWORD_FILE has the password of the role `flotilla`, SOCKETS is the directory of the
# socket. Arguments after `start` are passed to the server.
set -eu

# Debian does not put the programs on the PATH.
if ! command -v postgres > /dev/null; then
    for folder in /usr/lib/postgresql/*/bin; do
        [ -x "$folder/postgres" ] && PATH="$folder:$PATH"
    done
fi
command -v postgres > /dev/null || { echo "postgresql: the image does not contain PostgreSQL; set the chart's value postgresql.image" >&2; exit 1; }

# Run statements from standard input, one per line, in single-user mode; exit at the first error.
alone() {
    postgres --single -D "$1" -c exit_on_error=true -c log_checkpoints=off postgres > /dev/null
}

# Initialize under another name and rename: after a crash, the next start begins again, and no server sees half a cluster.
make_cluster() {
    echo "postgresql: initializing a new database cluster in $DATA"
    rm -rf "$DATA.new"
    initdb -D "$DATA.new" --username=postgres --auth-local=peer --auth-host=scram-sha-256 --encoding=UTF8 \
        --locale=C.UTF-8 --data-checksums > /dev/null
    printf '%s\n' "CREATE ROLE flotilla LOGIN" "CREATE DATABASE flotilla OWNER flotilla" | alone "$DATA.new"
    sync
    mv "$DATA.new" "$DATA"
    sync
}

check_version() {
    theirs=$(cat "$DATA/PG_VERSION")
    ours=$(postgres --version | sed -E 's/^[^0-9]*([0-9]+).*/\1/')
    [ "$theirs" = "$ours" ] && return
    cat >&2 <<TEXT
postgresql: the volume has data of PostgreSQL $theirs, but the image contains PostgreSQL $ours. No data was changed.
Set postgresql.image to an image with PostgreSQL $theirs. To upgrade to $ours: dump the database with pg_dump of $theirs,
delete the pod and the claim of the StatefulSet, install $ours, and restore the dump. docs/kubernetes.md has the commands.
TEXT
    exit 1
}

# A force-deleted pod may still run when the next one starts on its volume, and two servers destroy the data directory.
# PostgreSQL's lock file has a process id, which means nothing in another container. flock works across containers. The
# server inherits the lock, which is released when its last process exits.
take_folder() {
    exec 9> "$DATA.lock"
    flock -n 9 && return
    echo "postgresql: $DATA is locked by another server; waiting"
    until flock -n 9; do
        sleep 0.2
    done
}

# At every start, so that the password follows the Secret.
set_password() {
    password=$(sed "s/'/''/g" "$PASSWORD_FILE")
    printf "ALTER ROLE flotilla PASSWORD '%s'\n" "$password" | alone "$DATA"
}

# SIGTERM makes PostgreSQL wait until all clients disconnect (smart shutdown); SIGINT is a fast shutdown.
serve() {
    postgres -D "$DATA" -c listen_addresses='*' -c unix_socket_directories="$SOCKETS" -c hba_file="$HBA_FILE" \
        -c log_destination=stderr -c logging_collector=off "$@" &
    server=$!
    trap 'kill -INT "$server"' TERM INT
    code=0
    while kill -0 "$server" 2> /dev/null; do # a signal interrupts wait
        code=0
        wait "$server" || code=$?
    done
    exit "$code"
}

case "${1:-}" in
ready)
    exec pg_isready --quiet --host=localhost --username=flotilla --dbname=flotilla --timeout=3
    ;;
start)
    shift
    trap 'exit 143' TERM INT
    take_folder
    [ -s "$DATA/PG_VERSION" ] || make_cluster
    check_version
    chmod 0700 "$DATA" # required by PostgreSQL; fsGroup may have added group permissions
    set_password
    serve "$@"
    ;;
*)
    echo "usage: postgresql.sh start [OPTION...] | ready" >&2
    exit 2
    ;;
esac
