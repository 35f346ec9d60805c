package main

// The adapter protocol (docs/adapters.md) for an adapter in Go: the library's side is in main.go.

import (
	"bufio"
	"encoding/json"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

type answer map[string]any

type configuration struct {
	Lock      string  `json:"lock"`
	TTL       float64 `json:"ttl"`
	Endpoints [][]any `json:"endpoints"`
	Settings  struct {
		Password string `json:"password"`
	} `json:"settings"`
}

var lines = bufio.NewScanner(os.Stdin)

// read is the config, the first line.
func read() (config configuration) {
	lines.Buffer(nil, 1<<20)
	lines.Scan()
	if err := json.Unmarshal(lines.Bytes(), &config); err != nil {
		panic(err)
	}
	return config
}

// now is CLOCK_BOOTTIME, which no fault moves, rounded down. Go's own clocks are not it.
func now() float64 {
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		panic(err)
	}
	seconds, err := strconv.ParseFloat(strings.Fields(string(text))[0], 64)
	if err != nil {
		panic(err)
	}
	return seconds
}

// refused is an error with the text that the error table judges; gone where the service said that the lock isn't held.
type refused struct {
	text string
	gone bool
}

func (r refused) Error() string { return r.text }

// said is what a library's call came to: nil, or its error with a word before it.
func said(what string, err error, gone bool) error {
	if err == nil {
		return nil
	}
	return refused{what + err.Error(), gone}
}

// version of a module that this program is built with.
func version(module string) string {
	built, ok := debug.ReadBuildInfo()
	if !ok {
		panic("built without modules")
	}
	for _, each := range built.Deps {
		if each.Path == module {
			return strings.TrimPrefix(each.Version, "v")
		}
	}
	panic("built without " + module)
}

// failed is an answer that is not ok; the longest beginning in the table counts.
func failed(err error, table map[string]string) answer {
	kind, longest, text := table["*"], 0, err.Error()
	for key, meant := range table {
		if key != "*" && strings.HasPrefix(text, key) && len(key) > longest {
			kind, longest = meant, len(key)
		}
	}
	told := answer{"type": kind, "error": text[:min(len(text), 400)]}
	if r, ok := err.(refused); ok && r.gone {
		told["held"] = false
	}
	return told
}

// speak says hello, and answers commands until stdin ends.
func speak(library, module string, table map[string]string, do map[string]func(float64) (answer, error)) {
	out := json.NewEncoder(os.Stdout)
	out.Encode(answer{"hello": answer{
		"protocol": 1, "library": library, "version": version(module), "language": runtime.Version(),
		"renewals": "asked", "tokens": false, "expires": true, "errors": table,
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
		told, err := do[command.Do](command.Wait)
		if err != nil {
			told = failed(err, table)
		} else {
			told["type"] = "ok"
		}
		told["id"] = command.ID
		out.Encode(told)
	}
}
