package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// guard lets requests through that come from this host, or that carry the
// token.
func (s *Server) guard(next http.HandlerFunc) http.HandlerFunc {
	// Equal lengths, so that the comparison takes the same time for any guess.
	want := sha256.Sum256([]byte(s.cfg.Token))
	return func(w http.ResponseWriter, r *http.Request) {
		scheme, got, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		sent := strings.EqualFold(scheme, "Bearer") // RFC 9110, 11.1
		sum := sha256.Sum256([]byte(strings.TrimLeft(got, " ")))
		switch {
		case s.cfg.Token != "" && sent && subtle.ConstantTimeCompare(sum[:], want[:]) == 1:
		case sent && s.cfg.Token != "":
			w.Header().Set("WWW-Authenticate", `Bearer realm="warmpath admin"`)
			reply(w, http.StatusUnauthorized, "wrong token; want the server.admin.adminToken of the configuration\n")
			return
		case local(r):
		case s.cfg.Token == "":
			reply(w, http.StatusForbidden, "only from this host; set server.admin.adminToken to open it to others\n")
			return
		default:
			w.Header().Set("WWW-Authenticate", `Bearer realm="warmpath admin"`)
			reply(w, http.StatusUnauthorized, "only from this host, or with \"Authorization: Bearer\" and the server.admin.adminToken of the configuration\n")
			return
		}
		next(w, r)
	}
}

// local reports whether somebody on this host asks, and for themselves.
func local(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !from.Addr().Unmap().IsLoopback() {
		return false
	}
	// A proxy on this host forwards for others.
	for _, h := range []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip"} {
		if r.Header.Get(h) != "" {
			return false
		}
	}
	// A web page can make the browser of somebody on this host send requests
	// here under a name that it had resolve to 127.0.0.1; such a request carries
	// that name.
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if host == "localhost" {
		return true
	}
	_, err = netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil
}
