package scrape

import (
	"slices"
	"strings"
	"time"
)

// quantity is something that a series tells about a pod.
type quantity uint8

const (
	running       quantity = iota // requests in the batch
	waiting                       // requests that wait to enter it
	deferred                      // those of them that wait for an adapter slot
	kvUsage                       // 0 to 1
	kvPercent                     // 0 to 100
	kvUsedTokens                  //
	kvTokens                      // capacity
	kvUsedBlocks                  //
	kvBlocks                      // capacity
	blockTokens                   // tokens in one block
	maxRunning                    // largest batch
	maxModelLen                   // prompt plus output, tokens
	prefixQueries                 // counter, tokens
	prefixHits                    // counter, tokens
	promptTokens                  // counter, cached ones included
	genTokens                     // counter
	preemptions                   // counter
	awake                         // 1, or 0 while the weights are unloaded
	maxAdapters                   // LoRA slots
	adapters                      // LoRA adapters in slots; see lora.go
	startTime                     // of the process, unix seconds
	quantities                    // how many there are
)

// quantityNames are the names of the quantities in a mapping.
var quantityNames = [quantities]string{
	"running", "waiting", "deferred", "kvUsage", "kvPercent", "kvUsedTokens", "kvTokens", "kvUsedBlocks",
	"kvBlocks", "blockTokens", "maxRunning", "maxModelLen", "prefixQueries", "prefixHits", "promptTokens",
	"generationTokens", "preemptions", "awake", "maxAdapters", "adapters", "startTime",
}

// row says that a series tells a quantity. Of several rows for one quantity the
// first whose series is present counts, so new names stand before old ones.
type row struct {
	is    quantity
	name  string
	where string // name=value or name!=value of a label that the sample must have; empty: any sample
	label string // the label whose text is the value; empty: the sample's value
	plus  bool   // it is added to the other rows of its quantity, which exclude it
}

// Headers is what it means that a pod's response headers have arrived. Only
// HeadersFirstToken measures the time to the first token.
type Headers uint8

const (
	HeadersUnknown    Headers = iota
	HeadersAccepted           // the API server has taken the request; the engine has not seen it
	HeadersSlot               // the request has left the queue; its prompt is being processed
	HeadersFirstToken         // the first token is there
)

// String says it in a few words.
func (h Headers) String() string {
	return [...]string{
		HeadersUnknown:    "nothing that is known",
		HeadersAccepted:   "accepted",
		HeadersSlot:       "slot assigned",
		HeadersFirstToken: "first token",
	}[h]
}

// engine is one kind of model server.
type engine struct {
	name    string
	prefix  string        // of a series that only this engine has, among those after it in the list
	label   string        // the same of a label, among the series at path
	path    string        // of its metrics
	named   bool          // path + "/?name[]=…" sends the named series only
	floor   time.Duration // scraping the metrics faster harms the server, or gains nothing
	headers Headers       // unknown where nobody has measured it
	load    *instant
	card    string // path of what says which models it serves, and how long their context is
	rows    []row
}

// sumLabels are the labels by which a quantity is split: the whole is the sum
// over them. Two series that differ in other labels only (pid, tp_rank,
// pp_rank, moe_ep_rank and whatever comes) are the same quantity seen twice: the
// larger one counts.
var sumLabels = []string{
	"engine", "dp_rank", "is_streaming", "model_name", "model", "WorkerId", "ReplicaId", "worker_id", "cache_source",
}

