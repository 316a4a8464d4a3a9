/* Templates in the styles of published families, over chats with and without system messages,
 * thoughts and tools. The expected text is what jinja2 3.1 writes for them (sandboxed, trim_blocks
 * and lstrip_blocks, tojson without escaping for HTML). */
#include <cmocka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "model/template.h"

static int render(const char *source, const char *variables, const struct template_limits *limits,
                  struct buffer *out, struct err *e)
{
    struct chat_template *t = NULL;
    json_t *v = json_loads(variables, 0, NULL);
    assert_non_null(v);
    int rc = template_compile(source, strlen(source), &t, e);
    if (rc == 0)
        rc = template_render(t, v, limits, out, e);
    template_destroy(&t);
    json_decref(v);
    return rc;
}

static const char short_chat[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"  Where is Oslo? "
    "\"}],\"add_generation_prompt\":true,\"bos_token\":\"<s>\",\"eos_token\""
    ":\"</s>\"}";

static const char long_chat[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\" Be brief. "
    "\"},{\"role\":\"user\",\"content\":\"Hi\\nthere\"},{\"role\":\"assistant\",\"cont"
    "ent\":\"<think>\\nhm\\n</think>\\n\\nHello.\"},{\"role\":\"user\",\"content\":\"日本 "
    "🙂?\"}],\"add_generation_prompt\":false,\"bos_token\":\""
    "<s>\",\"eos_token\":\"</s>\"}";

static const char tool_chat[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"Weather in "
    "Brno?\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"call"
    "00001\",\"type\":\"function\",\"function\":{\"name\":\"weather\",\"arguments\":{\"city\":"
    "\"Brno\",\"days\":2,\"f\":1.5,"
    "\"now\":true,\"unit\":nu"
    "ll}}}]},{\"role\":\"tool\",\"tool_call_id\":\"call00001\",\"content\":\"{\\\"t\\\": "
    "20}\"},{\"role\":\"assistant\",\"content\":\"20 degrees.\""
    "},{\"role\":\"user\",\"content\":\"Thanks\"}],\"tools\":[{\"type\":\"function\",\"function\":{"
    "\"name\":\"weather\","
    "\"description\":\"The \\\"we"
    "ather\\\" <of> a city, e.g. "
    "Plzeň\",\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\","
    "\"description\":\"Wh"
    "ere\"},\"days\":{\"type\":[\"integer\",\"null\"]},\"x\":{}},\"required\":[\"city\"],\"more\":["
    "]}}}],\"add_generation_"
    "prompt\":true,\"bos_t"
    "oken\":\"<s>\",\"eos_token\":\"</s>\"}";

static const char bad_chat[] =
    "{\"messages\":[{\"role\":\"assistant\",\"content\":\"me "
    "first\"}],\"add_generation_prompt\":true,\"bos_token\":\"<s>\",\"eos_token\":\"</"
    "s>\"}";

static const char template_chatml[] =
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + "
    "'\\n' }}{% endfor %}{% if a"
    "dd_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

static const char template_llama2[] =
    "{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set system = "
    "messages[0]['content'] %}{% else "
    "%}{% set rest = messages %}{% set system = false %}{% endif %}\n"
    "{% for m in rest %}\n"
    "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must "
    "alternate: user, assistant, use"
    "r, ...') }}{% endif %}\n"
    "{% if loop.index0 == 0 and system != false %}{% set text = '<<SYS>>\\n' + system + "
    "'\\n<</SYS>>\\n\\n' + m['content'] %}{%"
    " else %}{% set text = m['content'] %}{% endif %}\n"
    "{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + text.strip() + ' [/INST]' }}{% elif "
    "m['role'] == 'assistant' %}"
    "{{ ' '  + text.strip() + ' ' + eos_token }}{% endif %}\n"
    "{% endfor %}";

static const char template_zephyr[] =
    "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n"
    "' + message['content'] + eos_token }}\n{% elif message['role'] == 'system' %}\n{{ "
    "'<|system|>\n"
    "' + message['content'] + eos_token }}\n{% else %}\n{{ '<|assistant|>\n"
    "'  + message['content'] + eos_token }}\n{% endif %}\n{% if loop.last and "
    "add_generation_prompt %}\n"
    "{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}";

static const char template_llama3_tools[] =
    "{{- bos_token }}\n{%- if not date_string is defined %}\n    {%- set date_string = \"26 Jul "
    "2024\" %}\n"
    "{%- endif %}\n{%- if not tools is defined %}\n    {%- set tools = none %}\n{%- endif %}\n\n"
    "{#- The system message comes out of the list. #}\n{%- if messages[0]['role'] == 'system' %}\n"
    "    {%- set system_message = messages[0]['content']|trim %}\n    {%- set messages = "
    "messages[1:] %}\n"
    "{%- else %}\n    {%- set system_message = \"\" %}\n{%- endif %}\n"
    "{{- \"<|start_header_id|>system<|end_header_id|>\\n\\n\" }}\n{%- if tools is not none %}\n"
    "    {{- \"Environment: ipython\\n\" }}\n{%- endif %}\n"
    "{{- \"Today: \" + date_string + \"\\n\\n\" + system_message + \"<|eot_id|>\" }}\n"
    "{%- if not tools is none %}\n    {%- if messages | length != 0 %}\n"
    "        {%- set first = messages[0]['content']|trim %}\n        {%- set messages = "
    "messages[1:] %}\n"
    "    {%- else %}\n        {{- raise_exception(\"There is no user message to put the tools "
    "in!\") }}\n"
    "    {%- endif %}\n    {{- '<|start_header_id|>user<|end_header_id|>\\n\\n' -}}\n"
    "    {%- for t in tools %}\n        {{- t | tojson(indent=4) }}\n        {{- \"\\n\\n\" }}\n"
    "    {%- endfor %}\n    {{- first + \"<|eot_id|>\"}}\n{%- endif %}\n{%- for message in "
    "messages %}\n"
    "    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in "
    "message) %}\n"
    "        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ "
    "message['content'] | trim + '<|eot_id|>"
    "' }}\n"
    "    {%- elif 'tool_calls' in message %}\n        {%- if not message.tool_calls|length == 1 "
    "%}\n"
    "            {{- raise_exception(\"One call at a time!\") }}\n        {%- endif %}\n"
    "        {%- set tool_call = message.tool_calls[0].function %}\n"
    "        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}\n"
    "        {{- '{\"name\": \"' + tool_call.name + '\", \"parameters\": ' }}\n"
    "        {{- tool_call.arguments | tojson }}\n        {{- \"}<|eot_id|>\" }}\n    {%- else %}\n"
    "        {{- \"<|start_header_id|>ipython<|end_header_id|>\\n\\n\" }}\n"
    "        {%- if message.content is mapping or message.content is iterable %}\n"
    "            {{- message.content | tojson }}\n        {%- else %}\n            {{- "
    "message.content }}\n"
    "        {%- endif %}\n        {{- \"<|eot_id|>\" }}\n    {%- endif %}\n{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n    {{- "
    "'<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}\n"
    "{%- endif %}";

static const char template_mistral[] =
    "{%- set users = messages | selectattr(\"role\", \"equalto\", \"user\") | list %}\n"
    "{%- set ns = namespace() %}\n{%- set ns.index = 0 %}\n"
    "{%- for message in messages if message.role != 'system' %}\n"
    "    {%- if not (message.role == \"tool\" or (message.tool_calls is defined and "
    "message.tool_calls is not none)) %}\n"
    "        {%- if (message[\"role\"] == \"user\") != (ns.index % 2 == 0) %}\n"
    "            {{- raise_exception(\"Roles must alternate!\") }}\n        {%- endif %}\n"
    "        {%- set ns.index = ns.index + 1 %}\n    {%- endif %}\n{%- endfor %}\n{{- bos_token "
    "}}\n"
    "{%- for message in messages %}\n    {%- if message[\"role\"] == \"user\" %}\n"
    "        {%- if tools and (message == users[-1]) %}\n            {{- \"[AVAILABLE_TOOLS] [\" "
    "}}\n"
    "            {%- for tool in tools %}\n                {%- set tool = tool.function %}\n"
    "                {%- for key, val in tool.items() if key != \"return\" %}\n"
    "                    {%- if val is string %}\n"
    "                        {{- '\"' + key + '\": \"' + val + '\"' }}\n                    {%- "
    "else %}\n"
    "                        {{- '\"' + key + '\": ' + val|tojson }}\n                    {%- "
    "endif %}\n"
    "                    {%- if not loop.last %}{{- \", \" }}{%- endif %}\n                {%- "
    "endfor %}\n"
    "            {%- endfor %}\n            {{- \"][/AVAILABLE_TOOLS]\" }}\n        {%- endif %}\n"
    "        {{- \"[INST] \" + message[\"content\"] + \"[/INST]\" }}\n"
    "    {%- elif message.tool_calls is defined and message.tool_calls is not none %}\n"
    "        {%- for tool_call in message.tool_calls %}\n"
    "            {%- set out = tool_call.function|tojson %}\n"
    "            {{- \"[TOOL_CALLS] [\" + out[:-1] }}\n            {%- if tool_call.id|length != 9 "
    "%}\n"
    "                {{- raise_exception(\"Ids of calls have 9 characters!\") }}\n            {%- "
    "endif %}\n"
    "            {{- ', \"id\": \"' + tool_call.id + '\"}]' + eos_token }}\n        {%- endfor %}\n"
    "    {%- elif message[\"role\"] == \"assistant\" %}\n"
    "        {{- \" \" + message[\"content\"]|trim + eos_token}}\n    {%- elif message[\"role\"] "
    "== \"tool\" %}\n"
    "        {{- '[TOOL_RESULTS] {\"content\": ' + message.content|string + ', \"call_id\": \"' + "
    "message.tool_call_id + '\"}[/TO"
    "OL_RESULTS]' }}\n"
    "    {%- endif %}\n{%- endfor %}";

static const char template_qwen3[] =
    "{%- set ns = namespace(open=true, last=messages|length - 1) %}\n"
    "{%- for message in messages[::-1] %}\n    {%- set index = (messages|length - 1) - loop.index0 "
    "%}\n"
    "    {%- if ns.open and message.role == \"user\" and "
    "not(message.content.startswith('<tool_response>') and message.conten"
    "t.endswith('</tool_response>')) %}\n"
    "        {%- set ns.open = false %}\n        {%- set ns.last = index %}\n    {%- endif %}\n"
    "{%- endfor %}\n{%- for message in messages %}\n"
    "    {%- set content = message.content if message.content is string else '' %}\n"
    "    {%- if (message.role == \"user\") or (message.role == \"system\" and loop.first) %}\n"
    "        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}\n"
    "    {%- elif message.role == \"assistant\" %}\n        {%- set thought = '' %}\n"
    "        {%- if '</think>' in content %}\n"
    "            {%- set thought = "
    "content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}\n"
    "            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}\n        {%- "
    "endif %}\n"
    "        {%- if loop.index0 > ns.last %}\n"
    "            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + thought.strip('\\n') + "
    "'\\n</think>\\n\\n' + content }}\n"
    "        {%- else %}\n            {{- '<|im_start|>' + message.role + '\\n' + content }}\n"
    "        {%- endif %}\n        {%- for tool_call in message.tool_calls or [] %}\n"
    "            {%- if (loop.first and content) or (not loop.first) %}{{- '\\n' }}{%- endif %}\n"
    "            {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif "
    "%}\n"
    "            {{- '<tool_call>\\n{\"name\": \"' ~ tool_call.name ~ '\", \"arguments\": ' ~ "
    "(tool_call.arguments | tojson) ~ '}"
    "\\n</tool_call>' }}\n"
    "        {%- endfor %}\n        {{- '<|im_end|>\\n' }}\n    {%- elif message.role == \"tool\" "
    "%}\n"
    "        {%- if loop.first or (loop.previtem.role != \"tool\") %}{{- '<|im_start|>user' }}{%- "
    "endif %}\n"
    "        {{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}\n"
    "        {%- if loop.last or (loop.nextitem.role != \"tool\") %}{{- '<|im_end|>\\n' }}{%- "
    "endif %}\n"
    "    {%- endif %}\n{%- endfor %}\n{%- if add_generation_prompt %}\n"
    "    {{- '<|im_start|>assistant\\n' }}\n"
    "    {%- if enable_thinking is defined and enable_thinking is false %}{{- "
    "'<think>\\n\\n</think>\\n\\n' }}{%- endif %}\n"
    "{%- endif %}";

static const char template_gemma[] =
    "{{ bos_token }}\n"
    "{%- set prefix = (messages[0].content | trim) ~ '\\n\\n' if messages[0].role == 'system' else "
    "'' -%}\n"
    "{%- for m in (messages[1:] if prefix else messages) -%}\n"
    "    {%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) -%}\n"
    "        {{ raise_exception(\"Roles must alternate!\") }}\n    {%- endif -%}\n"
    "    {%- set role = 'model' if m['role'] == 'assistant' else m['role'] -%}\n"
    "    {{ '<start_of_turn>' + role + '\\n' + (prefix if loop.first else \"\") }}\n"
    "    {%- if m['content'] is string -%}\n        {{ m['content'] | trim }}\n    {%- else -%}\n"
    "        {%- for item in m['content'] -%}{{ item['text'] | trim }}{%- endfor -%}\n    {%- "
    "endif -%}\n"
    "    {{ '<end_of_turn>\n' }}\n{%- endfor -%}\n{%- if add_generation_prompt -%}\n"
    "    {{ '<start_of_turn>model\n' }}\n{%- endif -%}";

static const char template_phi[] =
    "{% for message in messages %}{% if message['role'] == 'system' and message['content'] "
    "%}{{'<|system|>\n"
    "' + message['content'] + '<|end|>\n"
    "'}}{% elif message['role'] in ['user', 'assistant'] %}{{'<|' ~ message['role'] ~ '|>\n"
    "' ~ message['content'] ~ '<|end|>\n"
    "'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n"
    "' }}{% else %}{{ eos_token }}{% endif %}";

static const char template_deepseek[] =
    "{% set ns = namespace(tool=false, first=true, system='') %}{%- for m in messages if m['role'] "
    "== 'system' %}{% set ns."
    "system = ns.system + m['content'] %}{%- endfor %}{{ bos_token }}{{ ns.system }}{%- for m in "
    "messages %}{%- if m['role'"
    "] == 'user' %}{%- set ns.tool = false -%}{{'<｜User｜>' + m['content']}}{%- endif %}{%- if "
    "m['role'] == 'assistant' and "
    "m['content'] is none %}{%- set ns.tool = false -%}{%- for call in "
    "m['tool_calls']%}{{'<｜Assistant｜><｜tool▁call｜>' + ca"
    "ll['type'] + '<｜sep｜>' + call['function']['name'] + '\\n```json\\n' + "
    "call['function']['arguments'] | string + '\\n```<｜e"
    "nd｜>'}}{%- endfor %}{%- endif %}{%- if m['role'] == 'assistant' and m['content'] is not none "
    "%}{%- if ns.tool %}{{'<｜o"
    "utputs▁end｜>' + m['content'] + '<｜eos｜>'}}{%- set ns.tool = false -%}{%- else %}{% set "
    "content = m['content'] %}{% if "
    "'</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif "
    "%}{{'<｜Assistant｜>' + content + '<｜e"
    "os｜>'}}{%- endif %}{%- endif %}{%- if m['role'] == 'tool' %}{%- set ns.tool = true "
    "-%}{{'<｜output｜>' + m['content']}}{"
    "%- endif %}{%- endfor -%}{% if add_generation_prompt and not ns.tool "
    "%}{{'<｜Assistant｜>'}}{% endif %}";

static const char template_macros[] =
    "{%- macro python_type(spec) %}\n"
    "{%- set names = {\"string\": \"str\", \"number\": \"float\", \"integer\": \"int\"} %}\n"
    "{%- if names[spec.type] is defined %}\n    {{- names[spec.type] }}\n"
    "{%- elif spec.type is iterable and spec.type is not string %}\n    {{- \"Union[\" }}\n"
    "    {%- for t in spec.type %}\n        {{- python_type({\"type\": t}) }}\n"
    "        {%- if not loop.last %}{{- \",\" }}{%- endif %}\n    {%- endfor %}\n    {{- \"]\" "
    "}}\n{%- else %}\n"
    "    {{- \"Any\" }}\n{%- endif %}\n{%- endmacro %}\n{%- macro turn(role, text='', "
    "end='<|END|>') -%}\n"
    "<|{{ role|upper }}|>{{ text }}{{ end }}\n{% endmacro -%}\n{%- for tool in tools or [] %}\n"
    "def {{ tool.function.name }}({% for name, spec in tool.function.parameters.properties|items "
    "%}{{ name }}: {{ python_ty"
    "pe(spec) }}{{ \", \" if not loop.last }}{% endfor %}):\n"
    "    # {{ tool.function.description | indent(4) }}\n{% endfor %}\n"
    "{%- for m in messages %}{{ turn(m.role, m.content or '-') }}{% endfor %}\n"
    "{% generation %}{{ turn('assistant', end='') }}{% endgeneration %}";

static const struct {
    const char *source, *variables;
    bool refuses;
    const char *expected;
} cases[] = {
    {template_chatml, short_chat, false,
     "<|im_start|>user\n  Where is Oslo? <|im_end|>\n<|im_start|>assistant\n"},
    {template_chatml, long_chat, false,
     "<|im_start|>system\n Be brief. "
     "<|im_end|>\n<|im_start|>user\nHi\nthere<|im_end|>\n<|im_start|>assistant\n"
     "<think>\nhm\n</think>\n\nHello.<|im_end|>\n<|im_start|>user\n日本 🙂?<|im_end|>\n"},
    {template_llama2, short_chat, false, "<s>[INST] Where is Oslo? [/INST]"},
    {template_llama2, long_chat, false,
     "<s>[INST] <<SYS>>\n Be brief. \n<</SYS>>\n\nHi\nthere [/INST] <think>\nhm\n</think>\n\n"
     "Hello. </s><s>[INST] 日本 🙂? [/INST]"},
    {template_llama2, bad_chat, true, "Roles must alternate: user, assistant, user, ..."},
    {template_zephyr, short_chat, false, "<|user|>\n  Where is Oslo? </s>\n<|assistant|>\n"},
    {template_zephyr, long_chat, false,
     "<|system|>\n Be brief. "
     "</s>\n<|user|>\nHi\nthere</s>\n<|assistant|>\n<think>\nhm\n</think>\n\nHello.</s>\n"
     "<|user|>\n日本 🙂?</s>\n"},
    {template_llama3_tools, long_chat, false,
     "<s><|start_header_id|>system<|end_header_id|>\n\nToday: 26 Jul 2024\n\n"
     "Be brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi\n"
     "there<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n<think>\nhm\n</think>\n\n"
     "Hello.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n日本 🙂?<|eot_id|>"},
    {template_llama3_tools, tool_chat, false,
     "<s><|start_header_id|>system<|end_header_id|>\n\nEnvironment: ipython\nToday: 26 Jul 2024\n\n"
     "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n{\n    \"type\": \"function\",\n    "
     "\"function\": {\n"
     "        \"name\": \"weather\",\n        \"description\": \"The \\\"weather\\\" <of> a city, "
     "e.g. Plzeň\",\n"
     "        \"parameters\": {\n            \"type\": \"object\",\n            \"properties\": {\n"
     "                \"city\": {\n                    \"type\": \"string\",\n"
     "                    \"description\": \"Where\"\n                },\n                "
     "\"days\": {\n"
     "                    \"type\": [\n                        \"integer\",\n                      "
     "  \"null\"\n"
     "                    ]\n                },\n                \"x\": {}\n            },\n"
     "            \"required\": [\n                \"city\"\n            ],\n            \"more\": "
     "[]\n        }\n"
     "    }\n}\n\nWeather in Brno?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
     "{\"name\": \"weather\", \"parameters\": {\"city\": \"Brno\", \"days\": 2, \"f\": 1.5, "
     "\"now\": true, \"unit\": "
     "null}}<|eot_id|><|start_h"
     "eader_id|>ipython<|end_header_id|>\n"
     "\n\"{\\\"t\\\": 20}\"<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
     "20 degrees.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n"
     "Thanks<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
    {template_mistral, short_chat, false, "<s>[INST]   Where is Oslo? [/INST]"},
    {template_mistral, tool_chat, false,
     "<s>[INST] Weather in Brno?[/INST][TOOL_CALLS] [{\"name\": \"weather\", \"arguments\": "
     "{\"city\": \"Brno\", \"days\": 2, "
     "\"f\": 1.5, "
     "\"now\": true, \"unit\": null}, \"id\": \"call00001\"}]</s>[TOOL_RESULTS] {\"content\": "
     "{\"t\": 20}, \"call_id\": "
     "\"call00001\"}[/TOOL"
     "_RESULTS] 20 degrees.</s>[AVAILABLE_TOOLS] [\"name\": \"weather\", \"description\": \"The "
     "\"weather\" <of> a city, e.g. "
     "Plzeň\","
     " \"parameters\": {\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\", "
     "\"description\": \"Where\"}, "
     "\"days\": {\"type\": "
     "[\"integer\", \"null\"]}, \"x\": {}}, \"required\": [\"city\"], \"more\": "
     "[]}][/AVAILABLE_TOOLS][INST] Thanks[/INST]"},
    {template_mistral, bad_chat, true, "Roles must alternate!"},
    {template_qwen3, long_chat, false,
     "<|im_start|>system\n Be brief. "
     "<|im_end|>\n<|im_start|>user\nHi\nthere<|im_end|>\n<|im_start|>assistant\n"
     "Hello.<|im_end|>\n<|im_start|>user\n日本 🙂?<|im_end|>\n"},
    {template_qwen3, tool_chat, false,
     "<|im_start|>user\nWeather in Brno?<|im_end|>\n<|im_start|>assistant\n<tool_call>\n"
     "{\"name\": \"weather\", \"arguments\": {\"city\": \"Brno\", \"days\": 2, \"f\": 1.5, "
     "\"now\": true, \"unit\": null}}\n"
     "</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n{\"t\": "
     "20}\n</tool_response><|im_end|>\n"
     "<|im_start|>assistant\n20 degrees.<|im_end|>\n<|im_start|>user\nThanks<|im_end|>\n"
     "<|im_start|>assistant\n"},
    {template_gemma, short_chat, false,
     "<s><start_of_turn>user\nWhere is Oslo?<end_of_turn>\n<start_of_turn>model\n"},
    {template_gemma, long_chat, false,
     "<s><start_of_turn>user\nBe "
     "brief.\n\nHi\nthere<end_of_turn>\n<start_of_turn>model\n<think>\nhm\n</think>\n\n"
     "Hello.<end_of_turn>\n<start_of_turn>user\n日本 🙂?<end_of_turn>\n"},
    {template_gemma, bad_chat, true, "Roles must alternate!"},
    {template_phi, short_chat, false, "<|user|>\n  Where is Oslo? <|end|>\n<|assistant|>\n"},
    {template_phi, long_chat, false,
     "<|system|>\n Be brief. "
     "<|end|>\n<|user|>\nHi\nthere<|end|>\n<|assistant|>\n<think>\nhm\n</think>\n\n"
     "Hello.<|end|>\n<|user|>\n日本 🙂?<|end|>\n</s>"},
    {template_deepseek, long_chat, false,
     "<s> Be brief. <｜User｜>Hi\nthere<｜Assistant｜>\n\nHello.<｜eos｜><｜User｜>日本 "
     "🙂?"},
    {template_deepseek, tool_chat, false,
     "<s><｜User｜>Weather in "
     "Brno?<｜Assistant｜><｜tool▁call｜>function<｜sep｜>weather\n```json\n"
     "{'city': 'Brno', 'days': 2, 'f': 1.5, 'now': True, 'unit': None}\n"
     "```<｜end｜><｜output｜>{\"t\": 20}<｜outputs▁end｜>20 "
     "degrees.<｜eos｜><｜User｜>Thanks<｜Assistant｜>"},
    {template_macros, long_chat, false,
     "<|SYSTEM|> Be brief. "
     "<|END|>\n<|USER|>Hi\nthere<|END|>\n<|ASSISTANT|><think>\nhm\n</think>\n\n"
     "Hello.<|END|>\n<|USER|>日本 🙂?<|END|>\n<|ASSISTANT|>\n"},
    {template_macros, tool_chat, false,
     "def weather(city: str, days: Union[int,Any], x: Union[]):\n"
     "    # The \"weather\" <of> a city, e.g. Plzeň\n<|USER|>Weather in "
     "Brno?<|END|>\n<|ASSISTANT|>-<|END|>\n"
     "<|TOOL|>{\"t\": 20}<|END|>\n<|ASSISTANT|>20 "
     "degrees.<|END|>\n<|USER|>Thanks<|END|>\n<|ASSISTANT|>\n"},
};

static void chats_are_rendered_as_by_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buffer out = {0};
        struct err e = {0};
        int rc = render(cases[i].source, cases[i].variables, NULL, &out, &e);
        const char *got = rc < 0 ? e.text : buffer_cstr(&out);
        if (rc != (cases[i].refuses ? HP_EINVAL : 0) || strcmp(got, cases[i].expected) != 0)
            fail_msg("chat %zu (%d): \"%s\", expected \"%s\"", i, rc, got, cases[i].expected);
        buffer_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chats_are_rendered_as_by_the_reference),
    };
    return cmocka_run_group_tests_name("template_chat", tests, NULL, NULL);
}
