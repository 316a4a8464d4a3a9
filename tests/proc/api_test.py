"""The HTTP API against a live cluster: what OpenAI clients rely on, and what bad input gets."""
import json
import os
import re
import socket
import time

from cluster import Cluster, DEMO, ROOT, SCALE
from tap import main, test

with open(os.path.join(ROOT, "examples", "demo-model", "answers.json")) as f:
    QUESTION, ANSWER = json.load(f)[0]


@test
def the_api_keeps_its_contract():
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32", "--max-context", "512")
        for check in (models, completions, chat_forms, several_prompts, continued_turns, texts_and_tokens, other_dialects, structured, stops_and_limits, sampling, refusals, bodies_that_others_accept_are_accepted, refusals_name_the_field_that_was_sent, hang_up, metrics):
            check(c)
            print(f"# {check.__name__}", flush=True)


PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 120}, "likes": {"type": "array", "items": {"enum": ["tea", "cake"]}, "maxItems": 3}}, "required": ["name", "age", "likes"], "additionalProperties": False}


def is_person(text):
    p = json.loads(text)
    return list(p) == ["name", "age", "likes"] and len(p["name"]) <= 12 and isinstance(p["age"], int) and 0 <= p["age"] <= 120 and len(p["likes"]) <= 3 and set(p["likes"]) <= {"tea", "cake"}


def structured(c):
    """Whatever is sampled, the answer is what was asked for, and ends."""
    schema = {"response_format": {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}}
    status, body = c.chat("demo", QUESTION, n=8, seed=5, temperature=2, max_tokens=90, **schema)
    assert status == 200, body
    for choice in body["choices"]:
        assert choice["finish_reason"] == "stop" and is_person(choice["message"]["content"]), choice
    for fields in ({"temperature": 0}, {"temperature": 1, "top_k": 5, "top_p": 0.5, "repetition_penalty": 1.5}, {"temperature": 2, "logit_bias": {str(i): 100 for i in range(40)}}, {"temperature": 1, "min_p": 0.5, "seed": 3}):
        status, body = c.chat("demo", QUESTION, max_tokens=200, **fields, **schema)
        assert status == 200 and is_person(body["choices"][0]["message"]["content"]), (fields, body)
    for fields, fits in (({"guided_regex": "[a-c]{3}-\\d+"}, lambda t: t[3] == "-" and t[4:].isdigit()), ({"guided_choice": ["yes", "no, never"]}, lambda t: t in ("yes", "no, never")),
                         ({"grammar": 'root ::= "<" item ">"\nitem ::= [0-9]+ | root'}, lambda t: t.strip("<>").isdigit()), ({"structured_outputs": {"regex": "x{2,4}"}}, lambda t: t.strip("x") == "" and 2 <= len(t) <= 4),
                         ({"response_format": {"type": "json_object"}}, lambda t: isinstance(json.loads(t), dict)), ({"guided_json": json.dumps(PERSON)}, is_person), ({"json_schema": {"const": [1, "a"]}}, lambda t: t == '[1,"a"]')):
        status, body = c.request("POST", "/v1/completions", {"model": "demo", "prompt": QUESTION, "temperature": 2, "max_tokens": 60, **fields})
        assert status == 200 and fits(body["choices"][0]["text"]), (fields, body)
    status, body = c.request("POST", "/api/chat", {"model": "demo", "messages": [{"role": "user", "content": QUESTION}], "stream": False, "format": PERSON, "options": {"num_predict": 90}})
    assert status == 200 and is_person(body["message"]["content"]), body
    status, body = c.request("POST", "/v1/messages", {"model": "demo", "max_tokens": 90, "messages": [{"role": "user", "content": QUESTION}], "output_config": {"format": {"type": "json_schema", "schema": PERSON}}})
    assert status == 200 and is_person(body["content"][0]["text"]), body
    for fields, param, words in (({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"properties": {"a": {"not": {}}}}}}}, "response_format", "response_format.json_schema.schema.properties.a: \"not\" is not supported"),
                                 ({"guided_regex": "(a)\\1"}, "guided_regex", "reference to a group"), ({"grammar": "root ::= root"}, "grammar", "no end"), ({"guided_choice": []}, "guided_choice", "a list of strings"),
                                 ({"guided_regex": "a", "grammar": "x"}, "grammar", "give one"), ({"guided_regex": "a", "ignore_eos": True}, "ignore_eos", "ends with it"), ({"response_format": {"type": "xml"}}, "response_format", "json_object"), ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, "response_format", "json_schema.schema: a schema is missing"),
                                 ({**schema, "max_tokens": 3}, "max_tokens", "max_tokens: 3 are too few; the shortest text that the grammar allows has")):
        status, body = c.chat("demo", QUESTION, **fields)
        assert status == 400 and body["error"].get("param") == param and words in body["error"]["message"], (fields, body)


