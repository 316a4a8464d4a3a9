"""Calls of functions and reasoning from end to end: models that say one thing whatever they are asked, in the words of each format, before raw HTTP and,
where it is installed, before the OpenAI client."""
import json
import os
import sys
import tempfile

import numpy as np

from cluster import Cluster, DEMO, ROOT
from tap import main, test

sys.path.insert(0, os.path.join(ROOT, "tests", "models"))
from formats import I32, STRING
from make_models import make_weights, write_gguf
from tokenizers import ByteBpe

GO = "<|go|>"
FORMATS = ("hermes", "mistral", "llama", "python", "pythonic", "gpt-oss")
HISTORY = """{%- for m in messages %}{{ '<|start|>' + m.role + '\\n' + m.content }}{% if m.tool_calls is defined %}{% for call in m.tool_calls -%}
<tool_call>{"name": {{ call.function.name | tojson }}, "arguments": {{ call.function.arguments | tojson }}}</tool_call>{% endfor %}{% endif %}{{ '<|end|>' }}{% endfor -%}
{%- if add_generation_prompt %}{{ '<|go|>' }}{% endif %}"""
TOOLS = "{%- if reasoning_effort is defined %}{{ '<|start|>effort ' + reasoning_effort + (' on' if enable_thinking else ' off') + '<|end|>' }}{% endif %}{%- if tools %}{{ '<|start|>system\\n' }}{% for tool in tools %}{{ tool | tojson }}{% endfor %}{{ '<|end|>' }}{% endif %}"
# As gpt-oss' own: functions in a message of the developer, each call and each result a message on a channel.
CHANNELS = """{# <|channel|> #}{%- if tools %}{{ '<|start|>developer\\n' }}{% for tool in tools %}{{ tool | tojson }}{% endfor %}{{ '<|end|>' }}{% endif %}
{%- for m in messages %}{% if m.tool_calls is defined -%}
{% if m.thinking %}{{ '<|start|>assistant channel analysis ' + m.thinking + '<|end|>' }}{% endif %}{% for call in m.tool_calls %}{{ '<|start|>assistant to=functions.' + call.function.name + ' ' + (call.function.arguments | tojson) + '<|end|>' }}{% endfor %}
{%- elif m.role == 'tool' %}{{ '<|start|>functions to=assistant ' + m.content + '<|end|>' }}
{%- else %}{{ '<|start|>' + m.role + '\\n' + m.content + '<|end|>' }}{% endif %}{% endfor -%}
{%- if add_generation_prompt %}{{ '<|go|>' }}{% endif %}"""
WEATHER = {"type": "function", "function": {"name": "weather", "description": "How it is outside", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
NOW = {"type": "function", "function": {"name": "now"}}


class Script(ByteBpe):
    """Whatever it reads, after GO come these pieces, each a token; those in `hidden` are control tokens."""

    def __init__(self, pieces, hidden):
        self.pieces, self.hidden = pieces, hidden
        self.specials = [*ByteBpe.specials, GO, *pieces]
        super().__init__(0)

    def gguf_keys(self):
        kinds = [1 if t not in self.specials else 4 if t in self.pieces and t not in self.hidden else 3 for t in self.tokens]
        return [("tokenizer.ggml.token_type", I32, kinds) if k[0] == "tokenizer.ggml.token_type" else k for k in super().gguf_keys()]


def script_write(path, pieces, mark, hidden=(), template=None):
    """A model whose blocks do nothing: the last token alone says which is next."""
    t = Script(pieces, hidden)
    n = len(t.tokens)
    c = {"name": "script", "tokenizer": t, "template": template or "{# " + mark + " #}" + TOOLS + (HISTORY if "<tool_call>" in mark else HISTORY.replace("tool_call>", "call>")), "width": -(-n // 32) * 32, "blocks": 2, "heads": 2, "kv_heads": 2, "head_dim": 16,
         "mlp": 32, "tied": False, "rope_theta": 10000.0, "epsilon": 1e-6, "context": 2048, "hub_type": "llama", "base": "F32"}
    weights = make_weights(c, n, np.random.default_rng(1))
    for name, array in weights.items():
        array[:] = 1 if array.ndim == 1 else 0
    walk = [t.ids[x] for x in (GO, *pieces, t.eos)]
    weights["model.embed_tokens.weight"][np.arange(n), np.arange(n)] = 1
    for token, following in zip(walk, walk[1:]):
        weights["lm_head.weight"][following, token] = 9
    write_gguf(path, c, weights, n, "F32")


def asked(c, name, **fields):
    body = {"model": name, "messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "max_tokens": 60, "tools": [WEATHER, NOW], **fields}
    status, reply = c.request("POST", "/v1/chat/completions", body)
    assert status == 200, reply
    whole, finish = reply["choices"][0]["message"], reply["choices"][0]["finish_reason"]
    streamed = {"content": "", "reasoning": "", "calls": [], "finish": None}
    for event in c.stream("/v1/chat/completions", {**body, "stream": True}).events():
        for choice in event["choices"] if event else []:
            delta = choice["delta"]
            streamed["content"] += delta.get("content") or ""
            streamed["reasoning"] += delta.get("reasoning_content", "")
            streamed["finish"] = choice["finish_reason"] or streamed["finish"]
            for call in delta.get("tool_calls", []):
                assert call["index"] == len(streamed["calls"]) and call["type"] == "function" and call["id"], call
                streamed["calls"].append(call["function"])
    calls = [x["function"] for x in whole.get("tool_calls", [])]
    assert streamed == {"content": whole["content"] or "", "reasoning": whole.get("reasoning_content", ""), "calls": calls, "finish": finish}, (streamed, reply)
    return whole, finish


def functions(message):
    return [(x["function"]["name"], json.loads(x["function"]["arguments"])) for x in message["tool_calls"]]


@test
def functions_are_called_in_each_format():
    with tempfile.TemporaryDirectory() as at, Cluster(agents=1, cores=1) as c:
        def deployed(name, pieces, mark, hidden=(), template=None):
            path = os.path.join(at, name + ".gguf")
            script_write(path, pieces, mark, hidden, template)
            c.deploy(name, path, "--compute", "f32")

        deployed("hermes", ["<think>", "\nWhere", " is it?\n", "</think>", "\n\nLet me see.\n", "<tool_call>", '\n{"name": "wea', 'ther", "arguments": {"city": ',
                            '"Ulm"}}\n', "</tool_call>\n<tool", '_call>{"name": "now"}</tool_call> '], "<tool_call> <think></think>", ["<tool_call>"])
        deployed("mistral", ["[TOOL_CALLS]", ' [{"name": "weather", "arguments"', ': {"city": "Ulm"}},', ' {"name": "now", "arguments": {}}]'], "[TOOL_CALLS]", ["[TOOL_CALLS]"])
        deployed("llama", ["<|python_tag|>", '{"name": "weather", ', '"parameters": {"city": "Ulm"}}', '; {"name": "now", "parameters": {}}'], "<|python_tag|>", ["<|python_tag|>"])
        deployed("python", ["<|python_tag|>", "weather(city", "='Ul", "m'); ", "now()"], "<|python_tag|>", ["<|python_tag|>"])
        deployed("pythonic", ["[weather(", 'city="Ulm"), no', "w()]"], "[func_name1(")
        deployed("gpt-oss", ["<|channel|>", "analysis", "<|message|>", "Where", " is it?", "<|end|><|start|>assistant<|channel|>comm", "entary<|message|>Let me", " see.<|end|>",
                             "<|start|>", "assistant<|channel|>commentary to=functions.weather ", "<|constrain|>", "json<|message|>", '{"city": ', '"Ulm"}', "<|call|><|start|>assistant to=functions.now<|channel|>commentary<|message|>", "{}"],
                 "<|channel|>", ["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"], CHANNELS)
        called = [("weather", {"city": "Ulm"}), ("now", {})]
        talks = ("hermes", "gpt-oss")
        for name in FORMATS:
            message, finish = asked(c, name)
            assert "tool_calls" in message and functions(message) == called and finish == "tool_calls", (name, message, finish)
            assert message["content"] == ("Let me see." if name in talks else None), message
            assert message.get("reasoning_content") == ("Where is it?" if name in talks else None), message
            message, _ = asked(c, name, parallel_tool_calls=False)
            assert functions(message) == called[:1], message
            message, finish = asked(c, name, tools=[NOW] if name != "hermes" else None)
            if name == "gpt-oss":  # each message for itself: what the one is for is not here
                assert functions(message) == called[1:] and message["content"] == 'Let me see.\n\n{"city": "Ulm"}', message
            else:
                assert "tool_calls" not in message and "weather" in message["content"] and finish == "stop", (name, message)
            assert "tool_calls" not in asked(c, name, tool_choice="none")[0]
        assert all(len(x["id"]) == 9 for x in asked(c, "mistral")[0]["tool_calls"])
        assert asked(c, "hermes", max_tokens=8)[1] == "length"
        assert asked(c, "hermes", reasoning_format="none", tools=None)[0]["content"].startswith("<think>\nWhere")
        two = c.request("POST", "/v1/chat/completions", {"model": "hermes", "messages": [{"role": "user", "content": "x"}], "n": 2, "tools": [NOW], "temperature": 0})[1]
        assert [[f["function"]["name"] for f in x["message"]["tool_calls"]] for x in two["choices"]] == [["now"]] * 2, two
        for check in (forced, beside_a_structure, scored, templates, refusals, claude, responses, llama_chat, with_the_client):
            check(c)


STRICT = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"type": "integer", "minimum": 1, "maximum": 7}}, "required": ["city", "days"], "additionalProperties": False}


def fits(call):
    arguments = json.loads(call["function"]["arguments"])
    if call["function"]["name"] == "now":
        return arguments == {}
    return set(arguments) == {"city", "days"} and len(arguments["city"]) <= 8 and arguments["days"] in range(1, 8)


def forced(c):
    """Calls that have to be, of functions with schemas, whatever the model would say, and those that need not be with strict ones."""
    tools = [{"type": "function", "function": {"name": "weather", "parameters": STRICT}}, NOW]
    strict = [{"type": "function", "function": {**t["function"], "strict": True}} for t in tools]
    n = 0
    for name in FORMATS:
        calls = functions(asked(c, name, tool_choice="required")[0])
        assert name not in ("mistral", "llama") or calls[0] == ("weather", {"city": "Ulm"}), calls  # its own words, which fit
        for choice, offered in (("required", tools), ({"type": "function", "function": {"name": "weather"}}, tools), ("auto", strict)):
            body = {"model": name, "messages": TURNS[:1], "tools": offered, "tool_choice": choice, "temperature": 2, "n": 24, "max_tokens": 150, "seed": 1}
            status, reply = c.request("POST", "/v1/chat/completions", body)
            assert status == 200, reply
            for x in reply["choices"]:
                calls = x["message"].get("tool_calls", [])
                n += len(calls)
                assert all(map(fits, calls)) and (calls and not x["message"]["content"] or choice == "auto"), x
                assert not isinstance(choice, dict) or {f["function"]["name"] for f in calls} == {"weather"}, x
    assert n > 300, n
    message, finish = asked(c, "hermes", tool_choice="required", parallel_tool_calls=False)
    assert len(message["tool_calls"]) == 1 and finish == "tool_calls" and message["reasoning_content"] == "Where is it?", message


def beside_a_structure(c):
    """With `response_format`, what is no call is what was asked for."""
    schema = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["age"], "additionalProperties": False}
    tools = [{"type": "function", "function": {"name": "weather", "parameters": STRICT}}, NOW]
    fields = {"messages": TURNS[:1], "tools": tools, "temperature": 2, "n": 12, "max_tokens": 150, "seed": 1, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": schema}}}
    called = texts = 0
    for name in FORMATS:
        status, reply = c.request("POST", "/v1/chat/completions", {"model": name, **fields})
        assert status == 200, reply
        for x in reply["choices"]:
            calls, text = x["message"].get("tool_calls", []), x["message"]["content"]
            assert all(map(fits, calls)) and (json.loads(text)["age"] in range(1, 10) if not calls else not text), x
            called, texts = called + len(calls), texts + (not calls)
        reply = c.request("POST", "/v1/chat/completions", {"model": name, **fields, "tool_choice": "required"})[1]
        assert all(x["message"].get("tool_calls") for x in reply["choices"]), reply
    assert called > 10 and texts > 2, (called, texts)
    reply = c.request("POST", "/v1/chat/completions", {"model": "hermes", **fields, "response_format": {"type": "json_object"}})[1]
    assert all(x["message"].get("tool_calls") or isinstance(json.loads(x["message"]["content"]), dict) for x in reply["choices"]), reply


def scored(c):
    """Every token is told of with what is likely, also those of calls and of reasoning."""
    body = {"model": "hermes", "messages": TURNS[:1], "tools": [WEATHER, NOW], "temperature": 0, "logprobs": True}
    whole = c.request("POST", "/v1/chat/completions", body)[1]
    rows = whole["choices"][0]["logprobs"]["content"]
    assert len(whole["choices"][0]["message"]["tool_calls"]) == 2 and len(rows) + 1 >= whole["usage"]["completion_tokens"] > 8, whole
    told = [r for e in c.stream("/v1/chat/completions", {**body, "stream": True}).events() if e for x in e["choices"] if x.get("logprobs") for r in x["logprobs"]["content"]]
    assert told == rows, (told, rows)


TURNS = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Ulm"}'}}]},
         {"role": "tool", "tool_call_id": "c1", "content": "rain"}]


