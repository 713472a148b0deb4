package envoy

import (
	"errors"
	"fmt"

	bootstrappb "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"sigs.k8s.io/yaml"

	// The extensions that the bootstrap names; without them it cannot be read.
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stream/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/common/matching/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/matcher/action/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ai_protocol_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/override_host/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/subset/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/network/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/input_matchers/metadata/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/downstream_connections/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// validate reads a bootstrap strictly and applies Envoy's own field rules, also
// inside the typed configs of extensions, where they are not applied by the
// enclosing message.
func validate(bootstrap []byte) error {
	text, err := yaml.YAMLToJSONStrict(bootstrap)
	if err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	b := new(bootstrappb.Bootstrap)
	if err := protojson.Unmarshal(text, b); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	type validator interface{ ValidateAll() error }
	errs := []error{b.ValidateAll()}
	err = protorange.Range(b.ProtoReflect(), func(p protopath.Values) error {
		if last := p.Index(-1); last.Step.Kind() == protopath.AnyExpandStep {
			if v, ok := last.Value.Message().Interface().(validator); ok {
				errs = append(errs, v.ValidateAll())
			}
		}
		return nil
	})
	if err = errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	return nil
}
