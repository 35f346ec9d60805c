#!/bin/sh
# A lock at Redis, in POSIX sh. `bash` opens the connection, for /dev/tcp alone: where a node has redis-cli, that does.
acquire="if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return redis.call('incr', KEYS[1] .. ':token') end return 0"
renew="if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0"
release="if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"

field() { printf '%s' "$line" | sed -n "s/.*\"$1\":\"\{0,1\}\([^,}\"]*\).*/\1/p"; }
now() { read -r up _ </proc/uptime && printf '%s' "$up"; } # rounded down, on a clock that no fault moves
say() { printf '%s\n' "{\"id\":$id,$1}"; }

ask() { # a script and what it gets; prints Redis's answer, and fails without one in time
    timeout "$operation" bash -c '
        { exec 3<>"/dev/tcp/$0/$1"; } 2>/dev/null || exit 7
        shift
        printf "*%d\r\n" $# >&3
        for word; do printf "\$%d\r\n%s\r\n" ${#word} "$word" >&3; done
        IFS= read -r answer <&3 && printf %s "${answer%?}"' \
        "$host" "$port" EVAL "$1" 1 "$lock" "$owner" "$ms" 2>/dev/null
}

IFS= read -r line
host=$(printf '%s' "$line" | sed 's/.*"endpoints":\[\["\([^"]*\)",.*/\1/')
port=$(printf '%s' "$line" | sed 's/.*"endpoints":\[\["[^"]*",\([0-9]*\).*/\1/')
lock=$(field lock) operation=$(field operation_seconds)
ms=$(awk "BEGIN { printf \"%d\", $(field ttl) * 1000 }")
printf '%s\n' '{"hello":{"protocol":1,"library":"redis by hand","version":"1","language":"sh","renewals":"asked",'\
'"tokens":true,"expires":true,"errors":{"held by another":"fail","not held":"fail","no connection":"fail","*":"info"}}}'

while IFS= read -r line; do
    id=$(field id)
    case $(field do) in
    acquire)
        owner=$(od -An -N8 -tx1 /dev/urandom | tr -d ' \n')
        end=$(awk "BEGIN { print $(now) + $(field wait) }")
        while :; do
            sent=$(now) # before the request: from then on the lease may count
            answer=$(ask "$acquire")
            case $?:$answer in
            0::0) said='"type":"fail","error":"held by another"' ;;
            0::*) said="\"type\":\"ok\",\"token\":${answer#:},\"since\":{\"at\":$sent}" ;;
            7:*) said='"type":"fail","error":"no connection"' ;;
            *) said='"type":"info","error":"no answer"' ;;
            esac
            case $said in *another*) awk "BEGIN { exit !($(now) < $end) }" && sleep 0.05 && continue ;; esac
            break
        done
        ;;
    *)
        if [ "$(field do)" = renew ]; then script=$renew; else script=$release; fi
        answer=$(ask "$script")
        case $?:$answer in
        0::1) said='"type":"ok","proves":true' ;; # the script compares the owner
        0::0) said='"type":"fail","error":"not held","held":false' ;;
        7:*) said='"type":"fail","error":"no connection"' ;;
        *) said='"type":"info","error":"no answer"' ;;
        esac
        ;;
    esac
    say "$said"
done