def templates(c):
    """What was called and answered reaches the template: arguments as an object, functions as they were given."""
    status, body = c.request("POST", "/apply-template", {"model": "hermes", "messages": TURNS, "tools": [WEATHER]})
    said = body["prompt"]
    assert status == 200 and said.startswith("<|start|>system\n{") and '"How it is outside"' in said, body
    assert '<tool_call>{"name": "weather", "arguments": {"city": "Ulm"}}</tool_call><|end|><|start|>tool\nrain<|end|><|go|>' in said, said
    for path in ("/v1/chat/completions", "/apply-template"):  # how long to think is told to the template, too
        for more, wanted in (({"reasoning_effort": "low"}, "effort low on"), ({"reasoning_effort": "none"}, "effort none off"), ({"reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": False}}, "effort high off"), ({}, None), ({"reasoning_effort": None}, None)):
            status, body = c.request("POST", path, {"model": "hermes", "messages": TURNS[:1], "max_tokens": 1, **more})
            assert status == 200, body
            if path == "/apply-template":
                assert (f"<|start|>{wanted}<|end|>" in body["prompt"]) if wanted else "effort" not in body["prompt"], (more, body)
    thought = [TURNS[0], {**TURNS[1], "reasoning_content": "Hm"}, TURNS[2]]
    said = c.request("POST", "/apply-template", {"model": "gpt-oss", "messages": thought, "tools": [WEATHER]})[1]["prompt"]
    assert 'channel analysis Hm<|end|><|start|>assistant to=functions.weather {"city": "Ulm"}<|end|><|start|>functions to=assistant rain<|end|><|go|>' in said and "outside" in said, said
    plain = asked(c, "gpt-oss", tools=None)[0]  # without tools, too: what it reasons is no text
    assert plain["reasoning_content"] == "Where is it?" and plain["content"].startswith("Let me see.") and "channel" not in plain["content"], plain
    assert asked(c, "gpt-oss", tools=None, reasoning_format="none")[0]["content"].startswith("<think>Where is it?</think>\n\nLet me see."), plain
    without = c.request("POST", "/apply-template", {"model": "hermes", "messages": TURNS, "tools": [WEATHER], "tool_choice": "none"})[1]["prompt"]
    assert "outside" not in without and "rain" in without, without
    assert asked(c, "hermes", messages=TURNS)[1] == "tool_calls"
    for name, able in (("hermes", ["completion", "tools", "thinking"]), ("gpt-oss", ["completion", "tools", "thinking"]), ("llama", ["completion", "tools"])):
        assert c.request("POST", "/api/show", {"model": name})[1]["capabilities"] == able, name
    for method, path, body in (("POST", "/tokenize", {"prompt": "x"}), ("POST", "/api/show", {}), ("GET", "/props", None)):
        status, reply = c.request(method, path, body)
        assert status == 400 and "say which one" in json.dumps(reply), (path, reply)


