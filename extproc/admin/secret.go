package admin

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// secret hides what could be guessed: equal things stay equal, and nobody can
// tell by the log whether a guess is right. It lives as long as the process.
type secret struct {
	numbers cipher.Block
	names   []byte
}

type word [aes.BlockSize]byte

func newSecret() (s secret, err error) {
	key := make([]byte, 64)
	rand.Read(key) // never fails
	s.names = key[32:]
	s.numbers, err = aes.NewCipher(key[:32])
	return s, err
}

// number hides a hash. A hash of a prompt's head would tell whoever can guess
// the head that it was right. w is memory to work in.
func (s *secret) number(x uint64, w *word) uint64 {
	*w = word{}
	binary.LittleEndian.PutUint64(w[:], x)
	s.numbers.Encrypt(w[:], w[:])
	return binary.LittleEndian.Uint64(w[:])
}

// name hides the name of an adapter.
func (s *secret) name(name string) string {
	mac := hmac.New(sha256.New, s.names)
	mac.Write([]byte(name))
	return hex.EncodeToString(mac.Sum(nil)[:8])
}
