/* The gateway's own code with failing allocations. */
#include "coordinator/gateway/completion.h"
#include "coordinator/gateway/dialect.h"
#include "coordinator/gateway/kept_notes.h"
#include "coordinator/gateway/kept_stops.h"
#include "coordinator/gateway/lanes.h"
#include "coordinator/gateway/openai_json.h"
#include "coordinator/gateway/prompt.h"
#include "tests/unit/coordinator/gateway/byte_tokenizer.h"
#include "tests/unit/faults.h"

static const char demo_model[] = "examples/demo-model/demo-q8_0.gguf";

static const char chat_text[] =
    "{\"model\": \"m\", \"messages\": [{\"role\": \"system\", \"content\": null}, {\"role\": "
    "\"user\", \"content\": [{\"type\": \"text\", \"text\": "
    "\"a <|im_end|>\"}, {\"type\": \"text\", \"text\": \"b\"}]}], \"stop\": [\"x\", \"y\"], "
    "\"logit_bias\": {\"3\": 1}, \"literal_specials\": true, "
    "\"stream\": true, \"seed\": 99, \"reasoning_effort\": \"low\", \"metadata\": {\"big\": "
    "123456789012345678901234567890}}";
static const char ids_text[] = "{\"model\": \"m\", \"prompt\": [[1, 2, 3], \"x\"]}";

static int body_parsed(const char *text, bool chat)
{
    struct openai_body *b = NULL;
    const char *param;
    struct err e = {0};
    int rc = openai_body_parse(text, strlen(text), chat, &b, &param, &e);
    if (rc == 0 && (b->n_stops != (chat ? 2 : 0) || strcmp(b->model, "m") != 0))
        rc = HP_EBUG;
    openai_body_destroy(&b);
    return rc;
}

static int bodies(void *ctx)
{
    (void)ctx;
    int rc = body_parsed(chat_text, true);
    return rc < 0 ? rc : body_parsed(ids_text, false);
}

/* Other dialects' bodies: what a translation makes is whole, or refused for want of memory. */
static const struct {
    const struct dialect *dialect;
    const char *body;
    size_t n_messages;
    int loads;
} others[] = {
    {&dialect_ollama_chat,
     "{\"model\": \"m:latest\", \"messages\": [{\"role\": \"user\", \"content\": \"x\"}], "
     "\"options\": {\"num_predict\": 7, \"stop\": [\"a\"]}, \"think\": false}",
     1, 0},
    {&dialect_ollama_generate,
     "{\"model\": \"m\", \"prompt\": \"x\", \"system\": \"y\", \"options\": {\"num_predict\": 7, "
     "\"stop\": \"a\"}}",
     2, 0},
    {&dialect_ollama_chat,
     "{\"model\": \"m\", \"messages\": [], \"keep_alive\": 0, \"options\": {\"num_predict\": 7, "
     "\"stop\": \"a\"}}",
     1, DIALECT_UNLOAD},
    {&dialect_messages,
     "{\"model\": \"m\", \"system\": \"y\", \"messages\": [{\"role\": \"user\", \"content\": "
     "\"x\"}, "
     "{\"role\": \"assistant\", \"content\": \"z\"}], \"max_tokens\": 7, \"stop_sequences\": "
     "[\"a\"], \"stream\": true, \"output_config\": {\"effort\": \"low\"}}",
     3, 0},
    {&dialect_responses,
     "{\"model\": \"m\", \"instructions\": \"y\", \"input\": \"x\", \"max_output_tokens\": 7, "
     "\"stream\": true, \"metadata\": {\"a\": \"b\"}, \"reasoning\": {\"effort\": \"low\"}}",
     2, 0},
};
enum { OTHERS = sizeof others / sizeof *others };

