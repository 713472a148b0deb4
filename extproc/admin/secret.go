package admin

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// secret hides what could be guessed: equal things stay equal, and nobody can
// tell by the log whether a guess is right. It lives as long as the process.
type secret []byte

func newSecret() secret {
	s := make(secret, sha256.Size)
	rand.Read(s) // never fails
	return s
}

// number hides a hash. That of a prompt's head would tell whoever can guess the
// head that it was right.
func (s secret) number(x uint64) uint64 {
	return binary.LittleEndian.Uint64(s.sum(binary.LittleEndian.AppendUint64([]byte("number "), x)))
}

// name hides the name of an adapter.
func (s secret) name(name string) string {
	return hex.EncodeToString(s.sum([]byte("name " + name))[:8])
}

func (s secret) sum(b []byte) []byte {
	mac := hmac.New(sha256.New, s)
	mac.Write(b)
	return mac.Sum(nil)
}