// engines is the catalogue. An exposition belongs to the first one of which it has
// a sign.
var engines = []*engine{
	{name: "dynamo", prefix: "dynamo_component_", path: "/metrics",
		rows: slices.Concat(vllmRows, sglangRows, trtllmRows, trtllmColonRows, dynamoRows)},
	{name: "ray", prefix: "ray_vllm", path: "/metrics",
		rows: slices.Concat(renamed(vllmRows, "vllm:", "ray_vllm_"), renamed(vllmRows, "vllm:", "ray_vllm:"))},
	{name: "triton-trtllm", prefix: "nv_trt_llm_", path: "/metrics", rows: tritonRows},
	// With the vLLM backend the prefix vllm: appears, but no gauge of vLLM.
	{name: "triton", prefix: "nv_inference_", path: "/metrics", rows: []row{
		{is: waiting, name: "nv_inference_pending_request_count"},
		{is: promptTokens, name: "vllm:prompt_tokens_total"},
		{is: genTokens, name: "vllm:generation_tokens_total"},
	}},
	{name: "vllm", prefix: "vllm:", path: "/metrics", named: true,
		headers: HeadersAccepted, load: vllmLoad, card: "/v1/models", rows: vllmRows},
	// Its gauges move at prefill batches and every 40 decode steps, and a scrape
	// blocks the HTTP loop: /v1/loads is for haste.
	{name: "sglang", prefix: "sglang:", path: "/metrics", floor: time.Second,
		headers: HeadersFirstToken, load: sglangLoads, card: "/v1/models", rows: sglangRows},
	// Its first versions have no prefix, and none of the series that we read.
	{name: "trtllm", prefix: "trtllm", label: "engine_type", path: "/prometheus/metrics", card: "/v1/models", rows: slices.Concat(trtllmRows, trtllmColonRows)},
	{name: "tgi", prefix: "tgi_", path: "/metrics", card: "/info", rows: []row{
		{is: running, name: "tgi_batch_current_size"},
		{is: waiting, name: "tgi_queue_size"},
		{is: kvUsedTokens, name: "tgi_batch_current_max_tokens"},
		{is: kvTokens, name: "tgi_batch_max_total_tokens"},
		{is: promptTokens, name: "tgi_request_input_length_sum"},
		{is: genTokens, name: "tgi_request_generated_tokens_sum"},
	}},
	// Scraping it fast has frozen a build.
	{name: "llamacpp", prefix: "llamacpp:", path: "/metrics", floor: time.Second,
		headers: HeadersSlot, load: llamaSlots, rows: []row{
			{is: running, name: "llamacpp:requests_processing"},
			{is: waiting, name: "llamacpp:requests_deferred"},
			{is: kvUsage, name: "llamacpp:kv_cache_usage_ratio"}, // removed in 2025
			{is: promptTokens, name: "llamacpp:prompt_tokens_total"},
			{is: promptTokens, name: "llamacpp:prompt_tokens_cached_total", plus: true},
			{is: prefixHits, name: "llamacpp:prompt_tokens_cached_total"},
			{is: prefixQueries, name: "llamacpp:prompt_tokens_total"},
			{is: prefixQueries, name: "llamacpp:prompt_tokens_cached_total", plus: true},
			{is: genTokens, name: "llamacpp:tokens_predicted_total"},
		}},
	{name: "lmdeploy", prefix: "lmdeploy:", path: "/metrics", card: "/v1/models", rows: []row{
		{is: running, name: "lmdeploy:num_requests_running"},
		{is: waiting, name: "lmdeploy:num_requests_waiting"},
		{is: waiting, name: "lmdeploy:num_api_requests_waiting", plus: true}, // its front end's queue
		{is: kvUsage, name: "lmdeploy:gpu_cache_usage_perc"},
		{is: prefixHits, name: "lmdeploy:cached_tokens_total"},
		{is: prefixQueries, name: "lmdeploy:prompt_tokens_total"},
		{is: promptTokens, name: "lmdeploy:prompt_tokens_total"},
		{is: genTokens, name: "lmdeploy:generation_tokens_total"},
	}},
	// Newer ones are vLLM or SGLang inside, and are detected as such.
	{name: "nim", prefix: "num_requests_running", path: "/v1/metrics", card: "/v1/models", rows: []row{
		{is: running, name: "num_requests_running"},
		{is: waiting, name: "num_requests_waiting"},
		{is: maxRunning, name: "num_request_max"},
		{is: kvUsage, name: "gpu_cache_usage_perc"},
		{is: promptTokens, name: "prompt_tokens_total"},
		{is: genTokens, name: "generation_tokens_total"},
		{is: startTime, name: "process_start_time_seconds"},
	}},
	// Nothing but the mapping of the config.
	{name: "generic", path: "/metrics"},
}

var vllmRows = []row{
	{is: running, name: "vllm:num_requests_running"},
	{is: waiting, name: "vllm:num_requests_waiting"},
	{is: deferred, name: "vllm:num_requests_waiting_by_reason", where: "reason=deferred"},
	{is: kvUsage, name: "vllm:kv_cache_usage_perc"},
	{is: kvUsage, name: "vllm:gpu_cache_usage_perc"}, // until 0.9
	{is: kvTokens, name: "vllm:cache_config_info", label: "kv_cache_size_tokens"},
	{is: kvBlocks, name: "vllm:cache_config_info", label: "num_gpu_blocks"},
	{is: blockTokens, name: "vllm:cache_config_info", label: "block_size"},
	{is: prefixQueries, name: "vllm:prefix_cache_queries_total"},
	{is: prefixQueries, name: "vllm:gpu_prefix_cache_queries_total"}, // 0.8
	{is: prefixHits, name: "vllm:prefix_cache_hits_total"},
	{is: prefixHits, name: "vllm:gpu_prefix_cache_hits_total"},
	{is: promptTokens, name: "vllm:prompt_tokens_total"},
	{is: genTokens, name: "vllm:generation_tokens_total"},
	{is: preemptions, name: "vllm:num_preemptions_total"},
	{is: awake, name: "vllm:engine_sleep_state", where: "sleep_state=awake"},
	{is: adapters, name: "vllm:lora_requests_info"},
	{is: maxAdapters, name: "vllm:lora_requests_info", label: "max_lora"},
	{is: startTime, name: "process_start_time_seconds"},
}

