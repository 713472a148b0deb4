// Package engine models a model server with continuous batching, chunked
// prefill, a paged KV cache with prefix reuse, and LoRA slots.
//
// It is a state machine over somebody else's clock: every time is a duration
// since an origin that the caller chooses. A simulator jumps from Next to Next;
// a server that pretends to be a GPU sleeps until Next. Nothing here reads a
// clock, blocks or starts a goroutine, and an Engine is for one goroutine at a
// time.
//
// What is modelled follows what a real vLLM server was seen to do:
//
//   - A step computes one token of every decoding request and spends what is
//     left of its token budget on prompts, in order of arrival. A prompt that
//     does not fit takes the whole rest of each step until its last chunk.
//   - What a server reports about itself moves only when a step ends, and then
//     knows only of requests that came before the step began.
//   - Whole blocks are cached, prompt and output alike, from the moment their
//     computation is scheduled; the last token of a prompt is always computed.
//   - The least recently used block goes first, of one request the last one.
//   - Without a free block, the request that entered the batch last leaves it
//     and is computed again later.
//   - A request whose adapter finds no slot waits without holding up others.
package engine
