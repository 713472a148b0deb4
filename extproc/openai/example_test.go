package openai_test

import (
	"fmt"

	"github.com/warmpath/warmpath/extproc/openai"
)

func ExampleRequest_Scan() {
	body := []byte(`{"messages":[{"role":"user","content":"How are you?"}],"tools":[],"model":"llama","stream":true}`)

	var r openai.Request // keep it for the next request
	if err := r.Scan(openai.ParsePath("/v1/chat/completions"), body); err != nil {
		fmt.Println(err)
	}
	fmt.Println(r.Model, r.Stream, r.Tokens(4))
	for _, p := range r.Prompt {
		fmt.Printf("%s\n", body[p.Start:p.End])
	}
	fmt.Printf("%s\n", openai.SpliceModel(nil, body, &r, "llama-canary"))
	// Output:
	// llama true 7
	// []
	// [{"role":"user","content":"How are you?"}]
	// {"messages":[{"role":"user","content":"How are you?"}],"tools":[],"model":"llama-canary","stream":true}
}

func ExampleResponse() {
	var r openai.Response
	r.Reset()
	for _, chunk := range []string{
		": keep-alive\n\n",
		"data: {\"choices\":[{\"delta\":{\"content\":\"Fi",
		"ne\"}}]}\n\n",
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n",
	} {
		r.Write([]byte(chunk), false)
		fmt.Println(r.FirstToken, r.Usage.Prompt)
	}
	// Output:
	// false 0
	// false 0
	// true 0
	// true 12
}
