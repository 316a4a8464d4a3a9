/* Messages of gRPC with failing allocations. */
#include <string.h>

#include "coordinator/gateway/infer_message.h"
#include "coordinator/gateway/protobuf_write.h"
#include "tests/unit/faults.h"

static const struct infer_tensor tensors[] = {{"x", ND_F32, 2, {-1, 2}}};
static const struct infer_model model = {"m", tensors, tensors, 1, 1, 1024, false};

/* The message is read, answered, and the model told of; nothing is half done. */
static int message_answered(void *ctx)
{
    struct buffer message = {0}, t = {0}, contents = {0}, out = {0};
    struct infer_request r = {0};
    struct err e = {0};
    const float x[2] = {1, 2};
    (void)ctx;
    pb_put_bytes(&contents, 6, x, sizeof x);
    pb_put_text(&t, 1, "x");
    pb_put_text(&t, 2, "FP32");
    pb_put_numbers(&t, 3, (int64_t[]){1, 2}, 2);
    pb_put_message(&t, 5, &contents);
    pb_put_message(&message, 5, &t);
    if (message.failed) {
        buffer_free(&message);
        return HP_ENOMEM;
    }
    int rc = infer_message_read(&model, &message, &r, &e);
    if (rc == 0) {
        infer_message_write(&model, &r, r.inputs, &out);
        infer_message_metadata(&model, &out);
        infer_message_config(&model, &out);
        rc = out.failed ? HP_ENOMEM : 0;
    }
    infer_request_free(&r);
    buffer_free(&out);
    return rc;
}

TEST(messages_are_whole_or_refused_for_want_of_memory)
{
    faults_each("messages of gRPC", message_answered, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_whole_or_refused_for_want_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
