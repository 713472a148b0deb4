package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/warmpath/warmpath/podstate"
	"github.com/warmpath/warmpath/scorers"
)

func newProfile(tb testing.TB, name string, weights map[string]float64) *scorers.Profile {
	tb.Helper()
	p, err := scorers.NewProfile(name, weights)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// Ten thousand decisions of every profile, and of every scorer alone, are made
// again from their lines.
func TestEveryChoiceIsReproduced(t *testing.T) {
	type way struct {
		name    string
		weights map[string]float64
	}
	var ways []way
	for _, name := range scorers.Profiles() {
		ways = append(ways, way{name, nil})
	}
	for _, name := range scorers.Names() {
		ways = append(ways, way{"latency", map[string]float64{name: 1}})
	}
	total := 10_000
	refused := 0
	for k, way := range ways {
		t.Run(fmt.Sprint(way.name, way.weights), func(t *testing.T) {
			chooses, again := newProfile(t, way.name, way.weights), newProfile(t, way.name, way.weights)
			n := total/len(ways) + 1
			for done := 0; done < n; {
				w := newWorld(uint64(k*1000 + done))
				for range min(100, n-done) {
					w.turn()
					w.turn()
					d := w.decide(t, way.name, way.weights, chooses)
					line := d.Append(nil, func(s string) string { return "hidden " + s })
					back, err := Parse(line)
					if err != nil {
						t.Fatalf("%v: %s", err, line)
					}
					first, second, refusal := back.Choose(again)
					if first != back.First || second != back.Second || refusal != back.Request.Refusal ||
						!samePod(first, d.First) || !samePod(second, d.Second) || refusal != d.Request.Refusal {
						t.Fatalf("chose %v, %v, %q; again %v, %v, %q: %s", d.First, d.Second, d.Request.Refusal, first, second, refusal, line)
					}
					if refusal != "" {
						refused++
					}
					done++
				}
			}
		})
	}
	if refused == 0 || refused > total/10 {
		t.Errorf("%d of %d requests found no pod; the test should have a few", refused, total)
	}
}

func samePod(a, b *podstate.Pod) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Slot == b.Slot && a.Addr == b.Addr && a.Spec.Name == b.Spec.Name
}

// Whatever a scorer can see is in a line, also what is added to the types later:
// each field is given a value of its own and must come back.
func TestEveryFieldComesBack(t *testing.T) {
	n := uint64(0)
	fill := func(v any, but ...string) {
		fillFields(reflect.ValueOf(v).Elem(), "", but, &n)
	}
	d := &Decision{Pool: "p", Profile: "latency", Weights: map[string]float64{"queue": 0.1}, Time: time.Unix(1, 2).UTC()}
	fill(&d.Request)
	d.Request.Rung = podstate.RungHash
	d.Prompt = 1<<63 + 5
	for range 2 {
		c := podstate.Candidate{Pod: &podstate.Pod{}, Stats: &podstate.Stats{}}
		fill(&c, "Pod", "Stats")
		fill(c.Stats, "Known")
		c.Stats.Known = allFields
		n++
		c.Pod.Slot, c.Pod.Spec.Name = int(n), fmt.Sprint("pod-", n)
		c.Pod.Spec.Addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), uint16(n))
		c.Pod.Addr = c.Pod.Spec.Addr.String()
		d.Candidates = append(d.Candidates, c)
	}
	d.First, d.Second = d.Candidates[1].Pod, d.Candidates[0].Pod
	line := d.Append(nil, nil)
	back, err := Parse(line)
	if err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	if !reflect.DeepEqual(back, d) {
		t.Errorf("a field was lost; add it to columns or to the line\n got %s\nwant %s", show(back), show(d))
	}
}

func show(d *Decision) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%+v", d.Request)
	for _, c := range d.Candidates {
		fmt.Fprintf(&b, "\n%+v\n%+v", c, *c.Stats)
	}
	return b.String()
}

