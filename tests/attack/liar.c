/* A member that lies: with an agent's own key it joins and then says whatever the control channel
 * has words for, with values by chance: numbers at their ends, other deployments and sequences,
 * states of stages that it does not have, tables that no device has, bytes that are no message.
 * What the coordinator orders it to do it claims to have done.
 *
 *     liar HOST:PORT SERVER_KEY_HEX KEY_FILE NAME SECONDS SEED
 *
 * Prints how much it said and heard. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

#include "transport/data_address.h"
#include "transport/message.h"

enum {
    ROWS = 40,
    LONG_TEXT = 6000,
    SAYS_AT_ONCE = 4,
    PAGES = 1000, /* of a chain */
    PAGE_BYTES = 32
};

struct liar {
    void *socket;
    uint64_t random;
    char long_text[LONG_TEXT];
    uint64_t deployment, generation, sequence;     /* that were heard of last */
    uint64_t said_scores, prompt_scores, n_prompt; /* of this sequence */
    unsigned long said, heard;
    struct message_held_stage held[ROWS];
    struct message_model models[ROWS];
    struct message_prefill_slice slices[ROWS];
    struct message_said tokens[ROWS];
    uint32_t words[ROWS];
    uint8_t bytes[4096];
    struct message_spill chains[ROWS];
    uint8_t pages[PAGES * PAGE_BYTES];
    uint64_t n_heard_bytes;   /* the first ones of these: names that an order had */
    struct pack_span address; /* of a data endpoint that nobody has */
};

static uint64_t draw(struct liar *l, uint64_t below)
{
    l->random ^= l->random << 13;
    l->random ^= l->random >> 7;
    l->random ^= l->random << 17;
    return l->random % below;
}

static uint64_t number(struct liar *l)
{
    const uint64_t ends[] = {0,
                             1,
                             2,
                             UINT32_MAX,
                             (uint64_t)UINT32_MAX + 1,
                             (uint64_t)1 << 53,
                             INT64_MAX,
                             UINT64_MAX,
                             l->deployment,
                             l->generation,
                             l->sequence,
                             (uint64_t)1 << 32 | 1,
                             draw(l, 100)};
    return ends[draw(l, sizeof ends / sizeof *ends)];
}

/* Mostly what is true, so that lies are looked at. */
static uint64_t likely(struct liar *l, uint64_t truth)
{
    return draw(l, 4) ? truth : number(l);
}

static double real(struct liar *l)
{
    static const double ends[] = {0, -1, 1, 1e-300, 1e300, -1e300, 0.5, 1e9, 1e18};
    return ends[draw(l, sizeof ends / sizeof *ends)];
}

static const char *text(struct liar *l)
{
    const char *words[] = {"",
                           "ready",
                           "failed",
                           "fetching",
                           "loading",
                           "warming",
                           "unloaded",
                           "ok",
                           "stop",
                           "length",
                           "link",
                           "device",
                           "limit",
                           "demo",
                           "a0",
                           "\x1b[2J\r\n",
                           "{}",
                           "{\"layers\":[{\"resident_bytes\":1e18}],\"classes\":{}}",
                           "{\"attn\":{\"slice\":[1],\"prefix\":[0],\"seconds\":[[-1]]}}",
                           "[[[[[[[[",
                           l->long_text};
    return words[draw(l, sizeof words / sizeof *words)];
}

static struct pack_span span(struct liar *l)
{
    static const size_t sizes[] = {0, 1, 31, 32, 33, 64, 4096};
    for (size_t i = 0; i < 64; i++)
        l->bytes[i] = (uint8_t)draw(l, 256);
    return (struct pack_span){l->bytes, sizes[draw(l, sizeof sizes / sizeof *sizes)]};
}

/* Rows of scores of the right size, mostly, with tokens that nobody has and numbers that are none;
 * not aligned. */
static struct pack_span scores(struct liar *l, uint64_t n, uint64_t width)
{
    uint64_t size = n * width * sizeof(struct score), most = sizeof l->bytes - 1;
    for (size_t i = 0; i < sizeof l->bytes; i += 1 + draw(l, 9))
        l->bytes[i] = draw(l, 4) ? (uint8_t)draw(l, 256) : 0xFF;
    return draw(l, 8) && size <= most ? (struct pack_span){l->bytes + 1, (size_t)size} : span(l);
}

static struct pack_u32s words(struct liar *l)
{
    for (size_t i = 0; i < ROWS; i++)
        l->words[i] = (uint32_t)number(l);
    return (struct pack_u32s){l->words, draw(l, ROWS)};
}

