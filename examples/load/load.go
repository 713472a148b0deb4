// Package load plays requests against an OpenAI-compatible server and measures
// when the first token of each comes.
//
// The load is open: requests go out when they are due, however slowly the server
// answers, as users do not wait for each other.
package load

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// Request is one request of a plan.
type Request struct {
	At   time.Duration // after the start
	Body []byte        // of a streaming chat completion
}

// Result is what came of a request.
type Result struct {
	Sent   time.Duration // after the start; later than Request.At when this machine is too slow
	TTFT   time.Duration // until the first event that is not a comment
	Total  time.Duration // until the end
	Prompt int           // tokens, if the server told
	Cached int           // those of them that were in its cache
	Output int
	Err    error // it did not end well
}

// Options say how to play a plan.
type Options struct {
	URL      string                // of the endpoint, such as http://127.0.0.1:8080/v1/chat/completions
	Timeout  time.Duration         // of one request; 0 is a minute
	Progress func(done, total int) // called now and then from one goroutine; may be nil
}

// Run plays the plan, whose requests must be in order of time, and returns one
// result for each. When ctx ends, open requests are cut and the others not sent.
func Run(ctx context.Context, plan []Request, o Options) []Result {
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true, IdleConnTimeout: 3 * time.Second}
	defer transport.CloseIdleConnections()
	p := &player{o: o, client: &http.Client{Transport: transport}, start: time.Now()}
	results := make([]Result, len(plan))
	finished := make(chan struct{}, len(plan))
	var open sync.WaitGroup
	open.Go(func() {
		for i := range plan {
			if o.Progress != nil {
				o.Progress(i, len(plan))
			}
			<-finished
		}
		if o.Progress != nil {
			o.Progress(len(plan), len(plan))
		}
	})
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for i := range plan {
		timer.Reset(plan[i].At - time.Since(p.start))
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			results[i].Err = ctx.Err()
			finished <- struct{}{}
			continue
		}
		open.Go(func() {
			results[i] = p.play(ctx, plan[i].Body)
			finished <- struct{}{}
		})
	}
	open.Wait()
	return results
}

type player struct {
	o      Options
	client *http.Client
	start  time.Time
}

func (p *player) play(ctx context.Context, body []byte) (r Result) {
	ctx, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	begun := time.Now()
	r.Sent = begun.Sub(p.start)
	defer func() { r.Total = time.Since(begun) }()

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.o.URL, bytes.NewReader(body))
	if err != nil {
		r.Err = err
		return r
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.client.Do(req)
	if err != nil {
		r.Err = err
		return r
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		r.Err = fmt.Errorf("status %d: %s", resp.StatusCode, text)
		return r
	}
	r.Err = r.read(resp.Body, begun)
	return r
}

// read follows a stream of server-sent events. A server may send headers, and
// comments as a sign of life, long before the first token.
func (r *Result) read(body io.Reader, begun time.Time) error {
	lines := bufio.NewReaderSize(body, 4096)
	for {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return errors.New("an event is longer than 4,096 bytes")
		}
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		if !ok {
			if err != nil {
				return fmt.Errorf("the stream ended without [DONE]: %w", err)
			}
			continue
		}
		if r.TTFT == 0 {
			r.TTFT = time.Since(begun)
		}
		data = bytes.TrimSpace(data)
		switch {
		case bytes.Equal(data, []byte("[DONE]")):
			io.Copy(io.Discard, lines)
			return nil
		case bytes.Contains(data, []byte(`"error"`)):
			return fmt.Errorf("the stream failed: %.200s", data)
		case bytes.Contains(data, []byte(`"usage":{`)):
			r.usage(data)
		}
	}
}

func (r *Result) usage(data []byte) {
	var v struct {
		Usage struct {
			Prompt  int `json:"prompt_tokens"`
			Output  int `json:"completion_tokens"`
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	if json.Unmarshal(data, &v) == nil {
		r.Prompt, r.Output, r.Cached = v.Usage.Prompt, v.Usage.Output, v.Usage.Details.Cached
	}
}