// fillFields sets all exported fields of a struct, but those named.
func fillFields(v reflect.Value, path string, but []string, n *uint64) {
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		if !v.Type().Field(i).IsExported() || slices.Contains(but, name) {
			continue
		}
		*n++
		switch {
		case f.Type() == reflect.TypeFor[time.Time]():
			f.Set(reflect.ValueOf(time.Unix(1e9+int64(*n), int64(*n)).UTC()))
		case f.Kind() == reflect.Struct:
			fillFields(f, path+name+".", but, n)
		case f.CanInt():
			f.SetInt(int64(*n))
		case f.CanUint():
			f.SetUint(*n)
		case f.CanFloat():
			f.SetFloat(1 / float64(*n))
		case f.Kind() == reflect.String:
			f.SetString(fmt.Sprint("text ", *n))
		case f.Kind() == reflect.Bool:
			f.SetBool(true)
		case f.Type() == reflect.TypeFor[[]string]():
			f.Set(reflect.ValueOf([]string{fmt.Sprint("item ", *n), "x"}))
		default:
			panic("the test cannot fill " + path + name + " of type " + f.Type().String())
		}
	}
}

func pod(slot int) *podstate.Pod {
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(slot + 1)}), 8000)
	return &podstate.Pod{Spec: podstate.Spec{Addr: addr}, Addr: addr.String(), Slot: slot}
}

func TestOddNumbersComeBack(t *testing.T) {
	odd := []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat64, math.SmallestNonzeroFloat64, 0.1, 1.0 / 3, 1e21, 123456789012345678}
	d := &Decision{Request: scorers.Request{Seed: math.MaxUint64, Key: 1}}
	for i, x := range odd {
		d.Candidates = append(d.Candidates, podstate.Candidate{Pod: pod(i), Wait: x, Age: odd[len(odd)-1-i],
			Last: math.MaxUint64, Stats: &podstate.Stats{Known: podstate.FieldRunning, Running: x}})
	}
	back, err := Parse(d.Append(nil, nil))
	if err != nil {
		t.Fatal(err)
	}
	bits := math.Float64bits
	for i := range odd {
		g, w := &back.Candidates[i], &d.Candidates[i]
		if bits(g.Wait) != bits(w.Wait) || bits(g.Age) != bits(w.Age) || bits(g.Stats.Running) != bits(w.Stats.Running) || g.Last != w.Last {
			t.Errorf("%v, %v, %v, %d came back as %v, %v, %v, %d", w.Wait, w.Age, w.Stats.Running, w.Last, g.Wait, g.Age, g.Stats.Running, g.Last)
		}
	}
	if back.Request.Seed != d.Request.Seed {
		t.Errorf("seed %x came back as %x", d.Request.Seed, back.Request.Seed)
	}
}

func TestNamesOfAdaptersAreHidden(t *testing.T) {
	stats := &podstate.Stats{Known: podstate.FieldAdapters | podstate.FieldModels, Adapters: []string{"acme"}, Loadable: []string{"acme", "other"}, Models: []string{"base"}}
	d := &Decision{Request: scorers.Request{Adapter: "acme"}, Candidates: []podstate.Candidate{{Pod: pod(0), Stats: stats}}}
	text := string(d.Append(nil, func(s string) string { return fmt.Sprint(len(s)) }))
	if strings.Contains(text, "acme") || strings.Contains(text, "other") {
		t.Errorf("a name is in the line: %s", text)
	}
	if !strings.Contains(text, `"adapter":"4"`) || !strings.Contains(text, `"adapters":[["4"]]`) || !strings.Contains(text, `"models":[["base"]]`) {
		t.Errorf("what hides the names is not in the line: %s", text)
	}
}