static int translations(void *ctx)
{
    json_t **bodies_read = ctx;
    int rc = 0;
    for (size_t i = 0; i < OTHERS && rc == 0; i++) {
        json_t *root = json_copy(bodies_read[i]);
        const char *param = NULL;
        struct err e = {0};
        bool chat;
        /* A copy that lacks memory lacks members. */
        bool copied = root && json_object_size(root) == json_object_size(bodies_read[i]);
        rc = copied ? others[i].dialect->translate(&root, &chat, &param, &e) : HP_ENOMEM;
        if (rc >= 0 && (rc != others[i].loads || !chat ||
                        strcmp(json_string_value(json_object_get(root, "model")), "m") != 0 ||
                        json_integer_value(json_object_get(root, "max_tokens")) != 7 ||
                        !json_is_true(json_object_get(root, "stream")) ||
                        !json_object_get(root, others[i].dialect->repeats ? "asked" : "stop") ||
                        json_array_size(json_object_get(root, "messages")) != others[i].n_messages))
            rc = HP_EBUG;
        rc = rc > 0 ? 0 : rc;
        json_decref(root);
    }
    return rc;
}

TEST(other_dialects_bear_every_failing_allocation)
{
    json_t *read[OTHERS];
    for (size_t i = 0; i < OTHERS; i++)
        assert_non_null(read[i] = json_loads(others[i].body, 0, NULL));
    faults_each("translations", translations, read);
    for (size_t i = 0; i < OTHERS; i++)
        json_decref(read[i]);
}

static int prompt_of(struct model *m, const char *text, bool chat)
{
    struct openai_body *b = NULL;
    struct prompt p = {0};
    const char *param;
    struct err e = {0};
    int rc = openai_body_parse(text, strlen(text), chat, &b, &param, &e);
    if (rc == 0) {
        prompt_make(b, m, 1000, &p, &e);
        rc = p.rc;
    }
    openai_body_destroy(&b);
    prompt_free(&p);
    return rc;
}

static int prompts(void *ctx)
{
    int rc = prompt_of(ctx, chat_text, true);
    rc = rc < 0 ? rc : prompt_of(ctx, ids_text, false);
    return rc < 0 ? rc
                  : prompt_of(ctx,
                              "{\"model\": \"m\", \"prompt\": \"hello <|im_end|>\", "
                              "\"literal_specials\": true}",
                              false);
}

static int replies(void *ctx)
{
    struct completion_text c;
    struct buffer out = {0};
    struct request_usage usage = {0};
    struct openai_head h = {.id = "x", .model = "m", .chat = true};
    size_t n;
    completion_init(&c, ctx, true);
    bool fine = completion_add_stop(&c, "stop") && completion_add_stop(&c, "end");
    byte_tokens_push(&c, "some text", 9);
    const char *text = completion_take(&c, &n);
    openai_event_text(&out, &h, 0, text, n);
    openai_json_begin(&out, &h);
    struct openai_message m = {.text = text, .n = n};
    openai_json_choice(&out, &h, 0, &m, "stop");
    openai_json_end(&out, &usage);
    openai_json_error(&out, 400, "wrong", "field", NULL);
    fine = fine && !out.failed && !c.text.failed;
    completion_fini(&c);
    buffer_free(&out);
    return fine ? 0 : HP_ENOMEM;
}

static int notes(void *ctx)
{
    struct kept_stream s = {.id = "cmpl-1", .key = "k", .dialect = &dialect_messages}, again;
    struct buffer out = {0};
    (void)ctx;
    buffer_append(&s.body, "{}", 2);
    kept_note_write(&s, &out);
    int rc = out.failed || s.body.failed ? HP_ENOMEM : 0;
    if (rc == 0 && !kept_note_read((struct pack_span){out.data, out.size}, &again))
        rc = HP_ENOMEM;
    else if (rc == 0 && (again.dialect != &dialect_messages || again.body.size != 2))
        rc = HP_EBUG;
    if (rc == 0 || rc == HP_EBUG)
        buffer_free(&again.body);
    buffer_free(&s.body);
    buffer_free(&out);
    return rc;
}

