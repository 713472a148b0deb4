package openai

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

const prose = `The gateway reads the body once, decides, and lets it go. Text like this has \"quotes\" now and then,\nand a line break after a sentence or two. Nothing in it is special.\n`

// chat makes a chat request whose text has about n bytes, in so many messages.
func chat(n, messages int) []byte {
	text := strings.Repeat(prose, n/messages/len(prose)+1)[:n/messages]
	text = strings.TrimRight(text, `\`)
	var b strings.Builder
	b.WriteString(`{"model":"meta-llama/Llama-3.1-8B-Instruct","stream":true,"stream_options":{"include_usage":true},"max_tokens":256,"temperature":0.7,"messages":[`)
	for i := range messages {
		role := []string{"user", "assistant"}[i%2]
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"role":"%s","content":"%s"}`, role, text)
	}
	b.WriteString(`]}`)
	return []byte(b.String())
}

func plainText(n int) []byte {
	return []byte(`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("no escape here, ", n/16) + `"}]}`)
}

func image(n int) []byte {
	return []byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"What is this?"},` +
		`{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("iVBORw0KGgoAAAAN", n/16) + `"}}]}]}`)
}

func toolHeavy(tools int) []byte {
	var b strings.Builder
	b.WriteString(`{"model":"m","tools":[`)
	for i := range tools {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"type":"function","function":{"name":"tool_%d","description":"Looks something up in a place.","parameters":{"type":"object",`+
			`"properties":{"path":{"type":"string","description":"Where to look"},"limit":{"type":"integer","minimum":1,"maximum":100},"deep":{"type":"boolean"}},"required":["path"]}}}`, i)
	}
	b.WriteString(`],"messages":[{"role":"user","content":"Use them."}]}`)
	return []byte(b.String())
}

func tokenIDs(n int) []byte {
	var b strings.Builder
	b.WriteString(`{"model":"m","prompt":[1`)
	for i := range n {
		fmt.Fprintf(&b, ",%d", i*7919%128000)
	}
	b.WriteString(`]}`)
	return []byte(b.String())
}

// BenchmarkScan reports GB/s, and how much faster the scan is than
// encoding/json.Valid, which reads no field.
func BenchmarkScan(b *testing.B) {
	for _, bb := range []struct {
		name string
		kind Kind
		body []byte
	}{
		{"chat-4KB", Chat, chat(4<<10, 3)},
		{"chat-200KB", Chat, chat(200<<10, 3)},
		{"chat-200KB-no-escapes", Chat, plainText(200 << 10)},
		{"chat-2000-messages", Chat, chat(2000*30, 2000)},
		{"image-1MB", Chat, image(1 << 20)},
		{"tools-100", Chat, toolHeavy(100)},
		{"token-ids-20000", Completions, tokenIDs(20000)},
	} {
		b.Run(bb.name, func(b *testing.B) {
			rounds := 1 + 4<<20/len(bb.body)
			start := time.Now()
			for range rounds {
				if !json.Valid(bb.body) {
					b.Fatal("the body is broken")
				}
			}
			valid := float64(time.Since(start).Nanoseconds()) / float64(rounds)
			r := new(Request)
			b.SetBytes(int64(len(bb.body)))
			b.ReportAllocs()
			for b.Loop() {
				if err := r.Scan(bb.kind, bb.body); err != nil {
					b.Fatal(err)
				}
			}
			perOp := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
			b.ReportMetric(float64(len(bb.body))/perOp, "GB/s")
			b.ReportMetric(valid/perOp, "x-json.Valid")
		})
	}
}
