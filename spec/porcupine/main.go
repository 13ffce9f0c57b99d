// Checks histories of chaos runs with porcupine, a checker of linearizability that this project did not write.
//
//	go run . FILE...
//
// Each file is what spec/chaos/export.lua wrote. One line for each; status 1 if one of them is no lock's.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	patience = 60 * time.Second
	forever  = int64(1) << 62
)

type operation struct {
	key, kind, owner string
	token            int64
}

// The lock of one key: who has it, and the highest token so far. Nobody has it: owner "".
type lock struct {
	owner       string
	token, last int64
}

// All that the operation may leave behind; nothing: it cannot happen now.
func step(state, input, _ interface{}) []interface{} {
	now, op := state.(lock), input.(operation)
	has := now.owner == op.owner && now.token == op.token
	free := lock{last: now.last}
	switch op.kind {
	case "take":
		if has {
			return []interface{}{now}
		}
		if now.owner == "" && op.token > now.last {
			return []interface{}{lock{op.owner, op.token, op.token}}
		}
	case "holds":
		if has {
			return []interface{}{now}
		}
	case "free":
		if has {
			return []interface{}{free}
		}
	case "maybe":
		if has {
			return []interface{}{free, now}
		}
		return []interface{}{now}
	case "end":
		if has {
			return []interface{}{free}
		}
		return []interface{}{now}
	}
	return nil
}

var model = (&porcupine.NondeterministicModel{
	Init: func() []interface{} { return []interface{}{lock{}} },
	Step: step,
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		keys, parts := []string{}, map[string][]porcupine.Operation{}
		for _, op := range history {
			key := op.Input.(operation).key
			if parts[key] == nil {
				keys = append(keys, key)
			}
			parts[key] = append(parts[key], op)
		}
		list := [][]porcupine.Operation{}
		for _, key := range keys {
			list = append(list, parts[key])
		}
		return list
	},
}).ToModel()

func read(from io.Reader) ([]porcupine.Operation, error) {
	history, lines := []porcupine.Operation{}, bufio.NewScanner(from)
	for lines.Scan() {
		var op operation
		var process string
		var start, stop int64
		text := lines.Text()
		if text == "" {
			continue
		}
		_, err := fmt.Sscan(text, &op.key, &op.kind, &process, &start, &stop, &op.owner, &op.token)
		if err != nil {
			return nil, fmt.Errorf("%q: %v", text, err)
		}
		if stop < 0 {
			stop = forever
		}
		history = append(history, porcupine.Operation{ClientId: len(history), Input: op, Call: start, Return: stop})
	}
	return history, lines.Err()
}

func check(history []porcupine.Operation) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(model, history, patience)
}

func main() {
	good := true
	for _, path := range os.Args[1:] {
		file, err := os.Open(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		history, err := read(file)
		file.Close()
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			os.Exit(2)
		}
		result := check(history)
		fmt.Printf("%s: %d operations, %s\n", path, len(history), result)
		good = good && result == porcupine.Ok
	}
	if !good {
		os.Exit(1)
	}
}
