package scrape

import (
	"bytes"
	"strings"
)

// detect names the engine that sends a text as its metrics, or returns nil. A
// sign is a sample that can be read, because error pages may begin a line with
// any word. It reads all other lines too, so it is for the first contact.
func detect(text []byte, path string) *engine {
	var s scanner
	found := len(engines)
	for line := range bytes.Lines(text) {
		name, rest := cutName(skipBlanks(bytes.TrimRight(line, "\r\n")))
		if len(name) == 0 || !s.sample(rest) {
			continue
		}
		for i, e := range engines[:found] {
			if e.prefix != "" && strings.HasPrefix(string(name), e.prefix) || e.label != "" && e.path == path && s.label(e.label) != nil {
				found = i
				break
			}
		}
	}
	if found == len(engines) {
		return nil
	}
	return engines[found]
}
