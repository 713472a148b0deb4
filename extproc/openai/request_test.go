package openai

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// bodies are requests of every API. They seed the fuzz targets too.
var bodies = []struct {
	name string
	kind Kind
	json string

	prompt  string // the spans, joined by |
	prompts int
	text    int // bytes
	ids     int
	media   int
	blobs   int
}{
	{"a chat's text is what its strings hold", Chat,
		`{"model":"m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}]}`,
		`[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}]`, 1, 11, 0, 0, 0},
	{"tools come before messages, whatever their order", Chat,
		`{"messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"function"}],"tool_choice":"auto"}`,
		`[{"type":"function"}]|[{"role":"user","content":"Hi"}]`, 1, 23, 0, 0, 0},
	{"tools may be of any shape", Chat,
		`{"tools":{"a":1},"functions":"f","messages":"Hi"}`, `"f"|{"a":1}|"Hi"`, 1, 12, 0, 0, 0},
	{"space between the tokens of tools is no text", Chat,
		"{\"tools\": [ {\n  \"a\" : 1 } ]}", "[ {\n  \"a\" : 1 } ]", 0, 9, 0, 0, 0},
	{"a call of a tool is text", Chat,
		`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1","arguments":"{}"}]},{"role":"tool","tool_call_id":"1","content":"4"}]}`,
		`[{"role":"assistant","content":null,"tool_calls":[{"id":"1","arguments":"{}"}]},{"role":"tool","tool_call_id":"1","content":"4"}]`, 1, 29 + 1, 0, 0, 0},
	{"content may be parts, or a list of strings", Chat,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"ab"},"cd"]}]}`,
		`[{"role":"user","content":[{"type":"text","text":"ab"},"cd"]}]`, 1, 4, 0, 0, 0},
	{"an image by URL is media without a blob", Chat,
		`{"messages":[{"content":[{"type":"image_url","image_url":"https://x/y.png"},{"text":"what?"}]}]}`,
		`[{"content":[{"type":"image_url","image_url":"https://x/y.png"},{"text":"what?"}]}]`, 1, 5, 0, 1, 0},
	{"an encoded image is a blob and no text", Chat,
		`{"messages":[{"content":[{"image_url":{"url":"data:image/png;base64,` + base64 + `"}}]}]}`,
		`[{"content":[{"image_url":{"url":"data:image/png;base64,` + base64 + `"}}]}]`, 1, 0, 0, 1, 1},
	{"encoded sound is a blob without a data URL", Chat,
		`{"messages":[{"content":[{"input_audio":{"data":"` + base64 + `","format":"wav"}}]}]}`,
		`[{"content":[{"input_audio":{"data":"` + base64 + `","format":"wav"}}]}]`, 1, 0, 0, 1, 1},
	{"a data URL in a part that we do not know is media", Chat,
		`{"messages":[{"content":[{"scan":"data:image/png;base64,` + base64 + `"}]}]}`,
		`[{"content":[{"scan":"data:image/png;base64,` + base64 + `"}]}]`, 1, 2, 0, 1, 1},
	{"text that looks like base64 is text", Chat,
		`{"messages":[{"content":"data:image/png;base64,` + base64 + `"}]}`,
		`[{"content":"data:image/png;base64,` + base64 + `"}]`, 1, 22 + len(base64), 0, 0, 0},
	{"null media is none", Chat,
		`{"messages":[{"content":"ab","audio":null}]}`, `[{"content":"ab","audio":null}]`, 1, 2, 0, 0, 0},
	{"a list of conversations is a batch", Chat,
		`{"messages":[[{"content":"a"}],[{"content":"bc"}]]}`, `[[{"content":"a"}],[{"content":"bc"}]]`, 2, 3, 0, 0, 0},
	{"escapes count as the bytes that they stand for", Completions,
		`{"prompt":"a\n\u00e9\u4e2d\ud83d\ude00\u0041"}`, `"a\n\u00e9\u4e2d\ud83d\ude00\u0041"`, 1, 1 + 1 + 2 + 3 + 4 + 1, 0, 0, 0},
	{"a prompt may be a list of strings", Completions,
		`{"prompt":["ab","cde"],"suffix":"f"}`, `["ab","cde"]|"f"`, 2, 6, 0, 0, 0},
	{"a list of token ids is one prompt", Completions,
		`{"prompt":[1,22,-3]}`, `[1,22,-3]`, 1, 0, 3, 0, 0},
	{"token ids may stand on lines of their own", Completions,
		"{\"prompt\":[\n\t1,\n\t22,\r\n  3\n]}", "[\n\t1,\n\t22,\r\n  3\n]", 1, 0, 3, 0, 0},
	{"a list of lists of token ids is several", Completions,
		`{"prompt":[[1,22],[3]]}`, `[[1,22],[3]]`, 2, 0, 3, 0, 0},
	{"an empty prompt is a prompt", Completions, `{"prompt":""}`, `""`, 1, 0, 0, 0, 0},
	{"null is no prompt", Completions, `{"prompt":null}`, ``, 0, 0, 0, 0, 0},
	{"the last of two prompts counts", Completions, `{"prompt":"abc","prompt":["d","e"]}`, `["d","e"]`, 2, 2, 0, 0, 0},
	{"a prompt that null follows is gone", Completions, `{"prompt":"abc","prompt":null}`, ``, 0, 0, 0, 0, 0},
	{"the blobs of a prompt that was replaced are gone", Chat,
		`{"messages":[{"content":[{"file":{"file_data":"` + base64 + `"}}]}],"messages":"ab"}`, `"ab"`, 1, 2, 0, 0, 0},
	{"responses: instructions come before the input", Responses,
		`{"input":"Hi","instructions":"Be brief.","text":{"format":{"type":"text"}}}`, `"Be brief."|"Hi"`, 1, 11, 0, 0, 0},
	{"responses: input items", Responses,
		`{"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"ab"},{"type":"input_image","image_url":"u"}]},{"type":"function_call_output","call_id":"1","output":"cd"},{"type":"reasoning","encrypted_content":"` + base64 + `"}]}`,
		`[{"type":"message","role":"user","content":[{"type":"input_text","text":"ab"},{"type":"input_image","image_url":"u"}]},{"type":"function_call_output","call_id":"1","output":"cd"},{"type":"reasoning","encrypted_content":"` + base64 + `"}]`, 1, 4, 0, 1, 0},
	{"responses without input: the server knows it", Responses, `{"previous_response_id":"r"}`, ``, 0, 0, 0, 0, 0},
	{"anthropic: system comes before messages", Messages,
		`{"messages":[{"role":"user","content":"Hi"}],"system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}]}`,
		`[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}]|[{"role":"user","content":"Hi"}]`, 1, 11, 0, 0, 0},
	{"anthropic: an encoded image is a blob", Messages,
		`{"messages":[{"content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + base64 + `"}}]}]}`,
		`[{"content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + base64 + `"}}]}]`, 1, 0, 0, 1, 1},
	{"anthropic: a document of text is text, wherever its type stands", Messages,
		`{"messages":[{"content":[{"source":{"data":"` + base64 + `","type":"text"}}]}]}`,
		`[{"content":[{"source":{"data":"` + base64 + `","type":"text"}}]}]`, 1, len(base64), 0, 0, 0},
	{"anthropic: a document of parts is its parts", Messages,
		`{"messages":[{"content":[{"source":{"type":"content","content":[{"text":"ab"},{"image":"u"}]}}]}]}`,
		`[{"content":[{"source":{"type":"content","content":[{"text":"ab"},{"image":"u"}]}}]}]`, 1, 2, 0, 1, 0},
	{"anthropic: results of tools hold parts", Messages,
		`{"messages":[{"content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"abc"}]}]}]}`,
		`[{"content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"abc"}]}]}]`, 1, 3, 0, 0, 0},
	{"anthropic: a tool's arguments are JSON text, whatever their names", Messages,
		`{"messages":[{"content":[{"type":"tool_use","id":"1","name":"f","input":{"image":"x"}}]}]}`,
		`[{"content":[{"type":"tool_use","id":"1","name":"f","input":{"image":"x"}}]}]`, 1, 3 + 13, 0, 0, 0},
	{"embeddings: each string is a prompt", Embeddings, `{"input":["a","bc","d"]}`, `["a","bc","d"]`, 3, 4, 0, 0, 0},
	{"embeddings of a chat", Embeddings, `{"messages":[{"content":"ab"}]}`, `[{"content":"ab"}]`, 1, 2, 0, 0, 0},
	{"rerank: each document is a prompt", Rerank,
		`{"documents":["ab",{"text":"cd"},"e"],"query":"q"}`, `"q"|["ab",{"text":"cd"},"e"]`, 2, 6, 0, 0, 0},
	{"generate: text or ids", Generate, `{"text":"ab","sampling_params":{"n":3}}`, `"ab"`, 1, 2, 0, 0, 0},
	{"an unknown API: what is there is taken", Unknown,
		`{"input_ids":[7,8],"foo":{"messages":[1]},"inputs":"ab"}`, `"ab"|[7,8]`, 1, 2, 2, 0, 0},
	{"names below the top level do not count", Chat, `{"extra":{"model":"x","messages":[]},"messages":[]}`, `[]`, 1, 0, 0, 0, 0},
}

