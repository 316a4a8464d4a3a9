/* Requests to pools: how many there may be at once. */
#include "coordinator/gateway/pool_infer.h"
#include "tests/test.h"

static const struct infer_tensor tensor = {"x", ND_F32, 1, {-1}};
static const struct infer_model model = {"m", &tensor, &tensor, 1, 1, 1000, true};

/* Bodies that are never looked at. */
static int body_read(const struct infer_model *m, struct buffer *body, size_t json_bytes,
                     struct infer_request *out, struct err *e)
{
    (void)m, (void)body, (void)json_bytes, (void)out;
    return err_set(e, HP_EINVAL, "it was read");
}

static void on_fail(void *caller, const struct err *why, uint32_t retry_after_s)
{
    int *code = caller;
    (void)retry_after_s;
    *code = why->code;
}

static const struct pool_infer_caller caller = {.read = body_read, .fail = on_fail};

static struct pool_infer *ask(struct pool_infer_desk *desk, size_t body_bytes, int *code)
{
    struct buffer body = {0};
    *code = 0;
    buffer_append(&body, "{", 1);
    body.size = body_bytes; /* none of it is looked at */
    return pool_infer_open(desk, &caller, code, &model, "", &body, SIZE_MAX, INT64_MAX);
}

TEST(so_many_requests_and_bytes_of_bodies_may_be_under_way)
{
    static const struct {
        int open;
        uint64_t bytes;
        size_t body;
        bool fits;
    } cases[] = {{0, 0, 1, true},
                 {POOL_INFER_MOST - 1, 1, 1, true},
                 {POOL_INFER_MOST, 1, 1, false},
                 {1, POOL_INFER_BYTES - 1, 1, true},
                 {1, POOL_INFER_BYTES, 1, false},
                 {1, 1, POOL_INFER_BYTES, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pool_infer_desk desk = {.open = cases[i].open, .bytes = cases[i].bytes};
        int code;
        struct pool_infer *p = ask(&desk, cases[i].body, &code);
        assert_int_equal(code, cases[i].fits ? 0 : HP_EBUSY);
        assert_true((p != NULL) == cases[i].fits);
        assert_int_equal(desk.open, cases[i].open + cases[i].fits);
        if (!p)
            continue;
        pool_infer_run(p);
        assert_int_equal(code, HP_EINVAL);
        assert_true(desk.open == cases[i].open && desk.bytes == cases[i].bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(so_many_requests_and_bytes_of_bodies_may_be_under_way)};
    return cmocka_run_group_tests_name("pool_infer", tests, NULL, NULL);
}
