/* Bodies of completion requests: any bytes from a client. */
#include "coordinator/gateway/openai.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int chat = 0; chat < 2; chat++) {
        struct openai_body *b = NULL;
        const char *param;
        struct err e;
        if (openai_body_parse((const char *)data, size, chat, &b, &param, &e) == 0)
            openai_body_destroy(&b);
    }
    return 0;
}