static struct pack_list held(struct liar *l)
{
    for (size_t i = 0; i < ROWS; i++)
        l->held[i] = (struct message_held_stage){.deployment = likely(l, l->deployment),
                                                 .generation = likely(l, l->generation),
                                                 .stage = draw(l, 4),
                                                 .device = number(l),
                                                 .state = text(l),
                                                 .sequences = number(l),
                                                 .queued_batches = number(l),
                                                 .kv_used_tokens = number(l),
                                                 .kv_tokens = number(l),
                                                 .batches_done = number(l),
                                                 .busy_s = real(l),
                                                 .planned_s = real(l),
                                                 .hop_heard = draw(l, 2),
                                                 .running = draw(l, 2),
                                                 .missing_bytes = number(l)};
    return (struct pack_list){l->held, draw(l, 2) ? 0 : draw(l, ROWS)};
}

static struct pack_list models(struct liar *l)
{
    for (size_t i = 0; i < ROWS; i++)
        l->models[i] = (struct message_model){{l->bytes, draw(l, 40)}, number(l), text(l)};
    return (struct pack_list){l->models, draw(l, ROWS)};
}

static struct pack_list prefill_slices(struct liar *l)
{
    for (size_t i = 0; i < ROWS; i++)
        l->slices[i] = (struct message_prefill_slice){number(l), number(l), number(l),
                                                      number(l), number(l), number(l)};
    return (struct pack_list){l->slices, draw(l, ROWS)};
}

/* Chains that nobody has: names without end, the same again, names that are cut, and those of an
 * order that was not obeyed. */
static struct pack_list chains(struct liar *l)
{
    static const size_t sizes[] = {0, 1, 31, 32, 33, 64, 320, 6400, PAGES * PAGE_BYTES};
    for (size_t i = l->n_heard_bytes; i < sizeof l->pages; i += PAGE_BYTES)
        l->pages[i] = (uint8_t)draw(l, 256), l->pages[i + 1] = (uint8_t)draw(l, 256);
    for (size_t i = 0; i < ROWS; i++) {
        size_t size = sizes[draw(l, sizeof sizes / sizeof *sizes)];
        if (l->n_heard_bytes && draw(l, 2))
            size = (size_t)l->n_heard_bytes;
        l->chains[i] = (struct message_spill){{l->pages, size}, draw(l, 2), !draw(l, 4)};
    }
    return (struct pack_list){l->chains, draw(l, 8) ? draw(l, 4) : draw(l, ROWS)};
}

static struct pack_list said_rows(struct liar *l)
{
    for (size_t i = 0; i < ROWS; i++) {
        struct pack_u32s ids = words(l);
        l->tokens[i] = (struct message_said){likely(l, l->sequence),
                                             draw(l, 3),
                                             ids,
                                             text(l),
                                             draw(l, 8),
                                             scores(l, ids.count, l->said_scores)};
    }
    return (struct pack_list){l->tokens, draw(l, ROWS)};
}

static void say_bytes(struct liar *l, const struct buffer *wire)
{
    zmq_send(l->socket, wire->data, wire->size, ZMQ_DONTWAIT);
    l->said++;
}

static void say(struct liar *l, const struct message *m)
{
    struct buffer wire = {0};
    message_encode(m, &wire);
    for (int i = 0; wire.size && !draw(l, 10) && i < 4; i++)
        wire.data[draw(l, wire.size)] ^= (uint8_t)(1 << draw(l, 8));
    say_bytes(l, &wire);
    buffer_free(&wire);
}

static void join(struct liar *l, const char *name, bool honest)
{
    static const char node[] =
        "{\"name\": \"liar\", \"devices\": [{\"name\": \"cpu\", \"kind\": \"liar\", "
        "\"memory_bytes\": 1000000000}], \"nics\": [{\"name\": \"lo\", "
        "\"bandwidth_bytes_per_s\": 1000000000, \"latency_s\": 0.00003}]}";
    struct message m = {.type = MESSAGE_JOIN};
    m.u.join = (struct message_join){.name = honest ? name : text(l),
                                     .token = honest ? "" : text(l),
                                     .program = text(l),
                                     .process = honest ? 7 : number(l),
                                     .machine = text(l),
                                     .hostname = text(l),
                                     .node = honest ? node : text(l),
                                     .data_address = honest ? l->address : span(l),
                                     .held = honest ? (struct pack_list){0} : held(l),
                                     .models = honest ? (struct pack_list){0} : models(l)};
    say(l, &m);
}

static void heartbeat(struct liar *l)
{
    struct message m = {.type = MESSAGE_HEARTBEAT};
    m.u.heartbeat = (struct message_heartbeat){.number = number(l),
                                               .memory_free_bytes = number(l),
                                               .dropped_stale = number(l),
                                               .data_sent_bytes = number(l),
                                               .held = held(l)};
    say(l, &m);
}

