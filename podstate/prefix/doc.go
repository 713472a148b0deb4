// Package prefix remembers which pods have which beginnings of prompts in their
// KV cache, from the prompts that were sent to them.
//
// A prompt is cut into blocks; the hash of a block covers the prompt up to the
// block's end, so one hash names a whole prefix. Blocks become longer with depth:
// a prompt of any size has a few hundred of them.
package prefix
