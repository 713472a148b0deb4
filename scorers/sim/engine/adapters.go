package engine

import "slices"

// slots are the places for LoRA adapters on the GPU. An adapter whose requests
// run cannot be moved out; one that is idle stays until its place is needed.
type slots struct {
	max   int
	slot  []slot
	host  map[string]bool // adapters in host memory: every one that was used
	names []string        // those of slots with visible > 0
	dirty bool            // names is out of date
}

type slot struct {
	name    string
	users   int // requests in the batch
	visible int // those of them that have produced a token
	last    int // step of the last use
}

// How an adapter came to its slot.
type placement uint8

const (
	resident placement = iota
	fromHost
	fromDisk
)

func (s *slots) find(name string) *slot {
	for i := range s.slot {
		if s.slot[i].name == name {
			return &s.slot[i]
		}
	}
	return nil
}

// room reports whether a request for the adapter may enter the batch now.
func (s *slots) room(name string) bool {
	if name == "" || len(s.slot) < s.max || s.find(name) != nil {
		return true
	}
	return slices.ContainsFunc(s.slot, func(x slot) bool { return x.users == 0 })
}

// acquire places the adapter of a request that enters; room must have said yes.
func (s *slots) acquire(name string, step int) placement {
	if name == "" {
		return resident
	}
	x, placed := s.find(name), resident
	if x == nil {
		placed = fromHost
		if !s.host[name] {
			s.host[name] = true
			placed = fromDisk
		}
		x = s.victim()
		*x = slot{name: name}
	}
	x.users++
	x.last = step
	return placed
}

// victim is a free slot, else the one that has been idle for longest.
func (s *slots) victim() *slot {
	if len(s.slot) < s.max {
		s.slot = append(s.slot, slot{})
		return &s.slot[len(s.slot)-1]
	}
	var oldest *slot
	for i := range s.slot {
		if x := &s.slot[i]; x.users == 0 && (oldest == nil || x.last < oldest.last) {
			oldest = x
		}
	}
	return oldest
}

func (s *slots) release(name string) {
	if x := s.find(name); name != "" && x != nil {
		x.users--
	}
}

// show counts the requests through which the server learns to name an adapter:
// one that has not yet produced a token is invisible in its metrics.
func (s *slots) show(name string, n int) {
	if x := s.find(name); name != "" && x != nil {
		x.visible += n
		s.dirty = s.dirty || x.visible == 0 || x.visible == n
	}
}

// shown lists the visible adapters. The slice is never changed afterwards.
func (s *slots) shown() []string {
	if s.dirty {
		s.dirty = false
		s.names = nil
		for i := range s.slot {
			if s.slot[i].visible > 0 {
				s.names = append(s.names, s.slot[i].name)
			}
		}
		slices.Sort(s.names)
	}
	return s.names
}

// running counts the adapters in the batch.
func (s *slots) running() (n int) {
	for i := range s.slot {
		if s.slot[i].users > 0 {
			n++
		}
	}
	return n
}
