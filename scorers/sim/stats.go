package sim

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Ratio is by how much one policy's values are larger than another's, over
// paired seeds: the geometric mean and a 95 % confidence interval.
type Ratio struct{ Value, Low, High float64 }

// Tie reports whether the difference may be chance.
func (r Ratio) Tie() bool { return r.Low <= 1 && r.High >= 1 }

const resamples = 10_000

// ratio compares values of the same seeds, by a bootstrap over the seeds.
func ratio(x, reference []float64) Ratio {
	logs := make([]float64, 0, len(x))
	for i := range x {
		if finite(x[i]) && finite(reference[i]) {
			logs = append(logs, math.Log(x[i]/reference[i]))
		}
	}
	if len(logs) == 0 {
		return Ratio{math.NaN(), math.NaN(), math.NaN()}
	}
	rng := rand.New(rand.NewPCG(1, 2)) // the same table every time
	means := make([]float64, resamples)
	for i := range means {
		for range logs {
			means[i] += logs[rng.IntN(len(logs))]
		}
		means[i] /= float64(len(logs))
	}
	slices.Sort(means)
	return Ratio{math.Exp(mean(logs)), math.Exp(quantile(means, 0.025)), math.Exp(quantile(means, 0.975))}
}

func mean(x []float64) (m float64) {
	for _, v := range x {
		m += v / float64(len(x))
	}
	return m
}

func median(x []float64) float64 {
	if len(x) == 0 {
		return math.NaN()
	}
	return quantile(slices.Sorted(slices.Values(x)), 0.5)
}

// collapse is by how much a seed's mean TTFT must exceed that of the best policy
// with the same seed to be called collapsed. Placement that feeds its own misses
// is good with one seed and hopeless with the next; a mean over seeds hides it.
// So is a seed with which no request got a token, if some got one by another.
const collapse = 5

// collapsed counts the collapsed seeds of each policy.
func collapsed(runs [][]Measures) []int {
	n := make([]int, len(runs))
	if len(runs) == 0 {
		return n
	}
	for seed := range runs[0] {
		best := math.Inf(1)
		for p := range runs {
			best = min(best, came(runs[p][seed].TTFT.Mean))
		}
		for p := range runs {
			if came(runs[p][seed].TTFT.Mean) > collapse*best {
				n[p]++
			}
		}
	}
	return n
}
