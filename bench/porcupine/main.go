// Command porcupine asks Porcupine whether the history of a lock is linearizable.
//
// It reads the line form that `fencepost export porcupine` writes and prints one JSON object:
//
//	{"answer": "ok" | "illegal" | "unknown", "seconds": 0.123, "operations": 1000}
//
// "unknown" means that the time ran out. The seconds are those of the check alone, without reading.
//
// The model is a fenced mutex: an acquire needs the lock free and gives a token above all earlier ones; a release needs
// it held, and names the token of the hold that it gives up. An operation that failed isn't there. One of unknown
// outcome is pending to the end and always legal: where it doesn't fit it did nothing. (It can be put off until it
// doesn't fit, or to the very end, so this loses no account of the history.)
//
// With -model rank the model knows all tokens beforehand and lets an acquire happen only for the next one. That is a
// trick of ours, in Porcupine's favour: it prunes nearly all of the search.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// none stands for a token that isn't known.
const none = -1

type input struct {
	acquire bool
	token   int64 // of the hold that a release gives up
}

type output struct {
	known bool
	token int64 // that an acquire got
}

type state struct {
	held   bool
	holder int64 // token of the hold, or none
	last   int64 // highest token so far; with ranks, the rank of the last one given
}

// model is the fenced mutex. rank maps a token to its place among all, from 0; nil for the natural model.
func model(rank map[int64]int64) porcupine.Model {
	step := func(s, in, out interface{}) (bool, interface{}) {
		now, op, answer := s.(state), in.(input), out.(output)
		if op.acquire {
			if now.held {
				return !answer.known, now
			}
			next := state{held: true, holder: answer.token, last: now.last}
			if answer.token == none {
				return true, next
			}
			if rank != nil {
				next.last = rank[answer.token]
				return next.last == now.last+1, next
			}
			next.last = answer.token
			return answer.token > now.last, next
		}
		if !now.held || (now.holder != none && op.token != none && now.holder != op.token) {
			return !answer.known, now
		}
		return true, state{holder: none, last: now.last}
	}
	return porcupine.Model{
		Init: func() interface{} { return state{holder: none, last: -1} },
		Step: step,
	}
}

// read gives the events of a file, those of unknown outcome returning at the end, and the ranks of its tokens.
func read(path string) ([]porcupine.Event, map[int64]int64, int, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, 0, err
	}
	defer file.Close()
	type operation struct {
		call, back int // lines; back is -1 while there is none
		in         input
		out        output
		failed     bool
	}
	var operations []*operation
	byLine := map[int]*operation{}
	open := map[string]*operation{}
	var tokens []int64
	scanner := bufio.NewScanner(file)
	line := 0
	for ; scanner.Scan(); line++ {
		fields := strings.Split(strings.TrimPrefix(scanner.Text(), "INFO  jepsen.util - "), "\t")
		if len(fields) != 4 {
			return nil, nil, 0, fmt.Errorf("%s:%d: not a line of an operation", path, line+1)
		}
		token := int64(none)
		if fields[3] != "nil" {
			if token, err = strconv.ParseInt(fields[3], 10, 64); err != nil {
				return nil, nil, 0, fmt.Errorf("%s:%d: %v", path, line+1, err)
			}
		}
		if fields[1] == ":invoke" {
			op := &operation{call: line, back: -1, in: input{acquire: fields[2] == ":acquire", token: token}}
			op.out = output{token: none}
			operations = append(operations, op)
			open[fields[0]] = op
			byLine[line] = op
			continue
		}
		op := open[fields[0]]
		if op == nil {
			return nil, nil, 0, fmt.Errorf("%s:%d: a completion without an invoke", path, line+1)
		}
		delete(open, fields[0])
		switch fields[1] {
		case ":ok":
			op.back = line
			op.out = output{known: true, token: token}
			byLine[line] = op
			if op.in.acquire && token != none {
				tokens = append(tokens, token)
			}
		case ":fail":
			op.failed = true
		}
	}
	if err := scanner.Err(); err != nil {
		return nil, nil, 0, err
	}
	ids := map[*operation]int{}
	for i, op := range operations {
		ids[op] = i
	}
	var events []porcupine.Event
	for at := 0; at < line; at++ {
		op := byLine[at]
		if op == nil || op.failed {
			continue
		}
		if op.call == at {
			events = append(events, porcupine.Event{Kind: porcupine.CallEvent, Value: op.in, Id: ids[op]})
		} else {
			events = append(events, porcupine.Event{Kind: porcupine.ReturnEvent, Value: op.out, Id: ids[op]})
		}
	}
	for i, op := range operations {
		if op.back < 0 && !op.failed {
			events = append(events, porcupine.Event{Kind: porcupine.ReturnEvent, Value: op.out, Id: i})
		}
	}
	sort.Slice(tokens, func(i, j int) bool { return tokens[i] < tokens[j] })
	rank := map[int64]int64{}
	for _, token := range tokens {
		if _, seen := rank[token]; !seen {
			rank[token] = int64(len(rank))
		}
	}
	return events, rank, len(operations), nil
}

func main() {
	kind := flag.String("model", "natural", "natural, or rank: an acquire is legal only for the next token")
	limit := flag.Duration("timeout", 30*time.Second, "give up after this time")
	flag.Parse()
	if flag.NArg() != 1 || (*kind != "natural" && *kind != "rank") {
		flag.Usage()
		os.Exit(2)
	}
	events, rank, operations, err := read(flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if *kind == "natural" {
		rank = nil
	}
	began := time.Now()
	answer := porcupine.CheckEventsTimeout(model(rank), events, *limit)
	json.NewEncoder(os.Stdout).Encode(map[string]interface{}{
		"answer":     strings.ToLower(string(answer)),
		"seconds":    time.Since(began).Seconds(),
		"operations": operations,
	})
}
