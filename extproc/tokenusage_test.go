package extproc

import (
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ai "github.com/envoyproxy/go-control-plane/envoy/data/ai/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/warmpath/warmpath/extproc/openai"
)

// withUsage is a message with typed metadata as Envoy writes them.
func withUsage(t testing.TB, m *pb.ProcessingRequest, space string, u *ai.TokenUsage) *pb.ProcessingRequest {
	t.Helper()
	typed, err := anypb.New(u)
	if err != nil {
		t.Fatal(err)
	}
	m.MetadataContext = &core.Metadata{TypedFilterMetadata: map[string]*anypb.Any{space: typed}}
	return m
}

func FuzzTokenUsage(f *testing.F) {
	for _, u := range []*ai.TokenUsage{
		{},
		{Model: "m", InputTokens: wrapperspb.UInt64(500), OutputTokens: wrapperspb.UInt64(40)},
		{InputTokens: wrapperspb.UInt64(500), InputTokenDetails: &ai.InputTokenDetails{CachedTokens: wrapperspb.UInt64(0)}},
		{OutputTokens: wrapperspb.UInt64(1 << 60), InputTokenDetails: &ai.InputTokenDetails{CachedTokens: wrapperspb.UInt64(7), CacheCreationTokens: wrapperspb.UInt64(9)}},
	} {
		b, err := proto.Marshal(u)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	count := func(v *wrapperspb.UInt64Value, absent int) int {
		switch {
		case v == nil:
			return absent
		case v.Value >= 1<<40:
			return 0
		}
		return int(v.Value)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		u := new(ai.TokenUsage)
		if proto.Unmarshal(b, u) != nil {
			return
		}
		b, err := proto.Marshal(withUsage(t, respTrailers(), usageSpace, u))
		if err != nil {
			return // text that is not UTF-8
		}
		m, err := read(t, b, 1000)
		if err != nil {
			t.Fatal(err)
		}
		want := openai.Usage{
			Prompt: count(u.InputTokens, 0), Output: count(u.OutputTokens, 0), Cached: count(u.GetInputTokenDetails().GetCachedTokens(), -1),
		}
		if !m.hasUsage || m.usage != want {
			t.Errorf("got %v %+v, want %+v", m.hasUsage, m.usage, want)
		}
	})
}

func TestTypedMetadataOfStrangersAreNotRead(t *testing.T) {
	b, err := proto.Marshal(withUsage(t, respTrailers(), "other", &ai.TokenUsage{InputTokens: wrapperspb.UInt64(1)}))
	if err != nil {
		t.Fatal(err)
	}
	if m, err := read(t, b, 1000); err != nil || m.hasUsage {
		t.Errorf("read as %+v, %v", m.usage, err)
	}
}