def refusals(c):
    def refused(param, word, model="hermes", path="/v1/chat/completions", **fields):
        status, body = c.request("POST", path, {"model": model, "messages": [{"role": "user", "content": "Hi"}], "tools": [WEATHER], **fields})
        assert status == 400 and (param is None or body["error"]["param"] == param) and word in json.dumps(body), (word, status, body)

    refused("tool_choice", "may be", tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}})
    refused("tool_choice", "do not have", tool_choice={"type": "function", "function": {"name": "now"}})
    refused("tool_choice", "missing", tool_choice="required", tools=None)
    refused(None, "tokens", tool_choice="required", max_tokens=5)
    refused("tools", "response_format", guided_regex="a")
    refused("response_format", "response_format.json_schema.schema", response_format={"type": "json_schema", "json_schema": {"schema": {"not": {}}}})
    refused("tools", "name", tools=[{"type": "function", "function": {}}])
    refused("tools", "function", tools=[{"type": "web_search"}])
    refused("tools", "must be true or false", tools=[{"type": "function", "function": {"name": "now", "strict": 5}}])
    odd = {"name": "now", "parameters": {"type": "object", "properties": {"x": {"not": {}}}}}
    refused("tools", "tools[1].parameters.properties.x", tools=[WEATHER, {"type": "function", "function": {**odd, "strict": True}}])
    assert asked(c, "mistral", tools=[{"type": "function", "function": odd}], tool_choice="required")[0]["tool_calls"]
    refused("tools", "at most 1024", tools=[NOW] * 1025)
    for arguments in ("{", "[]", 5, "[" * 100000, '{"a": "\\u0000"}'):
        refused("messages", "arguments", messages=[{"role": "assistant", "tool_calls": [{"function": {"name": "now", "arguments": arguments}}]}])
    refused("messages", "2 MiB", messages=[{"role": "assistant", "tool_calls": [{"function": {"name": "now", "arguments": json.dumps({"a": "x" * 2 ** 21})}}]}])
    refused("messages", "tool_calls", messages=[{"role": "assistant", "tool_calls": 5}])
    refused(None, "tools", path="/api/generate", prompt="x")
    refused(None, "of its own", path="/v1/messages", tools=[{"type": "web_search_20250305", "name": "web_search"}])
    refused(None, "type", path="/v1/messages", tools=[CLAUDE], tool_choice={"type": "tool"})
    refused(None, "do not have", path="/v1/messages", tools=[CLAUDE], tool_choice={"type": "tool", "name": "x"}, max_tokens=9)
    c.deploy("demo", DEMO, "--compute", "f32")
    refused("tools", "chat template has no calls", model="demo")


