package envoy_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// newClient speaks HTTP/1.1, or HTTP/2 without TLS. It takes no shortcuts: no
// compression, no redirects, no proxy.
func newClient(t testing.TB, http2 bool) *http.Client {
	tr := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 100}
	if http2 {
		tr.Protocols = new(http.Protocols)
		tr.Protocols.SetUnencryptedHTTP2(true)
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 3 * patience}
}

// chat is a small request for a pool's model.
func chat(pool string) string {
	return `{"model":"model-` + pool + `","messages":[{"role":"user","content":"Hello"}]}`
}

// post sends a body as JSON. Headers are pairs of name and value.
func (r *rig) post(ctx context.Context, c *http.Client, body string, headers ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("content-type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return c.Do(req)
}

// mustTell posts and returns the pod's receipt, after a look at the body's sum.
func (r *rig) mustTell(t testing.TB, c *http.Client, body string, headers ...string) receipt {
	t.Helper()
	resp, err := r.post(t.Context(), c, body, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return mustReceipt(t, resp, body)
}

// mustReceipt reads a receipt and checks that the pod got this body.
func mustReceipt(t testing.TB, resp *http.Response, body string) receipt {
	t.Helper()
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d: %s", resp.StatusCode, bytes.TrimSpace(text))
	}
	var rec receipt
	if err := json.Unmarshal(text, &rec); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	if sum := sha256.Sum256([]byte(body)); rec.SHA256 != hex.EncodeToString(sum[:]) {
		t.Fatalf("pod %s got other bytes: %d of them, for %d", rec.Pod, rec.Length, len(body))
	}
	return rec
}

// status posts, reads the response to its end, and returns its status.
func (r *rig) status(t testing.TB, c *http.Client, body string, headers ...string) int {
	t.Helper()
	resp, err := r.post(t.Context(), c, body, headers...)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode
}
