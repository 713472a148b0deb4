package admin

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// rotating is a file of lines that does not grow beyond half of its bound: then
// it becomes its own predecessor, name.1, and the one before is gone.
type rotating struct {
	name string
	max  int64 // bytes of both

	file *os.File
	size int64
	torn bool // the last line may lack its end
}

// newRotating returns a file that is not open yet. It finds what would keep it
// from being opened, as far as that can be known without doing it.
func newRotating(name string, max int64) (*rotating, error) {
	dir, err := os.Stat(filepath.Dir(name))
	if err == nil && !dir.IsDir() {
		err = fmt.Errorf("%s is no folder", filepath.Dir(name))
	}
	return &rotating{name: name, max: max}, err
}

// open opens the file and goes on where it ends.
func (r *rotating) open() (err error) {
	// What requests were like is nobody's business but the operator's.
	r.file, err = os.OpenFile(r.name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if r.size, err = r.file.Seek(0, io.SeekEnd); err != nil || r.size == 0 {
		return err
	}
	last := make([]byte, 1)
	_, err = r.file.ReadAt(last, r.size-1)
	r.torn = last[0] != '\n' // the process may have died while it wrote
	return err
}

// write adds whole lines.
func (r *rotating) write(lines []byte) error {
	if r.file == nil || r.size > 0 && r.size+int64(len(lines)) > r.max/2 {
		if err := r.rotate(); err != nil {
			return err
		}
	}
	if r.torn {
		lines = append([]byte{'\n'}, lines...)
	}
	n, err := r.file.Write(lines)
	r.size += int64(n)
	if n > 0 {
		r.torn = n < len(lines)
	}
	return err
}

func (r *rotating) rotate() error {
	err := r.close()
	if r.size > 0 {
		if moved := os.Rename(r.name, r.name+".1"); !errors.Is(moved, fs.ErrNotExist) { // else somebody took it away
			err = errors.Join(err, moved)
		}
	}
	if err != nil {
		return err
	}
	r.size, r.torn = 0, false
	return r.open()
}

// close may be called again.
func (r *rotating) close() error {
	if r.file == nil {
		return nil
	}
	err := r.file.Close()
	r.file = nil
	return err
}