var base64 = strings.Repeat("iVBORw0KGgo+/AAA", 8)

// oddBodies are seeds that hold the corners of JSON.
var oddBodies = []string{
	"", " ", "null", "true", "1", "-", "-0", "01", "1.", "1.5e+7", "1e", ".5", `"a"`, `"a`, `"\`, `"\u12`, `"\ud83d"`, `"\x"`, "\"\x01\"", "\"\xff\"",
	"[]", "[1,]", "[1 2]", "[,]", "[", "[}", "{}", "{", "{]", `{"a"}`, `{"a":}`, `{"a":1,}`, `{"a" 1}`, `{a:1}`, `{"a":1 "b":2}`, "{} {}", "{}x", " {\t}\r\n",
	`{"mod\u0065l":"a\/b","str\u0065am":true}`, `{"model":"a","model":5}`, `{"model":5,"model":"a"}`, "{\"model\":\"\xff\xfe\"}", `{"model":"\ud800"}`,
	`{"max_tokens":9999999999999999999}`, `{"max_tokens":9223372036854775807,"n":9223372036854775808}`, `{"max_tokens":1e2,"n":-1}`, `{"max_tokens":5,"max_completion_tokens":7,"n":2}`, `{"max_tokens":true,"max_output_tokens":3}`,
	`{"stream":"true"}`, `{"stream":true,"stream":null}`, `{"stream_options":{"include_usage":true}}`, `{"stream_options":{"include_usage":true,"include_usage":0}}`, `{"stream_options":[true]}`,
	`{"cache_salt":"a"}`, `{"cache_salt":["a"]}`, `{"messages":tru}`, `{"messages":[{"content":[{"source":{"type":"base64","data":1}}]}]}`, `{"messages":[{"source":{"type":}}]}`,
	`{"messages":[{"audio":{]}]}`, `{"messages":[{"audio":"` + base64 + `"}}`, `{"input":[[[[1]]]]}`, `{"tools":[{"a":"data:;base64,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}]}`,
	strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth), strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1),
	`{"input":` + strings.Repeat("[", maxDepth-1) + strings.Repeat("]", maxDepth-1) + "}", `{"input":` + strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth) + "}",
	strings.Repeat(`{"a":`, maxDepth) + "1" + strings.Repeat("}", maxDepth), strings.Repeat(`{"messages":[`, 40) + strings.Repeat("]}", 40), `{"messages":` + strings.Repeat(`{"content":[`, 40) + "1" + strings.Repeat("]}", 40) + "}",
}

