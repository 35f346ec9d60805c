#!/bin/sh
# Runs etcd as the user etcd, and makes its data directory that user's, wherever the command line puts it.
# The published image runs as root and so can write anywhere; this one must work with the same command line.
set -eu
case "${1:-}" in -*) set -- etcd "$@" ;; esac
if [ "$(id -u)" = 0 ] && [ "$(basename "${1:-}")" = etcd ]; then
    data="${ETCD_DATA_DIR:-}" wal="${ETCD_WAL_DIR:-}" want=
    for word in "$@"; do
        case "$want" in data) data=$word ;; wal) wal=$word ;; esac
        want=
        case "$word" in
            --data-dir=* | -data-dir=*) data=${word#*=} ;;
            --wal-dir=* | -wal-dir=*) wal=${word#*=} ;;
            --data-dir | -data-dir) want=data ;;
            --wal-dir | -wal-dir) want=wal ;;
        esac
    done
    for directory in "${data:-.}" ${wal:+"$wal"}; do
        mkdir -p "$directory"
        chown -R etcd:etcd "$directory"
        chmod 700 "$directory"
    done
    exec setpriv --reuid=etcd --regid=etcd --clear-groups "$@"
fi
exec "$@"
