package extproc

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
)

// A stream in duplex mode may be ended with OK only once its body has gone back.
func TestShutdownInDuplex(t *testing.T) {
	subtest(t, "a request that ended with trailers is done", func(t *testing.T) {
		g := newGateway(t, Config{}, "", newPool("m", firstTwo{}, podA, podB))
		d := g.open(t)
		d.send(in(reqHeaders(false), duplex))
		d.send(reqTrailers())
		d.stream.Recv()
		d.expect("trailers")
		g.stop()
		d.expectEnd(codes.OK)
	})
	subtest(t, "an upgrade goes on until it is cut, and not with OK", func(t *testing.T) {
		g := newGateway(t, Config{DrainTimeout: 3 * time.Second}, "", newPool("m", firstTwo{}, podA, podB))
		d := g.open(t)
		d.send(in(reqHeaders(false, "upgrade", "websocket"), duplex))
		d.expect(pickHeaders)
		g.stop()
		d.send(reqBody("ping", false))
		d.expect("body echo 4")
		d.expectEnd(codes.Unavailable)
	})
}
