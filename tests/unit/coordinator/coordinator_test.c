/* The shell on a real loop and real sockets of 127.0.0.1. */
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/env.h"
#include "common/json.h"
#include "common/log.h"
#include "common/manifest.h"
#include "coordinator/coordinator.h"
#include "coordinator/model_heads.h"
#include "coordinator/profile_check.h"
#include "model/manifest_build.h"
#include "tests/test.h"
#include "transport/control.h"
#include "transport/message.h"

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    log_set_level(LOG_ERROR);
    snprintf(folder, sizeof folder, "/tmp/hp-coordinator-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static int remove_folder(void **state)
{
    (void)state;
    return nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- somebody who asks ---- */

struct asker {
    uv_loop_t *loop;
    struct control *control;
    char text[4096];
    enum message_type type; /* of the answer; 0: none yet */
};

static void on_answer(void *ctx, uint64_t peer, const char *key, const uint8_t *bytes, size_t size)
{
    (void)peer, (void)key;
    struct asker *a = ctx;
    struct arena arena = {0};
    struct message m;
    struct err e = {0};
    assert_int_equal(message_decode(bytes, size, &arena, &m, &e), 0);
    a->type = m.type;
    snprintf(a->text, sizeof a->text, "%s",
             m.type == MESSAGE_ANSWER ? m.u.answer.result : m.u.refused.text);
    arena_free(&arena);
    uv_stop(a->loop);
}

static void on_late(uv_timer_t *t)
{
    uv_stop(t->loop);
}

/* Runs the loop until there is an answer; fails after ten seconds. */
static void ask(uv_loop_t *loop, const struct coordinator *c, const char *key_file,
                const char *verb, struct asker *a)
{
    struct err e = {0};
    struct key_pair own;
    *a = (struct asker){.loop = loop};
    struct control_callbacks cb = {.ctx = a, .message = on_answer};
    assert_int_equal(key_file ? key_pair_load(key_file, &own, &e) : key_pair_create(&own, &e), 0);
    assert_int_equal(control_connect_zmq(loop, coordinator_control_address(c),
                                         coordinator_public_key(c), &own, &cb, &a->control, &e),
                     0);
    struct message m = {.type = MESSAGE_ASK, .id = 1};
    m.u.ask.verb = verb;
    m.u.ask.arguments = "{}";
    struct buffer bytes = {0};
    message_encode(&m, &bytes);
    assert_int_equal(control_send(a->control, 0, bytes.data, bytes.size, &e), 0);
    buffer_free(&bytes);
    uv_timer_t late;
    uv_timer_init(loop, &late);
    uv_timer_start(&late, on_late, (uint64_t)(10000 * env_time_scale()), 0);
    uv_run(loop, UV_RUN_DEFAULT);
    uv_close((uv_handle_t *)&late, NULL);
    control_close(&a->control);
    uv_run(loop, UV_RUN_NOWAIT);
    assert_int_not_equal(a->type, 0);
}

static struct coordinator *start(uv_loop_t *loop)
{
    struct coordinator_config config = {
        .dir = folder, .listen = "127.0.0.1:0", .http = "127.0.0.1:0", .name = "test"};
    struct coordinator *c = NULL;
    struct err e = {0};
    uv_loop_init(loop);
    if (coordinator_open(loop, &config, &c, &e) < 0)
        fail_msg("%s", e.text);
    return c;
}

static void stop(uv_loop_t *loop, struct coordinator **c)
{
    coordinator_close(c);
    uv_run(loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(loop), 0);
}

/* ---- claims ---- */

TEST(the_admin_key_opens_and_another_does_not)
{
    uv_loop_t loop;
    struct asker a;
    char key[96];
    struct coordinator *c = start(&loop);
    snprintf(key, sizeof key, "%s/admin.key", folder);
    ask(&loop, c, key, "version", &a);
    assert_int_equal(a.type, MESSAGE_ANSWER);
    assert_non_null(strstr(a.text, "\"cluster\":\"test\""));
    ask(&loop, c, NULL, "version", &a);
    assert_int_equal(a.type, MESSAGE_REFUSED);
    assert_non_null(strstr(a.text, "is not known here"));
    ask(&loop, c, key, "logs", &a); /* without a node */
    stop(&loop, &c);
}

TEST(it_says_where_it_listens_and_counts_its_starts)
{
    uv_loop_t loop;
    struct asker a;
    struct err e = {0};
    char file[96], key[96];
    snprintf(file, sizeof file, "%s/coordinator.json", folder);
    snprintf(key, sizeof key, "%s/admin.key", folder);
    unsigned long long boot = 0;
    for (int i = 0; i < 2; i++) {
        struct coordinator *c = start(&loop);
        json_t *root;
        struct json_at at;
        assert_int_equal(json_load_at(file, &root, &at, &e), 0);
        assert_string_equal(json_string_value(json_object_get(root, "control")),
                            coordinator_control_address(c));
        assert_string_equal(json_string_value(json_object_get(root, "http")),
                            coordinator_http_address(c));
        assert_int_equal(json_integer_value(json_object_get(root, "pid")), getpid());
        json_decref(root);
        ask(&loop, c, key, "version", &a);
        const char *told = strstr(a.text, "\"boot\":");
        assert_non_null(told);
        unsigned long long number = strtoull(told + strlen("\"boot\":"), NULL, 10);
        assert_true(number > boot);
        boot = number;
        stop(&loop, &c);
    }
}

TEST(what_is_in_its_way_is_said_plainly)
{
    uv_loop_t loop, second_loop;
    struct err e = {0};
    char other[96];
    struct coordinator *c = start(&loop), *second = NULL;
    uv_loop_init(&second_loop);
    struct coordinator_config config = {
        .dir = folder, .listen = "127.0.0.1:0", .http = "none", .name = "test"};
    assert_int_equal(coordinator_open(&second_loop, &config, &second, &e), HP_EBUSY);
    assert_non_null(strstr(e.text, "in use"));
    snprintf(other, sizeof other, "%s/other", folder);
    config = (struct coordinator_config){
        .dir = other, .listen = coordinator_control_address(c), .http = "none", .name = "test"};
    assert_int_equal(coordinator_open(&second_loop, &config, &second, &e), HP_EIO);
    assert_non_null(strstr(e.text, coordinator_control_address(c)));
    config = (struct coordinator_config){
        .dir = other, .listen = "127.0.0.1:0", .http = coordinator_http_address(c), .name = "test"};
    assert_true(coordinator_open(&second_loop, &config, &second, &e) < 0);
    assert_non_null(strstr(e.text, strrchr(coordinator_http_address(c), ':') + 1));
    assert_null(second);
    uv_run(&second_loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&second_loop), 0);
    stop(&loop, &c);
}

TEST(the_api_stays_closed_beyond_loopback_without_keys)
{
    uv_loop_t loop;
    struct err e = {0};
    struct coordinator *c = NULL;
    struct coordinator_config config = {
        .dir = folder, .listen = "127.0.0.1:0", .http = "0.0.0.0:0", .name = "test"};
    uv_loop_init(&loop);
    assert_int_equal(coordinator_open(&loop, &config, &c, &e), 0);
    assert_string_equal(coordinator_http_address(c), "");
    stop(&loop, &c);
}

TEST(heads_open_like_the_model_itself)
{
    static const char path[] = "examples/demo-model/demo-q8_0.gguf";
    struct model *model = NULL, *copy = NULL;
    struct model_facts facts;
    struct arena arena = {0};
    struct buffer manifest = {0}, text = {0};
    struct err e = {0};
    char made[160];
    struct stat st;
    if (model_open(path, &model, &e) < 0 ||
        manifest_build(model, NULL, NULL, NULL, &manifest, &e) < 0 ||
        model_heads_open(&(struct model_heads_order){folder, "id", manifest.data, manifest.size, 1},
                         &arena, &copy, &facts, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(facts.n_layers, model_graph(model)->n_layers);
    assert_int_equal(facts.vocabulary, (unsigned)model_config(model)->vocabulary);
    assert_true(facts.n_end_ids > 0);
    assert_true(facts.layers[1].elements * 8 > facts.layers[1].param_bytes * 7 / 2);
    /* What nobody measured is guessed by its format: blocks of eight bits stay what they are. */
    for (int f32 = 0; f32 < 2; f32++)
        for (int i = 1; i < facts.n_layers; i++) {
            double bytes = profile_guessed_bytes(&facts.layers[i], f32),
                   own = (double)facts.layers[i].param_bytes;
            assert_true(bytes >= own && bytes < 1.01 * own + 4096);
        }
    static const uint32_t ids[] = {5, 6, 7};
    assert_int_equal(facts.text(facts.text_ctx, ids, 3, &text), 0);
    /* As long as the original, and hardly any of it on the disk. */
    snprintf(made, sizeof made, "%s/id/files/demo-q8_0.gguf", folder);
    assert_int_equal(stat(made, &st), 0);
    int count;
    assert_int_equal(st.st_size, model_files(model, &count)[0].bytes);
    assert_true(st.st_blocks * 512 < st.st_size / 2);
    /* Opened again, nothing is written: a full disk does not keep a model from opening. */
    struct timespec written = st.st_mtim;
    model_close(&copy);
    const struct model_heads_order again = {folder, "id", manifest.data, manifest.size, 1};
    assert_int_equal(model_heads_open(&again, &arena, &copy, &facts, &e), 0);
    assert_int_equal(stat(made, &st), 0);
    assert_memory_equal(&st.st_mtim, &written, sizeof written);
    model_close(&copy);
    model_close(&model);
    model_heads_remove(folder, "id");
    assert_int_equal(stat(made, &st), -1);
    arena_free(&arena);
    buffer_free(&manifest);
    buffer_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_admin_key_opens_and_another_does_not, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(it_says_where_it_listens_and_counts_its_starts, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(what_is_in_its_way_is_said_plainly, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(the_api_stays_closed_beyond_loopback_without_keys,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(heads_open_like_the_model_itself, make_folder,
                                        remove_folder),
    };
    return cmocka_run_group_tests_name("coordinator", tests, NULL, NULL);
}