def bodies_that_others_accept_are_accepted(c):
    for fields in ({"stop": ""}, {"stop": [""]}, {"max_tokens": -1}, {"max_completion_tokens": -1}, {"top_p": 0, "temperature": 2}, {"messages": [{"role": "user", "content": ["What is the capital ", {"text": "of Cuba?"}]}]},
                   {"mirostat": 0, "typical_p": 1.0, "use_beam_search": False, "bad_words": [], "skip_special_tokens": True, "truncate_prompt_tokens": None, "n_predict": -1, "repeat_penalty": 1, "grammar": ""},
                   {"verbosity": "medium", "modalities": ["text"], "function_call": "auto", "tool_choice": "none", "include_reasoning": True, "logits_processors": [], "mm_processor_kwargs": {}, "thinking_token_budget": None, "grammar_lazy": False, "reasoning_effort": "low",
                    "add_special_tokens": False, "store": True, "service_tier": "auto", "user": "me", "metadata": {"a": "b"}, "safety_identifier": "x", "prompt_cache_key": "y", "dry_multiplier": 0, "xtc_probability": 0, "lora": [], "image_data": []}):
        status, body = c.chat("demo", "What is the capital of Cuba?", **fields)
        assert status == 200 and ("top_p" in fields or body["choices"][0]["finish_reason"] == "stop"), (fields, body)
    assert c.chat("demo", QUESTION, n_predict=3)[1]["usage"]["completion_tokens"] == 3 and c.chat("demo", QUESTION, n_predict=3, max_tokens=2)[1]["usage"]["completion_tokens"] == 2
    assert c.chat("demo", QUESTION, temperature=0, repeat_penalty=1.9)[1]["choices"] == c.chat("demo", QUESTION, temperature=0, repetition_penalty=1.9)[1]["choices"] != c.chat("demo", QUESTION, temperature=0)[1]["choices"]
    assert c.chat("demo", QUESTION, top_p=0, temperature=2, max_tokens=8)[1]["choices"][0]["message"] == c.chat("demo", QUESTION, temperature=0, max_tokens=8)[1]["choices"][0]["message"]


