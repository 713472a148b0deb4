package sim

import (
	"cmp"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// limits are the values that a setting may have. They keep a run from needing
// more memory or time than there is, and numbers from overflowing.
type limits[T cmp.Ordered] struct {
	what   string // kind of value, as in "want a number from 0 to 1"
	parse  func(string) (T, error)
	lo, hi T
}

func whole(lo, hi int) limits[int] { return limits[int]{"a whole number", strconv.Atoi, lo, hi} }

func number(lo, hi float64) limits[float64] {
	return limits[float64]{"a number", func(v string) (float64, error) { return strconv.ParseFloat(v, 64) }, lo, hi}
}

func duration(lo, hi time.Duration) limits[time.Duration] {
	return limits[time.Duration]{"a duration", time.ParseDuration, lo, hi}
}

func (l limits[T]) check(x T) error {
	if x >= l.lo && x <= l.hi { // false for NaN
		return nil
	}
	return l.wrong()
}

func (l limits[T]) wrong() error { return fmt.Errorf("want %s from %v to %v", l.what, l.lo, l.hi) }

func (l limits[T]) read(text string) (T, error) {
	x, err := l.parse(text)
	if err != nil {
		return x, l.wrong()
	}
	return x, l.check(x)
}

// one adds a flag for a value to f.
func one[T cmp.Ordered](f *flag.FlagSet, to *T, name string, l limits[T], usage string) {
	f.Func(name, usage, func(v string) (err error) {
		*to, err = l.read(v)
		return err
	})
}

// several adds a flag for values that are separated by commas.
func several[T cmp.Ordered](f *flag.FlagSet, to *[]T, name string, l limits[T], usage string) {
	f.Func(name, usage, func(v string) error {
		*to = nil
		for part := range strings.SplitSeq(v, ",") {
			x, err := l.read(part)
			if err != nil {
				return fmt.Errorf("%q: %w", part, err)
			}
			*to = append(*to, x)
		}
		return nil
	})
}
