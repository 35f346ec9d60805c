#!/bin/sh
# `agent …` and every other subcommand run consul as the user consul, with /consul/data and /consul/config.
set -eu
address_of() {
    address="$(ip -o -4 address list "$1" | awk '{sub("/.*", "", $4); print $4; exit}')"
    [ -n "$address" ] || { echo "interface '$1' has no IPv4 address" >&2; exit 1; }
    echo "$address"
}
if [ -n "${CONSUL_LOCAL_CONFIG:-}" ]; then
    echo "$CONSUL_LOCAL_CONFIG" > /consul/config/local.json
fi
case "${1:-}" in -*) set -- consul "$@" ;; esac
if [ "$1" = agent ]; then
    shift
    if [ -n "${CONSUL_CLIENT_INTERFACE:-}" ]; then set -- -client="$(address_of "$CONSUL_CLIENT_INTERFACE")" "$@"; fi
    if [ -n "${CONSUL_BIND_INTERFACE:-}" ]; then set -- -bind="$(address_of "$CONSUL_BIND_INTERFACE")" "$@"; fi
    set -- consul agent -data-dir=/consul/data -config-dir=/consul/config "$@"
elif ! command -v "$1" >/dev/null; then
    set -- consul "$@" # a subcommand such as `members` or `version`
fi
if [ "$1" = consul ] && [ "$(id -u)" = 0 ]; then
    chown -R consul:consul /consul/data /consul/config
    exec setpriv --reuid=consul --regid=consul --clear-groups "$@"
fi
exec "$@"
