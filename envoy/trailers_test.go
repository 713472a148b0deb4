package envoy_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// In duplex mode Envoy sends the body of a request with trailers twice if its
// route has a retry policy. A client need not announce trailers, and one on a
// private network may ask for retries of its own.
func TestTrailersDoNotDoubleTheBody(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		r := newRig(t, settings{mode: mode, pools: map[string][]*pod{"a": {newPod(t, "p"), newPod(t, "q")}}})
		for name, headers := range map[string][]string{
			"announced":                          {"trailer", "x-sum"},
			"unannounced":                        nil,
			"unannounced, client wants retries":  {"x-envoy-retry-on", "5xx,reset", "x-envoy-max-retries", "3"},
			"announced, client wants retries":    {"trailer", "x-sum", "x-envoy-retry-on", "5xx,reset", "x-envoy-max-retries", "3"},
			"announced, client accepts trailers": {"trailer", "x-sum", "te", "trailers"},
		} {
			t.Run(name, func(t *testing.T) {
				for _, body := range []string{randomBytes(1), randomBytes(1000), randomBytes(60000)} {
					resp := postRaw(t, r.envoy.Listen, body, headers...)
					mustReceipt(t, resp, body)
				}
			})
		}
		t.Run("without a body", func(t *testing.T) {
			mustReceipt(t, postRaw(t, r.envoy.Listen, ""), "")
		})
	})
}

// postRaw sends a request over HTTP/2 frame by frame, with a trailer that only
// the headers given here may announce. The body must fit in Envoy's first window.
func postRaw(t *testing.T, addr, body string, headers ...string) *http.Response {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}

	f := http2.NewFramer(conn, conn)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	fields := func(pairs ...string) []byte {
		block.Reset()
		for i := 0; i < len(pairs); i += 2 {
			encoder.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
		}
		return block.Bytes()
	}
	f.WriteSettings()
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, BlockFragment: fields(append([]string{
		":method", "POST", ":scheme", "http", ":authority", addr, ":path", "/v1/completions"}, headers...)...)})
	for rest := body; rest != ""; {
		n := min(len(rest), 16<<10)
		f.WriteData(1, false, []byte(rest[:n]))
		rest = rest[n:]
	}
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, EndStream: true, BlockFragment: fields("x-sum", "42")})

	resp := &http.Response{Header: http.Header{}}
	var got bytes.Buffer
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		var end bool
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				f.WriteSettingsAck()
			}
		case *http2.MetaHeadersFrame:
			if frame.PseudoValue("status") == "200" {
				resp.StatusCode = http.StatusOK
			}
			end = frame.StreamEnded()
		case *http2.DataFrame:
			got.Write(frame.Data())
			end = frame.StreamEnded()
		case *http2.RSTStreamFrame:
			t.Fatalf("the stream was reset: %v", frame.ErrCode)
		case *http2.GoAwayFrame:
			t.Fatalf("the connection was ended: %v", frame.ErrCode)
		}
		if end {
			resp.Body = io.NopCloser(&got)
			return resp
		}
	}
}
