package sim

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/warmpath/warmpath/scorers/sim/engine"
)

// Scenario is a fleet, a load, and what the router sees of them.
type Scenario struct {
	Name  string
	About string
	Fleet []PodKind
	Load  func(g *gen) []Request

	// What the trace of the original study is, if there is one: Load stands in
	// for it. TraceSpeed is how much faster than recorded it is played.
	Trace      string
	TraceSpeed float64

	Adapters   bool          // requests name LoRA adapters
	Scrape     time.Duration // pause between scrapes
	Routers    int           // replicas; 0 is 1
	Gossip     time.Duration // after which replicas know of each other's requests; 0: never
	Labels     bool          // pods carry a label with the name of their GPU
	TokenError float64       // standard deviation of the logarithm of how wrong the router's count of prompt tokens is
	Blind      float64       // share of requests whose first token the router does not see
	Whole      float64       // share of requests whose answer comes in one piece
	Window     time.Duration // requests that come later do not count; 0: until the last one comes
	Patience   time.Duration // after which a client without a first token gives up; 0: never
	Failures   []Failure
}

// PodKind is pods of one kind.
type PodKind struct {
	Preset       string // see engine.Preset
	Count        int
	AdapterSlots int            // 0: the preset's
	Config       *engine.Config // in place of a preset; nil: none
}

func (k *PodKind) config() (engine.Config, error) {
	if k.Config != nil {
		return *k.Config, nil
	}
	c, err := engine.Preset(k.Preset)
	if k.AdapterSlots > 0 {
		c.AdapterSlots = k.AdapterSlots
	}
	return c, err
}