func TestMistakesInLines(t *testing.T) {
	for _, tt := range []struct{ name, line, want string }{
		{"not JSON", `{`, "unexpected EOF"},
		{"a field of the future", `{"id":"1","spin":1}`, `unknown field "spin"`},
		{"a column of the future", `{"id":"1","count":1,"pods":{"addr":["10.0.0.1:1"],"spin":[1]}}`, "not known to this version"},
		{"an id that is none", `{"id":"x"}`, `"x" is not a number`},
		{"a key that is none", `{"id":"1","key":"x"}`, `"x" is not a number`},
		{"a prompt that is none", `{"id":"1","prompt":"x"}`, `"x" is not a number`},
		{"a column that is too short", `{"id":"1","count":3,"pods":{"slot":[1,2]}}`, "column slot has 2 values; want 3, or one for all"},
		{"a value of another kind", `{"id":"1","count":1,"pods":{"slot":["x"]}}`, "column slot: "},
		{"a choice beyond the pods", `{"id":"1","count":1,"first":1,"pods":{"addr":["10.0.0.1:1"]}}`, "first: 1; there are 1 pods"},
		{"a choice below the pods", `{"id":"1","count":1,"second":-1,"pods":{"addr":["10.0.0.1:1"]}}`, "second: -1; there are 1 pods"},
		{"a line of another log", `{}`, "it has no pods"},
		{"a pod without an address", `{"id":"1","count":1,"pods":{}}`, "pod 0 has no address"},
		{"a rung that is none", `{"id":"1","rung":5,"pods":{}}`, "rung 5; want 0 to 4"},
		{"a second decision", `{"id":"1","count":0,"pods":{}}{"id":"2","count":0,"pods":{}}`, "one decision on each line"},
		{"text behind the decision", `{"id":"1","count":0,"pods":{}} x`, "something follows"},
		{"too many pods", `{"id":"1","count":100001,"pods":{}}`, "count 100001; want 0 to 100000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := Parse([]byte(tt.line)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestReadGoesOnAfterABrokenLine(t *testing.T) {
	good := string(newWorld(1).decide(t, "latency", nil, newProfile(t, "latency", nil)).Append(nil, nil))
	n, bad := 0, ""
	for d, err := range Read(strings.NewReader(good + good[:20] + "\n\n" + good)) {
		if err != nil {
			bad = err.Error()
		} else if d.ID() == good[7:23] {
			n++
		}
	}
	if n != 2 || !strings.HasPrefix(bad, "line 2: ") {
		t.Errorf("read %d decisions and the error %q; want 2, and one about line 2", n, bad)
	}
}

// A file that was damaged may have no line feeds for long.
func TestReadGoesOnAfterAHugeLine(t *testing.T) {
	good := string(newWorld(1).decide(t, "latency", nil, newProfile(t, "latency", nil)).Append(nil, nil))
	broken := errors.New("the disk is gone")
	log := io.MultiReader(strings.NewReader(good), io.LimitReader(zeros{}, maxLine+1), strings.NewReader("\n"+good), iotest.ErrReader(broken))
	n := 0
	var bad []string
	for d, err := range Read(log) {
		if err != nil {
			bad = append(bad, err.Error())
		} else if d.ID() == good[7:23] {
			n++
		}
	}
	if want := []string{"line 2: longer than 64 MB, as no decision is", "line 4: the disk is gone"}; n != 2 || !slices.Equal(bad, want) {
		t.Errorf("read %d decisions and the errors %q; want 2 and %q", n, bad, want)
	}
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// A line that can be read says the same when it is written and read again, and
// whatever it says can be explained and decided.
func FuzzParse(f *testing.F) {
	w := newWorld(3)
	p := newProfile(f, "hyperpod", nil)
	for range 20 {
		w.turn()
		f.Add(w.decide(f, "hyperpod", nil, p).Append(nil, nil))
	}
	var all []Policy
	for _, name := range scorers.Profiles() {
		all = append(all, newProfile(f, name, nil))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := Parse(text)
		if err != nil {
			return
		}
		line := d.Append(nil, nil)
		if !json.Valid(line) || bytes.Count(line, []byte("\n")) != 1 {
			t.Fatalf("not one line of JSON: %s", line)
		}
		again, err := Parse(line)
		if err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if second := again.Append(nil, nil); !bytes.Equal(line, second) {
			t.Errorf("written again\n%s\nthan\n%s", second, line)
		}
		if err := d.Explain(io.Discard); err != nil {
			t.Error(err)
		}
		for _, p := range all {
			d.Choose(p)
		}
	})
}
