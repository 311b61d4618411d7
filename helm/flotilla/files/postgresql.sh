#!/bin/sh
# Runs PostgreSQL from any image that has its programs, whatever the image's own entrypoint does:
#
#   postgresql.sh start      make a database if there is none, set the password, serve until TERM comes
#   postgresql.sh ready      tell whether it takes connections
#
# DATA is the folder of the cluster, PASSWORD_FILE holds the password of the user `flotilla`, SOCKETS is a folder for the
# socket. Arguments behind `start` go to the server.
set -eu

# The programs are on the PATH, or where Debian puts them.
if ! command -v postgres > /dev/null; then
    for folder in /usr/lib/postgresql/*/bin; do
        [ -x "$folder/postgres" ] && PATH="$folder:$PATH"
    done
fi
command -v postgres > /dev/null || { echo "postgresql: this image has no PostgreSQL; see postgresql.image" >&2; exit 1; }

# Statements from standard input, one a line, without a server. The first that fails ends it.
alone() {
    postgres --single -D "$1" -c exit_on_error=true -c log_checkpoints=off postgres > /dev/null
}

# In a folder of another name first: whoever is killed in the middle begins anew, and nobody finds half a cluster.
make_cluster() {
    echo "postgresql: making a new cluster in $DATA"
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
postgresql: the volume has data of PostgreSQL $theirs, and this image has PostgreSQL $ours: nothing was changed.
Set postgresql.image to an image with PostgreSQL $theirs. To move to $ours: with $theirs, save everything by pg_dump; then
remove the StatefulSet's pod and claim, install $ours, and restore it. docs/kubernetes.md has the commands.
TEXT
    exit 1
}

# A pod that was deleted by force may still run when the next one starts on its volume. PostgreSQL's own lock file names a
# process, which in another container is nobody; two servers on one folder destroy it. A lock of the kernel holds for both,
# and is inherited by the server: it ends with the last process that has it.
take_folder() {
    exec 9> "$DATA.lock"
    flock -n 9 && return
    echo "postgresql: another server still uses $DATA; this one waits until that has ended"
    until flock -n 9; do
        sleep 0.2
    done
}

# At every start: so the password is what the Secret says, also if that was made anew.
set_password() {
    password=$(sed "s/'/''/g" "$PASSWORD_FILE")
    printf "ALTER ROLE flotilla PASSWORD '%s'\n" "$password" | alone "$DATA"
}

# TERM means to PostgreSQL: wait until all clients have left. INT means: end in good order now.
serve() {
    postgres -D "$DATA" -c listen_addresses='*' -c unix_socket_directories="$SOCKETS" -c hba_file="$HBA_FILE" \
        -c log_destination=stderr -c logging_collector=off "$@" &
    server=$!
    trap 'kill -INT "$server"' TERM INT
    code=0
    while kill -0 "$server" 2> /dev/null; do # a signal ends the wait early
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
    chmod 0700 "$DATA" # PostgreSQL insists; a volume that changed its group may have opened it
    set_password
    serve "$@"
    ;;
*)
    echo "usage: postgresql.sh start [OPTION...] | ready" >&2
    exit 2
    ;;
esac