// Engines are the model servers of the fleet, one for each pod.
func (s *Scenario) Engines() (list []engine.Config, err error) {
	for _, k := range s.pods() {
		c, err := k.config()
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

// pods lists each pod's kind.
func (s *Scenario) pods() (list []*PodKind) {
	for i := range s.Fleet {
		for range s.Fleet[i].Count {
			list = append(list, &s.Fleet[i])
		}
	}
	return list
}

// size names the fleet.
func (s *Scenario) size() string {
	var parts []string
	for _, k := range s.Fleet {
		parts = append(parts, fmt.Sprintf("%d×%s", k.Count, k.Preset))
	}
	return strings.Join(parts, " + ")
}

// scenarios is the catalogue: a study's seven, and others of our own. The six
// after AWS's benchmark are in aws.go. Loads that stand in for a trace have its
// rate, lengths and reuse, not its order.
var scenarios = map[string]*Scenario{
	"A": {About: "chat with long contexts, little reuse", Fleet: []PodKind{{Preset: "h100-70b", Count: 8}},
		Trace: "Mooncake conversation", TraceSpeed: 1,
		Load: conversations},
	"C": {About: "conversations with much reuse", Fleet: []PodKind{{Preset: "h100-70b", Count: 8}},
		Trace: "Mooncake synthetic", TraceSpeed: 1,
		Load: func(g *gen) []Request {
			return g.sessions(sessions{rate: 3.9 / 3, duration: 900 * time.Second, turns: 3, systems: 20, system: 2000,
				first: lognormal{8000, 0.9, 100_000}, next: lognormal{1500, 1, 20_000}, out: lognormal{110, 0.8, 1000}, pause: 20 * time.Second})
		}},
	"D1": {About: "150 shared prompts of 6,000 tokens, below saturation", Fleet: []PodKind{{Preset: "h100-70b", Count: 8}},
		Load: func(g *gen) []Request {
			return g.shared(shared{rate: 22, duration: 240 * time.Second, groups: 150, prefix: 6000, question: 1200, outMin: 300, outMax: 700})
		}},
	"D2": {About: "150 shared prompts of 6,000 tokens, near saturation", Fleet: []PodKind{{Preset: "h100-70b", Count: 8}},
		Load: func(g *gen) []Request {
			return g.shared(shared{rate: 27, duration: 240 * time.Second, groups: 150, prefix: 6000, question: 1200, outMin: 300, outMax: 700})
		}},
	"F": {About: "chat on mixed GPUs, six slow ones of eight", Fleet: []PodKind{{Preset: "h100-8b", Count: 2}, {Preset: "a10g-8b", Count: 6}},
		Trace: "Azure 2023 conversation", TraceSpeed: 6,
		Load: func(g *gen) []Request {
			return g.chat(chat{arrivals: bursts{rate: 33, size: 1.2, length: time.Second}, duration: 300 * time.Second, in: mixture{lognormal: lognormal{950, 0.65, 7000}}, out: lognormal{150, 0.8, 1000}})
		}},
	"G": {About: "long contexts on mixed GPUs, half of them slow", Fleet: []PodKind{{Preset: "h100-70b", Count: 4}, {Preset: "a100-70b", Count: 4}},
		Trace: "Mooncake conversation", TraceSpeed: 1,
		Load: conversations},
	"H": {About: "code completion in bursts on equal slow GPUs", Fleet: []PodKind{{Preset: "a10g-8b", Count: 8}},
		Trace: "Azure 2023 code", TraceSpeed: 1,
		Load: func(g *gen) []Request {
			return g.chat(chat{arrivals: bursts{rate: 2.57, size: 7, length: time.Second}, duration: 1800 * time.Second, in: mixture{lognormal: lognormal{1550, 0.75, 7400}}, out: lognormal{14, 1.1, 300}})
		}},

	"lora": {About: "200 adapters, 16 slots a pod", Fleet: []PodKind{{Preset: "h100-8b", Count: 8, AdapterSlots: 16}}, Adapters: true,
		Load: func(g *gen) []Request {
			return g.withAdapters(200, 1, g.chat(chat{arrivals: bursts{rate: 60, size: 1, length: time.Second}, duration: 180 * time.Second, in: mixture{lognormal: lognormal{900, 0.6, 6000}}, out: lognormal{150, 0.7, 800}}))
		}},
	"agents": {About: "agents that call tools: growing contexts, short pauses", Fleet: []PodKind{{Preset: "h100-70b", Count: 4}},
		Load: func(g *gen) []Request {
			return g.sessions(sessions{rate: 0.5, duration: 400 * time.Second, turns: 12, systems: 6, system: 8000, wait: true,
				first: lognormal{1500, 0.8, 20_000}, next: lognormal{700, 1, 10_000}, out: lognormal{120, 0.7, 1000}, pause: 3 * time.Second})
		}},
	"burst": {About: "overload for 15 seconds out of 60 on equal GPUs", Fleet: []PodKind{{Preset: "h100-8b", Count: 4}},
		Load: func(g *gen) []Request {
			return g.onOff(onOff{rate: 20, peak: 160, on: 15 * time.Second, off: 45 * time.Second, duration: 300 * time.Second, in: mixture{lognormal: lognormal{700, 1.1, 16_000}}, out: lognormal{150, 0.7, 800}})
		}},
	"mixedburst": {About: "the same on mixed GPUs", Fleet: []PodKind{{Preset: "h100-8b", Count: 2}, {Preset: "a10g-8b", Count: 2}},
		Load: func(g *gen) []Request {
			return g.onOff(onOff{rate: 12, peak: 70, on: 10 * time.Second, off: 50 * time.Second, duration: 300 * time.Second, in: mixture{lognormal: lognormal{700, 1, 8000}}, out: lognormal{150, 0.7, 800}})
		}},
	"wall": {About: "small enough to be played in real time: shared prompts on mixed GPUs", Fleet: []PodKind{{Preset: "h100-8b", Count: 2}, {Preset: "a10g-8b", Count: 2}},
		Load: func(g *gen) []Request {
			return g.shared(shared{rate: 10, duration: 60 * time.Second, groups: 12, prefix: 1500, question: 400, outMin: 20, outMax: 120})
		}},
	"killed": {About: "a pod dies and comes back", Fleet: []PodKind{{Preset: "h100-8b", Count: 4}},
		Failures: []Failure{{Pod: 1, At: 60 * time.Second, For: 60 * time.Second, Kind: Kill}},
		Load:     steady},
	"mute": {About: "a pod's metrics time out while it serves on", Fleet: []PodKind{{Preset: "h100-8b", Count: 4}},
		Failures: []Failure{{Pod: 1, At: 30 * time.Second, Kind: Mute}},
		Load:     steady},
}

func conversations(g *gen) []Request {
	return g.sessions(sessions{rate: 3.4 / 2, duration: 900 * time.Second, turns: 2,
		first: lognormal{5500, 1.1, 120_000}, next: lognormal{800, 1, 8000}, out: lognormal{260, 0.8, 2000}, pause: 45 * time.Second})
}

func steady(g *gen) []Request {
	return g.chat(chat{arrivals: bursts{rate: 40, size: 1}, duration: 180 * time.Second, in: mixture{lognormal: lognormal{900, 0.8, 8000}}, out: lognormal{150, 0.7, 800}})
}

// Names lists the catalogue.
func Names() []string { return slices.Sorted(maps.Keys(all())) }

func all() map[string]*Scenario {
	m := maps.Clone(scenarios)
	for _, a := range awsRows {
		m[a.scenario.Name] = &a.scenario
	}
	return m
}

// Find returns a copy of a scenario, for the caller to change.
func Find(name string) (*Scenario, error) {
	s := all()[name]
	if number, drawn := strings.CutPrefix(name, drawnName); drawn {
		seed, err := strconv.ParseUint(number, 10, 32)
		if err != nil || strconv.FormatUint(seed, 10) != number {
			return nil, fmt.Errorf("scenario %q: want %sNUMBER, a whole number from 0 to %d, without zeros in front", name, drawnName, uint32(math.MaxUint32))
		}
		s = draw(seed)
	}
	if s == nil {
		return nil, fmt.Errorf("unknown scenario %q; known: %s, and %sNUMBER for one that is drawn at random", name, strings.Join(Names(), ", "), drawnName)
	}
	c := *s
	c.Name = name
	c.Fleet = slices.Clone(s.Fleet)
	if c.Scrape == 0 {
		c.Scrape = 200 * time.Millisecond
	}
	return &c, nil
}

// Generate draws the load of a seed, scale times as dense.
func (s *Scenario) Generate(seed uint64, scale float64) []Request {
	return s.Load(newGen(seed, scale))
}