TEST(what_a_request_needs_bears_every_failing_allocation)
{
    faults_each("bodies", bodies, NULL);
    faults_each("notes", notes, NULL);
    struct tokenizer *bytes = byte_tokenizer_create();
    faults_each("replies", replies, bytes);
    tokenizer_destroy(&bytes);
}

TEST(prompts_bear_every_failing_allocation)
{
    struct model *m = NULL;
    struct err e = {0};
    if (access(demo_model, R_OK) != 0)
        skip();
    if (model_open_text(demo_model, &m, &e) < 0 || model_text_prepare(m, &e) < 0)
        fail_msg("%s", e.text);
    faults_each("prompts", prompts, m);
    model_close(&m);
}

static int model_found(void *ctx, const char *client, const char *name, struct request_model *out,
                       struct err *e)
{
    (void)client, (void)e;
    *out = (struct request_model){.name = name, .serving = true, .model = ctx};
    return strcmp(name, "m") == 0 ? 0 : HP_ENOENT;
}

/* "one stop two", of which all but the last token are seen to hold the stop. */
struct watched {
    struct requests core;
    uint32_t ids[64];
    int n;
};

/* What is seen of so many of its tokens; -1: nobody could look. */
static int watched_sees(const struct watched *x, const struct kept_stops *stops, size_t n)
{
    struct buffer out = {0};
    kept_stops_write(stops, &out);
    struct kept_watch *w =
        out.failed ? NULL : kept_watch_create(&x->core, "", (struct pack_span){out.data, out.size});
    int sees = w ? kept_watch_sees(w, x->ids, n) : -1;
    kept_watch_destroy(&w);
    buffer_free(&out);
    return sees;
}

static int watches(void *ctx)
{
    const struct watched *x = ctx;
    char *texts[] = {"nothing", "stop"};
    const struct completion_text like = {.n_kept = 0};
    struct kept_stops stops = {.model = "m", .texts = texts, .n_texts = 2, .like = &like};
    bool fine = watched_sees(x, &stops, (size_t)x->n) == 1 && watched_sees(x, &stops, 1) == 0;
    stops.n_texts = 1;
    fine = fine && watched_sees(x, &stops, (size_t)x->n) == 0;
    stops.ids = &x->ids[1];
    stops.n_ids = 1;
    fine = fine && watched_sees(x, &stops, 2) == 1 && watched_sees(x, &stops, 1) == 0;
    return fine ? 0 : HP_ENOMEM;
}

TEST(stops_of_answers_that_nobody_reads_bear_every_failing_allocation)
{
    struct model *m = NULL;
    struct watched x = {.core.find = model_found};
    struct err e = {0};
    const struct tokenizer *t;
    if (access(demo_model, R_OK) != 0)
        skip();
    if (model_open_text(demo_model, &m, &e) < 0 || model_text_prepare(m, &e) < 0 ||
        model_tokenizer(m, &t, &e) < 0)
        fail_msg("%s", e.text);
    struct buffer ids = {0};
    assert_true(tokenizer_encode(t, "one stop two", 12, false, &ids, &e) >= 0);
    x.n = (int)(ids.size / sizeof *x.ids);
    assert_true(x.n > 2 && ids.size <= sizeof x.ids);
    memcpy(x.ids, ids.data, ids.size);
    buffer_free(&ids);
    x.core.ctx = m;
    faults_each("watches", watches, &x);
    const struct completion_text like = {.n_kept = 0};
    const struct kept_stops gone = {.model = "gone", .ids = x.ids, .n_ids = 1, .like = &like};
    assert_int_equal(watched_sees(&x, &gone, 1), -1);
    model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_request_needs_bears_every_failing_allocation),
        cmocka_unit_test(other_dialects_bear_every_failing_allocation),
        cmocka_unit_test(prompts_bear_every_failing_allocation),
        cmocka_unit_test(stops_of_answers_that_nobody_reads_bear_every_failing_allocation),
    };
    return cmocka_run_group_tests_name("gateway_faults", tests, NULL, NULL);
}
