#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/engine/queue.h"
#include "tests/test.h"

static const uint64_t second = 1000000000;

static struct queue *queue_of(bool first, bool last, uint32_t n_stages, uint32_t max_batch_tokens)
{
    struct queue_config c = {.first = first,
                             .last = last,
                             .n_stages = n_stages,
                             .max_batch_tokens = max_batch_tokens,
                             .max_sequences = 16,
                             .hold_limit_ns = 10 * second,
                             .flight_limit_ns = 30 * second,
                             .flight_linger_ns = 2 * second};
    struct queue *q;
    assert_int_equal(queue_create(&c, &q, NULL), 0);
    return q;
}

static const uint32_t prompt[64] = {10, 11, 12, 13, 14, 15, 16, 17, 18, 19};

static int open_prompt(struct queue *q, uint64_t id, uint32_t n, const uint32_t *slices,
                       uint32_t n_slices)
{
    struct queue_sequence s = {.id = id,
                               .owner = q,
                               .prompt = prompt,
                               .n_prompt = n,
                               .slices = slices,
                               .n_slices = n_slices};
    int rc = queue_sequence_open(q, &s, NULL);
    if (rc == 0)
        queue_sequence_ready(q, id);
    return rc;
}

static bool token(struct queue *q, uint64_t id, uint32_t number, uint32_t token, bool finished)
{
    struct frame_token t = {id, token, finished ? FRAME_TOKEN_LAST : FRAME_TOKEN_NEXT, 0};
    return queue_token(q, number, &t);
}

/* "5:3+2 6:7+1": each run as sequence:position+tokens. */
static const char *text_of(const struct batch *b)
{
    static char text[512];
    size_t n = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < b->n_runs; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%llu:%u+%u%s", i ? " " : "",
                              (unsigned long long)b->runs[i].sequence, b->runs[i].first_position,
                              b->runs[i].n_tokens, b->runs[i].n_logits ? "!" : "");
    return text;
}

/* Takes the next batch and runs it: its text, "-" when there is none. */
static const char *step(struct queue *q, struct batch *b)
{
    uint64_t dropped = 0;
    if (!queue_next(q, b, &dropped))
        return "-";
    if (b->n_runs)
        queue_done(q, b, 0, 0);
    return b->n_runs ? text_of(b) : "empty";
}

