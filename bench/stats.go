package main

import (
	"math"
	"slices"
	"time"
)

// percentile returns the smallest value that at least the share q (0..1) of the sorted values does not exceed.
func percentile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	// The small amount taken off keeps 0.99 * 100, which floats make 99.00000000000001, from counting as 100.
	rank := int(math.Ceil(q*float64(len(sorted)) - 1e-9))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// spread is what one number came to in the rounds.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// spreadOf returns the middle and the ends of values; of an even number, the middle is the mean of two.
func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return spread{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Min: sorted[0], Max: sorted[n-1]}
}

// ratios divides what was measured in the same round, so that a machine that was slow in a round was so for both. Rounds
// that lack one of the two are left out.
func ratios(of, to map[int]float64) []float64 {
	var all []float64
	for round, v := range of {
		if base := to[round]; base > 0 {
			all = append(all, v/base)
		}
	}
	return all
}
