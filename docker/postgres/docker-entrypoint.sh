#!/bin/bash
# `postgres …` as the user postgres; the first start makes the cluster from POSTGRES_USER, POSTGRES_PASSWORD, POSTGRES_DB,
# POSTGRES_HOST_AUTH_METHOD, POSTGRES_INITDB_ARGS and /docker-entrypoint-initdb.d. Each of the first three can come from a
# file named by the same variable with _FILE.
#
# `prepare`, when the image is made, makes a cluster from the same variables and keeps it. A first start that asks for just
# that copies it: a second of a processor less than making it. Every other one makes its own, as in the official image.
set -euo pipefail
PREPARED=/usr/share/fencepost/cluster

from_file() {
    local file="${1}_FILE"
    if [[ -n "${!file:-}" ]]; then
        [[ -z "${!1:-}" ]] || { echo "both $1 and $file are set" >&2; exit 1; }
        export "$1=$(< "${!file}")"
    fi
}

asked() {
    printf '%q ' "$POSTGRES_USER" "${POSTGRES_PASSWORD:-}" "$POSTGRES_DB" "${POSTGRES_HOST_AUTH_METHOD:-}" \
        "${POSTGRES_INITDB_ARGS:-}"
}

initialise() {
    local scripts=(/docker-entrypoint-initdb.d/*)
    if [[ ! -e "${scripts[0]}" && -f "$PREPARED/asked" && "$(< "$PREPARED/asked")" == "$(asked)" ]]; then
        cp -a "$PREPARED/data/." "$PGDATA"
        return
    fi
    local auth="${POSTGRES_HOST_AUTH_METHOD:-scram-sha-256}"
    if [[ -z "${POSTGRES_PASSWORD:-}" && "$auth" != trust ]]; then
        echo "set POSTGRES_PASSWORD, or POSTGRES_HOST_AUTH_METHOD=trust to let everybody in" >&2
        exit 1
    fi
    local password=()
    [[ -z "${POSTGRES_PASSWORD:-}" ]] || password=("--pwfile=/dev/fd/3")
    # Nothing here outlives a crash of the machine, so that syncing the new files would only cost time.
    # eval: POSTGRES_INITDB_ARGS may quote its words, as in the official image.
    eval 'initdb --no-sync --no-instructions --username="$POSTGRES_USER" "${password[@]}" '"${POSTGRES_INITDB_ARGS:-}" \
        3< <(printf '%s\n' "${POSTGRES_PASSWORD:-}")
    printf '\nhost all all all %s\n' "$auth" >> "$PGDATA/pg_hba.conf"

    if [[ -e "${scripts[0]}" ]]; then
        with_server "${scripts[@]}"
    elif [[ "$POSTGRES_DB" != postgres ]]; then
        # A single-user backend makes the database in a fraction of the time that a server takes to start and stop.
        postgres --single -D "$PGDATA" postgres <<< "CREATE DATABASE \"$POSTGRES_DB\"" > /dev/null
    fi
}

with_server() {
    export PGPASSWORD="${POSTGRES_PASSWORD:-}"
    pg_ctl -D "$PGDATA" -o "-c listen_addresses=''" -w start
    local sql=(psql -v ON_ERROR_STOP=1 --no-password --no-psqlrc --username "$POSTGRES_USER")
    [[ "$POSTGRES_DB" == postgres ]] || "${sql[@]}" --dbname postgres -c "CREATE DATABASE \"$POSTGRES_DB\""
    local script
    for script; do
        case "$script" in
            *.sh) . "$script" ;;
            *.sql) "${sql[@]}" --dbname "$POSTGRES_DB" -f "$script" ;;
            *.sql.gz) gunzip -c "$script" | "${sql[@]}" --dbname "$POSTGRES_DB" ;;
        esac
    done
    pg_ctl -D "$PGDATA" -m fast -w stop
    unset PGPASSWORD
}

[[ "${1:-}" != -* ]] || set -- postgres "$@"
if [[ "${1:-}" == prepare ]]; then
    preparing=yes
    mkdir -m 0700 "$PREPARED/data"
    export PGDATA="$PREPARED/data"
    set -- postgres --version
fi
if [[ "${1:-}" == postgres ]]; then
    if [[ "$(id -u)" == 0 ]]; then
        install -d -o postgres -g postgres -m 0700 "$PGDATA"
        install -d -o postgres -g postgres -m 3775 /var/run/postgresql
        find "$PGDATA" \! -user postgres -exec chown postgres '{}' +
        exec setpriv --reuid=postgres --regid=postgres --init-groups "$0" "$@"
    fi
    from_file POSTGRES_PASSWORD
    from_file POSTGRES_USER
    from_file POSTGRES_DB
    export POSTGRES_USER="${POSTGRES_USER:-postgres}"
    export POSTGRES_DB="${POSTGRES_DB:-$POSTGRES_USER}"
    [[ -s "$PGDATA/PG_VERSION" ]] || initialise
    [[ -z "${preparing:-}" ]] || asked > "$PREPARED/asked"
fi
exec "$@"