CLAUDE = {"name": "weather", "description": "How it is outside", "input_schema": WEATHER["function"]["parameters"]}
CLAUDE_TURNS = [{"role": "user", "content": "Hi"},
                {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm", "signature": ""}, {"type": "text", "text": "So"}, {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Ulm"}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "rain"}]}, {"type": "text", "text": "And?"}]}]


def claude(c):
    """Anthropic's: blocks of thinking, text and calls, whole and as events."""
    tools = [CLAUDE, {"name": "now", "input_schema": {"type": "object"}}]
    body = {"model": "hermes", "messages": CLAUDE_TURNS, "tools": tools, "temperature": 0, "max_tokens": 60}
    status, reply = c.request("POST", "/v1/messages", body)
    assert status == 200 and reply["stop_reason"] == "tool_use" and [x["type"] for x in reply["content"]] == ["thinking", "text", "tool_use", "tool_use"], reply
    assert reply["content"][0]["thinking"] == "Where is it?" and reply["content"][2]["input"] == {"city": "Ulm"} and reply["content"][3]["name"] == "now", reply
    blocks = []
    for e in c.stream("/v1/messages", {**body, "stream": True}).events():
        if e["type"] == "content_block_start":
            assert e["index"] == len(blocks), e
            blocks.append([e["content_block"]["type"], ""])
        elif e["type"] == "content_block_delta":
            assert e["index"] == len(blocks) - 1, e
            blocks[-1][1] += next(e["delta"][k] for k in ("text", "thinking", "partial_json") if k in e["delta"])
    assert blocks == [["thinking", "Where is it?"], ["text", "Let me see."], ["tool_use", '{"city": "Ulm"}'], ["tool_use", "{}"]], blocks
    forced = c.request("POST", "/v1/messages", {**body, "tool_choice": {"type": "tool", "name": "now", "disable_parallel_tool_use": True}})[1]
    assert [x.get("name") for x in forced["content"]] in (["now"], [None, "now"]) and forced["stop_reason"] == "tool_use", forced
    few = c.request("POST", "/v1/messages/count_tokens", {"model": "hermes", "messages": CLAUDE_TURNS[:1]})[1]["input_tokens"]
    assert c.request("POST", "/v1/messages/count_tokens", {"model": "hermes", "messages": CLAUDE_TURNS, "tools": tools})[1]["input_tokens"] > few + 20
    try:
        import anthropic
    except ImportError:
        return
    client = anthropic.Anthropic(base_url=f"http://127.0.0.1:{c.port}", api_key="none", max_retries=0)
    body = {**{k: v for k, v in body.items() if k != "temperature"}, "extra_body": {"temperature": 0}}
    with client.messages.stream(**body, thinking={"type": "enabled", "budget_tokens": 1024}) as stream:
        for _ in stream:
            pass
        final = stream.get_final_message()
    assert [x.type for x in final.content] == ["thinking", "text", "tool_use", "tool_use"] and final.content[2].input == {"city": "Ulm"}, final
    more = client.messages.create(**{**body, "messages": [*CLAUDE_TURNS[:1], {"role": "assistant", "content": final.content},
                                                          {"role": "user", "content": [{"type": "tool_result", "tool_use_id": x.id, "content": "rain"} for x in final.content if x.type == "tool_use"]}]})
    assert more.stop_reason == "tool_use", more


