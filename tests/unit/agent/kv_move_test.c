/* A sequence goes on elsewhere in the middle of its answer: the keys and values of its stages go to
 * stages of another deployment, on other agents and cut differently, and the rest of the answer is
 * what it would have been. Whole agents, and a coordinator that the test plays. */
#include "tests/unit/agent/agent_scene.h"

enum { BLOCKS = 8, HALF = N_TOKENS / 2, OLD = 8, NEW = 1 };
static const uint64_t other_cuts[N_AGENTS + 1] = {0, 8, 11, 18};

static struct message_sequence_open opening_of(const struct agent_scene *s, uint64_t deployment,
                                               uint64_t sequence, uint64_t max_tokens)
{
    return (struct message_sequence_open){.deployment = deployment,
                                          .generation = 1,
                                          .sequence = sequence,
                                          .prompt = {s->prompt, s->n_prompt},
                                          .max_tokens = max_tokens,
                                          .kv_tokens = s->n_prompt + N_TOKENS,
                                          .sampling = {.temperature = 0}};
}

static bool first_told(const struct agent_scene *s)
{
    return s->finished[OLD % 8];
}

static bool second_told(const struct agent_scene *s)
{
    return s->finished[NEW % 8];
}

static void begin(struct agent_scene *s, uint64_t deployment, int turn)
{
    struct message m = {.type = MESSAGE_SEQUENCE_OPEN};
    m.u.sequence_open = opening_of(s, deployment, OLD, HALF);
    for (int i = N_AGENTS - 1; i >= 0; i--) {
        m.u.sequence_open.stage = (uint64_t)i;
        send_to(s, s->agents[(i + turn) % N_AGENTS].peer, &m);
    }
    run_until(s, first_told, "the first half");
    assert_int_equal(s->n_got[OLD % 8], HALF);
}

/* Blocks of attention among layers: embedding, then attention and MLP of each block, head. */
static uint64_t first_block(uint64_t layer)
{
    return layer < 1 ? 0 : layer / 2 < BLOCKS ? layer / 2 : BLOCKS;
}

struct move {
    int from, to; /* stages */
    uint64_t first, count, session;
};

/* Which blocks go from which of the old stages to which of the new ones. */
static int moves_list(const uint64_t *old_cuts, const uint64_t *new_cuts, struct move *out)
{
    int n = 0;
    for (int i = 0; i < N_AGENTS; i++)
        for (int k = 0; k < N_AGENTS; k++) {
            uint64_t a = first_block(old_cuts[i]), b = first_block(new_cuts[k]),
                     from = a > b ? a : b, c = first_block(old_cuts[i + 1]),
                     d = first_block(new_cuts[k + 1]), end = c < d ? c : d;
            if (from < end) {
                out[n] = (struct move){i, k, from, end - from, 7001 + (uint64_t)n};
                n++;
            }
        }
    return n;
}

static int n_moves;

static bool all_awaited(const struct agent_scene *s)
{
    return s->kv_awaited == n_moves;
}

static bool all_moved(const struct agent_scene *s)
{
    return s->kv_received == n_moves && s->kv_sent == n_moves;
}

/* What the coordinator would say: open with what is known so far, await, send. */
static void move_over(struct agent_scene *s, uint64_t from, int from_turn,
                      const uint64_t *from_cuts, uint64_t to, int to_turn)
{
    struct move moves[2 * N_AGENTS];
    uint32_t tokens[64];
    uint32_t n = s->n_prompt + HALF;
    memcpy(tokens, s->prompt, s->n_prompt * sizeof *tokens);
    memcpy(tokens + s->n_prompt, s->got[OLD % 8], HALF * sizeof *tokens);
    n_moves = moves_list(from_cuts, s->cuts, moves);
    struct message m = {.type = MESSAGE_SEQUENCE_OPEN};
    m.u.sequence_open = opening_of(s, to, NEW, N_TOKENS);
    m.u.sequence_open.prompt = (struct pack_u32s){tokens, n};
    m.u.sequence_open.length = n - 1; /* the last one has been sampled and not been run */
    m.u.sequence_open.sampled = HALF;
    for (int i = N_AGENTS - 1; i >= 0; i--) {
        m.u.sequence_open.stage = (uint64_t)i;
        send_to(s, s->agents[(i + to_turn) % N_AGENTS].peer, &m);
    }
    for (int i = 0; i < n_moves; i++) {
        const struct played *sender = &s->agents[(moves[i].from + from_turn) % N_AGENTS];
        struct message order = {.type = MESSAGE_KV_IMPORT, .id = 100 + (uint64_t)i};
        order.u.kv_import = (struct message_kv_import){
            to, 1, (uint64_t)moves[i].to, NEW, moves[i].session, {sender->key, KEY_BYTES}};
        send_to(s, s->agents[(moves[i].to + to_turn) % N_AGENTS].peer, &order);
    }
    run_until(s, all_awaited, "awaiting");
    for (int i = 0; i < n_moves; i++) {
        const struct played *receiver = &s->agents[(moves[i].to + to_turn) % N_AGENTS];
        struct message_kv_blocks blocks = {0, moves[i].first, moves[i].count};
        struct message order = {.type = MESSAGE_KV_EXPORT, .id = 200 + (uint64_t)i};
        order.u.kv_export =
            (struct message_kv_export){.deployment = from,
                                       .generation = 1,
                                       .stage = (uint64_t)moves[i].from,
                                       .sequence = OLD,
                                       .length = n - 1,
                                       .session = moves[i].session,
                                       .to_address = {receiver->address, receiver->address_size},
                                       .to_deployment = to,
                                       .to_generation = 1,
                                       .to_stage = (uint64_t)moves[i].to,
                                       .to_sequence = NEW,
                                       .blocks = {&blocks, 1}};
        send_to(s, s->agents[(moves[i].from + from_turn) % N_AGENTS].peer, &order);
    }
    run_until(s, all_moved, "moving keys and values");
}

static void play(bool inproc)
{
    static struct agent_scene s; /* large */
    if (access(demo_model, R_OK) != 0) {
        print_message("%s is not here\n", demo_model);
        skip();
    }
    scene_open(&s, inproc);
    const uint64_t *old_cuts = s.cuts;
    prepare(&s, DEPLOYMENT, 1, 0, true);
    begin(&s, DEPLOYMENT, 0);
    s.cuts = other_cuts;
    prepare(&s, DEPLOYMENT + 1, 1, 1, true);
    move_over(&s, DEPLOYMENT, 0, old_cuts, DEPLOYMENT + 1, 1);
    run_until(&s, second_told, "the second half");
    assert_int_equal(s.n_got[NEW % 8], N_TOKENS - HALF);
    assert_int_equal(s.first[NEW % 8], N_TOKENS - 1);
    assert_memory_equal(s.got[OLD % 8], s.expected, HALF * sizeof *s.expected);
    assert_memory_equal(s.got[NEW % 8], s.expected + HALF, (N_TOKENS - HALF) * sizeof *s.expected);
    assert_int_equal(s.kv_failed, 0);
    unload(&s, DEPLOYMENT + 1, 1);
    scene_close(&s);
}

TEST(a_sequence_that_moves_between_agents_goes_on_with_the_same_tokens)
{
    play(true);
}

TEST(a_sequence_that_moves_over_the_network_goes_on_with_the_same_tokens)
{
    play(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sequence_that_moves_between_agents_goes_on_with_the_same_tokens),
        cmocka_unit_test(a_sequence_that_moves_over_the_network_goes_on_with_the_same_tokens),
    };
    return cmocka_run_group_tests_name("kv_move", tests, NULL, NULL);
}
