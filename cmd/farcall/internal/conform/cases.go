package conform

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

// casesText has the cases; its head explains the form.
//
//go:embed cases.txt
var casesText string

// nested is how deep the params of json/depth are.
const nested = 100_000

var writings = map[string]writing{
	"joined": joined, "pieces": pieces, "headers": headers, "in turn": inTurn,
}

// Cases lists everything that is probed, in order.
func Cases() []Case {
	blocks := strings.Split(casesText, "\n== ")[1:]
	cases := make([]Case, len(blocks))
	for i, block := range blocks {
		for n, line := range strings.Split(strings.TrimSuffix(block, "\n"), "\n") {
			if err := cases[i].add(n, line); err != nil {
				panic(fmt.Sprintf("cases.txt: %q: %v", line, err)) //nolint:forbidigo // the file is part of the program
			}
		}
	}
	return cases
}

// add reads line n of a case.
func (c *Case) add(n int, line string) (err error) {
	sign, rest, _ := strings.Cut(line, " ")
	switch {
	case n == 0:
		f := strings.Split(line, " | ")
		c.Name, c.Level, c.Ref = f[0], Level(f[1]), f[2]
	case n == 1:
		c.Title = line
	case sign == ":":
		err = c.option(rest)
	case sign == ">":
		deep := strings.Repeat("[", nested) + strings.Repeat("]", nested)
		c.sends = append(c.sends, strings.Replace(rest, "$deep", deep, 1))
	case sign == ">>":
		rest, err = strconv.Unquote(rest)
		c.sends = append(c.sends, rest)
	case sign == "<":
		var w want
		w, err = readWant(rest)
		c.want = append(c.want, w)
	case line != "":
		err = strconv.ErrSyntax
	}
	return err
}

// option reads one of: needs METHODS of the specification's examples; echo PARAMS, an echo method
// that must return them; on TRANSPORTS alone; not on TRANSPORT, REASON; write, how the frames are
// put on a stream; array, the answers are in one; hundred calls in a batch; or JSON-RPC 1.0: an
// answer in its form is as good.
func (c *Case) option(text string) error {
	name, value, _ := strings.Cut(text, " ")
	switch name {
	case "needs":
		c.needs = strings.Fields(value)
	case "echo":
		c.echo, c.payload = true, value
	case "on":
		c.on = strings.Fields(value)
	case "not":
		on, why, _ := strings.Cut(strings.TrimPrefix(value, "on "), ", ")
		c.notOn, c.notOnWhy = []string{on}, why
	case "write":
		c.write = writings[value]
	case "array":
		c.array = true
	case "or":
		c.v1ok = true
	case "hundred":
		calls := make([]string, 100)
		for i := range calls {
			id := fmt.Sprintf(`"$id-%d"`, i)
			calls[i] = `{"jsonrpc":"2.0","method":"$none","id":` + id + `}`
			c.want = append(c.want, none(id))
		}
		c.sends = []string{"[" + strings.Join(calls, ",") + "]"}
	default:
		return strconv.ErrSyntax
	}
	return nil
}

// none is the answer to a call of a method that does not exist.
func none(id string) want { return want{id: id, codes: []int{codeMethodNotFound}} }

func readWant(text string) (w want, err error) {
	parts := strings.Split(text, " | ")
	w.id = parts[0]
	for _, part := range parts[1:] {
		name, value, _ := strings.Cut(part, " ")
		switch name {
		case "error":
			w.codes, err = readCodes(value)
		case "also":
			w.also, err = readCodes(value)
		case "or":
			w.nullID = true
		case "result":
			w.result = value
		case "bytes":
			w.bytes = true
		case "message":
			w.message = value
		default:
			err = strconv.ErrSyntax
		}
		if err != nil {
			return w, err
		}
	}
	return w, nil
}

func readCodes(text string) (codes []int, err error) {
	for word := range strings.FieldsSeq(text) {
		code, err := strconv.Atoi(word)
		if err != nil {
			return nil, err
		}
		codes = append(codes, code)
	}
	return codes, nil
}
