package route

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/warmpath/warmpath/proto/configpb"
)

func TestRoute(t *testing.T) {
	llama := &configpb.Pool{Name: "llama", Models: []string{"llama-8b", "llama"}, Adapters: []string{"sql"}}
	qwen := &configpb.Pool{Name: "qwen", Models: []string{"qwen-7b"}}
	bare := &configpb.Pool{Name: "bare"}
	tests := []struct {
		name  string
		pools []*configpb.Pool
		other string
		model string
		want  Target
		err   error
	}{
		{"a model goes to its pool", []*configpb.Pool{llama, qwen}, "", "qwen-7b", Target{Pool: 1, Base: "qwen-7b"}, nil},
		{"all names of a pool are one model", []*configpb.Pool{llama, qwen}, "", "llama", Target{Base: "llama-8b"}, nil},
		{"an adapter goes to its base model's pool", []*configpb.Pool{qwen, llama}, "", "sql", Target{Pool: 1, Base: "llama-8b", Adapter: "sql"}, nil},
		{"names are exact", []*configpb.Pool{llama, qwen}, "", "Llama", Target{}, ErrUnknown},
		{"an unknown model is an error", []*configpb.Pool{llama}, "", "gpt", Target{}, ErrUnknown},
		{"an unknown model goes to the default pool under its own name", []*configpb.Pool{llama, qwen}, "qwen", "gpt", Target{Pool: 1, Base: "gpt"}, nil},
		{"no model goes to the default pool", []*configpb.Pool{llama, qwen}, "qwen", "", Target{Pool: 1, Base: "qwen-7b"}, nil},
		{"no model goes to the only pool", []*configpb.Pool{llama}, "", "", Target{Base: "llama-8b"}, nil},
		{"no model among several pools is an error", []*configpb.Pool{llama, qwen}, "", "", Target{}, ErrMissing},
		{"a pool without models serves whatever is asked for", []*configpb.Pool{bare}, "bare", "x", Target{Base: "x"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := New(tt.pools, tt.other)
			if err != nil {
				t.Fatal(err)
			}
			got, err := r.Route(tt.model)
			if got != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("got %+v, %v; want %+v, %v", got, err, tt.want, tt.err)
			}
			if _, err := r.Route(""); r.NeedsModel() != (err != nil) {
				t.Errorf("NeedsModel is %v, but no model gives %v", r.NeedsModel(), err)
			}
		})
	}
}

func TestNewRejectsMistakes(t *testing.T) {
	a := &configpb.Pool{Name: "a", Models: []string{"m"}}
	for name, f := range map[string]func() (*Router, error){
		"a model in two pools": func() (*Router, error) {
			return New([]*configpb.Pool{a, {Name: "b", Models: []string{"m"}}}, "")
		},
		"an adapter with the name of a model": func() (*Router, error) {
			return New([]*configpb.Pool{a, {Name: "b", Adapters: []string{"m"}}}, "")
		},
		"a default pool that does not exist": func() (*Router, error) {
			return New([]*configpb.Pool{a}, "c")
		},
	} {
		if _, err := f(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestLearn(t *testing.T) {
	llama := &configpb.Pool{Name: "llama", Models: []string{"llama-8b", "llama"}, Adapters: []string{"sql"}}
	qwen := &configpb.Pool{Name: "qwen", Models: []string{"qwen-7b"}}
	r, err := New([]*configpb.Pool{llama, qwen}, "")
	if err != nil {
		t.Fatal(err)
	}
	want := func(rule, model string, want Target, wantErr error) {
		t.Helper()
		if got, err := r.Route(model); got != want || !errors.Is(err, wantErr) {
			t.Errorf("%s: %s goes to %+v, %v; want %+v, %v", rule, model, got, err, want, wantErr)
		}
	}
	unknown := Target{}
	chat := Target{Pool: 0, Base: "llama-8b", Adapter: "chat"}
	want("nobody has it", "chat", unknown, ErrUnknown)
	r.Learn(0, []string{"chat", "qwen-7b", "sql", "chat", ""})
	want("pods of one pool have it", "chat", chat, nil)
	want("a model of the configuration stays", "qwen-7b", Target{Pool: 1, Base: "qwen-7b"}, nil)
	want("so does an adapter", "sql", Target{Base: "llama-8b", Adapter: "sql"}, nil)
	r.Learn(1, []string{"chat", "code", "sql"})
	want("pods of two pools have it", "chat", unknown, ErrUnknown)
	want("one of them has it", "code", Target{Pool: 1, Base: "qwen-7b", Adapter: "code"}, nil)
	want("also if another pool has one that is configured", "sql", Target{Base: "llama-8b", Adapter: "sql"}, nil)
	r.Learn(1, nil)
	want("it is gone from one of the pools", "chat", chat, nil)
	want("it is gone", "code", unknown, ErrUnknown)

	many := []string{strings.Repeat("x", maxName+1)}
	for i := range maxLearned + 5 {
		many = append(many, strconv.Itoa(i))
	}
	if left := r.Learn(0, many); left != 6 {
		t.Errorf("%d names were left out, want 6", left)
	}
	want("too long a name", many[0], unknown, ErrUnknown)
}

func TestLearnWhileRouting(t *testing.T) {
	r, err := New([]*configpb.Pool{{Name: "a", Models: []string{"m"}}}, "a")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 100 {
				r.Learn(0, []string{"x", strconv.Itoa(i)})
			}
		})
		wg.Go(func() {
			for range 1000 {
				if got, err := r.Route("x"); err != nil || got.Pool != 0 {
					t.Errorf("%+v, %v", got, err)
				}
			}
		})
	}
	wg.Wait()
}
