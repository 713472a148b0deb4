package config

import (
	"slices"
	"strconv"
	"strings"
)

// choose says what somebody who wrote got may have meant, and what there is.
func choose(got string, allowed []string) string {
	allowed = slices.Sorted(slices.Values(allowed))
	text := strconv.Quote(clip(got))
	if best := nearest(got, allowed); best != "" {
		text += "; did you mean " + strconv.Quote(best) + "?"
	} else {
		text += ";"
	}
	return text + " allowed: " + strings.Join(allowed, ", ")
}

// nearest returns the one of allowed that needs the fewest edits, if a third of
// its letters or fewer have to change; more is no slip of the pen.
func nearest(got string, allowed []string) string {
	fold := func(s string) string { return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(s)) }
	best, least := "", 1<<30
	for _, a := range allowed {
		d := edits(fold(got), fold(a))
		if d < least && d <= max(1, len(a)/3) && d < len(a) {
			best, least = a, d
		}
	}
	return best
}

// edits is the Levenshtein distance between a and b, in bytes.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
