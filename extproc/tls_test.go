package extproc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

func TestTLSModes(t *testing.T) {
	plain := insecure.NewCredentials()
	secure := credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
	tests := []struct {
		mode          string
		plain, secure bool // accepted
	}{
		{"auto", true, true},
		{"on", false, true},
		{"off", true, false},
	}
	for _, tt := range tests {
		t.Run(tt.mode, func(t *testing.T) {
			addr := serveTLS(t, TLS{Mode: tt.mode})
			if got := reachable(t, addr, plain); got != tt.plain {
				t.Errorf("plaintext accepted: %v, want %v", got, tt.plain)
			}
			if got := reachable(t, addr, secure); got != tt.secure {
				t.Errorf("TLS accepted: %v, want %v", got, tt.secure)
			}
		})
	}
}

// Some proxies send no ALPN; grpc-go's own credentials would refuse them.
func TestTLSWithoutALPN(t *testing.T) {
	addr := serveTLS(t, TLS{Mode: "auto"})
	conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")); err != nil {
		t.Fatal(err)
	}
	settings := make([]byte, 9)
	if _, err := conn.Read(settings); err != nil || settings[3] != 4 {
		t.Errorf("got frame % x, %v; want SETTINGS", settings, err)
	}
}

func TestTLSRejectsMistakes(t *testing.T) {
	empty := t.TempDir()
	for name, c := range map[string]TLS{
		"unknown mode":        {Mode: "maybe"},
		"folder without keys": {Mode: "on", CertDir: empty},
	} {
		if _, err := c.credentials(slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestCertificateIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	first := writePair(t, dir, time.Now().Add(-time.Hour))
	var logged strings.Builder
	source := &certSource{dir: dir, log: slog.New(slog.NewTextHandler(&logged, nil))}
	serves := func() string {
		t.Helper()
		source.checked = time.Time{} // as if a second had passed
		c, err := source.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		return string(c.Certificate[0])
	}
	if serves() != first {
		t.Fatal("not the certificate of the folder")
	}
	second := writePair(t, dir, time.Now())
	if serves() != second {
		t.Error("a new certificate was not read")
	}
	if err := os.WriteFile(filepath.Join(dir, "tls.key"), []byte("half a ke"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if serves() != second {
			t.Error("a broken file replaced a good certificate")
		}
	}
	if got := strings.Count(logged.String(), "cannot read the certificate"); got != 1 {
		t.Errorf("a broken file was reported %d times, want once:\n%s", got, &logged)
	}
	third := writePair(t, dir, time.Now().Add(time.Hour))
	if serves() != third {
		t.Error("a repaired file was not read")
	}
}

// writePair writes a new certificate with this time and returns it.
func writePair(t *testing.T, dir string, at time.Time) string {
	t.Helper()
	c, err := selfSigned(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: c.Certificate[0]},
		"tls.key": {Type: "PRIVATE KEY", Bytes: key},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	return string(c.Certificate[0])
}

// serveTLS serves health on a port secured like this.
func serveTLS(t *testing.T, c TLS) string {
	t.Helper()
	creds, err := c.credentials(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := newGateway(t, Config{}, "", newPool("m", firstTwo{}, podA))
	s := grpc.NewServer(grpc.Creds(creds))
	healthpb.RegisterHealthServer(s, g.server.health)
	go s.Serve(lis)
	t.Cleanup(s.Stop)
	return lis.Addr().String()
}

func reachable(t *testing.T, addr string, c credentials.TransportCredentials) bool {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(c))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	return err == nil
}
