/* Bodies of the KServe v2 protocol: any bytes from a client. The first byte says how much of the
 * rest is JSON. What is read is written as an answer, whose JSON is some. */
#include "coordinator/gateway/infer.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const struct infer_tensor inputs[] = {
    {"x", ND_F32, 2, {-1, 2}}, {"ids", ND_I64, 1, {2}}, {"any", 0, -1, {0}}};
static const struct infer_tensor outputs[] = {
    {"x", ND_F32, 2, {-1, 2}}, {"ids", ND_I64, 1, {2}}, {"any", 0, -1, {0}}};
static const struct infer_model models[] = {{"m", inputs, outputs, 2, 2, 4096, false},
                                            {"m", inputs, outputs, 3, 3, 1 << 20, false}};

static void answer_check(const struct infer_model *m, const struct infer_request *r)
{
    struct buffer out = {0};
    size_t n = infer_answer_write(m, r, r->inputs, &out);
    json_t *told = json_loadb((const char *)out.data, n, JSON_REJECT_DUPLICATES, NULL);
    if (!told || n > out.size)
        abort();
    json_decref(told);
    buffer_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    for (int i = 0; i < 2; i++) {
        size_t json_bytes = data[0] ? (size_t)data[0] * 4 : SIZE_MAX;
        const uint8_t *brace = json_bytes == 1020 ? memrchr(data + 1, '}', size - 1) : NULL;
        struct infer_request r;
        struct buffer body = {0};
        struct err e = {0};
        buffer_append(&body, data + 1, size - 1);
        if (brace)
            json_bytes = (size_t)(brace - data);
        if (infer_request_read(&models[i], &body, json_bytes, &r, &e) == 0)
            answer_check(&models[i], &r);
        else if (!e.text[0])
            abort();
        infer_request_free(&r);
    }
    return 0;
}
