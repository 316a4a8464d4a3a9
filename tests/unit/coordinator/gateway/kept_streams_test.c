/* Answers that outlive their readers, over a table of requests that a test answers itself. */
#include <stdio.h>
#include <string.h>

#include "coordinator/gateway/kept_streams.h"
#include "tests/test.h"

enum { MOST = 8 };

/* The core: what was opened, and what it has from before. */
static struct {
    struct request_callbacks callbacks[MOST];
    uint64_t streams[MOST], cancelled[MOST], forgotten[2 * MOST];
    int n, n_cancelled, n_forgotten;
    bool satisfied;
    struct buffer note;
    struct request_before before[2];
    int n_before, attached;
} core;

static int core_open(void *ctx, const struct request_spec *r, uint64_t *id, struct err *e)
{
    (void)ctx;
    if (core.n == MOST)
        return err_set(e, HP_EBUSY, "full");
    core.callbacks[core.n] = r->callbacks;
    core.streams[core.n] = r->stream;
    if (r->note.size) {
        core.note.size = 0;
        buffer_append(&core.note, r->note.data, r->note.size);
    }
    *id = (uint64_t)++core.n;
    return 0;
}

static void core_cancel(void *ctx, uint64_t id, bool satisfied, struct request_usage *usage)
{
    (void)ctx;
    core.cancelled[core.n_cancelled++] = id;
    core.satisfied = satisfied;
    if (usage)
        *usage = (struct request_usage){.output_tokens = 9};
}

static void core_streams(void *ctx, void (*each)(void *out, const struct request_before *s),
                         void *out)
{
    (void)ctx;
    for (int i = 0; i < core.n_before; i++)
        each(out, &core.before[i]);
}

static uint64_t core_attach(void *ctx, uint64_t stream, const struct request_callbacks *callbacks)
{
    (void)ctx, (void)stream;
    core.callbacks[core.n] = *callbacks;
    core.attached++;
    return (uint64_t)++core.n;
}

static void core_forget(void *ctx, uint64_t stream)
{
    (void)ctx;
    core.forgotten[core.n_forgotten++] = stream;
}

static const struct requests requests = {.open = core_open,
                                         .cancel = core_cancel,
                                         .streams = core_streams,
                                         .attach = core_attach,
                                         .forget = core_forget};

static void core_tells(int request, const uint32_t *ids, size_t n)
{
    core.callbacks[request].tokens(core.callbacks[request].ctx, (uint64_t)request + 1, ids, n);
}

/* A reader: what it was told. */
struct listener {
    uint32_t ids[16];
    size_t n;
    bool finished, failed, taken;
};

static void on_tokens(void *ctx, uint64_t request, const uint32_t *ids, size_t n)
{
    struct listener *r = ctx;
    (void)request;
    for (size_t i = 0; i < n; i++)
        r->ids[r->n++] = ids[i];
}

static void on_finished(void *ctx, uint64_t request, enum request_finish finish,
                        const struct request_usage *usage)
{
    struct listener *r = ctx;
    (void)request, (void)finish;
    r->finished = usage->output_tokens > 0;
}

static void on_failed(void *ctx, uint64_t request, const struct err *why,
                      const struct request_usage *usage)
{
    struct listener *r = ctx;
    (void)request, (void)usage;
    r->failed = why->code < 0;
}

static void on_taken(void *reader)
{
    ((struct listener *)reader)->taken = true;
}

struct kept_fixture {
    uv_loop_t loop;
    struct kept_streams *kept;
};

static int setup(void **state)
{
    static struct kept_fixture f;
    memset(&core, 0, sizeof core);
    uv_loop_init(&f.loop);
    f.kept = kept_streams_create(&f.loop, &requests, 1000);
    assert_non_null(f.kept);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct kept_fixture *f = *state;
    kept_streams_close(&f->kept);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    buffer_free(&core.note);
    return 0;
}

static struct kept_stream asked_of(const char *key, const char *scope, const char *body)
{
    struct kept_stream asked = {.dialect = &dialect_openai, .created_s = 5};
    snprintf(asked.key, sizeof asked.key, "%s", key);
    snprintf(asked.scope, sizeof asked.scope, "%s", scope);
    snprintf(asked.id, sizeof asked.id, "cmpl-%s", key);
    asked.body = (struct buffer){.data = (uint8_t *)(uintptr_t)body, .size = strlen(body)};
    return asked;
}

static struct kept_stream *find(struct kept_fixture *f, const char *key, const char *scope,
                                const char *body, bool found)
{
    struct kept_stream asked = asked_of(key, scope, body), *s = NULL;
    bool was;
    struct err e = {0};
    assert_int_equal(kept_stream_find(f->kept, &asked, &s, &was, &e), 0);
    assert_int_equal(was, found);
    return s;
}