ITEM_EVENTS = {"reasoning": ["output_item.added", "reasoning_text.delta", "reasoning_text.done", "output_item.done"],
               "message": ["output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done", "output_item.done"],
               "function_call": ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"]}


def responses(c):
    """OpenAI's Responses: items whole, and as events that each have a number, in their order."""
    tools = [{"type": "function", **t["function"]} for t in (WEATHER, NOW)]
    turns = [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}, {"type": "reasoning", "id": "rs_0", "summary": []},
             {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "So"}]},
             {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Ulm"}'}, {"type": "function_call_output", "call_id": "c1", "output": "rain"}]
    body = {"model": "hermes", "input": turns, "instructions": "Be brief.", "tools": tools, "temperature": 0, "max_output_tokens": 60, "store": False, "metadata": {"a": "b"}}
    status, whole = c.request("POST", "/v1/responses", body)
    assert status == 200 and whole["object"] == "response" and whole["status"] == "completed" and whole["usage"]["total_tokens"] == sum(whole["usage"][k] for k in ("input_tokens", "output_tokens")), whole
    assert [x["type"] for x in whole["output"]] == ["reasoning", "message", "function_call", "function_call"], whole
    assert whole["usage"]["output_tokens_details"] == {"reasoning_tokens": 3}, whole["usage"]  # <think> and two pieces
    channels = c.request("POST", "/v1/responses", {"model": "gpt-oss", "input": "Hi", "temperature": 0, "max_output_tokens": 60})[1]
    assert channels["usage"]["output_tokens_details"] == {"reasoning_tokens": 3} and c.request("POST", "/v1/responses", {"model": "llama", "input": "Hi", "temperature": 0, "max_output_tokens": 60})[1]["usage"]["output_tokens_details"] == {"reasoning_tokens": 0}, channels
    assert whole["output"][0]["content"][0]["text"] == "Where is it?" and whole["output"][1]["content"][0]["text"] == "Let me see.", whole
    assert [(x["name"], json.loads(x["arguments"])) for x in whole["output"][2:]] == [("weather", {"city": "Ulm"}), ("now", {})] and all(x["call_id"] for x in whole["output"][2:]), whole
    events = [e for e in c.stream("/v1/responses", {**body, "stream": True}).events()]
    assert [e["sequence_number"] for e in events] == list(range(len(events))), events
    types = [e["type"].removeprefix("response.") for e in events]
    assert types[:2] == ["created", "in_progress"] and types[-1] == "completed", types
    for i, item in enumerate(events[-1]["response"]["output"]):
        own = [e for e in events[2:-1] if e["output_index"] == i]
        told = [e["type"].removeprefix("response.") for e in own]
        assert [t for k, t in enumerate(told) if k == 0 or told[k - 1] != t] == ITEM_EVENTS[item["type"]], told
        assert own[-1]["item"] == item and {e["item_id"] for e in own if "item_id" in e} == {item["id"]}, (own, item)
        text = item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]
        assert "".join(e["delta"] for e in own if "delta" in e) == text, (own, item)

    def said(response):
        return [{k: v for k, v in x.items() if k not in ("id", "call_id")} for x in response["output"]]

    asked = {"instructions": "Be brief.", "max_output_tokens": 60, "metadata": {"a": "b"}, "temperature": 0, "tools": tools, "tool_choice": "auto", "parallel_tool_calls": True, "top_p": None, "store": False}
    for response in (whole, events[0]["response"], events[-1]["response"]):
        assert {k: response[k] for k in asked} == asked and response["text"]["format"] == {"type": "text"} and response["reasoning"] == {"summary": None, "effort": None}, response
    large = c.request("POST", "/v1/responses", {**body, "metadata": {"a": "b" * 20000}, "reasoning": {"effort": "low"}, "parallel_tool_calls": False, "tool_choice": "none"})[1]
    assert large["metadata"] == {} and large["reasoning"]["effort"] == "low" and not large["parallel_tool_calls"] and large["tool_choice"] == "none" and large["tools"] == tools, large
    assert said(events[-1]["response"]) == said(whole) and events[-1]["response"]["usage"]["output_tokens"] == whole["usage"]["output_tokens"], events[-1]
    assert events[-1]["response"]["usage"]["output_tokens_details"] == {"reasoning_tokens": 3}, events[-1]
    short = c.request("POST", "/v1/responses", {**body, "max_output_tokens": 8})[1]
    assert short["status"] == "incomplete" and short["incomplete_details"] == {"reason": "max_output_tokens"}, short
    forced = c.request("POST", "/v1/responses", {**body, "tool_choice": {"type": "function", "name": "now"}, "parallel_tool_calls": False})[1]
    assert [x["name"] for x in forced["output"] if x["type"] == "function_call"] == ["now"], forced
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}
    held = c.request("POST", "/v1/responses", {"model": "llama", "input": "Hi", "text": {"format": {"type": "json_schema", "name": "x", "strict": True, "schema": schema}}})[1]
    assert set(json.loads(held["output"][0]["content"][0]["text"])) == {"ok"} and held["text"]["format"]["schema"] == schema, held
    for field, value in (("previous_response_id", "resp_1"), ("conversation", "conv_1"), ("background", True), ("truncation", "auto"), ("input", 5), ("input", [{"type": "item_reference", "id": "x"}]),
                         ("tools", [{"type": "web_search"}]), ("tool_choice", {"type": "file_search"}), ("top_logprobs", 3), ("prompt", {"id": "p"}), ("temperature", "hot")):
        status, reply = c.request("POST", "/v1/responses", {**body, field: value})
        assert status == 400 and reply["error"]["param"] == field, (field, status, reply)
    for wrong in ([{"role": "user"}], [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}], [{"type": "function_call_output", "call_id": "c9"}], [{"type": "function_call", "name": "now"}]):
        status, reply = c.request("POST", "/v1/responses", {**body, "input": wrong})
        assert status == 400 and reply["error"]["message"], (wrong, status, reply)


