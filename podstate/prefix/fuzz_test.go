package prefix

import (
	"slices"
	"testing"
)

// naive does what Index does, with nothing shared and nothing clever.
type naive struct {
	pods     map[int][]Block // oldest first
	capacity map[int]int64
}

func (n *naive) insert(slot int, blocks []Block) {
	held := n.pods[slot]
	if c := n.capacity[slot]; c > 0 {
		var sum int64
		for i, b := range blocks {
			if sum += int64(b.Bytes); sum > c {
				blocks = blocks[:i]
				break
			}
		}
	}
	for _, b := range slices.Backward(blocks) {
		if i := slices.Index(held, b); i >= 0 {
			held = slices.Delete(held, i, i+1)
		}
		held = append(held, b)
	}
	n.pods[slot] = held
	n.evict(slot)
}

func (n *naive) evict(slot int) {
	c := n.capacity[slot]
	if c <= 0 {
		return
	}
	var sum int64
	for _, b := range n.pods[slot] {
		sum += int64(b.Bytes)
	}
	for sum > c {
		sum -= int64(n.pods[slot][0].Bytes)
		n.pods[slot] = n.pods[slot][1:]
	}
}

func (n *naive) match(slot int, blocks []Block) (bytes int32) {
	for _, b := range blocks {
		if !slices.Contains(n.pods[slot], b) {
			break
		}
		bytes += int32(b.Bytes)
	}
	return bytes
}

// Each step of the input is three bytes: what, which pod, which prompt. The
// prompts form a tree: many share beginnings of different lengths.
func FuzzIndex(f *testing.F) {
	f.Add([]byte("\x00\x00\x10\x00\x01\x21\x00\x00\x33\x01\x00\x05\x02\x01\x00\x03\x00\x10"))
	f.Add([]byte("\x00\x00\xff\x00\x01\xfe\x00\x02\xfd\x00\x03\xfc\x01\x02\x09\x00\x02\xf1\x02\x02\x00\x00\x02\x11"))
	base := [4][]byte{text(1, 6000), text(2, 6000), text(3, 6000), text(4, 6000)}
	f.Fuzz(func(t *testing.T, steps []byte) {
		const pods = 5
		ix := NewIndex(0)
		model := naive{pods: map[int][]Block{}, capacity: map[int]int64{}}
		for ; len(steps) >= 3; steps = steps[3:] {
			what, slot, arg := steps[0]%8, int(steps[1])%pods, int(steps[2])
			prompt := slices.Concat(base[0][:arg%16*300], base[arg/16%4][:arg/64*900+200])
			blocks := whole(1, prompt)
			switch what {
			case 6:
				ix.SetCapacity(slot, int64(arg)*64)
				model.capacity[slot] = int64(arg) * 64
				model.evict(slot)
			case 7:
				ix.Remove(slot)
				delete(model.pods, slot)
				delete(model.capacity, slot)
			default:
				ix.Insert(slot, blocks, t0)
				model.insert(slot, blocks)
			}
			got := match(ix, blocks)
			for s := range pods {
				var g int32
				if s < len(got) {
					g = got[s]
				}
				if want := model.match(s, blocks); g != want {
					t.Fatalf("pod %d matches %d bytes, want %d", s, g, want)
				}
			}
		}
		ix.check(t)
	})
}
