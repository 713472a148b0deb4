package envoy_test

import (
	"encoding/json"
	"net/http"
	"testing"
)

// wantError posts for a pool's model and wants this error, in OpenAI's form.
func (r *rig) wantError(t *testing.T, c *http.Client, pool string, status int, reason string) {
	t.Helper()
	resp, err := r.post(t.Context(), c, chat(pool))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var e struct {
		Error struct{ Message, Type, Code string }
	}
	err = json.NewDecoder(resp.Body).Decode(&e)
	if err != nil || resp.StatusCode != status || resp.Header.Get("content-type") != "application/json" ||
		resp.Header.Get("x-gateway-reason") != reason || e.Error.Code != reason || e.Error.Type != "server_error" || e.Error.Message == "" {
		t.Errorf("pool %s: %d, %v, %+v, %v; want %d %s", pool, resp.StatusCode, resp.Header, e, err, status, reason)
	}
}

// What Envoy itself answers has the form of all errors, and what warmpath or a pod
// answers stays as it is.
func TestEnvoysOwnErrors(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		own := newPod(t, "own")
		r := newRig(t, settings{mode: mode, failClosed: true, pools: map[string][]*pod{
			"a": {own}, "empty": nil, "deaf": {newDeafPod(t)}, "resets": {newResettingPod(t, "resets")}}})
		c := newClient(t, false)
		r.wantError(t, c, "deaf", http.StatusServiceUnavailable, "pods-failed")
		r.wantError(t, c, "resets", http.StatusServiceUnavailable, "pods-failed")
		r.wantError(t, c, "empty", http.StatusServiceUnavailable, "no-pod")

		own.does(busy)
		resp, err := r.post(t.Context(), c, chat("a"))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if got := resp.Header.Get("x-gateway-reason"); resp.StatusCode != http.StatusServiceUnavailable || resp.ContentLength != 0 || got != "" {
			t.Errorf("a pod's own 503: %d, %d bytes, reason %q", resp.StatusCode, resp.ContentLength, got)
		}
	})
}