var sglangRows = []row{
	{is: running, name: "sglang:num_running_reqs"},
	{is: waiting, name: "sglang:num_queue_reqs"},
	{is: waiting, name: "sglang:num_grammar_queue_reqs", plus: true},
	{is: waiting, name: "sglang:num_prefill_bootstrap_queue_reqs", plus: true}, // a prefill pod's
	{is: waiting, name: "sglang:num_prefill_prealloc_queue_reqs", plus: true},  // its old name
	{is: waiting, name: "sglang:num_prefill_inflight_queue_reqs", plus: true},
	{is: waiting, name: "sglang:num_decode_prealloc_queue_reqs", plus: true}, // a decode pod's
	{is: waiting, name: "sglang:num_decode_transfer_queue_reqs", plus: true},
	{is: kvUsage, name: "sglang:token_usage"}, // unlike num_used_tokens, without what can be evicted
	{is: kvTokens, name: "sglang:max_total_num_tokens"},
	{is: kvBlocks, name: "sglang:num_pages"},
	{is: kvBlocks, name: "sglang:cache_config_info", label: "num_pages"}, // until 0.5.10
	{is: blockTokens, name: "sglang:page_size"},
	{is: blockTokens, name: "sglang:cache_config_info", label: "page_size"},
	{is: maxModelLen, name: "sglang:context_len"},
	// Not cache_hit_rate, which is that of the last batch. A request counts under
	// its sources or, without details, under "total"; never add the two.
	{is: prefixHits, name: "sglang:cached_tokens_total", where: "cache_source!=total"},
	{is: prefixHits, name: "sglang:cached_tokens_total", where: "cache_source=total"},
	{is: prefixQueries, name: "sglang:prompt_tokens_total"},
	{is: promptTokens, name: "sglang:prompt_tokens_total"},
	{is: genTokens, name: "sglang:generation_tokens_total"},
	{is: preemptions, name: "sglang:num_retracted_requests_total"},
	{is: maxAdapters, name: "sglang:lora_pool_slots_total"},
}

var trtllmRows = []row{
	{is: running, name: "trtllm_num_requests_running"},
	{is: waiting, name: "trtllm_num_requests_waiting"},
	{is: kvUsage, name: "trtllm_kv_cache_utilization"},
	{is: kvUsedBlocks, name: "trtllm_kv_cache_used_blocks"},
	{is: kvBlocks, name: "trtllm_kv_cache_max_blocks"},
	{is: blockTokens, name: "trtllm_kv_cache_tokens_per_block"},
	{is: maxRunning, name: "trtllm_max_num_active_requests"},
	{is: maxModelLen, name: "trtllm_model_config_info", label: "max_model_len"},
	{is: prefixHits, name: "trtllm_prompt_cached_tokens_total"},
	{is: prefixQueries, name: "trtllm_prompt_tokens_total"},
	{is: promptTokens, name: "trtllm_prompt_tokens_total"},
	{is: genTokens, name: "trtllm_generation_tokens_total"},
}

// Dynamo once passed TensorRT-LLM's series on with a colon.
var trtllmColonRows = renamed(trtllmRows, "trtllm_", "trtllm:")

var tritonRows = []row{
	{is: running, name: "nv_trt_llm_request_metrics", where: "request_type=active"},
	{is: running, name: "nv_trt_llm_request_metrics", where: "request_type=scheduled"},
	{is: waiting, name: "nv_trt_llm_request_metrics", where: "request_type=waiting"},
	{is: maxRunning, name: "nv_trt_llm_request_metrics", where: "request_type=max"},
	// Not "fraction", which the documented sample shows at odds with these.
	{is: kvUsedBlocks, name: "nv_trt_llm_kv_cache_block_metrics", where: "kv_cache_block_type=used"},
	{is: kvBlocks, name: "nv_trt_llm_kv_cache_block_metrics", where: "kv_cache_block_type=max"},
	{is: blockTokens, name: "nv_trt_llm_kv_cache_block_metrics", where: "kv_cache_block_type=tokens_per"},
}

var dynamoRows = []row{
	{is: kvUsage, name: "dynamo_component_gpu_cache_usage_percent"}, // 0 to 1 in spite of its name
	{is: kvBlocks, name: "dynamo_component_total_blocks"},
}

// renamed returns the rows with another prefix for their series.
func renamed(rows []row, old, prefix string) []row {
	out := make([]row, len(rows))
	for i, r := range rows {
		if rest, ok := strings.CutPrefix(r.name, old); ok {
			r.name = prefix + rest
		}
		out[i] = r
	}
	return out
}

// Auto is the name of the engine that is detected from what a pod sends.
const Auto = "auto"

// EngineNames returns the names that a pool may have as its engine.
func EngineNames() []string {
	list := []string{Auto}
	for _, e := range engines {
		list = append(list, e.name)
	}
	return list
}

// HeadersOf says what the response headers of an engine mean.
func HeadersOf(name string) Headers {
	for _, e := range engines {
		if e.name == name {
			return e.headers
		}
	}
	return HeadersUnknown
}
