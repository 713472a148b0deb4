// Package envoy is Envoy's side of warmpath: it writes the bootstrap of an Envoy
// that obeys warmpath, tells Envoy the pods (EDS), runs a real Envoy for the demo
// and for tests, and finds known traps in a configuration that a user wrote.
package envoy

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"text/template"

	"github.com/warmpath/warmpath/proto/configpb"
)

// The bootstrap is a text template, not protobuf messages printed as YAML: it
// keeps the order that a reader wants and the comments that an operator needs.
// What comes out is read back and validated, so the form costs no safety.
//
//go:embed bootstrap.yaml.tmpl
var bootstrapText string

// Target says which Envoy a bootstrap is for, as far as the config cannot know.
type Target struct {
	Version string // "1.36" to "1.40"; empty is the newest

	// Pickers are host:port at which Envoy reaches the gRPC servers of warmpath's
	// replicas; a name stands for all its addresses. Empty means the address of
	// the config, on this machine.
	Pickers []string
}

// bootstrapData is what the template sees.
type bootstrapData struct {
	Version         string
	BodyMode        string
	Duplex          bool
	FailOpen        bool
	TLS             bool
	SmallRouteLimit bool // the route's limit of a buffered body has no effect
	Tap             bool // some pool wants to see how its streams begin
	UsageTrailers   bool // some pool wants Envoy to read the usage
	Listen          socketAddress
	Admin           socketAddress
	Pickers         []socketAddress
}

// socketAddress is an address as the template prints it.
type socketAddress struct {
	Host      string // quoted
	Port      uint16
	DualStack bool // :: that takes IPv4 too
}

// Bootstrap returns the configuration file, in YAML, of an Envoy that asks
// warmpath for a pod for each request.
func Bootstrap(cfg *configpb.GatewayConfig, target Target) ([]byte, error) {
	d, err := newBootstrapData(cfg, target)
	if err != nil {
		return nil, err
	}
	t, err := template.New("bootstrap").Parse(bootstrapText)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, d); err != nil {
		return nil, err
	}
	if err := validate(out.Bytes()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func newBootstrapData(cfg *configpb.GatewayConfig, target Target) (*bootstrapData, error) {
	minor, err := minorVersion(target.Version)
	if err != nil {
		return nil, err
	}
	d := &bootstrapData{
		Version:         fmt.Sprintf("1.%d", minor),
		BodyMode:        cfg.GetEnvoy().GetBodyMode(),
		FailOpen:        cfg.GetEnvoy() == nil || cfg.GetEnvoy().FailOpen == nil || cfg.GetEnvoy().GetFailOpen(),
		TLS:             cfg.GetServer().GetGrpc().GetTls().GetMode() == "on",
		SmallRouteLimit: minor == 36,
	}
	switch d.BodyMode {
	case "":
		d.BodyMode = "BUFFERED"
	case "BUFFERED":
	case "FULL_DUPLEX_STREAMED":
		d.Duplex = true
		d.SmallRouteLimit = false // nothing is buffered, and pieces must stay small
	default:
		return nil, fmt.Errorf("envoy.bodyMode %q is unknown; use BUFFERED or FULL_DUPLEX_STREAMED", d.BodyMode)
	}
	if d.Listen, err = bindAddress("envoy.listen", cfg.GetEnvoy().GetListen(), "0.0.0.0:8080"); err != nil {
		return nil, err
	}
	if d.Admin, err = bindAddress("envoy.admin", cfg.GetEnvoy().GetAdmin(), "127.0.0.1:9901"); err != nil {
		return nil, err
	}
	if d.Pickers, err = pickerAddresses(target.Pickers, cfg.GetServer().GetGrpc().GetAddress()); err != nil {
		return nil, err
	}
	for _, p := range cfg.GetPools() {
		switch p.GetObserve().GetFirstToken() {
		case "", "auto", "tap":
			d.Tap = true
		}
		if p.GetObserve().GetUsage() == "trailers" {
			d.UsageTrailers = true
			if minor < 40 {
				return nil, fmt.Errorf("pool %q: observe.usage \"trailers\" needs Envoy 1.40, and this bootstrap is for %s; use auto", p.GetName(), d.Version)
			}
		}
	}
	return d, nil
}

// The Envoys that the bootstrap was tried on.
const (
	oldestMinor = 36
	newestMinor = 40
)

func minorVersion(version string) (int, error) {
	if version == "" {
		return newestMinor, nil
	}
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	if len(parts) >= 2 && parts[0] == "1" {
		if m, err := strconv.Atoi(parts[1]); err == nil && m >= oldestMinor && m <= newestMinor {
			return m, nil
		}
	}
	return 0, fmt.Errorf("envoy version %q: known are 1.%d to 1.%d; a newer Envoy takes the bootstrap of 1.%[3]d",
		version, oldestMinor, newestMinor)
}

// bindAddress reads where Envoy listens. An empty host is every interface.
func bindAddress(field, value, otherwise string) (socketAddress, error) {
	if value == "" {
		value = otherwise
	}
	host, port, err := splitAddress(field, value)
	if err != nil {
		return socketAddress{}, err
	}
	if host == "" {
		host = "0.0.0.0"
	}
	if _, err := netip.ParseAddr(host); err != nil {
		return socketAddress{}, fmt.Errorf("%s %q: Envoy listens on an IP address, not a name; for example %s", field, value, otherwise)
	}
	return socketAddress{Host: strconv.Quote(host), Port: port, DualStack: host == "::"}, nil
}

// pickerAddresses are where Envoy finds warmpath: the addresses given, else the
// one that warmpath listens on, where "every interface" means this machine.
func pickerAddresses(pickers []string, listen string) (addrs []socketAddress, err error) {
	field := "picker address"
	if len(pickers) == 0 {
		field, pickers = "server.grpc.address", []string{cmp.Or(listen, ":9002")}
	}
	for _, value := range pickers {
		host, port, err := splitAddress(field, value)
		if err != nil {
			return nil, err
		}
		if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
			host = "127.0.0.1"
			if ip.Is6() {
				host = "::1"
			}
		}
		addrs = append(addrs, socketAddress{Host: strconv.Quote(host), Port: port})
	}
	return addrs, nil
}

func splitAddress(field, value string) (host string, port uint16, err error) {
	host, text, err := net.SplitHostPort(value)
	if err != nil {
		return "", 0, fmt.Errorf("%s %q: want host:port", field, value)
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%s %q: port %q is not a number from 0 to 65535", field, value, text)
	}
	return host, uint16(n), nil
}
