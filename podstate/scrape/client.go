package scrape

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	// maxMetrics bounds an exposition, also after decompression. The largest of
	// ordinary servers, of eight data-parallel engines, has 0.4 MB; the rest is for
	// vLLM, which never forgets a combination of adapters, 0.3 KB each.
	maxMetrics = 8 << 20

	// maxJSON bounds any other answer: four thousand adapters in /v1/models. It is
	// smaller because what is decoded is larger than its text.
	maxJSON = 2 << 20

	// timeout of one request. A server that needs longer is busy: what we have
	// sent to it is the better signal then.
	timeout = 2 * time.Second

	// scrapeTime bounds all requests of a scrape together.
	scrapeTime = 5 * time.Second

	// keepIdle is below the 5.0 s after which vLLM, SGLang and llama.cpp close an
	// idle connection, so that it is us who close it.
	keepIdle = 4 * time.Second
)

// client asks one pod over one connection that it keeps. It is not safe for
// concurrent use.
//
// It is an HTTP/1.1 client of its own because net/http's keeps two goroutines a
// connection and hands every request and answer through them: with a thousand
// pods that is half of all CPU time (the numbers are in the README). Answers are
// still read by net/http.
type client struct {
	host    string // host:port
	headers string // of each request, from after its path
	tls     *tls.Config
	dial    func(ctx context.Context, network, addr string) (net.Conn, error)
	now     func() time.Time

	until time.Time // no request goes on after it; zero: no bound but timeout

	conn    net.Conn         // nil: none
	wire    io.LimitedReader // of conn: what may be read yet of an answer
	reader  *bufio.Reader    // of wire
	release func() bool      // unties the connection from its context
	used    time.Time        // when the last answer had been read
	request []byte           // scratch
}

func newClient(cfg *Config, host string) *client {
	headers := " HTTP/1.1\r\nHost: " + host + "\r\nUser-Agent: warmpath\r\nAccept: text/plain;version=0.0.4, application/json;q=0.5, */*;q=0.1\r\n"
	if cfg.Token != "" {
		headers += "Authorization: Bearer " + cfg.Token + "\r\n"
	}
	return &client{host: host, headers: headers + "\r\n", tls: cfg.TLS, dial: cfg.dial, now: cfg.now}
}

// answer is what a pod has sent with status 200. Its body is valid until free.
type answer struct {
	kind string // media type, without parameters
	path string // that was asked, after redirects
	body *bytes.Buffer
}

// free gives the body back.
func (a *answer) free() {
	if a.body.Cap() <= 1<<20 { // a rare giant must not stay in the pool
		a.body.Reset()
		buffers.Put(a.body)
	}
	a.body = nil
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// String describes the answer to people who did not expect it.
func (a *answer) String() string {
	text := bytes.TrimSpace(a.body.Bytes())
	if len(text) == 0 {
		return fmt.Sprintf("%.100s sent nothing", a.path)
	}
	const shown = 60
	return fmt.Sprintf("%.100s sent %d bytes of %.60s that begin with %q", a.path, a.body.Len(), cmp.Or(a.kind, "no media type"), text[:min(len(text), shown)])
}

// statusError is an answer with another status than 200.
type statusError struct {
	status   int
	path     string
	location string
}

func (e *statusError) Error() string { return fmt.Sprintf("%s answered status %d", e.path, e.status) }

// errTooLarge is an answer above its limit.
var errTooLarge = errors.New("answer is too large")

// unread says why there is no answer, in a line that people can read: what a
// server sends in place of HTTP may be quoted in the error, at any length.
type unread struct{ error }

func (e unread) Error() string {
	text := e.error.Error()
	if isTimeout(e.error) {
		text += fmt.Sprintf("; a request may take %v, and all of a scrape %v", timeout, scrapeTime)
	}
	const shown = 400
	if len(text) <= shown {
		return text
	}
	return strings.ToValidUTF8(text[:shown], "") + "…"
}

func (e unread) Unwrap() error { return e.error }

// get asks for a path, and follows redirects that stay at the pod. The body may
// have limit bytes. The caller must free the answer unless there is an error.
func (c *client) get(ctx context.Context, path string, limit int64) (answer, error) {
	a, err := c.follow(ctx, path, limit)
	if err != nil {
		return a, unread{err}
	}
	return a, nil
}

func (c *client) follow(ctx context.Context, path string, limit int64) (a answer, err error) {
	for range 4 {
		a, err = c.once(ctx, path, limit)
		var status *statusError
		if !errors.As(err, &status) || status.location == "" {
			return a, err
		}
		scheme := "http"
		if c.tls != nil {
			scheme = "https"
		}
		from := url.URL{Scheme: scheme, Host: c.host}
		to, err := from.Parse(status.location)
		if err != nil {
			return a, fmt.Errorf("%s redirects to %.100q: %w", path, status.location, err)
		}
		if to.Host != c.host || to.Scheme != scheme {
			return a, fmt.Errorf("%s redirects to another server, %.100q; name that one in the pool's discovery", path, status.location)
		}
		path = to.RequestURI()
	}
	return a, err
}

// once asks without following redirects. A connection that the pod has closed
// meanwhile costs one more try.
func (c *client) once(ctx context.Context, path string, limit int64) (answer, error) {
	if c.conn != nil && c.now().Sub(c.used) > keepIdle {
		c.close()
	}
	if c.conn != nil {
		a, begun, err := c.exchange(path, limit)
		if err == nil || begun || ctx.Err() != nil || isTimeout(err) {
			return a, err
		}
	}
	if err := c.connect(ctx); err != nil {
		return answer{}, err
	}
	a, _, err := c.exchange(path, limit)
	return a, err
}

// patience is how long the next step may take.
func (c *client) patience() time.Duration {
	if c.until.IsZero() {
		return timeout
	}
	return min(timeout, c.until.Sub(c.now()))
}

func (c *client) connect(ctx context.Context) error {
	c.close()
	dialCtx, cancel := context.WithTimeout(ctx, c.patience())
	defer cancel()
	conn, err := c.dial(dialCtx, "tcp", c.host)
	if err != nil {
		return err
	}
	if c.tls != nil {
		cfg := c.tls.Clone()
		if cfg.ServerName == "" {
			cfg.ServerName, _, _ = net.SplitHostPort(c.host)
		}
		secure := tls.Client(conn, cfg)
		if err := secure.HandshakeContext(dialCtx); err != nil {
			conn.Close()
			return fmt.Errorf("TLS: %w", err)
		}
		conn = secure
	}
	c.conn, c.wire.R = conn, conn
	if c.reader == nil {
		c.reader = bufio.NewReader(&c.wire)
	}
	c.reader.Reset(&c.wire)
	c.release = context.AfterFunc(ctx, func() { conn.Close() })
	return nil
}

func (c *client) close() {
	if c.conn != nil {
		c.release()
		c.conn.Close()
		c.conn = nil
	}
}

// exchange sends a request and reads its answer. begun says that the answer had
// begun. After an error the connection is closed, except after a statusError.
func (c *client) exchange(path string, limit int64) (a answer, begun bool, err error) {
	keep := false
	defer func() {
		if !keep {
			c.close()
		}
	}()
	c.request = append(append(append(c.request[:0], "GET "...), path...), c.headers...)
	c.wire.N = 2 * limit // headers and the frames of chunks included, which net/http does not bound
	if err := c.conn.SetDeadline(c.now().Add(c.patience())); err != nil {
		return a, false, err
	}
	if _, err := c.conn.Write(c.request); err != nil {
		return a, false, err
	}
	if _, err := c.reader.Peek(1); err != nil {
		return a, false, err
	}
	resp, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return a, true, c.failed(path, limit, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		n, err := io.CopyN(io.Discard, resp.Body, 64<<10)
		keep = errors.Is(err, io.EOF) && n < 64<<10 && !resp.Close
		c.used = c.now()
		e := &statusError{status: resp.StatusCode, path: path}
		if resp.StatusCode/100 == 3 {
			e.location = resp.Header.Get("Location")
		}
		return a, true, e
	}
	a.path = path
	a.kind, _, _ = strings.Cut(resp.Header.Get("Content-Type"), ";")
	a.body = buffers.Get().(*bytes.Buffer)
	if err := readBody(a.body, resp, limit); err != nil {
		a.free()
		return a, true, c.failed(path, limit, err)
	}
	keep = !resp.Close
	c.used = c.now()
	return a, true, nil
}

// failed says why an answer could not be read.
func (c *client) failed(path string, limit int64, err error) error {
	if errors.Is(err, errTooLarge) || c.wire.N <= 0 {
		return fmt.Errorf("%s: %w: more than %d MB; restart the server if it is a vLLM, which keeps a series for each combination of adapters, "+
			"or let scrape.path say where the metrics are", path, errTooLarge, limit>>20)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// readBody reads a body to its end.
func readBody(into *bytes.Buffer, resp *http.Response, limit int64) error {
	in := io.Reader(resp.Body)
	if resp.Header.Get("Content-Encoding") == "gzip" {
		// We do not ask for it, because it costs the server more than it saves us.
		unzip, err := gzip.NewReader(in)
		if err != nil {
			return fmt.Errorf("gzip: %w", err)
		}
		in = unzip
	}
	if resp.ContentLength > limit {
		return errTooLarge
	}
	into.Grow(int(max(resp.ContentLength, 0)) + bytes.MinRead)
	n, err := into.ReadFrom(io.LimitReader(in, limit+1))
	if n > limit {
		return errTooLarge
	}
	return err
}

func isTimeout(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}

// outcome puts the result of a scrape into a word of a bounded set.
func outcome(err error) string {
	var status *statusError
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &status):
		return "status"
	case errors.Is(err, errTooLarge):
		return "too_large"
	case errors.Is(err, errNothing):
		return "empty"
	case isTimeout(err):
		return "timeout"
	default:
		return "unreachable"
	}
}
