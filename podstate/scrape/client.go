package scrape

import (
	"bufio"
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
	// maxBody bounds a pod's answer, also after decompression: vLLM never forgets
	// a combination of adapters, and a pod with thousands sends megabytes.
	maxBody = 64 << 20

	// timeout of one request. A server that needs longer is busy: what we have
	// sent to it is the better signal then.
	timeout = 2 * time.Second

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
	host  string // host:port, also of the header
	tls   *tls.Config
	token string
	dial  func(ctx context.Context, network, addr string) (net.Conn, error)
	now   func() time.Time

	conn    net.Conn // nil: none
	reader  *bufio.Reader
	release func() bool // unties the connection from its context
	used    time.Time   // when the last answer had been read
	request []byte      // scratch
}

func newClient(cfg *Config, host string) *client {
	return &client{host: host, tls: cfg.TLS, token: cfg.Token, dial: cfg.dial, now: cfg.now}
}

// answer is what a pod has sent with status 200. Its body is valid until free.
type answer struct {
	kind   string // media type, without parameters
	path   string // that was asked, after redirects
	body   []byte
	buffer *[]byte
}

// free gives the body back.
func (a *answer) free() {
	if a.buffer != nil && cap(a.body) <= 1<<20 { // a rare giant must not stay in the pool
		*a.buffer = a.body[:0]
		buffers.Put(a.buffer)
	}
	a.buffer, a.body = nil, nil
}

var (
	buffers = sync.Pool{New: func() any { b := make([]byte, 0, 32<<10); return &b }}
	unzips  = sync.Pool{New: func() any { return new(gzip.Reader) }}
)

// statusError is an answer with another status than 200.
type statusError struct {
	status   int
	path     string
	location string
}

func (e *statusError) Error() string { return fmt.Sprintf("%s answered status %d", e.path, e.status) }

// errTooLarge is an answer above maxBody.
var errTooLarge = fmt.Errorf("answer is larger than %d MB", maxBody>>20)

// get asks for a path, and follows redirects that stay at the pod. The caller
// must free the answer unless there is an error.
func (c *client) get(ctx context.Context, path string) (a answer, err error) {
	for range 4 {
		a, err = c.once(ctx, path)
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
			return a, fmt.Errorf("%s redirects to %q: %w", path, status.location, err)
		}
		if to.Host != c.host || to.Scheme != scheme {
			return a, fmt.Errorf("%s redirects to another server, %q; name that one in the pool's discovery", path, status.location)
		}
		path = to.RequestURI()
	}
	return a, err
}

// once asks without following redirects. A connection that the pod has closed
// meanwhile costs one more try.
func (c *client) once(ctx context.Context, path string) (answer, error) {
	if c.conn != nil && c.now().Sub(c.used) > keepIdle {
		c.close()
	}
	if reused := c.conn != nil; reused {
		a, begun, err := c.exchange(ctx, path)
		if err == nil || begun || ctx.Err() != nil || isTimeout(err) {
			return a, err
		}
	}
	if err := c.connect(ctx); err != nil {
		return answer{}, err
	}
	a, _, err := c.exchange(ctx, path)
	return a, err
}

func (c *client) connect(ctx context.Context) error {
	c.close()
	dialCtx, cancel := context.WithTimeout(ctx, timeout)
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
	c.conn = conn
	if c.reader == nil {
		c.reader = bufio.NewReader(conn)
	}
	c.reader.Reset(conn)
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
func (c *client) exchange(ctx context.Context, path string) (a answer, begun bool, err error) {
	keep := false
	defer func() {
		if !keep {
			c.close()
		}
	}()
	r := append(c.request[:0], "GET "...)
	r = append(append(r, path...), " HTTP/1.1\r\nHost: "...)
	r = append(append(r, c.host...), "\r\nUser-Agent: warmpath\r\nAccept: text/plain;version=0.0.4, application/json;q=0.5, */*;q=0.1\r\n"...)
	if c.token != "" {
		r = append(append(append(r, "Authorization: Bearer "...), c.token...), "\r\n"...)
	}
	r = append(r, "\r\n"...)
	c.request = r
	if err := c.conn.SetDeadline(c.now().Add(timeout)); err != nil {
		return a, false, err
	}
	if _, err := c.conn.Write(r); err != nil {
		return a, false, err
	}
	if _, err := c.reader.Peek(1); err != nil {
		return a, false, err
	}
	resp, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return a, true, fmt.Errorf("%s: %w", path, err)
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
	if a.buffer, a.body, err = readBody(resp); err != nil {
		a.free()
		return answer{}, true, fmt.Errorf("%s: %w", path, err)
	}
	a.kind, _, _ = strings.Cut(resp.Header.Get("Content-Type"), ";")
	a.path = path
	keep = !resp.Close
	c.used = c.now()
	return a, true, nil
}

// readBody reads a body to its end.
func readBody(resp *http.Response) (buffer *[]byte, body []byte, err error) {
	buffer = buffers.Get().(*[]byte)
	in := io.Reader(resp.Body)
	if resp.Header.Get("Content-Encoding") == "gzip" {
		// We do not ask for it, because it costs the server more than it saves us.
		unzip := unzips.Get().(*gzip.Reader)
		defer unzips.Put(unzip)
		if err := unzip.Reset(in); err != nil {
			return buffer, (*buffer)[:0], fmt.Errorf("gzip: %w", err)
		}
		in = unzip
	}
	body, err = readAll(in, (*buffer)[:0], resp.ContentLength)
	return buffer, body, err
}

// readAll reads to the end into buf, which may move.
func readAll(r io.Reader, buf []byte, announced int64) ([]byte, error) {
	if announced > maxBody {
		return buf, errTooLarge
	}
	if int64(cap(buf)) <= announced {
		buf = make([]byte, 0, announced+1)
	}
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
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
