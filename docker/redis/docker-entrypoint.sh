#!/bin/sh
# redis-server as the user redis, in /data. Options or a configuration file alone mean redis-server.
set -eu
if [ "${1#-}" != "$1" ] || [ "${1%.conf}" != "$1" ]; then
    set -- redis-server "$@"
fi
if [ "$1" = redis-server ]; then
    # The official image is built with protected mode off; without this a fresh server refuses every other host.
    # A setting of the user's, on the command line or in a file, stands.
    case "${2:-}" in
        '' | -*) case " $* " in *' --protected-mode '*) ;; *) set -- "$@" --protected-mode no ;; esac ;;
        *) grep -q '^[[:space:]]*protected-mode' "$2" || set -- "$@" --protected-mode no ;;
    esac
fi
case "$1" in
    redis-server | redis-sentinel)
        if [ "$(id -u)" = 0 ]; then
            find . \! -user redis -exec chown redis '{}' +
            exec setpriv --reuid=redis --regid=redis --clear-groups "$0" "$@"
        fi
        umask 0077
        ;;
esac
exec "$@"
