package main

import (
	"fmt"
	"math"
	"strings"
	"text/template"
)

// The plot: orders per second over the number of clients, one line per family of setups, with the range over the rounds.
const (
	plotWidth, plotHeight = 640.0, 360.0
	plotLeft, plotTop     = 70.0, 40.0
	legendWidth           = 190.0
)

// plotted are the families that are drawn, and their colours (Okabe and Ito, for every eye).
var plotted = []struct{ family, colour string }{
	{"floor", "#000000"}, {"rows", "#56B4E9"}, {"rows-grouped", "#F0E442"}, {"life", "#D55E00"}, {"life-nobatch", "#E69F00"},
	{"life-2replicas", "#CC79A7"}, {"life-embedded", "#009E73"}, {"floor-hot", "#888888"}, {"life-hot", "#0072B2"},
}

type plot struct {
	Width, Height            float64
	Left, Top, Right, Bottom float64
	Title                    string
	X, Y                     []mark
	Lines                    []plotLine
}

type mark struct {
	At    float64
	Label string
}

type plotLine struct {
	Name, Colour, Points string
	Dots                 []dot
	LegendY              float64
}

type dot struct{ X, Y, Low, High float64 }

var svgTemplate = template.Must(template.New("svg").Parse(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{.Width}} {{.Height}}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="#ffffff"/>
<text x="{{.Left}}" y="22" font-size="15">{{.Title}}</text>
{{- range .Y}}
<line x1="{{$.Left}}" x2="{{$.Right}}" y1="{{.At}}" y2="{{.At}}" stroke="#dddddd"/>
<text x="{{$.Left}}" dx="-8" y="{{.At}}" dy="4" text-anchor="end">{{.Label}}</text>
{{- end}}
{{- range .X}}
<text x="{{.At}}" y="{{$.Bottom}}" dy="20" text-anchor="middle">{{.Label}}</text>
{{- end}}
{{- range .Lines}}
<g stroke="{{.Colour}}" fill="{{.Colour}}">
<polyline points="{{.Points}}" fill="none" stroke-width="2"/>
{{- range .Dots}}
<line x1="{{.X}}" x2="{{.X}}" y1="{{.Low}}" y2="{{.High}}"/>
<circle cx="{{.X}}" cy="{{.Y}}" r="3"/>
{{- end}}
<text x="{{$.Right}}" dx="12" y="{{.LegendY}}" stroke="none">{{.Name}}</text>
</g>
{{- end}}
</svg>
`))

// svg draws the plot.
func (r *report) svg() (string, error) {
	p := plot{Width: plotLeft + plotWidth + legendWidth, Height: plotTop + plotHeight + 40, Left: plotLeft, Top: plotTop,
		Right: plotLeft + plotWidth, Bottom: plotTop + plotHeight, Title: "orders per second, by the number of clients"}
	highest, most := 1.0, 1
	for _, res := range r.drawn() {
		highest, most = max(highest, res.Numbers["per_second"].Max), max(most, res.Clients)
	}
	step := niceStep(highest / 6)
	top := math.Ceil(highest/step) * step
	y := func(v float64) float64 { return round1(p.Bottom - v/top*plotHeight) }
	x := func(clients int) float64 { // logarithmic, with room on both sides
		share := 0.5
		if most > 1 {
			share = 0.04 + 0.92*math.Log(float64(clients))/math.Log(float64(most))
		}
		return round1(plotLeft + share*plotWidth)
	}
	for v := 0.0; v <= top; v += step {
		p.Y = append(p.Y, mark{y(v), fmt.Sprintf("%.0f", v)})
	}
	seen := map[int]bool{}
	for _, f := range plotted {
		l := plotLine{Name: f.family, Colour: f.colour, LegendY: plotTop + 14 + 20*float64(len(p.Lines))}
		var points []string
		for _, res := range r.drawn() {
			if res.setup.family() != f.family {
				continue
			}
			rate := res.Numbers["per_second"]
			d := dot{X: x(res.Clients), Y: y(rate.Median), Low: y(rate.Min), High: y(rate.Max)}
			l.Dots = append(l.Dots, d)
			points = append(points, fmt.Sprintf("%g,%g", d.X, d.Y))
			if !seen[res.Clients] {
				seen[res.Clients] = true
				p.X = append(p.X, mark{d.X, fmt.Sprint(res.Clients)})
			}
		}
		if l.Points = strings.Join(points, " "); len(points) > 0 {
			p.Lines = append(p.Lines, l)
		}
	}
	var b strings.Builder
	err := svgTemplate.Execute(&b, p)
	return b.String(), err
}

func (r *report) drawn() []*result {
	var all []*result
	for _, res := range r.Results {
		for _, f := range plotted {
			if res.setup.family() == f.family {
				all = append(all, res)
			}
		}
	}
	return all
}

// niceStep is the smallest of 1, 2, 5 times a power of ten that is at least v.
func niceStep(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, n := range []float64{1, 2, 5} {
		if n*power >= v {
			return n * power
		}
	}
	return 10 * power
}

func round1(v float64) float64 { return math.Round(v*10) / 10 }
