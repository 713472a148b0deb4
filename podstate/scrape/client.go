package scrape

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// maxBody bounds a pod's answer, also after decompression: vLLM never forgets
	// a combination of adapters, and a pod with thousands sends megabytes.
	maxBody = 64 << 20

	// timeout of one request. A server that needs longer is busy: what we have
	// sent to it is the better signal then.
	timeout = 2 * time.Second

	// keepIdle is below the 5.0 s after which vLLM, SGLang and llama.cpp close an
	// idle connection, so that it is us who close it.
	keepIdle = 4 * time.Second

	accept = "text/plain;version=0.0.4;q=1,application/json;q=0.5,*/*;q=0.1"
)

// newTransport returns a transport that keeps one connection to each pod. A GET
// that meets a closing connection is sent once more by net/http itself.
func newTransport(tlsConfig *tls.Config) *http.Transport {
	return &http.Transport{
		DialContext:         (&net.Dialer{Timeout: timeout, KeepAlive: 15 * time.Second}).DialContext,
		TLSClientConfig:     tlsConfig,
		TLSHandshakeTimeout: timeout,
		DisableCompression:  true, // gzip costs the server more than it saves us; it is read when sent
		MaxIdleConnsPerHost: 1,
		IdleConnTimeout:     keepIdle,
		ReadBufferSize:      16 << 10,
	}
}

// client asks pods.
type client struct {
	http  http.Client
	token string
}

func newClient(rt http.RoundTripper, token string) *client {
	c := &client{token: token}
	c.http.Transport = rt
	c.http.CheckRedirect = func(next *http.Request, via []*http.Request) error {
		switch {
		case next.URL.Host != via[0].URL.Host || next.URL.Scheme != via[0].URL.Scheme:
			return fmt.Errorf("redirect to another host %q; name it in the pool's discovery instead", next.URL.Host)
		case len(via) > 3:
			return errors.New("more than 3 redirects")
		}
		return nil
	}
	return c
}

// answer is what a pod has sent. Its body belongs to the client until release.
type answer struct {
	status int
	kind   string // media type, without parameters
	url    string // after redirects
	body   []byte
	buffer *[]byte
}

func (a *answer) release() {
	if a.buffer != nil {
		*a.buffer = a.body[:0]
		if cap(a.body) <= 1<<20 { // a rare giant must not stay in the pool
			buffers.Put(a.buffer)
		}
		a.buffer, a.body = nil, nil
	}
}

var (
	buffers = sync.Pool{New: func() any { b := make([]byte, 0, 32<<10); return &b }}
	unzips  = sync.Pool{New: func() any { return new(gzip.Reader) }}
)

// statusError is an answer with another status than 200.
type statusError struct {
	status int
	url    string
}

func (e *statusError) Error() string { return fmt.Sprintf("%s answered status %d", e.url, e.status) }

// errTooLarge is an answer above maxBody.
var errTooLarge = fmt.Errorf("answer is larger than %d MB", maxBody>>20)

// get asks once. The caller must release the answer unless there is an error.
func (c *client) get(ctx context.Context, url string) (a answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return a, err
	}
	req.Header["Accept"] = acceptHeader
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		_, _ = io.CopyN(io.Discard, resp.Body, 4<<10) // so that the connection can be kept
		return a, &statusError{resp.StatusCode, url}
	}
	body := io.Reader(resp.Body)
	if resp.Header.Get("Content-Encoding") == "gzip" {
		unzip := unzips.Get().(*gzip.Reader)
		defer unzips.Put(unzip)
		if err := unzip.Reset(body); err != nil {
			return a, fmt.Errorf("%s: gzip: %w", url, err)
		}
		body = unzip
	}
	a.kind, _, _ = strings.Cut(resp.Header.Get("Content-Type"), ";")
	a.status, a.url = resp.StatusCode, resp.Request.URL.String()
	a.buffer = buffers.Get().(*[]byte)
	a.body, err = readAll(body, (*a.buffer)[:0], resp.ContentLength)
	if err != nil {
		a.release()
		return answer{}, fmt.Errorf("%s: %w", url, err)
	}
	return a, nil
}

var acceptHeader = []string{accept}

// readAll reads to the end into buf, which may move.
func readAll(r io.Reader, buf []byte, announced int64) ([]byte, error) {
	if announced > maxBody {
		return buf, errTooLarge
	}
	for {
		if len(buf) == cap(buf) || int64(cap(buf)) <= announced && len(buf) == 0 {
			grown := make([]byte, len(buf), max(2*cap(buf), int(announced)+1))
			copy(grown, buf)
			buf = grown
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case err == io.EOF:
			return buf, nil
		case err != nil:
			return buf, err
		case len(buf) > maxBody:
			return buf, errTooLarge
		}
	}
}

// outcome puts the result of a scrape into a word of a bounded set.
func outcome(err error) string {
	var status *statusError
	var netErr net.Error
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &status):
		return "status"
	case errors.Is(err, errTooLarge):
		return "too_large"
	case errors.Is(err, errNothing):
		return "empty"
	case errors.As(err, &netErr) && netErr.Timeout():
		return "timeout"
	default:
		return "unreachable"
	}
}
