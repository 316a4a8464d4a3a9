/* Whole agents in this process, with a coordinator that the test plays: they join, fetch the demo
 * model, load stages and generate what the same model generates without them. Once over the
 * in-process twins, once over ZeroMQ and UCX on loopback. */
#include "tests/unit/agent/agent_scene.h"

static bool all_told(const struct agent_scene *s)
{
    for (int i = 1; i < 6; i++)
        if (!s->finished[i])
            return false;
    return true;
}

/* The same prompt five times at once, in slices of different lengths. */
static void generate(struct agent_scene *s, uint64_t deployment, uint64_t generation, uint64_t base,
                     int turn)
{
    memset(s->n_got, 0, sizeof s->n_got);
    memset(s->finished, 0, sizeof s->finished);
    for (uint32_t q = 1; q < 6; q++) {
        uint32_t slices[16], n = 0;
        for (uint32_t left = s->n_prompt; left; left -= slices[n++])
            slices[n] = left < 3 * q ? left : 3 * q;
        struct message m = {.type = MESSAGE_SEQUENCE_OPEN};
        m.u.sequence_open = (struct message_sequence_open){.deployment = deployment,
                                                           .generation = generation,
                                                           .sequence = base + q,
                                                           .prompt = {s->prompt, s->n_prompt},
                                                           .slices = {slices, n},
                                                           .max_tokens = N_TOKENS,
                                                           .kv_tokens = s->n_prompt + N_TOKENS};
        for (int i = N_AGENTS - 1; i >= 0; i--) {
            m.u.sequence_open.stage = (uint64_t)i;
            send_to(s, s->agents[(i + turn) % N_AGENTS].peer, &m);
        }
    }
    run_until(s, all_told, "generating");
    for (uint32_t q = 1; q < 6; q++) {
        assert_int_equal(s->n_got[q], N_TOKENS);
        assert_memory_equal(s->got[q], s->expected, sizeof s->expected);
        struct message m = {.type = MESSAGE_SEQUENCE_CLOSE};
        for (int i = 0; i < N_AGENTS; i++) {
            m.u.sequence_close =
                (struct message_sequence_close){deployment, generation, base + q, (uint64_t)i, 0};
            send_to(s, s->agents[(i + turn) % N_AGENTS].peer, &m);
        }
    }
}

static uint64_t moved(const struct agent_scene *s)
{
    return s->agents[0].moved_bytes + s->agents[1].moved_bytes + s->agents[2].moved_bytes;
}

static void play(bool inproc)
{
    static struct agent_scene s; /* large */
    if (access(demo_model, R_OK) != 0) {
        print_message("%s is not here\n", demo_model);
        skip();
    }
    scene_open(&s, inproc);
    prepare(&s, DEPLOYMENT, 1, 0, true);
    assert_int_equal(moved(&s), 0); /* all from the shared path */
    generate(&s, DEPLOYMENT, 1, 8, 0);
    prepare(&s, DEPLOYMENT, 2, 0, true); /* the next generation: the weights are there */
    generate(&s, DEPLOYMENT, 2, 8, 0);
    unload(&s, DEPLOYMENT, 2);
    prepare(&s, DEPLOYMENT + 1, 1, 1,
            false); /* every agent has another stage now, and no path: from its peers */
    assert_true(moved(&s) > 1000000);
    generate(&s, DEPLOYMENT + 1, 1, 8, 1);
    unload(&s, DEPLOYMENT + 1, 1);
    prepare(&s, DEPLOYMENT + 2, 1, 1, false); /* once more: not a byte */
    assert_int_equal(moved(&s), 0);
    generate(&s, DEPLOYMENT + 2, 1, 8, 1);
    scene_close(&s);
}

TEST(agents_in_one_process_generate_what_one_model_generates)
{
    play(true);
}

TEST(agents_over_zeromq_and_ucx_generate_what_one_model_generates)
{
    play(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agents_in_one_process_generate_what_one_model_generates),
        cmocka_unit_test(agents_over_zeromq_and_ucx_generate_what_one_model_generates),
    };
    return cmocka_run_group_tests_name("agent", tests, NULL, NULL);
}