def llama_chat(c):
    """Ollama's: thinking and calls beside the text, arguments as objects; a terminal shows reasoning."""
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "", "thinking": "Hm", "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Ulm"}}}]},
             {"role": "tool", "tool_name": "weather", "content": "rain"}]
    body = {"model": "hermes", "messages": turns, "tools": [WEATHER, NOW], "stream": False, "options": {"temperature": 0}}
    reply = c.request("POST", "/api/chat", body)[1]
    said = reply["message"]
    assert said["thinking"] == "Where is it?" and said["content"] == "Let me see." and reply["done_reason"] == "stop", reply
    assert [(x["function"]["name"], x["function"]["arguments"]) for x in said["tool_calls"]] == [("weather", {"city": "Ulm"}), ("now", {})], reply
    reply = c.request("POST", "/api/generate", {"model": "hermes", "prompt": "Hi", "stream": False, "options": {"temperature": 0}})[1]
    assert reply["thinking"] == "Where is it?" and reply["response"].startswith("Let me see."), reply
    try:
        import ollama
        client = ollama.Client(host=f"http://127.0.0.1:{c.port}")
        parts = list(client.chat(**{**body, "stream": True}, think=True))
        assert "".join(p.message.thinking or "" for p in parts) == "Where is it?" and parts[-1].done, parts
        assert [(x.function.name, x.function.arguments) for p in parts for x in p.message.tool_calls or []] == [("weather", {"city": "Ulm"}), ("now", {})], parts
    except ImportError:
        pass
    assert c.hpctl("run", "hermes", "Hi", "--temperature", "0")["text"].startswith("<think>\nWhere")


