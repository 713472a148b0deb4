package extproc

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// TLS says how the gRPC port is secured.
type TLS struct {
	Mode    string // auto (also if empty): TLS and plaintext on one port; on: TLS only; off: plaintext only
	CertDir string // folder with tls.crt and tls.key, read again when they change; empty: self-signed
}

func (t TLS) credentials(log *slog.Logger) (credentials.TransportCredentials, error) {
	switch t.Mode {
	case "off":
		return insecure.NewCredentials(), nil
	case "", "auto", "on":
	default:
		return nil, fmt.Errorf("tls mode %q is unknown; use auto, on or off", t.Mode)
	}
	source := &certSource{dir: t.CertDir, log: log}
	if _, err := source.get(nil); err != nil { // a broken one must fail at the start
		return nil, err
	}
	return &creds{
		TransportCredentials: insecure.NewCredentials(),
		plaintext:            t.Mode != "on",
		config: &tls.Config{
			GetCertificate: source.get,
			NextProtos:     []string{"h2"},
			MinVersion:     tls.VersionTLS12,
		},
	}, nil
}

// creds takes TLS and, if plaintext is set, connections without it. The first
// byte tells them apart: a TLS handshake begins with 22, HTTP/2 with a 'P'.
// Envoys are set up with either, and a port that takes both cannot be wrong.
type creds struct {
	credentials.TransportCredentials
	plaintext bool
	config    *tls.Config
}

const handshakeTimeout = 10 * time.Second

func (c *creds) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	first := []byte{22}
	if c.plaintext {
		if _, err := raw.Read(first); err != nil {
			return nil, nil, err
		}
		raw = &peeked{Conn: raw, first: first}
	}
	if first[0] != 22 {
		return c.TransportCredentials.ServerHandshake(raw)
	}
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTimeout)
	defer cancel()
	// Not credentials.NewTLS: it refuses clients that do not send ALPN, and some
	// proxies do not. On this port it can only be HTTP/2.
	conn := tls.Server(raw, c.config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, nil, fmt.Errorf("tls handshake with %s: %w", raw.RemoteAddr(), err)
	}
	return conn, credentials.TLSInfo{
		State:          conn.ConnectionState(),
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}, nil
}

func (c *creds) Clone() credentials.TransportCredentials {
	clone := *c
	return &clone
}

// peeked is a connection of which some bytes have been read ahead.
type peeked struct {
	net.Conn
	first []byte
}

func (p *peeked) Read(b []byte) (int, error) {
	if len(p.first) == 0 {
		return p.Conn.Read(b)
	}
	n := copy(b, p.first)
	p.first = p.first[n:]
	return n, nil
}

// certSource has the current certificate.
type certSource struct {
	dir string // empty: self-signed
	log *slog.Logger

	mu      sync.Mutex // guards all below
	cert    *tls.Certificate
	changed time.Time // the newest of the files then
	checked time.Time
	failure string // the last one, logged
}

// checkEvery bounds how often the files are looked at.
const checkEvery = time.Second

func (s *certSource) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dir == "" {
		if s.cert == nil {
			var err error
			if s.cert, err = selfSigned(time.Now()); err != nil {
				return nil, err
			}
		}
		return s.cert, nil
	}
	if now := time.Now(); s.cert == nil || now.Sub(s.checked) >= checkEvery {
		s.checked = now
		err := s.loadLocked()
		if err != nil && s.cert == nil {
			return nil, err
		}
		s.noteLocked(err)
	}
	return s.cert, nil
}

// noteLocked says once that a change is half done or wrong: the old certificate
// still serves, and one day it will expire.
func (s *certSource) noteLocked(err error) {
	failure := ""
	if err != nil {
		failure = err.Error()
	}
	if failure != "" && failure != s.failure {
		s.log.Warn("cannot read the certificate again; the last good one stays", "error", failure)
	}
	s.failure = failure
}

func (s *certSource) loadLocked() error {
	cert, key := filepath.Join(s.dir, "tls.crt"), filepath.Join(s.dir, "tls.key")
	var newest time.Time
	for _, name := range []string{cert, key} {
		info, err := os.Stat(name)
		if err != nil {
			return fmt.Errorf("certDir: %w", err)
		}
		if t := info.ModTime(); t.After(newest) {
			newest = t
		}
	}
	if s.cert != nil && newest.Equal(s.changed) {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("certDir %s: %w", s.dir, err)
	}
	s.cert, s.changed = &pair, newest
	return nil
}

// selfSigned makes a certificate for gateways that encrypt and do not verify, as
// those of the Inference Extension do.
func selfSigned(now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "warmpath"},
		DNSNames:     []string{"localhost"},
		NotBefore:    now.Add(-time.Hour), // clocks differ
		NotAfter:     now.AddDate(10, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
