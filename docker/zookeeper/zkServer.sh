#!/bin/bash
# The part of ZooKeeper's own zkServer.sh that a container needs: start-foreground [FILE], status, version.
# Heap and flags come from ZK_SERVER_HEAP (MiB), SERVER_JVMFLAGS and JVMFLAGS; later ones win, so a user's do.
#
# `prepare`, when the image is made, keeps an archive of the classes that a server loads, already parsed and verified: a
# third of a start's processor time. Java takes it for as long as its own version and the jars are those of then and the
# class path begins with the same words, and else does without.
set -eu
archive=/usr/share/fencepost/zookeeper.jsa
log="-Dorg.slf4j.simpleLogger.logFile=System.out -Dorg.slf4j.simpleLogger.showDateTime=true
     -Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS -Dorg.slf4j.simpleLogger.showShortLogName=true"
# One small server among many on one machine: the first compiler is enough, and starts in half the time.
small="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss512k -Xshare:auto"
# Each jar by its name: of those that only zookeeper.jar names, by absolute paths, no class is archived.
classpath=""
for jar in zookeeper zookeeper-jute slf4j-api slf4j-simple commons-cli commons-io metrics-core snappy-java \
    netty-buffer netty-common netty-handler netty-transport netty-transport-native-epoll \
    jackson-annotations jackson-core jackson-databind jetty9-server jetty9-servlet servlet-api; do
    classpath+="${classpath:+:}/usr/share/java/$jar.jar"
done

run() {
    # Unquoted on purpose: each holds several words.
    # shellcheck disable=SC2086
    exec java $small -Xmx${ZK_SERVER_HEAP:-256}m -XX:+ExitOnOutOfMemoryError $log -Dzookeeper.log.dir="$ZOO_LOG_DIR" \
        "$@"
}

# A folder on the class path must be behind the jars, as an archive can't vouch for what is in it.
program() {
    [[ ! -f "$archive" ]] || set -- -XX:SharedArchiveFile="$archive" "$@"
    # shellcheck disable=SC2086
    run -cp "$classpath:/conf" ${SERVER_JVMFLAGS:-} ${JVMFLAGS:-} "$@"
}

# A server that is the only member of its ensemble leads, and so loads nearly all that three of them do. It listens on an
# address of the loopback that nobody else will have: a tree is made in the network of the machine.
prepare() {
    local folder host server
    folder="$(mktemp -d)"
    host="127.$((RANDOM % 254 + 1)).$((RANDOM % 254 + 1)).$((RANDOM % 254 + 1))"
    export ZOO_LOG_DIR="$folder"
    printf '%s\n' "dataDir=$folder" standaloneEnabled=false admin.enableServer=false 4lw.commands.whitelist=srvr \
        tickTime=250 initLimit=60 syncLimit=6 "server.1=$host:12888:13888;$host:12181" > "$folder/zoo.cfg"
    echo 1 > "$folder/myid"
    mkdir -p "$(dirname "$archive")"
    (run -cp "$classpath" -XX:-UsePerfData -XX:ArchiveClassesAtExit="$archive" \
        org.apache.zookeeper.server.quorum.QuorumPeerMain "$folder/zoo.cfg") > "$folder/log" 2>&1 &
    server=$!
    until { exec 3<> "/dev/tcp/$host/12181" && printf srvr >&3 && grep -q '^Mode: leader' <&3; } 2> /dev/null; do
        if ! kill -0 "$server" 2> /dev/null || ((SECONDS > 300)); then
            echo "the server whose classes are to be archived doesn't serve (after $SECONDS s):" >&2
            tail -n 15 "$folder/log" >&2
            kill -KILL "$server" 2> /dev/null || true
            exit 1
        fi
        sleep 0.1
    done
    exec 3>&-
    kill -TERM "$server"  # Java writes the archive while it ends
    wait "$server" || true
    if [[ ! -s "$archive" ]]; then
        echo "Java has written no archive of classes:" >&2
        tail -n 15 "$folder/log" >&2
        exit 1
    fi
    rm -rf "$folder"
}

case "${1:-}" in
    start-foreground)
        config="${2:-$ZOO_CONF_DIR/zoo.cfg}"
        case "$config" in /*) ;; *) config="$ZOO_CONF_DIR/$config" ;; esac
        program org.apache.zookeeper.server.quorum.QuorumPeerMain "$config"
        ;;
    version) program org.apache.zookeeper.version.VersionInfoMain ;;
    status) program org.apache.zookeeper.client.FourLetterWordMain localhost 2181 srvr ;;
    prepare) prepare ;;
    *) echo "usage: zkServer.sh start-foreground [FILE] | status | version" >&2; exit 2 ;;
esac
