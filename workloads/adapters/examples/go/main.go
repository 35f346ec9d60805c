// A lock at Redis, in Go, with the standard library alone: CGO_ENABLED=0 go build -o lock .
package main

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

const (
	acquire = `if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return redis.call('incr', KEYS[1] .. ':token') end return 0`
	renew   = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0`
	release = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`
)

var config struct {
	Lock             string  `json:"lock"`
	TTL              float64 `json:"ttl"`
	Endpoints        [][]any `json:"endpoints"`
	OperationSeconds float64 `json:"operation_seconds"`
}

var errorTable = map[string]string{"held by another": "fail", "not held": "fail", "dial ": "fail", "*": "info"}

type answer map[string]any

// now is CLOCK_BOOTTIME, which no fault moves, rounded down. Go's own clocks are not it.
func now() float64 {
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		panic(err)
	}
	seconds, _ := strconv.ParseFloat(strings.Fields(string(text))[0], 64)
	return seconds
}

var (
	connection net.Conn
	owner      string
)

// ask runs a script once, on a connection that is kept, with one deadline.
func ask(script string) (int, error) {
	limit := time.Duration(config.OperationSeconds * float64(time.Second))
	if connection == nil {
		address := fmt.Sprintf("%v:%v", config.Endpoints[0][0], config.Endpoints[0][1])
		made, err := net.DialTimeout("tcp", address, limit)
		if err != nil {
			return 0, err
		}
		connection = made
	}
	connection.SetDeadline(time.Now().Add(limit))
	words := []string{"EVAL", script, "1", config.Lock, owner, strconv.Itoa(int(config.TTL * 1000))}
	text := fmt.Sprintf("*%d\r\n", len(words))
	for _, word := range words {
		text += fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
	}
	_, err := connection.Write([]byte(text))
	line := ""
	if err == nil {
		line, err = bufio.NewReader(connection).ReadString('\n')
	}
	if err != nil {
		connection.Close() // what comes late must not be taken for the next answer
		connection = nil
		return 0, err
	}
	if line[0] != ':' {
		return 0, fmt.Errorf("redis: %s", strings.TrimSpace(line[1:]))
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

func failed(text string) answer {
	kind, longest := errorTable["*"], 0
	for key, meant := range errorTable {
		if key != "*" && strings.HasPrefix(text, key) && len(key) > longest {
			kind, longest = meant, len(key)
		}
	}
	return answer{"type": kind, "error": text}
}

func take(wait float64) answer {
	bytes := make([]byte, 12)
	rand.Read(bytes)
	owner = hex.EncodeToString(bytes)
	for end := now() + wait; ; time.Sleep(50 * time.Millisecond) {
		sent := now() // before the request: from then on the lease may count
		token, err := ask(acquire)
		if err != nil {
			return failed(err.Error())
		}
		if token > 0 {
			return answer{"type": "ok", "token": token, "since": answer{"at": sent}}
		}
		if now() >= end {
			return failed("held by another")
		}
	}
}

func compared(script string) answer {
	done, err := ask(script)
	if err != nil {
		return failed(err.Error())
	}
	if done == 0 {
		said := failed("not held")
		said["held"] = false // the script compared the owner: it is the service's word
		return said
	}
	return answer{"type": "ok", "proves": true}
}

func main() {
	lines, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	lines.Buffer(nil, 1<<20)
	lines.Scan()
	if err := json.Unmarshal(lines.Bytes(), &config); err != nil {
		panic(err)
	}
	out.Encode(answer{"hello": answer{
		"protocol": 1, "library": "redis by hand", "version": "1", "language": runtime.Version(),
		"renewals": "asked", "tokens": true, "expires": true, "errors": errorTable,
	}})
	for lines.Scan() {
		var command struct {
			ID   int     `json:"id"`
			Do   string  `json:"do"`
			Wait float64 `json:"wait"`
		}
		if err := json.Unmarshal(lines.Bytes(), &command); err != nil {
			panic(err)
		}
		said := answer{}
		switch command.Do {
		case "acquire":
			said = take(command.Wait)
		case "renew":
			said = compared(renew)
		case "release":
			said = compared(release)
		}
		said["id"] = command.ID
		out.Encode(said)
	}
}
