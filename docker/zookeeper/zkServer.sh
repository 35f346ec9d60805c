#!/bin/sh
# The part of ZooKeeper's own zkServer.sh that a container needs: start-foreground [FILE], status, version, print-cmd.
# Heap and flags come from ZK_SERVER_HEAP (MiB), SERVER_JVMFLAGS and JVMFLAGS; later ones win, so a user's do.
set -eu
config="${2:-$ZOO_CONF_DIR/zoo.cfg}"
case "$config" in /*) ;; *) config="$ZOO_CONF_DIR/$config" ;; esac
log="-Dorg.slf4j.simpleLogger.logFile=System.out -Dorg.slf4j.simpleLogger.showDateTime=true
     -Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS -Dorg.slf4j.simpleLogger.showShortLogName=true"
# One small server among many on one machine: the first compiler is enough, and starts in half the time.
small="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss512k -Xshare:auto"
classpath=/conf:/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar:/usr/share/java/servlet-api.jar
run() {
    # Unquoted on purpose: each holds several words.
    # shellcheck disable=SC2086
    exec java $small -Xmx${ZK_SERVER_HEAP:-256}m -XX:+ExitOnOutOfMemoryError $log -Dzookeeper.log.dir="$ZOO_LOG_DIR" \
        -cp "$classpath" ${SERVER_JVMFLAGS:-} ${JVMFLAGS:-} "$@"
}
case "${1:-}" in
    start-foreground) run org.apache.zookeeper.server.quorum.QuorumPeerMain "$config" ;;
    version) run org.apache.zookeeper.version.VersionInfoMain ;;
    status) run org.apache.zookeeper.client.FourLetterWordMain localhost 2181 srvr ;;
    *) echo "usage: zkServer.sh start-foreground [FILE] | status | version" >&2; exit 2 ;;
esac
