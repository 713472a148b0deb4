package discovery

import (
	"encoding/json"
	"maps"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/podstate"
)

func TestParseEndpoint(t *testing.T) {
	spec := func(name, addr string) podstate.Spec {
		return podstate.Spec{Name: name, Addr: netip.MustParseAddrPort(addr)}
	}
	labelled := spec("pod-0", "10.0.0.1:8000")
	labelled.Labels = map[string]string{"gpu": "H100", "slots": "8", "fast": "true"}
	type object = map[string]any
	tests := []struct {
		name string
		in   any
		want podstate.Spec
		err  string
	}{
		{"IPv4 with port", "10.0.0.1:8000", spec("10.0.0.1:8000", "10.0.0.1:8000"), ""},
		{"IPv6 in brackets", "[fd00::1]:8000", spec("[fd00::1]:8000", "[fd00::1]:8000"), ""},
		{"IPv4 in IPv6 is IPv4", "[::ffff:10.0.0.1]:80", spec("10.0.0.1:80", "10.0.0.1:80"), ""},
		{"an object", object{"name": "pod-0", "address": "10.0.0.1", "port": "8000",
			"labels": object{"gpu": "H100", "slots": 8, "fast": true}}, labelled, ""},
		{"a port from JSON", object{"address": "10.0.0.1", "port": float64(8000)}, spec("10.0.0.1:8000", "10.0.0.1:8000"), ""},
		{"a port from YAML", object{"address": "10.0.0.1", "port": 8000}, spec("10.0.0.1:8000", "10.0.0.1:8000"), ""},
		{"a port in the address", object{"name": "a", "address": "10.0.0.1:8000"}, spec("a", "10.0.0.1:8000"), ""},
		{"IPv6 apart from its port", object{"address": "fd00::1", "port": 1}, spec("[fd00::1]:1", "[fd00::1]:1"), ""},
		{"bracketed IPv6 apart from its port", object{"address": "[fd00::1]", "port": 1}, spec("[fd00::1]:1", "[fd00::1]:1"), ""},
		{"a namespace is part of the name", object{"name": "a", "namespace": "ns", "address": "10.0.0.1:1"}, spec("ns/a", "10.0.0.1:1"), ""},
		{"a name that is a number", object{"name": 7, "address": "10.0.0.1:1"}, spec("7", "10.0.0.1:1"), ""},

		{"no port", "10.0.0.1", podstate.Spec{}, `endpoint "10.0.0.1" has no port; write ip:port`},
		{"IPv6 without brackets", "fd00::1", podstate.Spec{}, `endpoint "fd00::1" has no port; write ip:port, IPv6 in brackets`},
		{"no address at all", "gpu", podstate.Spec{}, `endpoint "gpu" is not ip:port`},
		{"a host name", "gpu-1:8000", podstate.Spec{}, `endpoint's address "gpu-1" is not an IP address; for host names use discovery by dns`},
		{"an octet too large", "10.0.0.300:8000", podstate.Spec{}, `endpoint's address "10.0.0.300" is not an IP address`},
		{"port 0", "10.0.0.1:0", podstate.Spec{}, `endpoint's port "0" is not a port; 1 to 65535`},
		{"port too large", "10.0.0.1:65536", podstate.Spec{}, `endpoint's port "65536"`},
		{"a fraction of a port", object{"address": "10.0.0.1", "port": 80.5}, podstate.Spec{}, `endpoint's port "80.5"`},
		{"a zone", "[fe80::1%eth0]:80", podstate.Spec{}, "cannot be reached"},
		{"any address", "0.0.0.0:80", podstate.Spec{}, "cannot be reached"},
		{"an object without address", object{"port": 1}, podstate.Spec{}, "endpoint has no address"},
		{"an unknown field", object{"adress": "10.0.0.1"}, podstate.Spec{}, `unknown field "adress"; known: name`},
		{"labels that are no mapping", object{"address": "10.0.0.1:1", "labels": "x"}, podstate.Spec{}, "endpoint's labels x is not a mapping"},
		{"a label that is a list", object{"address": "10.0.0.1:1", "labels": object{"a": []any{}}}, podstate.Spec{}, `endpoint's labels "a": [] is not a text`},
		{"a number", 7, podstate.Spec{}, "endpoint 7 is not an endpoint"},
		{"nothing", nil, podstate.Spec{}, "endpoint is empty"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseEndpoint(tt.in)
			switch {
			case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
				t.Errorf("error %v, want one with %q", err, tt.err)
			case tt.err == "" && err != nil:
				t.Error(err)
			case tt.err == "" && !reflect.DeepEqual(got, tt.want):
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestParseEndpointsWantsEachAddressOnce(t *testing.T) {
	_, err := ParseEndpoints([]any{"10.0.0.1:1", "10.0.0.1:2", map[string]any{"address": "10.0.0.1", "port": 1}})
	if err == nil || err.Error() != "index 2: endpoint 10.0.0.1:1 is also at index 0" {
		t.Errorf("error %v", err)
	}
}

// FuzzParseFile: any file is read or refused, and what is read can be written
// and read again.
func FuzzParseFile(f *testing.F) {
	for _, seed := range []string{
		"endpoints:\n- 10.0.0.1:8000\n- {name: a, address: fd00::1, port: \"1\", labels: {x: y}}\n",
		`{"endpoints":[{"address":"10.0.0.1","port":8000}]}`, `["10.0.0.1:1"]`, "endpoints: []", "- *a", "a: &a [*a]", "\x00", "? [",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		specs, err := parseFile("f", data)
		if err != nil {
			return
		}
		list := []any{}
		for _, s := range specs {
			e := map[string]any{"name": s.Name, "address": s.Addr.Addr().String(), "port": s.Addr.Port()}
			if s.Labels != nil {
				e["labels"] = s.Labels
			}
			list = append(list, e)
		}
		data, err = json.Marshal(map[string]any{"endpoints": list})
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseFile("f", data)
		if err != nil || len(again) != len(specs) {
			t.Fatalf("%d endpoints, then %d: %v; as %s", len(specs), len(again), err, data)
		}
		for i := range specs {
			if again[i].Addr != specs[i].Addr || !validUTF8(specs[i]) {
				continue
			}
			if again[i].Name != specs[i].Name || !maps.Equal(again[i].Labels, specs[i].Labels) {
				t.Fatalf("%+v, then %+v", specs[i], again[i])
			}
		}
	})
}

func validUTF8(s podstate.Spec) bool {
	ok := strings.ToValidUTF8(s.Name, "") == s.Name
	for k, v := range s.Labels {
		ok = ok && strings.ToValidUTF8(k+v, "") == k+v
	}
	return ok
}
