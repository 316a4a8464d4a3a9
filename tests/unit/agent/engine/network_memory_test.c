/* What the networks of a device hold together: counted against its limit, and once where several
 * have it alike. */
#include <string.h>
#include <unistd.h>

#include "agent/engine/network/network_memory.h"
#include "agent/engine/network/network_part.h"
#include "model/text_network.h"
#include "tests/unit/agent/engine/small_network.h"
#include "tests/unit/model/tiny_gguf.h"

enum { TOKENS = 8, BLOCKS = 4 };

struct memory_scene {
    struct device *device;
    struct network_memory *memory;
    struct err e;
};

static void scene_open(struct memory_scene *s, uint64_t limit_bytes)
{
    const struct device_config c = {.backend = "cpu", .memory_bytes = limit_bytes};
    *s = (struct memory_scene){0};
    assert_int_equal(device_open(&c, &s->device, &s->e), 0);
    assert_int_equal(network_memory_create(s->device, &s->memory, &s->e), 0);
}

static uint64_t scene_free(const struct memory_scene *s)
{
    return s->device->backend->memory_free(s->device);
}

static void scene_close(struct memory_scene *s)
{
    assert_int_equal(network_memory_bytes(s->memory), 0);
    network_memory_destroy(&s->memory);
    device_close(&s->device);
}

/* ---- the account ---- */

static int made, freed;

static int thing_make(void *ctx, void **out, struct err *e)
{
    if (!ctx)
        return err_set(e, HP_EDEVICE, "it cannot be made");
    made++;
    *out = ctx;
    return 0;
}

static void thing_free(void *ctx, void *thing)
{
    assert_ptr_equal(ctx, thing);
    freed++;
}

TEST(what_networks_of_one_file_have_alike_is_made_once_and_goes_with_the_last)
{
    struct memory_scene s;
    int thing = 0;
    void *out[3];
    scene_open(&s, 1000);
    const struct network_account own = {s.memory, 1}, other = {s.memory, 2};
    const struct network_alike key = {42, 100};
    made = freed = 0;
    assert_int_equal(network_memory_hold(&own, &key, 100, "it", thing_make, NULL, &out[0], &s.e),
                     HP_EDEVICE);
    assert_int_equal(scene_free(&s), 1000);
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            network_memory_hold(&own, &key, 100, "it", thing_make, &thing, &out[i], &s.e), 0);
    assert_int_equal(made, 1);
    assert_int_equal(scene_free(&s), 900);
    assert_int_equal(
        network_memory_hold(&other, &key, 100, "it", thing_make, &thing, &out[2], &s.e), 0);
    assert_int_equal(made, 2);
    assert_int_equal(scene_free(&s), 800);
    network_memory_drop(&own, &key, thing_free, &thing, out[0]);
    assert_int_equal(freed, 0);
    network_memory_drop(&own, &key, thing_free, &thing, out[1]);
    network_memory_drop(&other, &key, thing_free, &thing, out[2]);
    assert_int_equal(freed, 2);
    assert_int_equal(scene_free(&s), 1000);
    scene_close(&s);
}

TEST(what_is_beyond_the_devices_limit_is_refused_with_the_bytes_that_are_missing)
{
    struct memory_scene s;
    scene_open(&s, 1000);
    const struct network_account a = {s.memory, 1}, b = {s.memory, 2}, nobody = {NULL, 1};
    assert_int_equal(network_memory_take(&a, 600, "values", &s.e), 0);
    assert_int_equal(network_memory_take(&b, 600, "values of batches", &s.e), HP_ENOMEM);
    assert_string_equal(s.e.text, "values of batches needs 600 bytes, and 400 of the limit of 1000 "
                                  "are left: 200 bytes are missing");
    assert_int_equal(network_memory_take(&nobody, 600, "values", &s.e), 0);
    network_memory_give(&nobody, 600);
    network_memory_give(&a, 600);
    assert_int_equal(network_memory_take(&b, 600, "values", &s.e), 0);
    network_memory_give(&b, 600);
    scene_close(&s);
}

/* ---- shares ---- */

