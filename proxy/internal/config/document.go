package config

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// document is one YAML document of a file, as JSON.
type document struct {
	// where is "FILE" or "FILE, document N".
	where string
	json  []byte
}

// split cuts a file into its documents. Errors name file, document and line and
// never quote the text: a document that cannot be parsed may be a Secret.
func split(file string, raw []byte) ([]document, error) {
	var documents []document
	var errs []error
	parts := cutDocuments(raw)
	for i, p := range parts {
		where := file
		if len(parts) > 1 {
			where = fmt.Sprintf("%s, document %d", file, i+1)
		}
		body, err := yaml.YAMLToJSONStrict(p.text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", where, syntaxError(err, p.firstLine)))
			continue
		}
		if body = bytes.TrimSpace(body); !bytes.Equal(body, []byte("null")) {
			documents = append(documents, document{where: where, json: body})
		}
	}
	return documents, errors.Join(errs...)
}

type part struct {
	text      []byte
	firstLine int // of the file, from 1
}

// cutDocuments splits at lines that begin with "---", and leaves out parts
// without content so that the numbers of documents are those a person counts.
func cutDocuments(raw []byte) []part {
	var parts []part
	var current bytes.Buffer
	first, line, blank := 1, 0, true
	end := func(next int) {
		if !blank {
			parts = append(parts, part{text: bytes.Clone(current.Bytes()), firstLine: first})
		}
		current.Reset()
		first, blank = next, true
	}
	for text := range bytes.Lines(raw) {
		line++
		if rest, isMark := bytes.CutPrefix(text, []byte("---")); isMark && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0) {
			end(line)
			text = append([]byte("   "), rest...) // content may follow the mark on its line
		}
		if content := bytes.TrimSpace(text); len(content) > 0 && content[0] != '#' {
			blank = false
		}
		current.Write(text)
	}
	end(line + 1)
	return parts
}

// syntaxHints turn what the YAML parser says, which may quote the text, into
// what may be shown. The first that fits is taken.
var syntaxHints = []struct{ parser, ours string }{
	{"already set in map", "a key is set twice: remove one"},
	{"tab character", "a tab is used to indent: use spaces"},
	{"cannot start any token", "a character has no meaning there: put the value into quotes, indent with spaces"},
	{"mapping values are not allowed", "a ':' is out of place: check the indentation, put values with ': ' into quotes"},
	{"could not find expected ':'", "a ':' is missing: check the indentation and the quotes"},
	{"did not find expected key", "a key is expected: check the indentation and the quotes"},
	{"expected '-' indicator", "a list entry is expected: check the indentation"},
	{"expected ',' or", "a bracket is not closed: check [ ] and { }"},
	{"unexpected end of stream", "a quote is not closed"},
	{"unknown escape character", "an escape is not known: use single quotes"},
	{"unknown anchor", "an alias has no anchor: put values that begin with '*' into quotes"},
	{"excessive aliasing", "too many aliases: write the values out"},
	{"control characters", "a control character is in the text: remove it"},
	{"invalid leading UTF-8", "the text is not UTF-8: save it as UTF-8"},
}

var lineNumber = regexp.MustCompile(`line (\d+)`)

// syntaxError keeps the line and the kind of a parser's error.
func syntaxError(err error, firstLine int) error {
	message, line := "not valid YAML", ""
	if m := lineNumber.FindStringSubmatch(err.Error()); m != nil {
		if n, convErr := strconv.Atoi(m[1]); convErr == nil {
			line = fmt.Sprintf(" near line %d", n+firstLine-1)
		}
	}
	for _, h := range syntaxHints {
		if strings.Contains(err.Error(), h.parser) {
			return errors.New(message + line + ": " + h.ours)
		}
	}
	return errors.New(message + line + ": check indentation, quotes and colons")
}