def with_the_client(c):
    try:
        import openai
    except ImportError:
        print("# the OpenAI client is not installed: raw HTTP alone")
        return
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{c.port}/v1", api_key="none", max_retries=0)
    for name in FORMATS[1:]:
        fields = {"model": name, "messages": TURNS[:1], "tools": [WEATHER, NOW], "temperature": 0}
        message = client.chat.completions.create(**fields).choices[0].message
        assert [(x.function.name, x.function.arguments) for x in message.tool_calls][0][0] == "weather" and len(message.tool_calls) == 2, message
        turns = [*TURNS[:1], message, *({"role": "tool", "tool_call_id": x.id, "content": "rain"} for x in message.tool_calls)]
        assert client.chat.completions.create(**{**fields, "messages": turns}).choices[0].finish_reason == "tool_calls", name
        with client.chat.completions.stream(**fields) as stream:
            told = [e.name for e in stream if e.type == "tool_calls.function.arguments.done"]
        assert told == ["weather", "now"], (name, told)
    fields = {"model": "hermes", "messages": TURNS[:1], "tools": [WEATHER, NOW], "temperature": 0}
    message = client.chat.completions.create(**fields).choices[0].message
    assert [x.function.name for x in message.tool_calls] == ["weather", "now"] and message.reasoning_content == "Where is it?", message
    turns = [*TURNS[:1], message, *({"role": "tool", "tool_call_id": x.id, "content": "rain"} for x in message.tool_calls)]
    assert client.chat.completions.create(**{**fields, "messages": turns}).choices[0].finish_reason == "tool_calls"
    with client.chat.completions.stream(**fields) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion().choices[0]
    assert [json.loads(x.function.arguments) for x in final.message.tool_calls] == [{"city": "Ulm"}, {}] and final.finish_reason == "tool_calls", final
    named = client.chat.completions.create(**fields, tool_choice={"type": "function", "function": {"name": "now"}}).choices[0].message
    assert {(x.function.name, x.function.arguments) for x in named.tool_calls} == {("now", "{}")}, named
    try:
        client.chat.completions.create(**fields, tool_choice={"type": "function", "function": {"name": "other"}})
        raise AssertionError("nothing was refused")
    except openai.BadRequestError as e:
        assert e.param == "tool_choice", e


main()