/* Any message that agents have, but joins. */
static void lie(struct liar *l)
{
    struct message m = {.type = (enum message_type)(
                            MESSAGE_HEARTBEAT + draw(l, MESSAGE_LOSSES - MESSAGE_HEARTBEAT + 1)),
                        .id = number(l)};
    uint64_t d = likely(l, l->deployment), g = likely(l, l->generation), s = likely(l, l->sequence);
    switch (m.type) {
    case MESSAGE_HEARTBEAT: heartbeat(l); return;
    case MESSAGE_STAGE_STATE:
        m.u.stage_state = (struct message_stage_state){.deployment = d,
                                                       .generation = g,
                                                       .stage = draw(l, 4),
                                                       .state = text(l),
                                                       .done_bytes = number(l),
                                                       .total_bytes = number(l),
                                                       .moved_bytes = number(l),
                                                       .missing_bytes = number(l),
                                                       .wanted = words(l),
                                                       .code = text(l),
                                                       .text = text(l),
                                                       .hint = text(l)};
        break;
    case MESSAGE_TOKENS: m.u.tokens = (struct message_tokens){d, g, number(l), said_rows(l)}; break;
    case MESSAGE_SEQUENCE_FAILED:
        m.u.sequence_failed = (struct message_sequence_failed){d, g, s, text(l), text(l)};
        break;
    case MESSAGE_LOGITS: {
        uint64_t first = likely(l, draw(l, 4)), n = likely(l, draw(l, l->n_prompt + 1));
        m.u.logits = (struct message_logits){d, g, s, first, n, scores(l, n, l->prompt_scores)};
        break;
    }
    case MESSAGE_PROFILE_RESULT:
        m.u.profile_result =
            (struct message_profile_result){span(l), text(l), text(l), text(l), text(l)};
        break;
    case MESSAGE_STORE_STATE:
        m.u.store_state = (struct message_store_state){models(l), text(l), text(l)};
        break;
    case MESSAGE_LOG_TEXT: m.u.log_text.text = text(l); break;
    case MESSAGE_PREFILL:
        m.u.prefill = (struct message_prefill){
            d, g, s, draw(l, 4), number(l), prefill_slices(l), draw(l, 2) == 0, draw(l, 2) == 0};
        break;
    case MESSAGE_DECODE:
        m.u.decode = (struct message_decode){d, g, s, draw(l, 4), number(l), prefill_slices(l)};
        break;
    case MESSAGE_PROFILE_PROGRESS:
        m.u.profile_progress =
            (struct message_profile_progress){text(l), number(l), real(l), real(l), real(l)};
        break;
    case MESSAGE_LINK_RESULT:
        m.u.link_result = (struct message_link_result){real(l), real(l), text(l), text(l)};
        break;
    case MESSAGE_HOP_STATE:
        m.u.hop_state = (struct message_hop_state){d, g, draw(l, 4), draw(l, 2), real(l)};
        break;
    case MESSAGE_KV_STATE:
        m.u.kv_state =
            (struct message_kv_state){d, g, draw(l, 4), s, text(l), number(l), text(l), text(l)};
        break;
    case MESSAGE_SPILLS:
        m.u.spills = (struct message_spills){d,       g,       draw(l, 4), !draw(l, 8), chains(l),
                                             real(l), real(l), number(l),  number(l),   number(l)};
        break;
    case MESSAGE_LOSSES: {
        struct message_loss row = {span(l), number(l), number(l)};
        m.u.losses.losses = (struct pack_list){&row, 1};
        say(l, &m);
        return;
    }
    default: return;
    }
    say(l, &m);
}

