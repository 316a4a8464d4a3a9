/* Decoding allocates nothing in an agent, on the whole way of a token: the frame that comes, the
 * core, the executor, the frame that goes on, and the message to the coordinator. Three whole
 * agents over ZeroMQ, and UCX or encrypted TCP, and a coordinator that the test plays. */
#include "tests/unit/agent/agent_scene.h"
#include "tests/unit/allocations.h"

/* Few others happen meanwhile: signs of life twice a second, heartbeats every ten seconds; more
 * where the box is busy and the steps take long. */
enum { ID = 3, WARM = 100, STEPS = 300, MOST = 30, MOST_A_SECOND = 20 };

static uint64_t until;

static bool so_far(const struct agent_scene *s)
{
    return s->first[ID] + 1 >= until;
}

static void excuse(bool begins)
{
    allocations_excused += begins ? 1 : -1;
}

static void play(const char *data)
{
    static struct agent_scene s; /* large */
    if (access(demo_model, R_OK) != 0) {
        print_message("%s is not here\n", demo_model);
        skip();
    }
    heartbeat_ms = 10000;
    data_mode = data;
    coordinator_works = excuse;
    scene_open(&s, false);
    prepare(&s, DEPLOYMENT, 1, 0, true);
    struct message m = {.type = MESSAGE_SEQUENCE_OPEN};
    m.u.sequence_open = (struct message_sequence_open){.deployment = DEPLOYMENT,
                                                       .generation = 1,
                                                       .sequence = ID,
                                                       .prompt = {s.prompt, s.n_prompt},
                                                       .max_tokens = WARM + STEPS + 50,
                                                       .kv_tokens = 500};
    for (int i = N_AGENTS - 1; i >= 0; i--) {
        m.u.sequence_open.stage = (uint64_t)i;
        send_to(&s, s.agents[i].peer, &m);
    }
    until = WARM;
    run_until(&s, so_far, "warming up");
    until = WARM + STEPS;
    uint64_t from = env_now_ns(&env_real);
    allocations_begin();
    run_until(&s, so_far, "decoding");
    uint64_t seconds = (env_now_ns(&env_real) - from) / 1000000000;
    allocations_end_at_most(MOST + MOST_A_SECOND * seconds, "300 tokens over three agents");
    scene_close(&s);
}

TEST(decoding_allocates_nothing_on_the_way_of_a_token)
{
    play("ucx");
}

TEST(decoding_over_encrypted_tcp_allocates_nothing_on_the_way_of_a_token)
{
    play("tcp");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoding_allocates_nothing_on_the_way_of_a_token),
        cmocka_unit_test(decoding_over_encrypted_tcp_allocates_nothing_on_the_way_of_a_token),
    };
    return cmocka_run_group_tests_name("decode_allocations", tests, NULL, NULL);
}
