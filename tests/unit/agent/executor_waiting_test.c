/* The executor while a vocabulary's tree is being made: sequences that are held to a grammar wait
 * for it, and nobody else does. */
#include <semaphore.h>
#include <stdlib.h>

#include "agent/executor_int.h"
#include "common/log.h"
#include "model/grammar/automaton.h"
#include "model/grammar/grammar_source.h"
#include "tests/test.h"
#include "tests/unit/model/grammar/made_vocabulary.h"
#include "tests/unit/semaphores.h"

enum { LAYERS = 18, SLOT = 1, FREE = 1, HELD = 2, LIMIT_S = 60, PICKS = 4 };

/* In place of the agent's: its tree is made when the test says so. */
static struct {
    void (*made)(void *ctx);
    void *ctx;
    atomic_bool ready;
} shelf;
static struct token_tree *tree;
static struct automaton *automaton;

struct grammar_shelf *grammar_shelf_create(const char *path, uint32_t vocabulary,
                                           void (*made)(void *ctx), void *ctx)
{
    assert_non_null(path);
    assert_non_null(made);
    shelf.made = made;
    shelf.ctx = ctx;
    tree = made_tree(vocabulary);
    return (struct grammar_shelf *)&shelf;
}

void grammar_shelf_destroy(struct grammar_shelf **s)
{
    *s = NULL;
    if (automaton)
        automaton_destroy(&automaton);
    token_tree_destroy(&tree);
}

bool grammar_shelf_ready(struct grammar_shelf *s)
{
    (void)s;
    return atomic_load(&shelf.ready);
}

int grammar_shelf_find(struct grammar_shelf *s, struct pack_span grammar, struct automaton **out,
                       struct err *e)
{
    struct grammar *g = NULL;
    assert_true(grammar_shelf_ready(s));
    int rc = automaton ? 0 : grammar_read(grammar.data, grammar.size, &g, e);
    rc = automaton || rc < 0 ? rc : automaton_create(&g, tree, &automaton, e);
    *out = automaton;
    return rc;
}

int grammar_shelf_tree(struct grammar_shelf *s, const struct token_tree **out, struct err *e)
{
    (void)e;
    assert_true(grammar_shelf_ready(s));
    *out = tree;
    return 0;
}

struct waiting_fixture {
    struct data_endpoint *data;
    struct executor *x;
    sem_t loaded, opened, ran;
    uint32_t vocabulary, picked;
    uint64_t last_opened;
    struct batch_run run;
    struct batch batch;
    uint32_t ids[1];
};

static void frame_ignore(void *ctx, const struct frame_header *h, struct data_buffer *payload)
{
    (void)h;
    data_buffer_release(((struct waiting_fixture *)ctx)->data, payload);
}

static void told(void *ctx, const struct executor_report *r)
{
    struct waiting_fixture *f = ctx;
    if (r->status != HP_PENDING)
        assert_int_equal(r->status, 0);
    if (r->kind == EXECUTOR_LOADED && r->status == 0) {
        f->vocabulary = r->vocabulary;
        sem_post(&f->loaded);
    } else if (r->kind == EXECUTOR_OPENED) {
        f->last_opened = r->sequence;
        sem_post(&f->opened);
    } else if (r->kind == EXECUTOR_RAN) {
        f->picked = r->picked[0];
        sem_post(&f->ran);
    }
}

static int setup(void **state)
{
    struct waiting_fixture *f = calloc(1, sizeof *f);
    struct data_config d = {.callbacks = {f, frame_ignore, NULL}};
    log_set_level(LOG_ERROR);
    atomic_store(&shelf.ready, false);
    sem_t *all[] = {&f->loaded, &f->opened, &f->ran};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        sem_init(all[i], 0, 0);
    assert_int_equal(data_open_inproc(&d, &f->data, NULL), 0);
    struct executor_config c = {
        .device = {.backend = "cpu", .n_threads = 1}, .data = f->data, .report = told, .ctx = f};
    assert_int_equal(executor_create(&c, &f->x, NULL), 0);
    executor_load(f->x, &(struct executor_load){.slot = SLOT,
                                                .ticket = SLOT,
                                                .path = "examples/demo-model/demo-q8_0.gguf",
                                                .end_layer = LAYERS,
                                                .kv_tokens = 256,
                                                .max_sequences = 4,
                                                .max_batch_tokens = 64,
                                                .n_stages = 1});
    semaphore_wait(&f->loaded, LIMIT_S);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct waiting_fixture *f = *state;
    executor_destroy(&f->x);
    data_close(&f->data);
    free(f);
    return 0;
}