def refusals_name_the_field_that_was_sent(c):
    said = {"model": "demo", "messages": [{"role": "user", "content": QUESTION}]}
    endless = {"type": "json_schema", "name": "a", "schema": {"$ref": "#"}}
    for path, body, named in (("/v1/messages", {**said, "max_tokens": 4, "stop_sequences": ["x"] * 10000}, "stop_sequences"), ("/v1/messages", {**said, "max_tokens": 4, "output_config": {"format": endless}}, "output_config.format.schema"),
                              ("/api/chat", {**said, "stream": False, "options": {"stop": ["x"] * 10000}}, "options.stop"), ("/api/chat", {**said, "stream": False, "options": {"repeat_penalty": -1}}, "options.repeat_penalty"),
                              ("/api/chat", {**said, "stream": False, "format": {"$ref": "#"}}, "format"), ("/api/chat", {**said, "stream": False, "format": PERSON, "options": {"num_predict": 3}}, "options.num_predict"),
                              ("/v1/responses", {"model": "demo", "input": QUESTION, "max_output_tokens": 10 ** 19}, "max_output_tokens"), ("/v1/responses", {"model": "demo", "input": QUESTION, "text": {"format": endless}}, "text.format.schema")):
        status, answer = c.request("POST", path, body)
        error = answer["error"] if isinstance(answer["error"], dict) else {"message": answer["error"]}
        assert status == 400 and error["message"].startswith(named + ": "), (path, answer)
        assert error.get("param", named) in (named, named.replace(".schema", "")), answer
    for name, value in (("mirostat", 2), ("typical_p", 0.5), ("use_beam_search", True), ("bad_words", ["x"]), ("skip_special_tokens", False), ("documents", [{}]), ("web_search_options", {}), ("n_probs", 3),
                        ("suffix", "x"), ("verbosity", "low"), ("modalities", ["text", "audio"]), ("audio", {"voice": "x"}), ("prediction", {"type": "content", "content": "x"}), ("logits_processors", ["x"]), ("guided_whitespace_pattern", " "), ("cache_salt", "x"),
                        ("thinking_token_budget", 9), ("include_reasoning", False), ("kv_transfer_params", {"a": 1}), ("reasoning_effort", 3), ("structured_outputs", {}), ("structured_outputs", "x"), ("structured_outputs", {"jsn": {}}),
                        ("structured_outputs", {"json": {"type": "object"}, "whitespace_pattern": " "}), ("structured_outputs", {"json": {"type": "object"}, "disable_any_whitespace": True}), ("grammar_lazy", True), ("dry_multiplier", 0.8), ("xtc_probability", 0.1), ("top_n_sigma", 1), ("lora", [{"id": 0, "scale": 1}]), ("image_data", [{"id": 1}])):
        status, answer = c.request("POST", "/v1/chat/completions", {**said, name: value})
        assert status == 400 and answer["error"]["param"] == name and answer["error"]["message"].startswith(name + ": "), answer
    for path, fields, named in (("/api/chat", {"options": {"mirostat": 1}}, "options.mirostat: "), ("/api/chat", {"options": {"tfs_z": 0.5}}, "options.tfs_z: "), ("/api/chat", {"options": {"num_predict": "5"}}, "options.num_predict: "),
                                ("/api/generate", {"prompt": "x", "context": [1, 2]}, "context: "), ("/api/generate", {"prompt": "x", "suffix": "y"}, "suffix: "), ("/v1/responses", {"input": "x", "text": {"verbosity": "low"}}, "text: "), ("/v1/messages", {"max_tokens": 4, "mcp_servers": [{"type": "url"}]}, "mcp_servers: "),
                                ("/v1/messages", {"max_tokens": 4, "messages": [{"role": "user", "content": [{"type": "document"}]}]}, "messages: a content part is of type \"document\""),
                                ("/v1/responses", {"input": "x", "include": ["message.output_text.logprobs"]}, "include: "),
                                ("/v1/messages", {"max_tokens": 4, "system": 5}, "system: "), ("/v1/messages", {"max_tokens": 4, "system": [{"type": "image"}]}, "system: "), ("/v1/messages", {"max_tokens": 4, "thinking": True}, "thinking: "),
                                ("/v1/messages", {"max_tokens": 4, "output_config": []}, "output_config: "), ("/v1/messages", {"max_tokens": 4, "output_config": {"effort": 5}}, "output_config.effort: "),
                                ("/v1/messages", {"max_tokens": 4, "messages": [*said["messages"], {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": [1]}]}]}, "messages: "),
                                ("/api/generate", {"prompt": "x", "system": {"a": 1}}, "system: "), ("/api/chat", {"think": 5}, "think: ")):
        status, answer = c.request("POST", path, {**said, "stream": False, **fields})
        error = answer["error"] if isinstance(answer["error"], str) else answer["error"]["message"]
        assert status == 400 and error.startswith(named), (path, answer)
    for path, fields, named, says in (("/v1/chat/completions", {"functions": [{"name": "f"}]}, "functions", "\"tools\""), ("/v1/chat/completions", {"function_call": {"name": "f"}}, "function_call", "\"tool_choice\""),
                                      ("/v1/chat/completions", {"chat_template": "{{ 1 }}"}, "chat_template", "chat_template_kwargs"), ("/apply-template", {"chat_template": "{{ 1 }}"}, "chat_template", "chat_template_kwargs"),
                                      ("/tokenize", {"chat_template": "{{ 1 }}"}, "chat_template", "chat_template_kwargs")):
        status, answer = c.request("POST", path, {**said, **fields})
        assert status == 400 and answer["error"]["param"] == named and says in answer["error"]["message"], (path, answer)
        assert c.request("POST", path, {**said, "max_tokens": 1, "chat_template": None, "functions": []})[0] == 200
    call = {"type": "function_call", "name": "f", "call_id": "a"}
    ambiguous = "root ::= r0\n" + "".join(f"r{i} ::= r{i + 1} r{i + 1} | r{i + 1}\n" for i in range(60)) + 'r60 ::= "a"'  # which only the stage finds out
    for path, body, named in (*(("/v1/responses", {"input": "x", name: value}, name) for name, value in (("instructions", 5), ("reasoning", 5), ("text", []), ("metadata", "x"), ("truncation", 5), ("include", "message.output_text.logprobs"))),
                              ("/v1/responses", {"input": "x", "reasoning": {"effort": 5}}, "reasoning.effort"), ("/v1/responses", {"input": "x", "text": {"verbosity": 5}}, "text.verbosity"),
                              ("/v1/responses", {"input": [{**call, "arguments": 5}, {"role": "user", "content": "x"}]}, "input"), ("/v1/responses", {"input": "word " * 3000}, "input"), ("/v1/chat/completions", {**said, "grammar": ambiguous}, "grammar"),
                              ("/v1/chat/completions", {**said, "seed": 1 << 63}, "seed"), ("/completion", {"prompt": "x", "n_cmpl": 1000}, "n_cmpl"), ("/completion", {"prompt": "x", "n": 1000}, "n"), ("/v1/completions", {"prompt": "x", "repeat_penalty": -1}, "repeat_penalty")):
        status, answer = c.request("POST", path, {"model": "demo", **body})
        assert status == 400 and answer["error"]["param"] == named and (answer["error"]["message"].startswith(named + ": ") or named == "input"), (path, answer)
    assert c.request("POST", "/v1/responses", {"model": "demo", "max_output_tokens": 1, "input": [{**call, "arguments": {"a": 1}}, {"role": "user", "content": "x"}], "instructions": "Be short.", "include": [], "metadata": {}, "reasoning": {"effort": "low"}, "text": {}})[0] == 200
    assert c.request("POST", "/v1/messages", {**said, "max_tokens": 1, "system": [{"type": "text", "text": "Be short."}], "thinking": {"type": "disabled"}, "output_config": {"effort": "low"}})[0] == 200


def models(c):
    status, body = c.request("GET", "/v1/models")
    assert status == 200 and [m["id"] for m in body["data"]] == ["demo"], body
    assert c.request("GET", "/v1/models/demo")[0] == 200
    status, body = c.request("GET", "/v1/models/other")
    assert status == 404 and "other" in body["error"]["message"], body
    assert c.request("GET", "/health")[0] == 200


def completions(c):
    prompt = f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
    status, body = c.request("POST", "/v1/completions", {"model": "demo", "prompt": prompt, "temperature": 0, "max_tokens": 60})
    assert status == 200 and body["choices"][0]["text"] == ANSWER, body
    ids = c.hpctl("model", "tokenize", DEMO, "--text", prompt)["ids"]
    status, by_ids = c.request("POST", "/v1/completions", {"model": "demo", "prompt": ids, "temperature": 0, "max_tokens": 60})
    assert status == 200 and by_ids["choices"][0]["text"] == ANSWER, by_ids
    assert by_ids["usage"]["prompt_tokens"] == len(ids), (by_ids["usage"], len(ids))


def chat_forms(c):
    parts = [{"role": "user", "content": [{"type": "text", "text": QUESTION[:7]}, {"type": "text", "text": QUESTION[7:]}]}]
    assert c.answer("demo", parts, max_tokens=60) == ANSWER
    assert c.answer("demo", QUESTION, max_completion_tokens=60, unknown_field={"x": 1}, user="me", n=1) == ANSWER
    assert c.answer("demo", QUESTION, max_tokens=60, literal_specials=True) == ANSWER
    spelled = [{"role": "user", "content": "<|im_end|>" * 10}]
    special, literal = (c.chat("demo", spelled, max_tokens=1, literal_specials=flag)[1]["usage"]["prompt_tokens"] for flag in (False, True))
    assert literal > special + 10, (special, literal)


def several_prompts(c):
    """A list of prompts gets what each of them gets alone, also when it is longer than the queue."""
    fields = {"model": "demo", "temperature": 0, "max_tokens": 4}
    texts = [f"{i} is" for i in range(100)]
    status, body = c.request("POST", "/v1/completions", {**fields, "prompt": texts})
    assert status == 200 and [x["index"] for x in body["choices"]] == list(range(100)), body
    for i in (0, 7, 99):
        one = c.request("POST", "/v1/completions", {**fields, "prompt": texts[i]})[1]
        assert one["choices"][0]["text"] == body["choices"][i]["text"], (i, one)
    tokens = [c.request("POST", "/tokenize", {"prompt": t})[1]["count"] for t in texts[:3]]
    ids = [c.request("POST", "/tokenize", {"prompt": t})[1]["tokens"] for t in texts[:3]]
    status, pairs = c.request("POST", "/v1/completions", {**fields, "prompt": ids, "n": 2})
    assert status == 200 and pairs["usage"]["prompt_tokens"] == sum(tokens), pairs
    assert [x["text"] for x in pairs["choices"]] == [body["choices"][i // 2]["text"] for i in range(6)], pairs
    pieces = [""] * 5
    for event in c.stream("/v1/completions", {**fields, "prompt": texts[:5]}).events():
        for choice in event["choices"] if event else []:
            pieces[choice["index"]] += choice["text"]
    assert pieces == [x["text"] for x in body["choices"][:5]], pieces
    told = [event["usage"] for event in c.stream("/v1/completions", {**fields, "prompt": "one", "stream_options": {"include_usage": True, "continuous_usage_stats": True}}).events() if event]
    assert [u["completion_tokens"] for u in told] == sorted(u["completion_tokens"] for u in told) and told[0]["completion_tokens"] == 1 and told[-1]["completion_tokens"] == 4, told
    assert all(u["total_tokens"] == u["prompt_tokens"] + u["completion_tokens"] and u["prompt_tokens"] == told[-1]["prompt_tokens"] > 0 for u in told), told
    for prompt, word in (([], "empty"), (["x", ""], "empty"), (["x", 5], "list of either"), (["x"] * 513, "512"), ([[1], [999999]], "999999")):
        status, answer = c.request("POST", "/v1/completions", {**fields, "prompt": prompt})
        assert status == 400 and answer["error"]["param"] == "prompt" and word in answer["error"]["message"], (word, answer)


def continued_turns(c):
    begun = ANSWER[: ANSWER.rindex(" ")]
    turns = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": begun}]
    assert begun + c.answer("demo", turns, continue_final_message=True, max_tokens=60) == ANSWER
    status, body = c.chat("demo", turns[:1], continue_final_message=True)
    assert status == 400 and body["error"]["param"] == "continue_final_message", body
    assert c.chat("demo", turns, continue_final_message=True, add_generation_prompt=True)[0] == 400
    assert c.answer("demo", QUESTION, chat_template_kwargs={"enable_thinking": False}, max_tokens=60) == ANSWER
    assert c.chat("demo", QUESTION, chat_template_kwargs={"messages": []})[0] == 400


def texts_and_tokens(c):
    ids = c.hpctl("model", "tokenize", DEMO, "--text", ANSWER, "--no-special")["ids"]
    status, body = c.request("POST", "/tokenize", {"content": ANSWER + "á", "with_pieces": True})
    pieces = [t["piece"] for t in body["tokens"]]
    assert status == 200 and [t["id"] for t in body["tokens"]][:len(ids)] == ids and pieces[-2:] == [[0xC3], [0xA1]] and "".join(pieces[:-2]) == ANSWER, body
    status, body = c.request("POST", "/tokenize", {"content": ANSWER, "return_token_strs": True})
    assert status == 200 and body["tokens"] == ids and body["count"] == len(ids) and "".join(body["token_strs"]) == ANSWER, body
    status, body = c.request("POST", "/detokenize", {"model": "demo", "tokens": ids})
    assert status == 200 and body["prompt"] == body["content"] == ANSWER, body
    messages = [{"role": "user", "content": "Hi"}]
    status, body = c.request("POST", "/apply-template", {"messages": messages})
    assert status == 200 and body["prompt"].endswith("assistant\n"), body
    for empty in ({"prompt": ""}, {"content": ""}):
        status, again = c.request("POST", "/tokenize", empty)
        assert status == 200 and again["count"] == 0 and again["tokens"] == [], again
    status, again = c.request("POST", "/tokenize", {"messages": messages})
    assert status == 200 and again["tokens"] == c.request("POST", "/tokenize", {"prompt": body["prompt"]})[1]["tokens"], again
    assert again["count"] == c.chat("demo", messages, max_tokens=1)[1]["usage"]["prompt_tokens"], again
    # Functions that would have to be called are counted, and not asked for: by a template that has no calls, too.
    strict = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": True}}
    for more in ({"tools": [strict]}, {"tools": [strict], "tool_choice": "required"}):
        assert c.request("POST", "/tokenize", {"messages": messages, **more})[0] == 200, more
    for more in ({"strict": True}, {}):
        counted = c.request("POST", "/v1/messages/count_tokens", {"model": "demo", "messages": messages, "tools": [{"name": "f", "input_schema": {"type": "object"}, **more}], "tool_choice": {"type": "any"}})
        assert counted == (200, {"input_tokens": again["count"]}), counted
    status, props = c.request("GET", "/props")
    assert status == 200 and props["default_generation_settings"]["n_ctx"] == 512 and "message" in props["chat_template"], props
    status, info = c.request("GET", "/tokenizer_info")
    assert status == 200 and (info["eos_token"], info["chat_template"], info["model_max_length"]) == (props["eos_token"], props["chat_template"], 512), info
    assert all(v is None or v for v in info.values()) and len(c.request("POST", "/tokenize", {"prompt": info["eos_token"], "add_special_tokens": False})[1]["tokens"]) == 1, info
    assert c.request("GET", "/tokenizer_info?model=none")[0] == 404
    assert "version" in c.request("GET", "/version")[1]
    for path, bad in (("/detokenize", {"tokens": [952] * 900000}), ("/tokenize", {"prompt": ["a", "b"]}), ("/tokenize", {}), ("/detokenize", {"tokens": [-1]}), ("/detokenize", {"tokens": [1, 999999]}), ("/apply-template", {"messages": "x"}), ("/tokenize", [])):
        status, body = c.request("POST", path, bad)
        assert status == 400 and body["error"]["message"], (path, bad, body)
    assert c.request("POST", "/tokenize", {"model": "none", "prompt": "x"})[0] == 404
    # A long text and a client that leaves while it is worked on.
    status, body = c.request("POST", "/tokenize", {"content": "word " * 100000})
    assert status == 200 and body["count"] > 100000, body["count"]
    with socket.create_connection(("127.0.0.1", c.port)) as gone:
        text = json.dumps({"content": "word " * 100000}).encode()
        gone.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(text) + text)


def other_dialects(c):
    """Ollama's and Anthropic's fields get the answers that OpenAI's get."""
    user = {"messages": [{"role": "user", "content": QUESTION}]}
    cold = {"options": {"temperature": 0}}
    status, body = c.request("POST", "/api/chat", {"model": "demo:latest", **user, **cold, "stream": False})
    assert status == 200 and body["message"]["content"] == ANSWER and body["done"] and body["done_reason"] == "stop", body
    assert body["prompt_eval_count"] > 0 and body["eval_count"] > 0 and body["total_duration"] > 0, body
    status, text = c.request("POST", "/api/chat", {"model": "demo", **user, "options": {"temperature": 0, "num_predict": 3}})
    lines = [json.loads(line) for line in text.splitlines()]
    assert status == 200 and [x["done"] for x in lines] == [False] * (len(lines) - 1) + [True] and lines[-1]["done_reason"] == "length", lines
    assert ANSWER.startswith("".join(x["message"]["content"] for x in lines)) and lines[-1]["eval_count"] == 3, lines
    status, body = c.request("POST", "/api/generate", {"model": "demo", "prompt": QUESTION, **cold, "stream": False})
    assert status == 200 and body["response"] == ANSWER, body
    raw = f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
    status, body = c.request("POST", "/api/generate", {"model": "demo", "prompt": raw, "raw": True, **cold, "stream": False})
    assert status == 200 and body["response"] == ANSWER, body
    status, body = c.request("GET", "/api/tags")
    assert status == 200 and [m["name"] for m in body["models"]] == ["demo"], body
    listed, details = body["models"][0], {"parent_model": "", "format": "gguf", "family": "llama", "families": ["llama"], "parameter_size": "3.54M", "quantization_level": "Q8_0"}
    assert listed["size"] == os.path.getsize(DEMO) and listed["digest"] == c.hpctl("describe", "demo")["model_id"] and listed["details"] == details, listed
    status, body = c.request("GET", "/api/ps")
    assert status == 200 and [(m["name"], m["context_length"] > 0) for m in body["models"]] == [("demo", True)], body
    for name in ({"model": "demo:latest"}, {"name": "demo"}):
        status, body = c.request("POST", "/api/show", name)
        assert status == 200 and "message" in body["template"] and body["capabilities"] == ["completion"] and body["model_info"]["hodgepodge.context_length"] == body["model_info"]["llama.context_length"] > 0, body
        assert body["details"] == details and body["model_info"]["general.architecture"] == "llama" and body["model_info"]["general.parameter_count"] // 10000 == 354, body
    for path in ("show", "pull", "embed", "chat"):
        status, body = c.request("POST", f"/api/{path}", {"model": "none", "input": "x"})
        assert status == 404 and '"none" is deployed here' in body["error"], (path, body)
    for path, fields, said in (("generate", {}, "load"), ("generate", {"prompt": "", "keep_alive": 0}, "unload"), ("chat", {"messages": []}, "load"), ("chat", {"keep_alive": "0s"}, "unload")):
        status, body = c.request("POST", f"/api/{path}", {"model": "demo:latest", **fields})
        assert status == 200 and body["done"] and body["done_reason"] == said and body["model"] == "demo", (path, fields, body)
        assert body.get("response", "") == "" and body.get("message", {"content": ""})["content"] == "", body
    for name in ({"model": "demo"}, {"name": "demo:latest", "stream": False}):
        assert c.request("POST", "/api/pull", name) == (200, {"status": "success"})
    # What is told before a body is read has the shape of the path's API, too.
    for method, path, kind, status in (("POST", "/api/nothing", "application/json", 404), ("GET", "/api/chat", "application/json", 405), ("POST", "/api/show", "text/plain", 415)):
        got, body = c.request(method, path, "{}", {"Content-Type": kind})
        assert got == status and isinstance(body["error"], str), (path, got, body)
    for method, path, status in (("POST", "/v1/messages/nothing", 404), ("GET", "/v1/messages", 405)):
        got, body = c.request(method, path, "{}")
        assert got == status and body["type"] == "error" and body["error"]["message"], (path, got, body)
    listed = c.request("GET", "/v1/models")[1]
    assert not listed["has_more"] and listed["data"][0]["type"] == "model" and listed["data"][0]["display_name"] == "demo" and listed["data"][0]["created_at"].endswith("Z"), listed
    assert [c.request(m, "/")[0] for m in ("GET", "HEAD", "POST")] == [200, 200, 405]
    assert c.request("POST", "/api/chat", {"model": "demo", **user, "format": "xml"})[1]["error"].startswith("format: must be")
    for path, wrong, status in (("chat", {"tools": [{}]}, 400), ("generate", {"images": ["x"]}, 400), ("generate", {"prompt": 5}, 400), ("chat", {"model": "none"}, 404)):
        got, body = c.request("POST", f"/api/{path}", {"model": "demo", **user, "prompt": "x", **wrong})
        assert got == status and isinstance(body["error"], str), (wrong, got, body)

    ask = {"model": "demo", "max_tokens": 60, "temperature": 0}
    status, body = c.request("POST", "/v1/messages", {**ask, "messages": [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}]})
    assert status == 200 and body["content"] == [{"type": "text", "text": ANSWER}] and body["stop_reason"] == "end_turn", body
    begun, rest = ANSWER.rsplit(" ", 1)
    prefilled = {"messages": user["messages"] + [{"role": "assistant", "content": begun}]}
    status, body = c.request("POST", "/v1/messages", {**ask, **prefilled, "stop_sequences": [rest[1:]]})
    assert status == 200 and body["content"][0]["text"] == " " + rest[0] and body["stop_reason"] == "stop_sequence" and body["stop_sequence"] == rest[1:], body
    ended = [e["delta"] for e in c.stream("/v1/messages", {**ask, **prefilled, "stop_sequences": ["nowhere", rest[1:]], "stream": True}).events() if e["type"] == "message_delta"]
    assert ended == [{"stop_reason": "stop_sequence", "stop_sequence": rest[1:]}], ended
    told, system = (c.request("POST", "/v1/messages", {**ask, **user, **more})[1]["usage"]["input_tokens"] for more in ({}, {"system": "Be brief."}))
    assert system > told, (system, told)
    for fields, n in ((user, told), ({**user, "system": "Be brief."}, system)):
        status, body = c.request("POST", "/v1/messages/count_tokens", {"model": "demo", **fields})
        assert status == 200 and body == {"input_tokens": n}, (n, body)
    for fields, status in (({"messages": []}, 400), ({**user, "model": "none"}, 404)):
        got, body = c.request("POST", "/v1/messages/count_tokens", {"model": "demo", **fields})
        assert got == status and body["type"] == "error" and body["error"]["message"], (got, body)
    events = [e for e in c.stream("/v1/messages", {**ask, **user, "max_tokens": 4}).events() if e]
    kinds = [e["type"] for e in events]
    assert kinds[:2] == ["message_start", "content_block_start"] and kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"], kinds
    assert ANSWER.startswith("".join(e["delta"]["text"] for e in events if e["type"] == "content_block_delta")), events
    assert events[0]["message"]["usage"]["input_tokens"] == told and events[-2]["delta"]["stop_reason"] == "max_tokens", events
    for wrong, status in (({"tools": [{}]}, 400), ({"messages": []}, 400), ({"model": "none"}, 404)):
        got, body = c.request("POST", "/v1/messages", {**ask, **user, **wrong})
        assert got == status and body["type"] == "error" and body["error"]["message"], (wrong, got, body)


def stops_and_limits(c):
    status, body = c.chat("demo", QUESTION, max_tokens=3)
    assert status == 200 and body["choices"][0]["finish_reason"] == "length" and body["usage"]["completion_tokens"] == 3, body
    word = ANSWER.split()[-2]
    status, body = c.chat("demo", QUESTION, stop=[word], max_tokens=60)
    assert body["choices"][0]["finish_reason"] == "stop", body
    assert body["choices"][0]["message"]["content"] == ANSWER[: ANSWER.index(word)], body
    ids = c.hpctl("model", "tokenize", DEMO, "--text", ANSWER, "--no-special")["ids"]
    status, body = c.chat("demo", QUESTION, stop_token_ids=[ids[3]], max_tokens=60)
    assert body["choices"][0]["finish_reason"] == "stop" and body["usage"]["completion_tokens"] == 4, body
    assert ANSWER.startswith(body["choices"][0]["message"]["content"]) and len(body["choices"][0]["message"]["content"]) < len(ANSWER), body
    # Without a limit, generation that never ends on its own runs to the end of the context.
    status, body = c.chat("demo", "Hello!", ignore_eos=True)
    assert status == 200 and body["choices"][0]["finish_reason"] == "length", body
    assert body["usage"]["total_tokens"] == 512, body["usage"]


def sampling(c):
    fields = dict(temperature=1.5, max_tokens=20, ignore_eos=True)
    one, two, other = (c.answer("demo", "Tell me a story.", seed=s, **fields) for s in (7, 7, 8))
    assert one == two and one != other, (one, two, other)
    ids = c.hpctl("model", "tokenize", DEMO, "--text", ANSWER, "--no-special")["ids"]
    changed = c.answer("demo", QUESTION, logit_bias={str(ids[0]): -100}, max_tokens=20)
    assert not changed.startswith(ANSWER.split()[0]), changed


def refusals(c):
    def refused(path, body, status, word, param=None):
        got, answer = c.request("POST", path, body)
        assert got == status, (body, got, answer)
        assert word in json.dumps(answer["error"]), (word, answer)
        assert {"message", "type", "param", "code"} <= set(answer["error"]), answer
        assert param is None or answer["error"]["param"] == param, answer

    chat, completion = "/v1/chat/completions", "/v1/completions"
    user = [{"role": "user", "content": "x"}]
    refused(chat, "{", 400, "JSON")
    refused(chat, {"model": 7, "messages": user}, 400, "model")
    refused(chat, {"model": "none", "messages": user}, 404, "none")
    refused(chat, {"model": "demo", "messages": []}, 400, "messages")
    refused(chat, {"model": "demo", "messages": user, "n": 10**9}, 400, "between 1 and 128", param="n")
    refused(chat, {"model": "demo", "messages": user, "priority": -101}, 400, "between -100 and 100", param="priority")
    refused(completion, {"model": "demo", "prompt": "x", "n": 4, "best_of": 2}, 400, "less than n", param="best_of")
    refused(completion, {"model": "demo", "prompt": "x", "n": 2, "best_of": 4, "stream": True}, 400, "ranked when all are over", param="best_of")
    refused(chat, {"model": "demo", "messages": user, "tools": [{"type": "function"}]}, 400, "tools")
    refused(chat, {"model": "demo", "messages": user, "temperature": -3}, 400, "temperature")
    refused(completion, {"model": "demo", "prompt": ""}, 400, "empty")
    refused(completion, {"model": "demo", "prompt": [1, 999999]}, 400, "999999")
    refused(completion, {"model": "demo", "prompt": list(range(5, 800))}, 400, "context")
    refused(completion, b'{"model": "demo", "prompt": "\xff\xfe"}', 400, "UTF-8")
    status, body = c.request("GET", "/v1/chat/completions")
    assert status == 405, body
    for path, word in (("/nowhere", "/v1/messages"), ("/v1/v1/messages", "without /v1"), ("/api/push", "/api/chat")):
        status, body = c.request("GET", path)
        assert status == 404 and word in json.dumps(body["error"]), (path, body)


def hang_up(c):
    """A client that goes away frees its sequence on every stage."""
    s = c.stream("/v1/chat/completions", {"model": "demo", "messages": [{"role": "user", "content": "Hello!"}], "ignore_eos": True, "temperature": 1})
    events = s.events()
    next(events), next(events)
    s.close()
    c.wait("no sequence is left", lambda: (lambda d: d["sequences_active"] == 0 and all(stage.get("sequences", 0) == 0 for stage in d["stages"]))(c.hpctl("describe", "demo")), 5)
    # One that leaves before the headers are out, and one that sends half a request.
    with socket.create_connection(("127.0.0.1", c.port)) as half:
        half.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    assert c.answer("demo", QUESTION, max_tokens=60) == ANSWER


def metrics(c):
    status, text = c.request("GET", "/metrics")
    assert status == 200 and "# TYPE" in text, text[:200]
    names = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if line and not line.startswith("#")}
    assert all(n.startswith(("hp_", "process_")) for n in names) and len(names) >= 5, names
    process = {k: float(v) for k, v in re.findall(r"^(process_\w+) (\S+)$", text, re.M)}
    assert re.search(r'^hp_build_info\{version="\d+\.\d+\.\d+"\} 1$', text, re.M) and abs(time.time() - process["process_start_time_seconds"]) < 600 * SCALE, process
    assert 1e6 < process["process_resident_memory_bytes"] < process["process_virtual_memory_bytes"] and 5 < process["process_open_fds"] < process["process_max_fds"] and process["process_cpu_seconds_total"] > 0, process
    # One answer more is one more in each histogram, and in all of its buckets that reach so far.
    def counts(text):
        rows = [line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("hp_answer_")]
        return {name: float(value) for name, value in rows}
    before, kinds = counts(text), ("queue_seconds", "first_token_seconds", "token_seconds", "seconds")
    assert c.chat("demo", QUESTION, max_tokens=5)[0] == 200
    after = counts(c.request("GET", "/metrics")[1])
    for kind in kinds:
        count, most = f'hp_answer_{kind}_count{{deployment="demo"}}', f'hp_answer_{kind}_bucket{{deployment="demo",le="+Inf"}}'
        assert after[count] == before[count] + 1 == after[most], (kind, before[count], after[count])
        buckets = [v for k, v in after.items() if k.startswith(f"hp_answer_{kind}_bucket")]
        assert buckets == sorted(buckets) and len(buckets) == 19, buckets
    assert after['hp_answer_seconds_sum{deployment="demo"}'] > before['hp_answer_seconds_sum{deployment="demo"}'], after


@test
def many_clients_at_once_get_what_one_gets():
    import threading
    with Cluster(agents=3, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1,a2", "--compute", "f32")
        wrong = []

        def ask(question, answer):
            got = c.answer("demo", question, max_tokens=60)
            if got != answer:
                wrong.append((question, got, answer))

        with open(os.path.join(ROOT, "examples", "demo-model", "answers.json")) as f:
            pairs = json.load(f)[:24]
        threads = [threading.Thread(target=ask, args=p) for p in pairs]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not wrong, wrong[:3]


main()
