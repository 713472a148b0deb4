package config

import (
	"fmt"

	"github.com/warmpath/warmpath/proto/configpb"
)

const (
	apiVersion = "warmpath/v1"
	kind       = "GatewayConfig"
)

// setDefaults fills in what the file leaves out. Afterwards no message that has
// defaults is nil. written reports whether a field stands in the file: whoever
// writes that a number is 0 does not want the default, and is told what it may be.
func setDefaults(c *configpb.GatewayConfig, written func(field string) bool) {
	text(&c.ApiVersion, apiVersion)
	text(&c.Kind, kind)

	// 9002 and 9003 are where the endpoint picker of the Gateway API Inference
	// Extension listens, so that a gateway made for it needs no change; 9090 is
	// its metrics port.
	s := message(&c.Server)
	g := message(&s.Grpc)
	text(&g.Address, ":9002")
	text(&message(&s.Health).Address, ":9003")
	text(&message(&s.Admin).Address, ":9090")
	if l := s.DecisionLog; l != nil {
		const path = "server.decisionLog"
		if l.Sample == 0 && !written(path+".sample") {
			l.Sample = 1
		}
		// A hundred thousand decisions among 16 pods.
		if l.MaxMegabytes == 0 && !written(path+".maxMegabytes") {
			l.MaxMegabytes = 512
		}
	}
	// Envoy Gateway and the GKE gateway speak TLS to an endpoint picker, a
	// hand-written Envoy file mostly does not. One port that takes both cannot be
	// configured wrongly.
	text(&message(&g.Tls).Mode, "auto")

	for i, p := range c.Pools {
		// A pod says itself what it is, and a rolling change of engine needs no edit.
		text(&p.Engine, "auto")
		text(&p.Profile, "latency") // what users notice
		message(&p.Discovery)
		sc := message(&p.Scrape)
		// Engines renew their gauges once a step; a second is one to ten of them
		// and costs a pod less than a thousandth of a core.
		text(&sc.Interval, "1s")
		// No default for the path: it is the engine's.

		// What is cheap is on. A twentieth of a core reads some thousand events a
		// second, and averages of the pool need no more.
		o := message(&p.Observe)
		text(&o.FirstToken, "auto")
		text(&o.Usage, "auto")
		if o.CpuBudget == 0 && !written(fmt.Sprintf("pools[%d].observe.cpuBudget", i)) {
			o.CpuBudget = 0.05
		}
	}

	e := message(&c.Envoy)
	text(&e.Listen, "0.0.0.0:8080")
	text(&e.Admin, "127.0.0.1:9901") // whoever reaches it can stop Envoy
	text(&e.BodyMode, "BUFFERED")    // works with every filter and with retries
	if e.FailOpen == nil {
		open := true // a request on some pod is better than none
		e.FailOpen = &open
	}
}

func text(field *string, value string) {
	if *field == "" {
		*field = value
	}
}

func message[T any](field **T) *T {
	if *field == nil {
		*field = new(T)
	}
	return *field
}