static void sequence_open(struct waiting_fixture *f, uint64_t sequence)
{
    struct sampling_params p = sampling_greedy;
    struct buffer wire = {0};
    struct sampler *s = NULL;
    uint32_t end = f->vocabulary - 1;
    if (sequence == HELD) {
        assert_int_equal(grammar_source_regular("[0-9]{40}", 9, "regex", &wire, NULL), 0);
        p.grammar = (struct pack_span){wire.data, wire.size};
    }
    assert_int_equal(sampler_create(&p, (int)f->vocabulary, NULL, 0, &s, NULL), 0);
    assert_int_equal(sampler_expect(s, 100, &end, 1, NULL), 0);
    buffer_free(&wire);
    executor_sequence_open(f->x, &(struct executor_opening){.slot = SLOT,
                                                            .ticket = sequence,
                                                            .sequence = sequence,
                                                            .kv_tokens = 100,
                                                            .sampler = s});
}

/* Gives the token that was picked. */
static uint32_t sequence_run(struct waiting_fixture *f, uint64_t sequence, uint32_t position)
{
    f->run = (struct batch_run){.sequence = sequence,
                                .first_position = position,
                                .n_tokens = 1,
                                .n_logits = 1,
                                .sample = true};
    f->batch =
        (struct batch){.runs = &f->run, .n_runs = 1, .n_tokens = 1, .n_logits = 1, .ids = f->ids};
    f->ids[0] = 7;
    executor_run(f->x, &(struct executor_run){.slot = SLOT, .ticket = 9, .batch = &f->batch});
    semaphore_wait(&f->ran, LIMIT_S);
    return f->picked;
}

static void tree_is_made(void)
{
    atomic_store(&shelf.ready, true);
    shelf.made(shelf.ctx);
}

static void a_grammar_waits_for_the_vocabulary_and_holds_up_nobody(void **state)
{
    struct waiting_fixture *f = *state;
    sequence_open(f, HELD);
    sequence_open(f, FREE);
    semaphore_wait(&f->opened, LIMIT_S);
    assert_int_equal(f->last_opened, FREE);
    for (uint32_t i = 0; i < PICKS; i++)
        sequence_run(f, FREE, i);
    assert_int_equal(sem_trywait(&f->opened), -1);
    tree_is_made();
    semaphore_wait(&f->opened, LIMIT_S);
    assert_int_equal(f->last_opened, HELD);
    for (uint32_t i = 0; i < PICKS; i++) {
        uint32_t token = sequence_run(f, HELD, i);
        for (uint32_t at = tree->offsets[token]; at < tree->offsets[token + 1]; at++)
            assert_in_range(tree->bytes[at], '0', '9');
        assert_true(tree->offsets[token] < tree->offsets[token + 1]);
    }
}

static void a_sequence_that_is_closed_while_it_waits_is_not_opened(void **state)
{
    struct waiting_fixture *f = *state;
    sequence_open(f, HELD);
    executor_sequence_close(f->x, SLOT, HELD, 0);
    sequence_open(f, FREE);
    semaphore_wait(&f->opened, LIMIT_S);
    assert_int_equal(f->last_opened, FREE);
    tree_is_made();
    sequence_run(f, FREE, 0);
    assert_int_equal(sem_trywait(&f->opened), -1);
    sequence_open(f, HELD); /* what has this number now is another one */
    semaphore_wait(&f->opened, LIMIT_S);
    assert_int_equal(f->last_opened, HELD);
}

/* What it owned is given back (the sanitizers look). */
static void a_stage_that_is_unloaded_takes_those_that_wait_with_it(void **state)
{
    struct waiting_fixture *f = *state;
    sequence_open(f, HELD);
    sequence_open(f, FREE);
    semaphore_wait(&f->opened, LIMIT_S);
    executor_unload(f->x, SLOT);
    executor_sequence_close(f->x, SLOT, HELD, 0);
    tree_is_made();
    executor_destroy(&f->x);
    assert_int_equal(sem_trywait(&f->opened), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_grammar_waits_for_the_vocabulary_and_holds_up_nobody,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_sequence_that_is_closed_while_it_waits_is_not_opened,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_stage_that_is_unloaded_takes_those_that_wait_with_it,
                                        setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