static uint64_t read_choice(struct kept_stream *s, struct listener *r, uint32_t index)
{
    uint64_t id;
    struct err e = {0};
    struct request_spec spec = {
        .callbacks = {.ctx = r, .tokens = on_tokens, .finished = on_finished, .failed = on_failed}};
    assert_int_equal(kept_choice_open(s, index, &spec, &id, &e), 0);
    return id;
}

static void a_second_reader_is_told_all_and_the_first_one_nothing_more(void **state)
{
    struct kept_fixture *f = *state;
    struct listener a = {0}, b = {0};
    struct kept_stream *s = find(f, "k", "", "body", false);
    kept_stream_read(s, &a, on_taken);
    read_choice(s, &a, 0);
    core_tells(0, (const uint32_t[]){1, 2, 3}, 3);
    assert_int_equal(a.n, 3);
    assert_ptr_equal(find(f, "k", "", "body", true), s);
    kept_stream_read(s, &b, on_taken);
    assert_true(a.taken);
    read_choice(s, &b, 0);
    assert_int_equal(b.n, 0); /* not within the call */
    core_tells(0, (const uint32_t[]){4}, 1);
    uv_run(&f->loop, UV_RUN_NOWAIT);
    assert_int_equal(a.n, 3);
    assert_int_equal(b.n, 4);
    assert_memory_equal(b.ids, ((const uint32_t[]){1, 2, 3, 4}), 16);
    const struct request_usage usage = {.output_tokens = 4};
    core.callbacks[0].finished(core.callbacks[0].ctx, 1, REQUEST_LENGTH, &usage);
    assert_true(b.finished && !a.finished);
    assert_int_equal(core.n, 1);
}

static void a_key_with_another_body_or_of_another_scope_is_another_request(void **state)
{
    struct kept_fixture *f = *state;
    struct kept_stream *s = find(f, "k", "key x", "body", false), asked, *other;
    struct err e = {0};
    bool found;
    asked = asked_of("k", "key x", "bodY");
    assert_int_equal(kept_stream_find(f->kept, &asked, &other, &found, &e), HP_EEXIST);
    assert_non_null(strstr(e.text, "\"k\" was used for another request, cmpl-k"));
    asked = asked_of("k", "key x", "body");
    asked.dialect = &dialect_messages;
    assert_int_equal(kept_stream_find(f->kept, &asked, &other, &found, &e), HP_EEXIST);
    find(f, "k", "key y", "bodY", false);
    assert_ptr_equal(kept_stream_of_id(f->kept, "key x", "cmpl-k"), s);
    assert_null(kept_stream_of_id(f->kept, "key z", "cmpl-k"));
    assert_null(kept_stream_of_id(f->kept, "key x", "cmpl-"));
}

static void without_a_reader_it_goes_on_for_a_while_and_then_ends(void **state)
{
    struct kept_fixture *f = *state;
    struct listener a = {0};
    struct kept_stream *s = find(f, "k", "", "body", false);
    kept_stream_read(s, &a, on_taken);
    uint64_t id = read_choice(s, &a, 0);
    kept_choice_leave(s, id, false, NULL);
    kept_stream_leave(s, &a);
    core_tells(0, (const uint32_t[]){1}, 1);
    kept_streams_tick(f->kept);
    assert_int_equal(a.n, 0);
    assert_int_equal(core.n_cancelled, 0);
    s->left_ns -= UINT64_C(1000000000);
    kept_streams_tick(f->kept);
    assert_int_equal(core.cancelled[0], 1);
    assert_false(core.satisfied);
    assert_int_equal(core.forgotten[0], core.streams[0]);
    find(f, "k", "", "another body", false);
}

static void one_that_is_satisfied_is_over_for_whoever_reads_it_later(void **state)
{
    struct kept_fixture *f = *state;
    struct listener a = {0}, b = {0};
    struct request_usage usage;
    struct kept_stream *s = find(f, "k", "", "body", false);
    kept_stream_read(s, &a, on_taken);
    uint64_t id = read_choice(s, &a, 0);
    core_tells(0, (const uint32_t[]){1, 2}, 2);
    kept_choice_leave(s, id, true, &usage);
    assert_true(core.satisfied && usage.output_tokens == 9);
    kept_stream_leave(s, &a);
    kept_stream_read(s, &b, on_taken);
    read_choice(s, &b, 0);
    uv_run(&f->loop, UV_RUN_NOWAIT);
    assert_true(b.n == 2 && b.finished);
    assert_int_equal(core.n_cancelled, 1);
}

