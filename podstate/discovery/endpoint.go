package discovery

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/warmpath/warmpath/podstate"
)

// ParseEndpoint reads one endpoint of a list, as a JSON or YAML decoder gives it:
// a string "10.0.0.1:8000" or "[fd00::1]:8000", or an object
//
//	{name: pod-0, address: 10.0.0.1, port: "8000", labels: {gpu: H100}}
//
// whose port may be a number or stand in the address, and whose name is the
// address if it is absent. A namespace is accepted and becomes part of the name.
func ParseEndpoint(v any) (podstate.Spec, error) {
	switch v := v.(type) {
	case string:
		addr, err := parseAddr(v, "")
		if err != nil {
			return podstate.Spec{}, err
		}
		return podstate.Spec{Name: addr.String(), Addr: addr}, nil
	case map[string]any:
		return parseObject(v)
	case nil:
		return podstate.Spec{}, errors.New("endpoint is empty; write ip:port or {address, port}")
	default:
		return podstate.Spec{}, fmt.Errorf("endpoint %v is not an endpoint; write ip:port or {address, port}", v)
	}
}

func parseObject(m map[string]any) (spec podstate.Spec, err error) {
	var address, port, namespace string
	for key, v := range m {
		switch key {
		case "name":
			spec.Name, err = text(v)
		case "namespace":
			namespace, err = text(v)
		case "address":
			address, err = text(v)
		case "port":
			port, err = text(v)
		case "labels":
			spec.Labels, err = parseLabels(v)
		default:
			return spec, fmt.Errorf("endpoint has an unknown field %q; known: name, namespace, address, port, labels", key)
		}
		if err != nil {
			return spec, fmt.Errorf("endpoint's %s %w", key, err)
		}
	}
	if address == "" {
		return spec, errors.New("endpoint has no address")
	}
	if spec.Addr, err = parseAddr(address, port); err != nil {
		return spec, err
	}
	if spec.Name == "" {
		spec.Name = spec.Addr.String()
	}
	if namespace != "" {
		spec.Name = namespace + "/" + spec.Name
	}
	return spec, nil
}

// parseAddr reads an IP address with its port, which may also be given apart.
func parseAddr(address, port string) (netip.AddrPort, error) {
	if port == "" {
		at := strings.LastIndexByte(address, ':')
		bracketed := strings.HasPrefix(address, "[")
		if at < 0 || !bracketed && strings.Count(address, ":") > 1 || bracketed && !strings.Contains(address, "]:") {
			if _, err := netip.ParseAddr(strings.Trim(address, "[]")); err == nil {
				return netip.AddrPort{}, fmt.Errorf("endpoint %q has no port; write ip:port, IPv6 in brackets", address)
			}
			return netip.AddrPort{}, fmt.Errorf("endpoint %q is not ip:port", address)
		}
		address, port = address[:at], address[at+1:]
	}
	ip, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(address, "["), "]"))
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("endpoint's address %q is not an IP address; for host names use discovery by dns", address)
	}
	if ip.Zone() != "" || ip.IsUnspecified() || ip.IsMulticast() {
		return netip.AddrPort{}, fmt.Errorf("endpoint's address %q cannot be reached from other hosts by that name", address)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return netip.AddrPort{}, fmt.Errorf("endpoint's port %q is not a port; 1 to 65535", port)
	}
	return netip.AddrPortFrom(ip.Unmap(), uint16(n)), nil
}

func parseLabels(v any) (map[string]string, error) {
	m, ok := v.(map[string]any)
	if !ok && v != nil {
		return nil, fmt.Errorf("%v is not a mapping", v)
	}
	labels := make(map[string]string, len(m))
	for key, v := range m {
		s, err := text(v)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", key, err)
		}
		labels[key] = s
	}
	return labels, nil
}

// text reads a scalar: what is a string to us may look like a number to YAML.
func text(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case bool, int, int64, uint64, json.Number:
		return fmt.Sprint(v), nil
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return strconv.FormatInt(int64(v), 10), nil
		}
		return strconv.FormatFloat(v, 'g', -1, 64), nil
	case nil:
		return "", errors.New("is empty")
	default:
		return "", fmt.Errorf("%v is not a text", v)
	}
}

// ParseEndpoints reads a list of endpoints and wants each address once.
func ParseEndpoints(list []any) ([]podstate.Spec, error) {
	specs := make([]podstate.Spec, 0, len(list))
	for i, v := range list {
		spec, err := ParseEndpoint(v)
		if err == nil {
			same := func(s podstate.Spec) bool { return s.Addr == spec.Addr }
			if j := slices.IndexFunc(specs, same); j >= 0 {
				err = fmt.Errorf("endpoint %s is also at index %d", spec.Addr, j)
			}
		}
		if err != nil {
			return nil, &entryError{i, err}
		}
		specs = append(specs, spec)
	}
	return specs, nil
}

// entryError says which entry of a list is broken.
type entryError struct {
	index int
	err   error
}

func (e *entryError) Error() string { return fmt.Sprintf("index %d: %v", e.index, e.err) }
func (e *entryError) Unwrap() error { return e.err }
