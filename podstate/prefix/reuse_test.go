package prefix

import (
	"math"
	"testing"
	"time"
)

func TestReuse(t *testing.T) {
	ix := NewIndex(0)
	system, prompt := whole(1, text(1, 1024)), whole(1, append(text(1, 1024), text(2, 1024)...))
	want := func(rule string, blocks []Block, at time.Duration, perSecond float64) {
		t.Helper()
		var m Match
		ix.Match(blocks, t0.Add(at), &m)
		if math.Abs(m.Reuse-perSecond) > 0.01*perSecond {
			t.Errorf("%s: %.4f uses a second, want %.4f", rule, m.Reuse, perSecond)
		}
	}
	want("an empty index", prompt, 0, 0)
	ix.Insert(0, system, t0)
	want("what was used once", prompt, time.Second, 0)
	for i := range 20 {
		ix.Insert(0, system, t0.Add(time.Duration(i)*time.Second/2))
	}
	last := 19 * time.Second / 2
	want("twice a second", prompt, last+time.Second/2, 2)
	want("less, if it is not used any more", prompt, last+10*time.Second, 1/(0.7*0.5+0.3*10))
	want("calls that have waited for each other", prompt, last-time.Second, 1/(0.7*0.5))
	ix.Insert(1, system, t0)
	ix.Insert(1, system, t0.Add(8*time.Second))
	want("that of the pod that uses it most", prompt, last+time.Second/2, 2)
	ix.Insert(1, prompt, t0.Add(last))
	want("that of the longest part alone, which was used once", prompt, last+time.Second/2, 0)
	ix.Insert(2, system, t0)
	ix.Insert(2, system, t0)
	want("twice in the same instant", system, 0, 1000/0.7)
}

func TestRetention(t *testing.T) {
	ix := NewIndex(0)
	a, b := whole(1, text(1, 1024)), whole(1, text(2, 1024))
	want := func(rule string, slot int, at, keeps time.Duration) {
		t.Helper()
		var m Match
		ix.Match(b, t0.Add(at), &m)
		if got := float64(m.Retention[slot]); math.Abs(got-keeps.Seconds()) > 0.01*keeps.Seconds() {
			t.Errorf("%s: %.3f s, want %.3f", rule, got, keeps.Seconds())
		}
	}
	ix.Insert(1, b, t0)
	want("a capacity that is not known", 1, time.Minute, 0)
	want("a pod that holds nothing", 0, time.Minute, 0)
	ix.SetCapacity(0, 2048)
	ix.Insert(0, a, t0)
	want("half full after ten seconds: full after twenty", 0, 10*time.Second, 20*time.Second)
	ix.Insert(0, b, t0.Add(10*time.Second))
	want("full: the age of the oldest", 0, 30*time.Second, 30*time.Second)
	ix.Insert(0, a, t0.Add(30*time.Second))
	want("that is the other one after a use", 0, 30*time.Second, 20*time.Second)
	ix.Insert(0, whole(1, text(3, 1024)), t0.Add(40*time.Second))
	want("and the first again when that one is evicted", 0, 40*time.Second, 10*time.Second)
	ix.check(t)
}