static void one_that_fails_takes_its_choices_with_it_and_is_forgotten(void **state)
{
    struct kept_fixture *f = *state;
    struct listener a = {0}, b = {0};
    struct err why = {0};
    const struct request_usage usage = {0};
    struct kept_stream *s = find(f, "k", "", "body", false);
    kept_stream_read(s, &a, on_taken);
    read_choice(s, &a, 0);
    read_choice(s, &b, 1);
    assert_int_equal(core.streams[1], core.streams[0] + 1);
    err_set(&why, HP_ELINK, "gone");
    core.callbacks[1].failed(core.callbacks[1].ctx, 2, &why, &usage);
    assert_true(b.failed);
    assert_int_equal(core.cancelled[0], 1);
    kept_stream_leave(s, &a);
    find(f, "k", "", "body", false);
    kept_streams_tick(f->kept);
    assert_int_equal(core.n_forgotten, 2);
}

static bool told(const struct kept_stream *s, uint32_t tokens, bool ended)
{
    const struct event_id had = {.n = 1, .tokens = {tokens}, .ended = {ended}};
    return kept_stream_told(s, &had);
}

static void nobody_has_had_more_of_it_than_there_was(void **state)
{
    struct kept_fixture *f = *state;
    struct listener a = {0};
    const struct request_usage usage = {.output_tokens = 2};
    struct kept_stream *s = find(f, "k", "", "body", false);
    kept_stream_read(s, &a, on_taken);
    assert_true(told(s, 0, false) && !told(s, 1, false)); /* nothing is open yet */
    read_choice(s, &a, 0);
    core_tells(0, (const uint32_t[]){1, 2}, 2);
    assert_true(told(s, 2, false) && !told(s, 3, false) && !told(s, 2, true));
    core.callbacks[0].finished(core.callbacks[0].ctx, 1, REQUEST_LENGTH, &usage);
    assert_true(told(s, 2, true) && !told(s, 3, true));
}

/* What one run notes with the core the next one finds. */
static void answers_of_before_are_found_with_their_bodies(void **state)
{
    struct kept_fixture *f = *state;
    struct listener a = {0}, b = {0};
    static const uint32_t ids[] = {7, 8};
    struct kept_stream *s = find(f, "k", "key x", "body", false);
    buffer_append(&s->stops, "stops", 5); /* which are none: nothing is looked for */
    kept_stream_read(s, &a, on_taken);
    read_choice(s, &a, 0);
    uint64_t number = core.streams[0];
    kept_streams_close(&f->kept);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    core.n = 0;
    core.before[0] =
        (struct request_before){.stream = number, .note = {core.note.data, core.note.size}};
    core.before[1] = (struct request_before){
        .stream = number + 1, .ended = true, .ids = ids, .n = 2, .usage = {.output_tokens = 2}};
    core.n_before = 2;
    f->kept = kept_streams_create(&f->loop, &requests, 1000);
    assert_int_equal(core.attached, 2);
    s = find(f, "k", "key x", "body", true);
    assert_true(told(s, 1000, false)); /* agents may tell more than was found */
    assert_true(s->created_s == 5 && s->dialect == &dialect_openai);
    assert_true(s->stops.size == 5 && memcmp(s->stops.data, "stops", 5) == 0);
    core_tells(0, ids, 2);
    kept_stream_read(s, &b, on_taken);
    read_choice(s, &b, 0);
    uv_run(&f->loop, UV_RUN_NOWAIT);
    assert_true(b.n == 2 && !b.finished);
    read_choice(s, &b, 1);
    uv_run(&f->loop, UV_RUN_NOWAIT);
    assert_true(b.n == 4 && b.finished);
}

static void a_note_that_cannot_be_read_is_forgotten(void **state)
{
    struct kept_fixture *f = *state;
    static const uint8_t bad[] = {0x81, 0xa2, 'i', 'd', 0xa1};
    kept_streams_close(&f->kept);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    core.before[0] = (struct request_before){.stream = 0x50000, .note = {bad, sizeof bad}};
    core.before[1] = (struct request_before){.stream = 0x60001};
    core.n_before = 2;
    f->kept = kept_streams_create(&f->loop, &requests, 1000);
    assert_int_equal(core.n_forgotten, 2);
    assert_int_equal(core.attached, 0);
}

int main(void)
{
#define CLAIM(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CLAIM(a_second_reader_is_told_all_and_the_first_one_nothing_more),
        CLAIM(a_key_with_another_body_or_of_another_scope_is_another_request),
        CLAIM(without_a_reader_it_goes_on_for_a_while_and_then_ends),
        CLAIM(one_that_is_satisfied_is_over_for_whoever_reads_it_later),
        CLAIM(one_that_fails_takes_its_choices_with_it_and_is_forgotten),
        CLAIM(nobody_has_had_more_of_it_than_there_was),
        CLAIM(answers_of_before_are_found_with_their_bodies),
        CLAIM(a_note_that_cannot_be_read_is_forgotten),
    };
    return cmocka_run_group_tests_name("kept_streams", tests, NULL, NULL);
}
