package admin

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTwoFilesStayWithinTheBound(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	r, err := newRotating(name, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.open(); err != nil {
		t.Fatal(err)
	}
	defer r.close()
	line := []byte(strings.Repeat("x", 99) + "\n")
	for i := range 100 {
		line[0] = byte('a' + i%26)
		if err := r.write(line); err != nil {
			t.Fatal(err)
		}
		var size int64
		for _, f := range []string{name, name + ".1"} {
			if info, err := os.Stat(f); err == nil {
				size += info.Size()
			}
		}
		if size > 1000 || i > 10 && size < 500 {
			t.Fatalf("%d bytes after %d lines; want 500 to 1,000", size, i+1)
		}
	}
	text, err := os.ReadFile(name)
	if err != nil || text[len(text)-100] != line[0] {
		t.Errorf("%v; the last line is %.9q, want %.9q", err, text[len(text)-100:], line)
	}
}

func TestALineThatWasTornIsEnded(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(name, []byte("whole\nto"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r, err := newRotating(name, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.open(); err != nil {
			t.Fatal(err)
		}
		if err := r.write([]byte("next\n")); err != nil {
			t.Fatal(err)
		}
		if err := r.close(); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(name)
	if err != nil || !bytes.Equal(text, []byte("whole\nto\nnext\nnext\n")) {
		t.Errorf("%v, %q", err, text)
	}
}

func TestAFileThatWasTakenAwayIsMadeAgain(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	r, err := newRotating(name, 20)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.open(); err != nil {
		t.Fatal(err)
	}
	defer r.close()
	for range 3 {
		if err := r.write([]byte("12345678\n")); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}
