/* Templates in the styles of published families, over chats with and without system messages,
 * thoughts and tools. The expected text is what jinja2 3.1 writes for them (sandboxed, trim_blocks
 * and lstrip_blocks, tojson without escaping for HTML). */
#include <stdlib.h>
#include <string.h>

#include "model/template/template.h"
#include "tests/test.h"
#include "tests/unit/model/template/chat_templates.h"
#include "tests/unit/model/template/render.h"

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

TEST(chats_are_rendered_as_by_the_reference)
{
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