func TestScanPrompt(t *testing.T) {
	r := new(Request)
	for _, tt := range bodies {
		t.Run(tt.name, func(t *testing.T) {
			if err := r.Scan(tt.kind, []byte(tt.json)); err != nil {
				t.Fatal(err)
			}
			var parts []string
			for _, s := range r.Prompt {
				parts = append(parts, tt.json[s.Start:s.End])
			}
			if got := strings.Join(parts, "|"); got != tt.prompt {
				t.Errorf("prompt = %s; want %s", got, tt.prompt)
			}
			got := []int{r.Prompts, r.TextBytes, r.TokenIDs, r.Media, len(r.Blobs)}
			want := []int{tt.prompts, tt.text, tt.ids, tt.media, tt.blobs}
			if !slices.Equal(got, want) {
				t.Errorf("prompts, text, ids, media, blobs = %v; want %v", got, want)
			}
		})
	}
}

// TestScanAgrees runs the seeds of FuzzScan for every API.
func TestScanAgrees(t *testing.T) {
	r := new(Request)
	for kind := Unknown; kind <= Tokenize; kind++ {
		for _, b := range bodies {
			checkScan(t, r, kind, []byte(b.json))
		}
		for _, body := range oddBodies {
			checkScan(t, r, kind, []byte(body))
		}
	}
}

