package scrape

import (
	"fmt"
	"slices"
	"strings"
)

// readerOf returns a reader for an engine. Rows of extra come before its own.
func readerOf(name string, extra ...row) *reader {
	i := slices.IndexFunc(engines, func(e *engine) bool { return e.name == name })
	return newReader(compile(engines[i], extra))
}

// vllmText is an exposition as vLLM 0.32 with these many data-parallel engines
// sends it: every family, 53 to 58 KB for one engine. Requests running and
// waiting are the number of the engine plus 3 and plus 1.
func vllmText(engines int) string {
	var b strings.Builder
	family := func(name, kind, help string) { fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind) }
	each := func(f func(labels string, i int)) {
		for i := range engines {
			f(fmt.Sprintf(`engine="%d",model_name="meta-llama/Llama-3.1-8B-Instruct"`, i), i)
		}
	}
	family("python_gc_objects_collected_total", "counter", "Objects collected during gc")
	for g := range 3 {
		fmt.Fprintf(&b, "python_gc_objects_collected_total{generation=\"%d\"} 9071.0\n", g)
	}
	family("process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.")
	b.WriteString("process_start_time_seconds 1.79605930121e+09\n")

	gauge := func(name, help string, value func(i int) float64) {
		family(name, "gauge", help)
		each(func(l string, i int) { fmt.Fprintf(&b, "%s{%s} %.17g\n", name, l, value(i)) })
	}
	gauge("vllm:num_requests_running", "Number of requests in model execution batches.", func(i int) float64 { return float64(i + 3) })
	gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", func(i int) float64 { return float64(i + 1) })
	family("vllm:num_requests_waiting_by_reason", "gauge", "Waiting requests by reason.")
	each(func(l string, i int) {
		fmt.Fprintf(&b, "vllm:num_requests_waiting_by_reason{%s,reason=\"capacity\"} %d.0\n", l, i)
		fmt.Fprintf(&b, "vllm:num_requests_waiting_by_reason{%s,reason=\"deferred\"} 1.0\n", l)
	})
	family("vllm:engine_sleep_state", "gauge", "Engine sleep state; awake = 1 means engine is awake.")
	each(func(l string, i int) {
		fmt.Fprintf(&b, "vllm:engine_sleep_state{%s,sleep_state=\"awake\"} 1.0\n", l)
		fmt.Fprintf(&b, "vllm:engine_sleep_state{%s,sleep_state=\"weights_offloaded\"} 0.0\n", l)
		fmt.Fprintf(&b, "vllm:engine_sleep_state{%s,sleep_state=\"discard_all\"} 0.0\n", l)
	})
	gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", func(i int) float64 { return 0.25 + 0.5*float64(i) })

	counter := func(name string, labels ...string) {
		family(name+"_total", "counter", "A counter of the engine, in tokens or requests.")
		for _, label := range labels {
			each(func(l string, i int) { fmt.Fprintf(&b, "%s_total{%s%s} %d000.0\n", name, l, label, i+1) })
		}
		family(name+"_created", "gauge", "A counter of the engine, in tokens or requests.")
		for _, label := range labels {
			each(func(l string, i int) { fmt.Fprintf(&b, "%s_created{%s%s} 1.796059322735521e+09\n", name, l, label) })
		}
	}
	for _, name := range []string{
		"prefix_cache_queries", "prefix_cache_hits", "external_prefix_cache_queries", "external_prefix_cache_hits",
		"mm_cache_queries", "mm_cache_hits", "num_preemptions", "prompt_tokens", "generation_tokens", "prompt_tokens_cached",
		"estimated_flops_per_gpu", "estimated_read_bytes_per_gpu", "estimated_write_bytes_per_gpu",
	} {
		counter("vllm:"+name, "")
	}
	counter("vllm:request_success", `,finished_reason="stop"`, `,finished_reason="length"`, `,finished_reason="abort"`,
		`,finished_reason="error"`, `,finished_reason="repetition"`)

	family("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig")
	each(func(_ string, i int) {
		b.WriteString("vllm:cache_config_info{")
		for _, l := range []string{
			`_block_size_resolved="True"`, `block_size="128"`, `cache_dtype="auto"`, `cache_hit_alignment_tokens="None"`,
			`enable_prefix_caching="True"`, fmt.Sprintf(`engine="%d"`, i), `gpu_memory_utilization="0.92"`, `hash_block_size="None"`,
			`is_attention_free="False"`, `kv_cache_dtype_skip_layers="[]"`, `kv_cache_layout="None"`, `kv_cache_max_concurrency="256.0"`,
			`kv_cache_memory_bytes="None"`, `kv_cache_size_tokens="2097152"`, `kv_offloading_backend="native"`,
			`kv_offloading_size="None"`, `kv_sharing_fast_prefill="False"`, `mamba_block_size="None"`, `mamba_cache_dtype="auto"`,
			`mamba_cache_mode="none"`, `mamba_page_size_padded="None"`, `mamba_ssm_cache_dtype="auto"`, `num_cpu_blocks="None"`,
			`num_gpu_blocks="16384"`, `num_gpu_blocks_override="None"`, `prefix_caching_hash_algo="sha256"`, `sliding_window="None"`,
			`user_specified_block_size="False"`,
		} {
			b.WriteString(l + ",")
		}
		b.WriteString("} 1.0\n")
	})

	for _, name := range []string{
		"time_to_first_token_seconds", "inter_token_latency_seconds", "request_time_per_output_token_seconds",
		"e2e_request_latency_seconds", "request_queue_time_seconds", "request_inference_time_seconds",
		"request_prefill_time_seconds", "request_decode_time_seconds", "iteration_tokens_total", "request_prompt_tokens",
		"request_generation_tokens", "request_params_max_tokens", "request_params_n", "request_max_num_generation_tokens",
		"request_prefill_kv_computed_tokens", "request_num_preemptions",
	} {
		name = "vllm:" + name
		family(name, "histogram", "Histogram of a time in seconds or of a number of tokens.")
		each(func(l string, i int) {
			for _, le := range []string{
				"0.001", "0.005", "0.01", "0.02", "0.04", "0.06", "0.08", "0.1", "0.25", "0.5", "0.75", "1.0", "2.5",
				"5.0", "7.5", "10.0", "20.0", "40.0", "80.0", "160.0", "640.0", "2560.0", "+Inf",
			} {
				fmt.Fprintf(&b, "%s_bucket{%s,le=%q} 4711.0\n", name, l, le)
			}
			fmt.Fprintf(&b, "%s_count{%s} 4711.0\n%s_sum{%s} 1234.56789\n", name, l, name, l)
		})
		family(name+"_created", "gauge", "Histogram of a time in seconds or of a number of tokens.")
		each(func(l string, i int) { fmt.Fprintf(&b, "%s_created{%s} 1.796059322735521e+09\n", name, l) })
	}
	family("http_requests_total", "counter", "Total number of requests by method, status and handler.")
	b.WriteString("http_requests_total{handler=\"/v1/chat/completions\",method=\"POST\",status=\"2xx\"} 4711.0\n")
	return b.String()
}
