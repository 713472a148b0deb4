package simpod

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/warmpath/warmpath/scorers/sim/engine"
)

const maxBody = 64 << 20 // bytes

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { s.generate(w, r, true) })
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) { s.generate(w, r, false) })
	mux.HandleFunc("GET /v1/models", s.models)
	mux.HandleFunc("GET /metrics", s.metrics)
	mux.HandleFunc("GET /metrics/", s.metrics)
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /load", func(w http.ResponseWriter, _ *http.Request) {
		n := int64(0)
		if s.cfg.ServerLoad {
			n = s.load.Load()
		}
		writeJSON(w, http.StatusOK, map[string]int64{"server_load": n})
	})
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"version": "0.32.0"})
	})
	mux.HandleFunc("POST /reset_prefix_cache", func(w http.ResponseWriter, _ *http.Request) {
		s.ResetCache()
		writeJSON(w, http.StatusOK, map[string]bool{"success": true})
	})
	mux.HandleFunc("POST /simpod/fault", s.postFault)
	return mux
}

// generate answers a request for text.
func (s *Server) generate(w http.ResponseWriter, r *http.Request, chat bool) {
	s.load.Add(1)
	defer s.load.Add(-1)
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		writeError(w, http.StatusBadRequest, "Bad Request", "", err.Error())
		return
	}
	if s.refuse(w, r) {
		return
	}
	q, req, text, err := s.parse(body, chat)
	switch {
	case errors.Is(err, engine.ErrTooLong):
		writeError(w, http.StatusBadRequest, "BadRequestError", "input_tokens", fmt.Sprintf(
			"This model's maximum context length is %d tokens. However, your request asks for %d.", s.cfg.Engine.MaxModelLen, req.Prompt+req.Output))
		return
	case err != nil:
		writeError(w, http.StatusBadRequest, "Bad Request", "body", err.Error())
		return
	}
	if q.Model == "" {
		q.Model, req.Adapter = s.cfg.Model, ""
	}
	if q.Model != s.cfg.Model && !slices.Contains(s.cfg.Adapters, q.Model) {
		writeError(w, http.StatusNotFound, "NotFoundError", "model", fmt.Sprintf("The model `%s` does not exist. Valid aliases: %s.", q.Model, s.cfg.Model))
		return
	}
	j, err := s.submit(req)
	if err != nil {
		writeError(w, http.StatusBadRequest, "BadRequestError", "", err.Error())
		return
	}
	defer s.drop(j)

	id := r.Header.Get("X-Request-Id")
	if id == "" {
		id = fmt.Sprintf("%016x", s.serial.Add(1))
	}
	a := &answer{w: w, chat: chat, model: q.Model, id: id, created: time.Now().Unix(), text: text,
		prompt: req.Prompt, output: req.Output, stopped: q.MaxTokens == nil && q.MaxCompletion == nil && chat}
	if q.Stream {
		s.stream(a, r, j, q.StreamOptions.IncludeUsage)
	} else {
		s.whole(a, r, j)
	}
}

// stream sends headers at once, long before the first token: vLLM does so.
func (s *Server) stream(a *answer, r *http.Request, j *job, usage bool) {
	a.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	a.w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(a.w)
	flush.Flush()
	sent := 0
	for {
		n, finished, err := s.wait(r.Context(), j)
		if err != nil {
			panic(http.ErrAbortHandler) // half an answer must not look whole
		}
		if n == sent && !finished {
			continue
		}
		a.tokens(sent, n, finished)
		sent = n
		if finished {
			if usage {
				a.usageEvent(j.request.Cached())
			}
			a.done()
		}
		if a.write() != nil || flush.Flush() != nil || finished {
			return
		}
	}
}

// whole answers in one piece.
func (s *Server) whole(a *answer, r *http.Request, j *job) {
	for {
		_, finished, err := s.wait(r.Context(), j)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		if finished {
			a.whole(j.request.Cached())
			return
		}
	}
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	type model struct {
		ID          string  `json:"id"`
		Object      string  `json:"object"`
		Created     int64   `json:"created"`
		OwnedBy     string  `json:"owned_by"`
		Root        string  `json:"root"`
		Parent      *string `json:"parent"`
		MaxModelLen *int    `json:"max_model_len"`
	}
	now := time.Now().Unix()
	list := []model{{ID: s.cfg.Model, Object: "model", Created: now, OwnedBy: "vllm", Root: s.cfg.Model, MaxModelLen: &s.cfg.Engine.MaxModelLen}}
	for _, a := range s.cfg.Adapters {
		list = append(list, model{ID: a, Object: "model", Created: now, OwnedBy: "vllm", Root: "/adapters/" + a, Parent: &s.cfg.Model})
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": list})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

func writeError(w http.ResponseWriter, status int, kind, param, text string) {
	e := map[string]any{"message": text, "type": kind, "param": nil, "code": status}
	if param != "" {
		e["param"] = param
	}
	writeJSON(w, status, map[string]any{"error": e})
}