// Every special byte must be found at every place of a word, whatever stands
// around it.
func TestScanFindsEachByteOfAString(t *testing.T) {
	r := new(Request)
	for c := range 256 {
		for at := range 70 {
			body := []byte(`{"prompt":"` + strings.Repeat("\x80", 80) + `"}`)
			body[len(`{"prompt":"`)+at] = byte(c)
			checkScan(t, r, Completions, body)
		}
	}
}

func TestScanKeepsWhatStandsBeforeAnError(t *testing.T) {
	r := new(Request)
	err := r.Scan(Chat, []byte(`{"model":"m","tools":[1],"messages":[{"content":"ab" "x"`))
	var syntax *SyntaxError
	if !errors.As(err, &syntax) || syntax.Offset != 53 {
		t.Fatalf("error = %v; want one at byte 53", err)
	}
	if want := "invalid JSON at byte 53: expected , or } after a value in an object"; err.Error() != want {
		t.Errorf("error = %q; want %q", err, want)
	}
	if !r.HasModel || r.Model != "m" || len(r.Prompt) != 1 || r.TextBytes != len("[1]") {
		t.Errorf("request = %+v; want the model and the tools", r)
	}
}

func TestScanForgetsTheRequestBefore(t *testing.T) {
	r := new(Request)
	full := `{"model":"m","stream":true,"stream_options":{"include_usage":true},"max_tokens":5,"n":2,"cache_salt":"s",` +
		`"messages":[{"role":"user","content":[{"text":"ab"},{"file":{"file_data":"` + base64 + `"}},1]}]}`
	if err := r.Scan(Chat, []byte(full)); err != nil {
		t.Fatal(err)
	}
	if err := r.Scan(Chat, []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	r.s, r.lastModel, r.lastSalt = nil, "", ""
	if got, want := fmt.Sprintf("%+v", *r), fmt.Sprintf("%+v", Request{}); got != want {
		t.Errorf("request = %s; want %s", got, want)
	}
}

func TestScanDoesNotAllocate(t *testing.T) {
	r := new(Request)
	for _, tt := range bodies {
		body := []byte(tt.json)
		if n := testing.AllocsPerRun(10, func() { _ = r.Scan(tt.kind, body) }); n != 0 {
			t.Errorf("%s: %v allocations", tt.name, n)
		}
	}
}

func TestTokens(t *testing.T) {
	for _, tt := range []struct {
		name  string
		r     Request
		ratio float64
		want  int
	}{
		{"never less than one", Request{}, 4, 1},
		{"text by the ratio", Request{TextBytes: 100}, 2.5, 40},
		{"a ratio that makes no sense means 4", Request{TextBytes: 100}, 0, 25},
		{"ids as they are", Request{TokenIDs: 7, TextBytes: 4}, 4, 8},
		{"media and messages by constants", Request{Media: 2, Messages: 3}, 4, 2012},
	} {
		if got := tt.r.Tokens(tt.ratio); got != tt.want {
			t.Errorf("%s: %d; want %d", tt.name, got, tt.want)
		}
	}
}