static int part_open(struct onnx_network **n, const struct network_dim *dims, int first, int end,
                     const struct network_account *a, struct network_part **out, struct err *e)
{
    const struct network_part_ask ask = {.dims = dims,
                                         .n_dims = 1,
                                         .n_blocks = BLOCKS,
                                         .first_block = first,
                                         .end_block = end,
                                         .batch = 2,
                                         .account = a};
    return network_part_open(n, &ask, out, e);
}

static int text_part_open(const char *path, int first, int end, const struct network_account *a,
                          struct network_part **out, struct err *e)
{
    static const struct network_dim tokens[] = {{"tokens", TOKENS}};
    struct onnx_network *n = NULL;
    int rc = text_network_open(path, UINT32_MAX, &n, e);
    return rc < 0 ? rc : part_open(&n, tokens, first, end, a, out, e);
}

/* Mapped weights lie there once for all who map them; values are everybody's own. */
TEST(shares_of_one_language_model_count_its_weights_once_and_no_share_goes_beyond_all_others)
{
    const char *path = tiny_llama_write(DTYPE_F16);
    struct memory_scene s;
    struct network_part *parts[3] = {NULL};
    struct err e = {0};
    scene_open(&s, 1 << 30);
    const struct network_account own = {s.memory, 1}, other = {s.memory, 2};
    uint64_t used[4] = {0};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(text_part_open(path, 0, BLOCKS, i < 2 ? &own : &other, &parts[i], &e), 0);
        used[i + 1] = network_memory_bytes(s.memory);
    }
    uint64_t values = used[2] - used[1], weights = used[1] - values;
    assert_true(values > 0 && weights > values);
    assert_int_equal(used[3] - used[2], used[1]); /* of another file */
    for (int i = 0; i < 3; i++)
        network_part_close(&parts[i]);
    scene_close(&s);
    /* What holds one, and values of a second, refuses one of another file, whole. */
    scene_open(&s, used[2] + values);
    const struct network_account first = {s.memory, 1}, second = {s.memory, 2};
    assert_int_equal(text_part_open(path, 0, BLOCKS, &first, &parts[0], &e), 0);
    assert_int_equal(text_part_open(path, 0, BLOCKS, &second, &parts[1], &e), HP_ENOMEM);
    if (!strstr(e.text, "bytes are missing"))
        fail_msg("%s", e.text);
    assert_int_equal(network_memory_bytes(s.memory), used[1]);
    assert_int_equal(text_part_open(path, 0, BLOCKS, &first, &parts[1], &e), 0);
    network_part_close(&parts[0]);
    network_part_close(&parts[1]);
    scene_close(&s);
    unlink(path);
}

TEST(shares_of_one_network_have_packed_weights_once_and_the_last_lets_go_of_them)
{
    static const struct network_dim side[] = {{"", 24}};
    struct buffer file = small_network_file();
    struct memory_scene s;
    struct network_part *parts[2] = {NULL};
    struct err e = {0};
    scene_open(&s, 1 << 30);
    const struct network_account own = {s.memory, 1};
    uint64_t used[3] = {0};
    for (int i = 0; i < 2; i++) {
        struct onnx_network *n = network_of(&file, UINT32_MAX);
        assert_int_equal(part_open(&n, side, 0, BLOCKS, &own, &parts[i], &e), 0);
        used[i + 1] = network_memory_bytes(s.memory);
    }
    assert_true(used[2] - used[1] < used[1]);
    network_part_close(&parts[0]);
    assert_int_equal(network_memory_bytes(s.memory), used[1]);
    assert_int_equal(network_part_warm(parts[1], 2, &e), 0);
    network_part_close(&parts[1]);
    scene_close(&s);
    buffer_free(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_networks_of_one_file_have_alike_is_made_once_and_goes_with_the_last),
        cmocka_unit_test(
            what_is_beyond_the_devices_limit_is_refused_with_the_bytes_that_are_missing),
        cmocka_unit_test(
            shares_of_one_language_model_count_its_weights_once_and_no_share_goes_beyond_all_others),
        cmocka_unit_test(
            shares_of_one_network_have_packed_weights_once_and_the_last_lets_go_of_them),
    };
    return cmocka_run_group_tests_name("network_memory", tests, NULL, NULL);
}
