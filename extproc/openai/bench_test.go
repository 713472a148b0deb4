package openai

import (
	"encoding/json"
	"fmt"
	"slices"
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

// fastest gives GB/s of f over size bytes, from the best of many rounds: the
// others were disturbed.
func fastest(size int, f func()) float64 {
	n, best := 1+256<<10/size, time.Hour
	for range 50 {
		start := time.Now()
		for range n {
			f()
		}
		best = min(best, time.Since(start))
	}
	return float64(n*size) / float64(best)
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
			if !json.Valid(bb.body) {
				b.Fatal("the body is broken")
			}
			r := new(Request)
			b.SetBytes(int64(len(bb.body)))
			b.ReportAllocs()
			for b.Loop() {
				if err := r.Scan(bb.kind, bb.body); err != nil {
					b.Fatal(err)
				}
			}
			scan := fastest(len(bb.body), func() { _ = r.Scan(bb.kind, bb.body) })
			valid := fastest(len(bb.body), func() { json.Valid(bb.body) })
			b.ReportMetric(scan, "GB/s")
			b.ReportMetric(scan/valid, "x-json.Valid")
		})
	}
}

// BenchmarkResponse reads event streams, one event a chunk as engines send them,
// and JSON bodies in chunks of 16 KB as Envoy passes them.
func BenchmarkResponse(b *testing.B) {
	stream := [][]byte{[]byte(events(roleEvent))}
	for range 200 {
		stream = append(stream, []byte(events(vllmEvent)))
	}
	stream = append(stream, []byte(events(finishEvent)), []byte(events(usageEvent)), []byte(events("[DONE]")))

	big := []byte(`{"choices":[{"message":{"content":"` + strings.Repeat(prose, 1200) + `"}}],"usage":{"prompt_tokens":15}}`)
	embeddings := []byte(`{"data":[{"embedding":[` + strings.Repeat("-0.0123456789,", 20000) + `0]}],"usage":{"prompt_tokens":15}}`)

	for _, bb := range []struct {
		name   string
		chunks [][]byte
		events int
	}{
		{"stream", stream, len(stream)},
		{"stream-in-4KB-chunks", slices.Collect(slices.Chunk(slices.Concat(stream...), 4<<10)), len(stream)},
		{"json-200KB", slices.Collect(slices.Chunk(big, 16<<10)), 0},
		{"embeddings-280KB", slices.Collect(slices.Chunk(embeddings, 16<<10)), 0},
	} {
		b.Run(bb.name, func(b *testing.B) {
			size := 0
			for _, c := range bb.chunks {
				size += len(c)
			}
			r := new(Response)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				r.Reset()
				for i, c := range bb.chunks {
					r.Write(c, i == len(bb.chunks)-1)
				}
			}
			if r.Usage.Prompt != 15 {
				b.Fatalf("usage = %+v", r.Usage)
			}
			gbps := fastest(size, func() {
				for _, c := range bb.chunks {
					r.Write(c, false)
				}
			})
			if bb.events > 0 {
				b.ReportMetric(float64(size)/gbps/float64(bb.events), "ns/event")
			} else {
				b.ReportMetric(gbps, "GB/s")
			}
		})
	}
}

const vllmEvent = `{"id":"chatcmpl-84983e80eb7d4f1a","object":"chat.completion.chunk","created":1796059322,"model":"tiny","choices":[{"index":0,"delta":{"content":" gu"},"logprobs":null,"finish_reason":null,"token_ids":null}]}`
