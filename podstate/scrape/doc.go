// Package scrape reads what model servers report about themselves and writes it
// into a podstate.Table.
//
// It knows every engine's series (engines.go), reads only those of an
// exposition (parse.go), aggregates them over data-parallel engines and ranks
// (read.go), and keeps one loop per pod (scraper.go).
package scrape