TEST(prompt_runs_slice_by_slice_and_only_its_end_asks_for_logits)
{
    static const struct {
        uint32_t n, slices[4], n_slices, max_batch;
        const char *runs[6];
    } cases[] = {
        {10, {4, 4, 2}, 3, 64, {"1:0+4", "1:4+4", "1:8+2!", "-"}},
        {10, {0}, 0, 64, {"1:0+10!", "-"}},
        {10, {7, 3}, 2, 4, {"1:0+4", "1:4+3", "1:7+3!", "-"}}, /* a slice that is too large is cut
                                                                */
        {10, {0}, 0, 4, {"1:0+4", "1:4+4", "1:8+2!", "-"}},
        {1, {1}, 1, 4, {"1:0+1!", "-"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct queue *q = queue_of(true, false, 8, cases[i].max_batch);
        struct batch b = {0};
        assert_int_equal(open_prompt(q, 1, cases[i].n, cases[i].slices, cases[i].n_slices), 0);
        for (size_t k = 0; cases[i].runs[k]; k++) {
            assert_string_equal(step(q, &b), cases[i].runs[k]);
            if (strcmp(cases[i].runs[k], "-") != 0)
                assert_memory_equal(b.ids, prompt + b.runs[0].first_position,
                                    b.n_tokens * sizeof *prompt);
        }
        batch_free(&b);
        queue_destroy(&q, NULL, NULL);
    }
}

TEST(first_stage_has_at_most_two_batches_a_stage_in_flight)
{
    struct queue *q = queue_of(true, false, 2, 1);
    struct batch b = {0};
    open_prompt(q, 1, 10, NULL, 0);
    for (int i = 0; i < 4; i++)
        assert_string_not_equal(step(q, &b), "-");
    assert_int_equal(queue_view(q).in_flight, 4);
    assert_string_equal(step(q, &b), "-");
    queue_returned(q, 77, 0); /* nobody's */
    assert_string_equal(step(q, &b), "-");
    queue_returned(q, 0, 0);
    assert_string_equal(step(q, &b), "1:4+1");
    assert_string_equal(step(q, &b), "-");
    batch_free(&b);
    queue_destroy(&q, NULL, NULL);
}

TEST(prompts_fill_the_pipeline_until_somebody_answers_whose_tokens_have_room_beside_them)
{
    struct queue *q = queue_of(true, false, 2, 2);
    struct batch b = {0};
    open_prompt(q, 1, 2, NULL, 0);
    open_prompt(q, 2, 20, NULL, 0);
    assert_string_equal(step(q, &b), "1:0+2!"); /* it awaits its first token, and answers not yet */
    assert_string_equal(step(q, &b), "2:0+2");
    assert_string_equal(step(q, &b), "2:2+2");
    assert_string_equal(step(q, &b), "2:4+2");
    assert_string_equal(step(q, &b), "-");
    token(q, 1, 0, 8, false);
    assert_string_equal(step(q, &b), "1:2+1!");
    for (uint32_t i = 0; i < 3; i++) {
        assert_string_equal(step(q, &b), "-"); /* two slices are on their way, or more */
        queue_returned(q, i, 0);
    }
    assert_string_equal(step(q, &b), "2:6+2");
    batch_free(&b);
    queue_destroy(&q, NULL, NULL);
}

TEST(batch_counts_as_in_flight_until_it_has_been_through_whoever_is_closed)
{
    struct queue *q = queue_of(true, false, 1, 4);
    struct batch b = {0};
    struct queue_overdue late;
    open_prompt(q, 1, 10, NULL, 0);
    step(q, &b);
    step(q, &b);
    assert_string_equal(step(q, &b), "-");
    assert_ptr_equal(queue_sequence_close(q, 1, second), q);
    assert_int_equal(queue_view(q).in_flight, 2);
    open_prompt(q, 2, 2, NULL, 0);
    assert_string_equal(step(q, &b), "-");
    queue_returned(q, 0, second);
    assert_string_equal(step(q, &b), "2:0+2!");
    /* The other is not waited for much longer: nobody is left who would miss it. */
    assert_int_equal(queue_deadline_ns(q), 3 * second);
    assert_false(queue_flight_expire(q, 3 * second - 1, &late));
    assert_true(queue_flight_expire(q, 3 * second, &late));
    assert_int_equal(late.n_live, 0);
    assert_false(queue_flight_expire(q, 3 * second, &late));
    assert_int_equal(queue_view(q).in_flight, 1);
    batch_free(&b);
    queue_destroy(&q, NULL, NULL);
}

static void
batch_that_does_not_come_back_is_overdue_after_its_time_and_names_who_waits(void **state)
{
    (void)state;
    struct queue *q = queue_of(true, false, 2, 64);
    struct batch b = {0};
    struct queue_overdue late;
    uint64_t dropped = 0;
    open_prompt(q, 1, 10, NULL, 0);
    assert_true(queue_next(q, &b, &dropped));
    assert_int_equal(queue_deadline_ns(q), UINT64_MAX); /* it runs here: others watch that */
    queue_done(q, &b, 5 * second, 0.5);
    assert_int_equal(queue_deadline_ns(q), 40 * second); /* 30 s, and ten times half a second */
    assert_false(queue_flight_expire(q, 40 * second - 1, &late));
    assert_true(queue_flight_expire(q, 40 * second, &late));
    assert_int_equal(late.n_live, 1);
    assert_int_equal(late.live[0], 1);
    assert_int_equal(late.n_tokens, 10);
    assert_false(late.heard);
    assert_true(late.away_s > 34.9 && late.away_s < 35.1);
    assert_int_equal(queue_view(q).in_flight, 0);
    batch_free(&b);
    queue_destroy(&q, NULL, NULL);
}

TEST(narrow_queue_hands_out_only_what_is_small)
{
    struct queue *q = queue_of(true, false, 2, 64);
    struct batch b = {0};
    open_prompt(q, 1, 1, NULL, 0);
    open_prompt(q, 2, 10, NULL, 0);
    assert_string_equal(step(q, &b), "1:0+1!");
    queue_narrow(q, 4);
    assert_string_equal(step(q, &b), "-");
    token(q, 1, 0, 5, false);
    assert_string_equal(step(q, &b), "1:1+1!");
    queue_narrow(q, UINT32_MAX);
    assert_string_equal(step(q, &b), "2:0+10!");
    batch_free(&b);
    queue_destroy(&q, NULL, NULL);
}

/* Prefills n sequences of one token each and gives each its first token. */
static void all_decode(struct queue *q, struct batch *b, uint64_t n)
{
    for (uint64_t id = 1; id <= n; id++) {
        assert_int_equal(open_prompt(q, id, 1, NULL, 0), 0);
        assert_string_not_equal(step(q, b), "-");
        queue_returned(q, b->number, 0);
    }
    for (uint64_t id = 1; id <= n; id++)
        assert_true(token(q, id, (uint32_t)id - 1, 7, false));
}

TEST(decode_steps_of_several_sequences_share_batches_that_fill_all_stages)
{
    static const struct {
        uint64_t sequences;
        uint32_t stages;
        const char *runs[5];
    } cases[] = {
        {6, 3, {"1:1+1! 2:1+1!", "3:1+1! 4:1+1!", "5:1+1! 6:1+1!", "-"}},
        {5, 3, {"1:1+1! 2:1+1!", "3:1+1! 4:1+1!", "5:1+1!", "-"}},
        {4, 1, {"1:1+1! 2:1+1! 3:1+1! 4:1+1!", "-"}},
        {2, 4, {"1:1+1!", "2:1+1!", "-"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct queue *q = queue_of(true, false, cases[i].stages, 64);
        struct batch b = {0};
        all_decode(q, &b, cases[i].sequences);
        for (size_t k = 0; cases[i].runs[k]; k++)
            assert_string_equal(step(q, &b), cases[i].runs[k]);
        assert_false(token(q, cases[i].sequences + 1, 0, 7, false)); /* not open */
        uint32_t number = (uint32_t)cases[i].sequences;              /* of the first decode batch */
        assert_false(token(q, 1, 0, 7, false)); /* of the batch before, which was told already */
        assert_true(token(q, 1, number, 7, false));
        assert_false(token(q, 1, number, 7, false)); /* said twice */
        batch_free(&b);
        queue_destroy(&q, NULL, NULL);
    }
}

static bool guess(struct queue *q, uint64_t id, uint32_t number, uint32_t token)
{
    struct frame_token t = {id, token, FRAME_TOKEN_DRAFT, 0};
    return queue_token(q, number, &t);
}

TEST(a_token_takes_its_guesses_along_and_those_that_were_wrong_are_taken_back)
{
    struct queue *q = queue_of(true, false, 2, 16);
    struct batch b = {0};
    all_decode(q, &b, 1);
    assert_true(guess(q, 1, 0, 8));
    assert_true(guess(q, 1, 0, 9));
    assert_false(guess(q, 1, 7, 9)); /* of another batch */
    assert_string_equal(step(q, &b), "1:1+3!");
    assert_int_equal(b.runs[0].n_drafts, 2);
    assert_int_equal(b.runs[0].n_logits, 3);
    static const uint32_t ids[] = {7, 8, 9};
    assert_memory_equal(b.ids, ids, sizeof ids);
    assert_false(guess(q, 1, 0, 8)); /* it has run */
    struct frame_token t = {1, 50, FRAME_TOKEN_NEXT, 3};
    assert_false(queue_token(q, b.number, &t)); /* more than there were */
    t.right = 1;
    assert_true(queue_token(q, b.number, &t));
    assert_string_equal(step(q, &b), "1:3+1!");
    assert_true(token(q, 1, b.number, 51, false));
    for (uint32_t k = 0; k < BATCH_MAX_DRAFTS; k++)
        assert_true(guess(q, 1, b.number, k));
    assert_false(guess(q, 1, b.number, 1)); /* too many */
    queue_narrow(q, 4);
    assert_string_equal(step(q, &b), "1:4+4!");
    batch_free(&b);
    queue_destroy(&q, NULL, NULL);
}

TEST(a_frame_may_take_back_guesses_and_nothing_else)
{
    struct queue *q = queue_of(false, true, 2, 16);
    struct batch b = {0};
    assert_int_equal(open_prompt(q, 1, 1, NULL, 0), 0);
    struct batch_run runs[] = {{1, 0, 4, 1, 0, false, 0, 0, 0, 0},
                               {1, 4, 6, 6, 0, false, 5, 0, 0, 0},
                               {1, 4, 6, 6, 0, false, 5, 0, 0, 0},
                               {1, 7, 1, 1, 0, false, 0, 0, 0, 0}};
    static const char *const ran[] = {"1:0+4!", "1:4+6!", "empty", "1:7+1!"};
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(queue_frame_add(q, i, &runs[i], 1, runs[i].n_tokens, NULL, 0), 0);
        assert_string_equal(step(q, &b), ran[i]);
    }
    batch_free(&b);
    queue_destroy(&q, NULL, NULL);
}

TEST(slices_and_decode_steps_take_turns)
{
    struct queue *q = queue_of(true, false, 4, 2);
    struct batch b = {0};
    all_decode(q, &b, 1);
    open_prompt(q, 2, 10, NULL, 0);
    assert_string_equal(step(q, &b), "1:1+1!"); /* the last to run was a slice */
    assert_string_equal(step(q, &b), "2:0+2");
    token(q, 1, 1, 8, false);
    assert_string_equal(step(q, &b), "1:2+1!");
    assert_string_equal(step(q, &b), "2:2+2");
    assert_string_equal(step(q, &b), "2:4+2");
    assert_string_equal(step(q, &b), "2:6+2");
    assert_string_equal(step(q, &b), "-"); /* one answers: at most `stages` slices in flight */
    token(q, 1, 3, 9, true);
    assert_string_equal(step(q, &b), "2:8+2!"); /* it is done: all of the pipeline is for slices */
    batch_free(&b);
    queue_destroy(&q, NULL, NULL);
}

/* On a single stage a token that waits goes with the next slice, unless that is long, or there is
 * no room for both. */
TEST(decode_tokens_and_a_slice_share_a_batch_where_that_is_cheaper)
{
    static const uint32_t long_prompt[300] = {20};
    static const struct {
        uint32_t n_stages, max_batch, slices[3], n_slices;
        const char *runs[4];
    } cases[] = {
        {1, 512, {100, 100}, 2, {"1:1+1! 2:0+100", "1:2+1! 2:100+100!", "1:3+1!"}},
        {1, 512, {128}, 1, {"1:1+1! 2:0+128!", "1:2+1!"}},
        {1, 512, {129, 3}, 2, {"1:1+1!", "2:0+129", "1:2+1! 2:129+3!", "1:3+1!"}},
        {1, 100, {100, 99}, 2, {"1:1+1!", "2:0+100", "1:2+1! 2:100+99!", "1:3+1!"}},
        {2, 512, {100}, 1, {"1:1+1!", "2:0+100!", "1:2+1!"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct queue *q = queue_of(true, true, cases[i].n_stages, cases[i].max_batch);
        struct batch b = {0};
        uint32_t n = 0;
        for (uint32_t k = 0; k < cases[i].n_slices; k++)
            n += cases[i].slices[k];
        struct queue_sequence s = {.id = 2,
                                   .owner = q,
                                   .prompt = long_prompt,
                                   .n_prompt = n,
                                   .slices = cases[i].slices,
                                   .n_slices = cases[i].n_slices};
        all_decode(q, &b, 1);
        assert_int_equal(queue_sequence_open(q, &s, NULL), 0);
        queue_sequence_ready(q, 2);
        for (int k = 0; k < 4 && cases[i].runs[k]; k++) {
            const char *ran = step(q, &b);
            if (strcmp(ran, cases[i].runs[k]) != 0)
                fail_msg("case %zu, batch %d: %s, should be %s", i, k, ran, cases[i].runs[k]);
            queue_returned(q, b.number, 0);
            for (uint32_t r = 0; r < b.n_runs; r++)
                assert_int_equal(b.runs[r].row, r ? b.runs[r - 1].row + b.runs[r - 1].n_tokens : 0);
            token(q, 1, b.number, 7, false);
        }
        batch_free(&b);
        queue_destroy(&q, NULL, NULL);
    }
}

static int add(struct queue *q, uint32_t number, const struct batch_run *runs, uint32_t n,
               void *buffer, uint64_t now)
{
    uint32_t tokens = 0;
    for (uint32_t i = 0; i < n; i++)
        tokens += runs[i].n_tokens;
    return queue_frame_add(q, number, runs, n, tokens, buffer, now);
}

TEST(later_stage_runs_frames_in_order_however_they_arrive)
{
    static const int orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {2, 0, 1}};
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        struct queue *q = queue_of(false, true, 2, 64);
        struct batch b = {0};
        char buffers[3];
        open_prompt(q, 1, 0, NULL, 0);
        for (uint32_t k = 0; k < 3; k++) {
            uint32_t n = (uint32_t)orders[i][k];
            struct batch_run run = {1, n * 4, 4, n == 2, 0, false, 0, 0, 0, 0};
            assert_int_equal(add(q, n, &run, 1, &buffers[n], 0), 0);
        }
        static const char *const expected[] = {"1:0+4", "1:4+4", "1:8+4!", "-"};
        for (int k = 0; k < 4; k++) {
            assert_string_equal(step(q, &b), expected[k]);
            if (k < 3)
                assert_ptr_equal(b.input, &buffers[k]);
        }
        batch_free(&b);
        queue_destroy(&q, NULL, NULL);
    }
}

TEST(frame_waits_for_its_sequence_and_closed_runs_are_dropped)
{
    struct queue *q = queue_of(false, true, 2, 64);
    struct batch b = {0};
    char buffer;
    uint64_t dropped = 0;
    struct batch_run runs[3] = {{1, 0, 1, 1, 0, false, 0, 0, 0, 0},
                                {2, 0, 2, 1, 0, false, 0, 0, 0, 0},
                                {3, 0, 1, 1, 0, false, 0, 0, 0, 0}};
    open_prompt(q, 1, 0, NULL, 0);
    assert_int_equal(add(q, 0, runs, 3, &buffer, 0), 0);
    assert_string_equal(step(q, &b), "-"); /* 2 and 3 are not known yet */
    open_prompt(q, 2, 0, NULL, 0);
    open_prompt(q, 3, 0, NULL, 0);
    queue_sequence_close(q, 2, 0);
    assert_true(queue_next(q, &b, &dropped));
    assert_string_equal(text_of(&b), "1:0+1! 3:0+1!");
    assert_int_equal(dropped, 1);
    assert_int_equal(b.runs[1].row, 3); /* its row in the input as it came */
    assert_true(b.runs[0].sample && b.runs[1].sample);
    queue_done(q, &b, 0, 0);
    assert_int_equal(add(q, 1, runs, 1, &buffer, 0), 0); /* position 0 again */
    assert_string_equal(step(q, &b), "empty");
    assert_true(b.again); /* it has gone on already */
    assert_ptr_equal(b.input, &buffer);
    batch_free(&b);
    queue_destroy(&q, NULL, NULL);
}

TEST(slices_are_handed_out_before_the_one_before_is_done)
{
    struct queue *q = queue_of(false, true, 2, 64);
    struct batch a = {0}, b = {0};
    uint64_t dropped = 0;
    struct batch_run runs[2] = {{1, 0, 4, 0, 0, false, 0, 0, 0, 0},
                                {1, 4, 4, 1, 0, false, 0, 0, 0, 0}};
    open_prompt(q, 1, 0, NULL, 0);
    add(q, 1, &runs[1], 1, NULL, 0);
    assert_false(queue_next(q, &a, &dropped));
    add(q, 0, &runs[0], 1, NULL, 0);
    assert_true(queue_next(q, &a, &dropped));
    assert_string_equal(text_of(&a), "1:0+4");
    assert_true(queue_next(q, &b, &dropped));
    assert_string_equal(text_of(&b), "1:4+4!");
    batch_free(&a);
    batch_free(&b);
    queue_destroy(&q, NULL, NULL);
}

TEST(frames_of_closed_sequences_make_room_at_once_and_their_batches_go_on)
{
    struct queue *q = queue_of(false, false, 2, 64);
    struct batch b = {0};
    uint64_t dropped = 0;
    char buffers[3];
    struct batch_run runs[3] = {{1, 4, 1, 0, 0, false, 0, 0, 0, 0},
                                {2, 4, 1, 0, 0, false, 0, 0, 0, 0},
                                {2, 5, 1, 0, 0, false, 0, 0, 0, 0}}; /* none is due */
    open_prompt(q, 1, 0, NULL, 0);
    open_prompt(q, 2, 0, NULL, 0);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(add(q, i, &runs[i], 1, &buffers[i], 0), 0);
    assert_false(queue_dead_take(q, &b, &dropped));
    queue_sequence_close(q, 2, 0);
    for (uint32_t i = 1; i < 3; i++) {
        assert_true(queue_dead_take(q, &b, &dropped));
        assert_int_equal(b.number, i);
        assert_int_equal(b.n_runs, 0);
        assert_ptr_equal(b.input, &buffers[i]);
        assert_false(b.again);
    }
    assert_false(queue_dead_take(q, &b, &dropped));
    assert_int_equal(queue_view(q).frames, 1);
    assert_int_equal(dropped, 2);
    batch_free(&b);
    queue_destroy(&q, NULL, NULL);
}

TEST(opening_and_closing_in_any_order_is_harmless)
{
    struct queue *q = queue_of(false, false, 2, 64);
    assert_null(queue_sequence_close(q, 5, 0)); /* before it opens */
    assert_int_equal(open_prompt(q, 5, 0, NULL, 0), HP_ECANCELED);
    assert_int_equal(open_prompt(q, 6, 0, NULL, 0), 0);
    assert_int_equal(open_prompt(q, 6, 0, NULL, 0), HP_EEXIST);
    assert_ptr_equal(queue_sequence_close(q, 6, 0), q);
    assert_null(queue_sequence_close(q, 6, 0));
    assert_int_equal(open_prompt(q, 6, 0, NULL, 0), HP_ESTALE);
    assert_int_equal(open_prompt(q, 4, 0, NULL, 0), HP_ESTALE); /* numbers rise */
    for (uint64_t id = 10; id < 26; id++)
        assert_int_equal(open_prompt(q, id, 0, NULL, 0), 0);
    assert_int_equal(open_prompt(q, 26, 0, NULL, 0), HP_EBUSY);
    queue_destroy(&q, NULL, NULL);
}

static void count_release(void *ctx, void *buffer)
{
    assert_non_null(buffer);
    ++*(int *)ctx;
}

TEST(waiting_frames_are_bounded_and_given_back)
{
    struct queue *q = queue_of(false, false, 2, 64);
    char buffer;
    struct batch_run run = {9, 0, 1, 0, 0, false, 0, 0, 0, 0},
                     large = {9, 0, 65, 0, 0, false, 0, 0, 0, 0};
    int n = 0, released = 0;
    assert_int_equal(add(q, 0, &large, 1, &buffer, 0), HP_EINVAL);
    while (add(q, (uint32_t)n, &run, 1, &buffer, 0) == 0)
        n++;
    assert_int_equal(n, 24);
    queue_destroy(&q, count_release, &released);
    assert_int_equal(released, n);
}

TEST(run_that_nobody_opens_is_given_up_after_its_time)
{
    struct queue *q = queue_of(false, false, 2, 64);
    struct batch b = {0};
    char buffer;
    uint64_t ids[4];
    struct batch_run runs[2] = {{1, 0, 1, 0, 0, false, 0, 0, 0, 0},
                                {2, 5, 1, 0, 0, false, 0, 0, 0, 0}};
    open_prompt(q, 1, 0, NULL, 0);
    add(q, 0, runs, 2, &buffer, second);
    assert_int_equal(queue_deadline_ns(q), 11 * second);
    assert_int_equal(queue_expire(q, 11 * second - 1, ids, 4), 0);
    assert_int_equal(queue_expire(q, 11 * second, ids, 4), 1);
    assert_int_equal(ids[0], 2);
    queue_sequence_close(q, 2, 0);
    assert_string_equal(step(q, &b), "1:0+1");
    batch_free(&b);
    queue_destroy(&q, NULL, NULL);
}

TEST(opening_checks_that_slices_add_up)
{
    struct queue *q = queue_of(true, true, 1, 64);
    static const uint32_t short_slices[] = {4, 4}, empty_slice[] = {10, 0};
    assert_int_equal(open_prompt(q, 1, 10, short_slices, 2), HP_EINVAL);
    assert_int_equal(open_prompt(q, 2, 10, empty_slice, 2), HP_EINVAL);
    assert_int_equal(open_prompt(q, 3, 0, NULL, 0), HP_EINVAL);
    queue_destroy(&q, NULL, NULL);
}

TEST(prompts_take_turns_slice_by_slice)
{
    struct queue *q = queue_of(true, false, 8, 4);
    struct batch b = {0};
    open_prompt(q, 1, 16, NULL, 0);
    assert_string_equal(step(q, &b), "1:0+4");
    assert_string_equal(step(q, &b), "1:4+4");
    open_prompt(q, 2, 3, NULL, 0); /* a short one comes behind a long one */
    open_prompt(q, 3, 6, NULL, 0);
    assert_string_equal(step(q, &b), "2:0+3!");
    assert_string_equal(step(q, &b), "3:0+4");
    assert_string_equal(step(q, &b), "1:8+4");
    assert_string_equal(step(q, &b), "3:4+2!");
    assert_string_equal(step(q, &b), "1:12+4!");
    assert_string_equal(step(q, &b), "-");
    batch_free(&b);
    queue_destroy(&q, NULL, NULL);
}

/* As many as leave prompts for the other stages. */
TEST(short_slices_of_several_prompts_go_together)
{
    static const uint32_t cut[] = {8, 24};
    static const struct {
        uint32_t n_stages, max_batch;
        const char *runs[4];
    } cases[] = {
        {1, 512, {"1:0+40! 2:0+8 3:0+50! 4:0+8!", "5:0+64! 2:8+24!", "-"}},
        {1, 100, {"1:0+40! 2:0+8 3:0+50!", "4:0+8! 5:0+64! 2:8+24!", "-"}},
        {2, 512, {"1:0+40! 2:0+8 3:0+50!", "4:0+8! 5:0+64!", "2:8+24!", "-"}},
        {8, 512, {"1:0+40!", "2:0+8", "3:0+50!", "4:0+8!"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct queue *q = queue_of(true, false, cases[i].n_stages, cases[i].max_batch);
        struct batch b = {0};
        open_prompt(q, 1, 40, NULL, 0);
        open_prompt(q, 2, 32, cut, 2);
        open_prompt(q, 3, 50, NULL, 0);
        open_prompt(q, 4, 8, NULL, 0);
        open_prompt(q, 5, 64, NULL, 0);
        for (int k = 0; k < 4 && cases[i].runs[k]; k++) {
            const char *ran = step(q, &b);
            if (strcmp(ran, cases[i].runs[k]) != 0)
                fail_msg("case %zu, batch %d: %s, should be %s", i, k, ran, cases[i].runs[k]);
            queue_returned(q, b.number, 0);
        }
        batch_free(&b);
        queue_destroy(&q, NULL, NULL);
    }
}

/* Somebody is told of each of its rows; and a text is one batch. */
TEST(a_prompt_whose_logits_are_all_wanted_goes_alone)
{
    struct queue *q = queue_of(true, true, 1, 512);
    struct batch b = {0};
    struct queue_sequence all = {
        .id = 2, .owner = q, .prompt = prompt, .n_prompt = 5, .all_logits = true};
    open_prompt(q, 1, 4, NULL, 0);
    assert_int_equal(queue_sequence_open(q, &all, NULL), 0);
    queue_sequence_ready(q, 2);
    open_prompt(q, 3, 6, NULL, 0);
    assert_string_equal(step(q, &b), "1:0+4!");
    queue_returned(q, b.number, 0);
    assert_string_equal(step(q, &b), "2:0+5!");
    queue_returned(q, b.number, 0);
    assert_string_equal(step(q, &b), "3:0+6!");
    batch_free(&b);
    queue_destroy(&q, NULL, NULL);
}

TEST(short_slice_overtakes_the_long_ones_that_wait_at_a_later_stage)
{
    struct queue *q = queue_of(false, false, 2, 64);
    struct batch b = {0};
    struct batch_run runs[4] = {{1, 0, 40, 0, 0, false, 0, 0, 0, 0},
                                {1, 40, 40, 0, 0, false, 0, 0, 0, 0},
                                {1, 80, 40, 0, 0, false, 0, 0, 0, 0},
                                {2, 0, 7, 1, 0, false, 0, 0, 0, 0}};
    open_prompt(q, 1, 0, NULL, 0);
    open_prompt(q, 2, 0, NULL, 0);
    for (uint32_t i = 0; i < 3; i++)
        add(q, i, &runs[i], 1, NULL, 0);
    assert_string_equal(step(q, &b), "1:0+40");
    add(q, 3, &runs[3], 1, NULL, 0);
    assert_string_equal(step(q, &b), "2:0+7!");
    assert_string_equal(step(q, &b), "1:40+40");
    assert_string_equal(step(q, &b), "1:80+40");
    batch_free(&b);
    queue_destroy(&q, NULL, NULL);
}

TEST(beside_what_decodes_slices_are_no_longer_than_the_target_allows)
{
    struct queue_config c = {.first = true,
                             .n_stages = 2,
                             .max_batch_tokens = 64,
                             .max_sequences = 4,
                             .beside_tokens = 3};
    struct queue *q;
    struct batch b = {0};
    static const uint32_t slices[] = {4, 6};
    assert_int_equal(queue_create(&c, &q, NULL), 0);
    assert_int_equal(open_prompt(q, 1, 4, NULL, 0), 0);
    assert_string_equal(step(q, &b), "1:0+4!"); /* nobody decodes: all of it */
    queue_returned(q, 0, 0);
    assert_int_equal(open_prompt(q, 2, 10, slices, 2), 0);
    assert_string_equal(step(q, &b), "2:0+3");
    const struct frame_token token = {.sequence = 1, .token = 7};
    assert_true(queue_token(q, 0, &token));
    queue_returned(q, 1, 0);
    assert_string_equal(step(q, &b), "1:4+1!");
    assert_string_equal(step(q, &b), "2:3+1"); /* the rest of the first slice */
    queue_returned(q, 2, 0);
    queue_returned(q, 3, 0);
    const struct frame_token last = {.sequence = 1, .token = 7, .kind = FRAME_TOKEN_LAST};
    assert_true(queue_token(q, 2, &last));
    assert_string_equal(step(q, &b), "2:4+6!");
    batch_free(&b);
    queue_sequence_close(q, 1, 0);
    queue_sequence_close(q, 2, 0);
    queue_destroy(&q, NULL, NULL);
}

TEST(frames_of_numbers_of_before_are_dropped_but_for_those_that_are_open)
{
    struct queue *q = queue_of(false, true, 2, 64);
    struct batch b = {0};
    struct queue_sequence s = {.id = 1, .owner = q, .n_prompt = 8, .reserved = 64};
    uint64_t dropped = 0;
    char open, unknown, newer;
    assert_int_equal(queue_sequence_open(q, &s, NULL), 0);
    const struct batch_run runs[] = {{.sequence = 1, .first_position = 0, .n_tokens = 8},
                                     {.sequence = 2, .first_position = 0, .n_tokens = 8},
                                     {.sequence = 101, .first_position = 0, .n_tokens = 8}};
    assert_int_equal(add(q, 0, &runs[0], 1, &open, 0), 0);
    assert_int_equal(add(q, 1, &runs[1], 1, &unknown, 0), 0);
    assert_int_equal(add(q, 2, &runs[2], 1, &newer, 0), 0);
    assert_false(queue_dead_take(q, &b, &dropped));
    queue_numbers_begin(q, 100);
    assert_true(queue_dead_take(q, &b, &dropped));
    assert_ptr_equal(b.input, &unknown);
    assert_false(queue_dead_take(q, &b, &dropped));
    queue_sequence_ready(q, 1);
    assert_string_equal(step(q, &b), "1:0+8");
    assert_int_equal(queue_view(q).frames, 1); /* the newer one waits */
    queue_sequence_close(q, 1, 0);
    s.id = 101;
    assert_int_equal(queue_sequence_open(q, &s, NULL), 0);
    queue_sequence_ready(q, 101);
    assert_string_equal(step(q, &b), "101:0+8");
    queue_sequence_close(q, 101, 0);
    batch_free(&b);
    queue_destroy(&q, NULL, NULL);
}

TEST(nothing_runs_beyond_what_is_reserved_for_its_sequence)
{
    struct queue *q = queue_of(true, false, 2, 64), *later = queue_of(false, true, 2, 64);
    struct batch b = {0};
    struct queue_sequence s = {
        .id = 1, .owner = q, .prompt = prompt, .n_prompt = 10, .reserved = 11};
    assert_int_equal(queue_sequence_open(q, &s, NULL), 0);
    assert_int_equal(queue_sequence_open(later, &s, NULL), 0);
    queue_sequence_ready(q, 1);
    queue_sequence_ready(later, 1);
    assert_string_equal(step(q, &b), "1:0+10!");
    queue_returned(q, 0, 0);
    for (uint32_t i = 0; i < 2; i++) {
        const struct frame_token t = {.sequence = 1, .token = 7};
        assert_true(queue_token(q, i, &t));
        assert_string_equal(step(q, &b), i ? "-" : "1:10+1!");
        queue_returned(q, i + 1, 0);
    }
    const struct batch_run runs[] = {{.sequence = 1, .first_position = 0, .n_tokens = 11},
                                     {.sequence = 1, .first_position = 11, .n_tokens = 1}};
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(queue_frame_add(later, i, &runs[i], 1, runs[i].n_tokens, NULL, 0), 0);
    assert_string_equal(step(later, &b), "1:0+11");
    assert_string_equal(step(later, &b), "-");
    queue_sequence_find(q, 1)->reserved = queue_sequence_find(later, 1)->reserved = 64;
    assert_string_equal(step(q, &b), "1:11+1!");
    assert_string_equal(step(later, &b), "1:11+1");
    batch_free(&b);
    queue_sequence_close(q, 1, 0);
    queue_sequence_close(later, 1, 0);
    queue_destroy(&q, NULL, NULL);
    queue_destroy(&later, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompt_runs_slice_by_slice_and_only_its_end_asks_for_logits),
        cmocka_unit_test(first_stage_has_at_most_two_batches_a_stage_in_flight),
        cmocka_unit_test(
            prompts_fill_the_pipeline_until_somebody_answers_whose_tokens_have_room_beside_them),
        cmocka_unit_test(batch_counts_as_in_flight_until_it_has_been_through_whoever_is_closed),
        cmocka_unit_test(
            batch_that_does_not_come_back_is_overdue_after_its_time_and_names_who_waits),
        cmocka_unit_test(prompts_take_turns_slice_by_slice),
        cmocka_unit_test(short_slices_of_several_prompts_go_together),
        cmocka_unit_test(a_prompt_whose_logits_are_all_wanted_goes_alone),
        cmocka_unit_test(short_slice_overtakes_the_long_ones_that_wait_at_a_later_stage),
        cmocka_unit_test(narrow_queue_hands_out_only_what_is_small),
        cmocka_unit_test(decode_steps_of_several_sequences_share_batches_that_fill_all_stages),
        cmocka_unit_test(a_token_takes_its_guesses_along_and_those_that_were_wrong_are_taken_back),
        cmocka_unit_test(a_frame_may_take_back_guesses_and_nothing_else),
        cmocka_unit_test(slices_and_decode_steps_take_turns),
        cmocka_unit_test(decode_tokens_and_a_slice_share_a_batch_where_that_is_cheaper),
        cmocka_unit_test(later_stage_runs_frames_in_order_however_they_arrive),
        cmocka_unit_test(frames_of_numbers_of_before_are_dropped_but_for_those_that_are_open),
        cmocka_unit_test(frame_waits_for_its_sequence_and_closed_runs_are_dropped),
        cmocka_unit_test(slices_are_handed_out_before_the_one_before_is_done),
        cmocka_unit_test(frames_of_closed_sequences_make_room_at_once_and_their_batches_go_on),
        cmocka_unit_test(opening_and_closing_in_any_order_is_harmless),
        cmocka_unit_test(waiting_frames_are_bounded_and_given_back),
        cmocka_unit_test(run_that_nobody_opens_is_given_up_after_its_time),
        cmocka_unit_test(beside_what_decodes_slices_are_no_longer_than_the_target_allows),
        cmocka_unit_test(nothing_runs_beyond_what_is_reserved_for_its_sequence),
        cmocka_unit_test(opening_checks_that_slices_add_up),
    };
    return cmocka_run_group_tests_name("queue", tests, NULL, NULL);
}