/* Orders are obeyed in words alone. */
static void obey(struct liar *l, const struct message *order)
{
    struct message m = {.id = order->id};
    if (order->type == MESSAGE_STAGE_PREPARE) {
        const struct message_stage_prepare *p = &order->u.stage_prepare;
        l->deployment = p->deployment;
        l->generation = p->generation;
        m.type = MESSAGE_STAGE_STATE;
        m.u.stage_state = (struct message_stage_state){.deployment = p->deployment,
                                                       .generation = p->generation,
                                                       .stage = p->stage,
                                                       .state = "ready"};
    } else if (order->type == MESSAGE_STAGE_CONNECT) {
        m.type = MESSAGE_HOP_STATE;
        m.u.hop_state = (struct message_hop_state){order->u.stage_connect.deployment,
                                                   order->u.stage_connect.generation,
                                                   order->u.stage_connect.stage, true, 0};
    } else if (order->type == MESSAGE_SEQUENCE_OPEN) {
        l->sequence = order->u.sequence_open.sequence;
        l->said_scores = order->u.sequence_open.said_scores;
        l->prompt_scores = order->u.sequence_open.prompt_scores;
        l->n_prompt = order->u.sequence_open.prompt.count;
    } else if (order->type == MESSAGE_LOG_FETCH) {
        m.type = MESSAGE_LOG_TEXT;
        m.u.log_text.text = "info\x1b]0;obey\x07\x1b[2J\xc2\x9b"
                            "1m\ttab\nlast";
    } else if (order->type == MESSAGE_SEQUENCE_SPILL) {
        const struct pack_span *p = &order->u.sequence_spill.pages;
        l->n_heard_bytes =
            (p->size < sizeof l->pages ? p->size : sizeof l->pages) / PAGE_BYTES * PAGE_BYTES;
        memcpy(l->pages, p->data, (size_t)l->n_heard_bytes);
    }
    if (m.type)
        say(l, &m);
}

static void hear(struct liar *l)
{
    zmq_msg_t got;
    zmq_msg_init(&got);
    while (zmq_msg_recv(&got, l->socket, ZMQ_DONTWAIT) >= 0) {
        struct arena arena = {0};
        struct message m;
        l->heard++;
        if (message_decode(zmq_msg_data(&got), zmq_msg_size(&got), &arena, &m, NULL) == 0)
            obey(l, &m);
        arena_free(&arena);
    }
    zmq_msg_close(&got);
}

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void live(struct liar *l, const char *name, uint64_t seconds)
{
    uint64_t until = now_ms() + seconds * 1000, joined = 0;
    while (now_ms() < until) {
        if (now_ms() >= joined + 1000) { /* lies may have had it thrown out */
            join(l, name, true);
            joined = now_ms();
        }
        hear(l);
        for (int i = 0; i < SAYS_AT_ONCE; i++)
            lie(l);
        if (!draw(l, 200))
            join(l, name, false);
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
}

static int connect_to(struct liar *l, void *context, char **argv, const struct key_pair *own)
{
    char server_key[KEY_TEXT], endpoint[300];
    uint8_t key[KEY_BYTES];
    for (int i = 0; i < KEY_BYTES; i++)
        key[i] = (uint8_t)strtoul((char[3]){argv[2][2 * i], argv[2][2 * i + 1], 0}, NULL, 16);
    key_encode(key, server_key);
    int linger = 0;
    l->socket = zmq_socket(context, ZMQ_DEALER);
    zmq_setsockopt(l->socket, ZMQ_CURVE_SERVERKEY, server_key, KEY_TEXT - 1);
    zmq_setsockopt(l->socket, ZMQ_CURVE_PUBLICKEY, own->public_key, KEY_TEXT - 1);
    zmq_setsockopt(l->socket, ZMQ_CURVE_SECRETKEY, own->secret_key, KEY_TEXT - 1);
    zmq_setsockopt(l->socket, ZMQ_LINGER, &linger, sizeof linger);
    snprintf(endpoint, sizeof endpoint, "tcp://%s", argv[1]);
    return zmq_connect(l->socket, endpoint);
}

int main(int argc, char **argv)
{
    static struct liar l = {.deployment = 1, .generation = 1, .sequence = (uint64_t)1 << 32 | 1};
    struct err e = {0};
    struct key_pair own;
    if (argc != 7 || strlen(argv[2]) != 2 * KEY_BYTES) {
        fprintf(stderr, "usage: liar HOST:PORT SERVER_KEY_HEX KEY_FILE NAME SECONDS SEED\n");
        return 2;
    }
    if (key_pair_load(argv[3], &own, &e) < 0) {
        fprintf(stderr, "liar: %s\n", e.text);
        return 1;
    }
    l.random = strtoull(argv[6], NULL, 10) | 1;
    memset(l.long_text, 'x', sizeof l.long_text - 1);
    static char address[DATA_ADDRESS_TEXT];
    struct data_address a = {.kind = DATA_KIND_UCX, .host = "127.0.0.1", .port = 9};
    if (key_decode(own.public_key, a.key, &e) < 0)
        return 1;
    l.address = (struct pack_span){(uint8_t *)address, data_address_print(&a, address)};
    void *context = zmq_ctx_new();
    if (connect_to(&l, context, argv, &own) != 0) {
        fprintf(stderr, "liar: %s\n", zmq_strerror(zmq_errno()));
        return 1;
    }
    live(&l, argv[4], strtoull(argv[5], NULL, 10));
    printf("%lu said, %lu heard\n", l.said, l.heard);
    zmq_close(l.socket);
    zmq_ctx_term(context);
    return 0;
}
