module github.com/warmpath/warmpath

go 1.26.0

require (
	github.com/cespare/xxhash/v2 v2.3.0 // hashes of prompt blocks
	github.com/envoyproxy/go-control-plane/envoy v1.40.0 // the types of ext_proc, EDS and the bootstrap
	github.com/fsnotify/fsnotify v1.10.1 // files of endpoints and certificates are read again when they change
	github.com/prometheus/client_golang v1.25.0 // /metrics
	github.com/prometheus/client_model v0.6.3 // what expfmt reads into
	github.com/prometheus/common v0.72.0 // expfmt reads a pod's whole exposition where speed does not matter
	github.com/prometheus/prom2json v1.4.2 // the same as plain values; the oracle of the fast reader
	github.com/spf13/pflag v1.1.0 // flags as the endpoint picker has them
	go.yaml.in/yaml/v3 v3.0.6 // YAML with the line of each value
	golang.org/x/net v0.62.0 // DNS messages; HTTP/2 in tests
	golang.org/x/sync v0.25.0 // errgroup
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1 // the status in EDS
	google.golang.org/grpc v1.85.0 // ext_proc and EDS
	google.golang.org/protobuf v1.36.12 // the same, and the configuration
	sigs.k8s.io/yaml v1.6.0 // YAML of JSON types
)

require (
	cel.dev/expr v0.25.3 // indirect
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cncf/xds/go v0.0.0-20260202195803-dba9d589def2 // indirect
	github.com/envoyproxy/protoc-gen-validate v1.3.3 // indirect
	github.com/golang/protobuf v1.5.4 // indirect
	github.com/matttproud/golang_protobuf_extensions v1.0.4 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/planetscale/vtprotobuf v0.6.1-0.20240319094008-0393e58bdf10 // indirect
	github.com/prometheus/procfs v0.22.0 // indirect
	github.com/prometheus/prometheus v0.302.1 // indirect
	go.yaml.in/yaml/v2 v2.4.4 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/api v0.0.0-20260817212433-ac3dfec99bb1 // indirect
)
