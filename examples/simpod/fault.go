package simpod

import (
	"fmt"
	"net/http"
	"time"
)

// Fault is a way to misbehave. Each is one that real servers were seen to have.
type Fault string

// The faults.
const (
	FaultNone  Fault = ""
	FaultBusy  Fault = "busy"  // 503 for every new request, as a full admission queue gives
	FaultHang  Fault = "hang"  // takes requests and never answers; nothing else looks wrong
	FaultSleep Fault = "sleep" // the same, but engine_sleep_state tells
	FaultDrain Fault = "drain" // 500 within 10 ms for new requests, while those that run end well
	FaultSlow  Fault = "slow"  // metrics take two seconds
	FaultLie   Fault = "lie"   // metrics say that it is idle
)

const faultList = "busy, hang, sleep, drain, slow, lie"

func (f Fault) known() bool {
	switch f {
	case FaultNone, FaultBusy, FaultHang, FaultSleep, FaultDrain, FaultSlow, FaultLie:
		return true
	}
	return false
}

// SetFault changes how the pod misbehaves; FaultNone heals it.
func (s *Server) SetFault(f Fault) { s.fault.Store(&f) }

// postFault is SetFault for other processes: POST /simpod/fault?fault=busy.
func (s *Server) postFault(w http.ResponseWriter, r *http.Request) {
	f := Fault(r.URL.Query().Get("fault"))
	if !f.known() {
		http.Error(w, fmt.Sprintf("unknown fault %q; known: %s, or none to heal", f, faultList), http.StatusBadRequest)
		return
	}
	s.SetFault(f)
}

// refuse answers a generating request if a fault says so.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request) bool {
	switch *s.fault.Load() {
	case FaultBusy:
		writeError(w, http.StatusServiceUnavailable, "Service Unavailable", "",
			"The engine is currently busy and cannot accept new requests. Please try again later or on a different instance.")
	case FaultDrain:
		writeError(w, http.StatusInternalServerError, "InternalServerError", "", "cannot schedule new futures after shutdown")
	case FaultHang, FaultSleep:
		<-r.Context().Done()
		panic(http.ErrAbortHandler) // no answer, also when the pod is closed
	default:
		return false
	}
	return true
}

// metricsFault delays a scrape; false means that the client has gone.
func (s *Server) metricsFault(r *http.Request) bool {
	if *s.fault.Load() != FaultSlow {
		return true
	}
	t := time.NewTimer(2 * time.Second)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.Context().Done():
		return false
	}
}
