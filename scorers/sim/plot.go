package sim

import (
	"bytes"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
)

// Size of the plot and of its margins, in pixels.
const (
	plotWidth, plotHeight = 760, 440
	plotLeft, plotRight   = 70, 170
	plotTop, plotBottom   = 40, 50
	plotInnerWidth        = plotWidth - plotLeft - plotRight
	plotInnerHeight       = plotHeight - plotTop - plotBottom
)

var colours = []string{"#1b6ca8", "#d1495b", "#66a182", "#edae49", "#8d5a97", "#2e4057", "#00798c", "#a44a3f", "#5f5f5f", "#b5838d"}

// plotFile names the file for the plot of a scenario. Where there are several,
// each has in its name what it is of.
func (s *settings) plotFile(sc *Scenario) string {
	name := ""
	if len(s.scenarios) > 1 {
		name += "-" + sc.Name
	}
	if len(s.scrapes) > 1 {
		name += "-" + sc.Scrape.String()
	}
	if len(s.routers) > 1 {
		name += "-" + strconv.Itoa(sc.Routers)
	}
	if s.svg == "" || name == "" {
		return s.svg
	}
	ext := filepath.Ext(s.svg)
	return strings.TrimSuffix(s.svg, ext) + name + ext
}

// svg draws p99 (solid) and p50 (dashed) of the time to first token against
// the density of the load, seconds on a logarithmic scale.
func (r *result) svg() []byte {
	low, high := math.Inf(1), 0.0
	for k := range r.runs {
		for p := range r.runs[k] {
			for _, v := range []float64{r.ttft(k, p, 0), r.ttft(k, p, 3)} {
				if finite(v) {
					low, high = min(low, v), max(high, v)
				}
			}
		}
	}
	if high == 0 {
		low, high = 0.1, 1
	}
	bottom, top := math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))
	top = max(top, bottom+1)
	left, right := r.scales[0], r.scales[len(r.scales)-1]
	x := func(scale float64) float64 {
		if right == left {
			return plotLeft + plotInnerWidth/2
		}
		return plotLeft + plotInnerWidth*(scale-left)/(right-left)
	}
	y := func(v float64) float64 {
		return plotTop + plotInnerHeight*(top-math.Log10(v))/(top-bottom)
	}

	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/><text x="%d" y="22" font-size="14">%s: %s</text>`+"\n", plotLeft, escape(r.scenario.Name), escape(r.scenario.About))
	for e := bottom; e <= top; e++ {
		at := y(math.Pow(10, e))
		fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%g s</text>`+"\n",
			plotLeft, plotLeft+plotInnerWidth, at, at, plotLeft-6, at+4, math.Pow(10, e))
	}
	for _, s := range r.scales {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">×%g</text>`+"\n", x(s), plotTop+plotInnerHeight+18, s)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">load; solid: p99 TTFT, dashed: p50</text>`+"\n", plotLeft+plotInnerWidth/2, plotHeight-12)
	for p, name := range r.policies {
		colour := colours[p%len(colours)]
		for _, line := range []struct {
			which int
			dash  string
		}{{3, ""}, {0, ` stroke-dasharray="5 4"`}} {
			var points []string
			for k, s := range r.scales {
				if v := r.ttft(k, p, line.which); finite(v) {
					points = append(points, fmt.Sprintf("%.1f,%.1f", x(s), y(v)))
				}
			}
			fmt.Fprintf(&b, `<polyline fill="none" stroke="%s" stroke-width="2"%s points="%s"/>`+"\n", colour, line.dash, strings.Join(points, " "))
		}
		at := plotTop + 16*p
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="12" height="4" fill="%s"/><text x="%d" y="%d">%s</text>`+"\n",
			plotLeft+plotInnerWidth+12, at+4, colour, plotLeft+plotInnerWidth+30, at+10, escape(name))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace
