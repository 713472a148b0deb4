package main

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

// The whole demo, in short, through a real Envoy.
func TestDemo(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), options{duration: 2 * time.Second, rate: 6, listen: "127.0.0.1:0"}, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{
		`curl -N http://127\.0\.0\.1:\d+/v1/chat/completions`,
		`round robin  \[#{40}\] 12/12`,
		`warmpath     \[#{40}\] 12/12`,
		`time to first token, p99 +\S+s +\S+s`,
		`prompt tokens from a cache +\d+ % +\d+ %`,
		`requests on the slow pods +50 %`, // dealt out in turn
		`failed +0 of 12 +0 of 12`,
	} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("the output has nothing like %s:\n%s", want, out.String())
		}
	}
}
