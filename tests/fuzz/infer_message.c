/* Messages of KServe v2 over gRPC: any bytes from a client. What is read is written as an answer,
 * which is protobuf again. */
#include "coordinator/gateway/infer_message.h"

#include <stdlib.h>

#include "model/files/protobuf.h"

static const struct infer_tensor inputs[] = {
    {"x", ND_F32, 2, {-1, 2}}, {"ids", ND_I64, 1, {2}}, {"any", 0, -1, {0}}};
static const struct infer_tensor outputs[] = {
    {"x", ND_F32, 2, {-1, 2}}, {"ids", ND_I64, 1, {2}}, {"any", 0, -1, {0}}};
static const struct infer_model models[] = {{"m", inputs, outputs, 2, 2, 4096, false},
                                            {"m", inputs, outputs, 3, 3, 1 << 20, false}};

static void answer_check(const struct infer_model *m, const struct infer_request *r)
{
    struct buffer out = {0};
    struct pb_field f;
    infer_message_write(m, r, r->inputs, &out);
    struct pb p = pb_of(out.data, out.size);
    int raw = 0;
    while (pb_next(&p, &f))
        raw += f.number == 6;
    if (p.failed || raw != r->n_outputs)
        abort();
    buffer_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int i = 0; i < 2; i++) {
        struct infer_message_head head;
        struct infer_request r;
        struct buffer message = {0};
        struct err e = {0}, why = {0};
        buffer_append(&message, data, size);
        if (infer_message_head(&message, &head, &e) < 0 && !e.text[0])
            abort();
        if (infer_message_read(&models[i], &message, &r, &why) == 0)
            answer_check(&models[i], &r);
        else if (!why.text[0])
            abort();
        infer_request_free(&r);
    }
    return 0;
}
