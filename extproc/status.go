package extproc

import (
	"encoding/json"
	"net/http"
)

// reason is why a request was refused: a short fixed word, shown to the client
// in x-gateway-reason, in the error's code and as a label of metrics.
type reason string

const (
	badJSON      reason = "bad-json"
	unknownModel reason = "unknown-model"
	tooLarge     reason = "body-too-large"
	noPod        reason = "no-pod"
	emptySubset  reason = "empty-subset"
	draining     reason = "draining"
	crashed      reason = "internal-error"
	timedOut     reason = "decision-timeout"
)

// Words for requests that were not refused, in metrics only.
const (
	picked    reason = "picked"
	abandoned reason = "abandoned" // the client or Envoy gave up before the decision
)

// refusals is the one table from reasons to what HTTP and OpenAI's clients know.
var refusals = map[reason]struct {
	status int
	kind   string // OpenAI's error.type
}{
	badJSON:      {http.StatusBadRequest, "invalid_request_error"},
	unknownModel: {http.StatusNotFound, "invalid_request_error"},
	tooLarge:     {http.StatusRequestEntityTooLarge, "invalid_request_error"},
	noPod:        {http.StatusServiceUnavailable, "server_error"},
	emptySubset:  {http.StatusServiceUnavailable, "server_error"},
	draining:     {http.StatusServiceUnavailable, "server_error"},
	crashed:      {http.StatusInternalServerError, "server_error"},
	timedOut:     {http.StatusGatewayTimeout, "server_error"},
}

func (r reason) status() int { return refusals[r].status }

// refusal is a request that gets an error instead of a pod.
type refusal struct {
	reason   reason
	message  string // for the client; says the limit and the way out
	decision uint64 // not to use any pod; 0: it did not come to one
}

func (r *refusal) Error() string { return string(r.reason) + ": " + r.message }

// body is the error as OpenAI's API writes it.
func (r *refusal) body() []byte {
	var e struct {
		Error struct {
			Message string `json:"message"`
			Type    string `json:"type"`
			Code    string `json:"code"`
		} `json:"error"`
	}
	e.Error.Message = r.message
	e.Error.Type = refusals[r.reason].kind
	e.Error.Code = string(r.reason)
	if r.reason == unknownModel {
		e.Error.Code = "model_not_found" // what OpenAI says, and clients test for
	}
	b, err := json.Marshal(e)
	if err != nil {
		panic("BUG: cannot marshal an error: " + err.Error())
	}
	return b
}
