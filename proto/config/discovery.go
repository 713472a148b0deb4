package config

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/warmpath/warmpath/proto/configpb"
)

// notBuilt is a field that the schema has and this build does not. It is read, so
// that whoever writes it is told, but not offered.
const notBuilt = "warmpath.v1.Discovery.kubernetes"

// discovery wants exactly one source of endpoints, and looks into it as far as
// that is possible without the network.
func (v *validator) discovery(d *configpb.Discovery, path string) {
	var given []string
	if len(d.Static) > 0 {
		given = append(given, "static")
		v.static(d.Static, path+".static")
	}
	if d.File != "" {
		given = append(given, "file")
		v.file(path+".file", resolved(d.File, v.dir), "want a YAML or JSON file with endpoints: [{name, address, port}]")
	}
	if d.Dns != "" {
		given = append(given, "dns")
		if host, _, err := net.SplitHostPort(d.Dns); err == nil && host != "" {
			v.address(path+".dns", d.Dns, 1)
		} else if !srvName.MatchString(d.Dns) {
			v.mistake(path+".dns", "%q; want host:port, or _service._tcp.name for SRV records", clip(d.Dns))
		}
	}
	if d.Kubernetes != nil {
		given = append(given, "kubernetes")
		v.kubernetes(d.Kubernetes, path+".kubernetes")
	}
	if len(given) != 1 {
		got := "none"
		if len(given) > 0 {
			got = strings.Join(given, " and ")
		}
		v.mistake(path, "%s given; want exactly one of static, file, dns", got)
	}
}

// srvName is the form of RFC 2782: _service._proto.name.
var srvName = regexp.MustCompile(`^_[A-Za-z0-9-]+\._(tcp|udp)\.[A-Za-z0-9._-]+$`)

func (v *validator) kubernetes(k *configpb.Kubernetes, path string) {
	if (k.InferencePool == "") == (k.Selector == "") {
		v.mistake(path, "want either inferencePool or selector")
		return
	}
	if k.InferencePool != "" {
		if k.TargetPort != 0 || k.Namespace != "" {
			v.mistake(path, "namespace and targetPort go with selector; an inferencePool is \"namespace/name\" and names its own port")
		}
		if strings.Count(k.InferencePool, "/") != 1 || strings.HasPrefix(k.InferencePool, "/") || strings.HasSuffix(k.InferencePool, "/") {
			v.mistake(path+".inferencePool", "%q; want \"namespace/name\"", clip(k.InferencePool))
		}
		return
	}
	if k.TargetPort < 1 || k.TargetPort > maxPort {
		v.mistake(path+".targetPort", "%d; want the port on which the pods serve, 1 to %d", k.TargetPort, maxPort)
	}
}

// static wants each entry to be the endpoint of one pod, once.
func (v *validator) static(entries []*structpb.Value, path string) {
	first := map[netip.AddrPort]string{}
	for i, entry := range entries {
		at := fmt.Sprintf("%s[%d]", path, i)
		addr, ok := v.entry(entry, at)
		if !ok {
			continue
		}
		if before, twice := first[addr]; twice {
			v.mistake(at, "%s is already %s in line %d; want each pod once", addr, before, v.lineOf(before))
			continue
		}
		first[addr] = at
	}
}

// entry reads "ip:port" or {name, address, port, labels}.
func (v *validator) entry(entry *structpb.Value, path string) (addr netip.AddrPort, ok bool) {
	const want = "want \"ip:port\" or {name, address, port, labels}"
	switch e := entry.GetKind().(type) {
	case *structpb.Value_StringValue:
		host, port, err := net.SplitHostPort(e.StringValue)
		if err != nil {
			v.mistake(path, "%q; %s, IPv6 as in \"[fd00::1]:8000\"", clip(e.StringValue), want)
			return addr, false
		}
		return v.endpoint(path, host, path, port)
	case *structpb.Value_StructValue:
		return v.object(e.StructValue.GetFields(), path)
	}
	v.mistake(path, "%s; %s", shown(entry), want)
	return addr, false
}

// shown is a value that may be of any kind, as JSON.
func shown(v *structpb.Value) string {
	text, err := json.Marshal(v.AsInterface())
	if err != nil { // a number that JSON does not have, which the reader refuses
		return "?"
	}
	return clip(string(text))
}

func (v *validator) object(fields map[string]*structpb.Value, path string) (addr netip.AddrPort, ok bool) {
	allowed := []string{"name", "namespace", "address", "port", "labels"}
	before := len(v.mistakes)
	str := func(key string) string {
		val, given := fields[key]
		if _, isString := val.GetKind().(*structpb.Value_StringValue); given && !isString {
			v.mistake(join(path, key), "%s; want a string", shown(val))
		}
		return val.GetStringValue()
	}
	for key, val := range fields {
		switch key {
		case "name", "namespace":
			str(key)
		case "address", "port":
		case "labels":
			labels, isMap := val.GetKind().(*structpb.Value_StructValue)
			if !isMap {
				v.mistake(join(path, key), "%s; want a mapping of names to strings", shown(val))
				continue
			}
			for name, label := range labels.StructValue.GetFields() {
				if _, isString := label.GetKind().(*structpb.Value_StringValue); !isString {
					v.mistake(join(join(path, key), name), "%s; want a string: put it in quotes", shown(label))
				}
			}
		default:
			v.mistake(join(path, key), "unknown field %s", choose(key, allowed))
		}
	}
	address := str("address")
	var port string
	if n, isNumber := fields["port"].GetKind().(*structpb.Value_NumberValue); isNumber {
		port = strconv.FormatFloat(n.NumberValue, 'f', -1, 64)
	} else {
		port = str("port")
	}
	if len(v.mistakes) > before {
		return addr, false
	}
	if port == "" {
		v.mistake(join(path, "port"), "missing; want the port on which the pod serves")
		return addr, false
	}
	return v.endpoint(join(path, "address"), address, join(path, "port"), port)
}

// endpoint wants an address to which Envoy can connect as it stands.
func (v *validator) endpoint(hostPath, host, portPath, port string) (addr netip.AddrPort, ok bool) {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		v.mistake(portPath, "port %q; want a number from 1 to 65535", clip(port))
		return addr, false
	}
	ip, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	switch {
	case err != nil && hostName.MatchString(host):
		v.mistake(hostPath, "%q is a host name; static takes IP addresses, since Envoy is sent to one of them: write dns: %q instead of static",
			clip(host), clip(net.JoinHostPort(host, port)))
	case err != nil:
		v.mistake(hostPath, "%q; want an IP address", clip(host))
	case ip.IsUnspecified() || ip.IsMulticast() || ip.Zone() != "":
		v.mistake(hostPath, "%q; want the address of one pod, without a zone", clip(host))
	default:
		return netip.AddrPortFrom(ip.Unmap(), uint16(n)), true
	}
	return addr, false
}
