// Package sim plays loads against model servers that do not exist, on a clock
// that does not wait, to compare ways of placing requests.
//
// Only the servers (package engine) and the clock are models. What decides is
// what decides in production: podstate.Table, prefix.Index and scorers.Profile,
// fed with scrapes that are as old, and prompts that are as well known, as in
// production.
//
// Every policy sees the same arrivals, lengths and texts for a seed, so that
// differences between policies are differences of policies.
package sim
